"""Lets this host's agent compile a scenario without running it: patterns, paths and selectors that only the agent
can refuse are known before anything is measured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadline.errors import PlanError

if TYPE_CHECKING:
    from leadline.scenario.lowering import LoweredScenario

_PLACED = re.compile(r"(.+?):(\d+): (.+)")


def check_scenario(lowered: LoweredScenario, file: str) -> None:
    """Raise PlanError for the parts that the agent refuses, each with file and line.

    Raises:
        MissingBinary: there is no agent here.
        AgentLost: it did not answer.
    """
    from leadline.agents.refusal import refusal
    from leadline.contract.models import HttpRoute, HttpTimeouts, ScenarioPlan, ScenarioWorkload, SocketOptions

    workload = ScenarioWorkload(
        plan=ScenarioPlan.model_validate(lowered.plan),
        seed=1,
        threads=1,
        cpus=[],
        duration_ms=1,
        warmup_ms=0,
        connections_per_user=1,
        connections=1,
        timeouts=HttpTimeouts(connect_ms=1, response_ms=1),
        route=HttpRoute(bind=[], resolve=[], dns="run"),
        socket=SocketOptions(delay=False, fast_open=False),
        interval_ms=1000,
    )
    error = refusal(workload)
    if error is None or error.code != "bad_scenario":
        return
    first, *others = (_placed(line, file) for line in error.message.splitlines())
    first.others = tuple(others)
    raise first


def _placed(line: str, file: str) -> PlanError:
    """A refused part: its place and why."""
    found = _PLACED.fullmatch(line)
    return PlanError(file, None, line) if found is None else PlanError(found[1], int(found[2]), found[3])
