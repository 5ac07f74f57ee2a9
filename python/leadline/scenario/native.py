"""Reads a scenario in the native format: text to a tree, the tree to a checked model, with every error's file and line.

Trees of converted files are checked by the same function. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from leadline.errors import PlanError
from leadline.plan.field_types import validate_input
from leadline.plan.problems import Problems
from leadline.plan.source import Node, parse_plan_text, plain
from leadline.plan.validation_errors import plan_errors
from leadline.scenario.model import Scenario


@dataclass(frozen=True, slots=True)
class ReadScenario:
    """A scenario and the tree that it was read from."""

    scenario: Scenario
    root: Node


def read_native(text: str, file: str) -> ReadScenario:
    """The scenario of a YAML text.

    Raises:
        PlanError: all of its mistakes, each with its line.
    """
    problems = Problems()
    root = parse_plan_text(text, file, problems, "scenario")
    if {"tests", "sut"} & root.mapping.keys() and not {"flow", "groups"} & root.mapping.keys():
        raise PlanError(file, None, "this is a plan, not a scenario", hint=f"run it by `leadline run {file}`")
    problems.raise_any()
    return checked(root)


def checked(root: Node) -> ReadScenario:
    """The scenario of a tree.

    Raises:
        PlanError: all of its mistakes, each with its line.
    """
    problems = Problems()
    try:
        scenario: Any = validate_input(Scenario, plain(root))
    except ValidationError as error:
        problems.add(plan_errors(error, Scenario, root))
        problems.raise_any()
        raise AssertionError("a validation error has a message") from error
    except RecursionError:
        raise root.mark.error("nested too deeply for a scenario") from None
    return ReadScenario(scenario, root)
