"""The case of a plan that the others are compared with: `baseline`, by a case's name or by values of axes. Pure.

Values of axes may fit several cases, one for each value of the other axes. Each case is then compared with the one that
has its values of those. `previous` stands for the case before each one: a series of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leadline.errors import PlanError
from leadline.plan.model import Case
from leadline.plan.order import axis_texts
from leadline.plan.source import Node, did_you_mean

_SYSTEM = "sut"
PREVIOUS = "previous"
"""The baseline of a series of steps: each case is compared with the one before it."""


def with_baselines(node: Node | None, cases: Sequence[Case]) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """The cases, each with the one that it is compared with, and notes on cases that have none.

    Raises:
        PlanError: no case fits, or several fit one case.
    """
    if node is None:
        return tuple(cases), ()
    if node.value == PREVIOUS:
        before = [None, *(case.id for case in cases)]
        return tuple(replace(case, baseline=one) for case, one in zip(cases, before, strict=False)), ()
    wanted = _wanted(node, cases)
    fitting = [case for case in cases if all(value in axis_texts(case, axis) for axis, (value, _) in wanted.items())]
    if isinstance(node.value, str):
        named = [case for case in cases if node.value.strip() in (case.id, case.title)]
        fitting = named or (fitting if wanted else [])
    if not fitting:
        raise node.mark.error(f"baseline: no case is {_written(node)}", hint=_offered(cases))
    known = {case.id: _baseline_of(case, fitting, wanted, node) for case in cases}
    notes = [
        f"{case.id} ({case.title}) has no baseline: {' and '.join(one.id for one in fitting)} differ from it in more"
        for case in cases
        if known[case.id] is None and case not in fitting
    ]
    return tuple(replace(case, baseline=known[case.id]) for case in cases), tuple(notes)


def _baseline_of(case: Case, fitting: Sequence[Case], wanted: Mapping[str, Any], node: Node) -> str | None:
    """The id of the case that this one is compared with; None for a baseline itself, and if none is like it."""
    if case in fitting:
        return None
    if len(fitting) == 1:
        return fitting[0].id
    alike = [one for one in fitting if _others(one, wanted).items() <= case.labels.items()]
    if len(alike) > 1:
        raise node.mark.error(
            f"baseline: {' and '.join(one.id for one in alike)} both fit {case.id} ({case.title})",
            hint="name more axes, or one case",
        )
    return alike[0].id if alike else None


def _others(case: Case, wanted: Mapping[str, Any]) -> dict[str, str]:
    """The labels of axes that the baseline does not name; a system's parameters belong to its axis."""
    own_system = any(axis.partition(".")[0] == _SYSTEM for axis in wanted)
    return {
        axis: label
        for axis, label in case.labels.items()
        if axis not in wanted and not (own_system and axis.partition(".")[0] == _SYSTEM)
    }


def _wanted(node: Node, cases: Sequence[Case]) -> dict[str, tuple[str, Node]]:
    """The axes with their values, as text.

    Raises:
        PlanError: an axis or a value that no case has.
    """
    found = {axis: (_text(entry.value), entry) for axis, entry in node.mapping.items()}
    if isinstance(node.value, str) and "=" in node.value:
        parts = [part.partition("=") for part in node.value.replace(",", " ").split()]
        found = {axis.strip(): (value.strip(), node) for axis, _, value in parts}
    if isinstance(node.value, str) and node.value.strip() in {case.title for case in cases}:
        return {}
    for axis, (value, entry) in found.items():
        known = list(dict.fromkeys(text for case in cases for text in axis_texts(case, axis)))
        if not known:
            raise _unknown_axis(axis, entry, cases)
        if value not in known:
            raise entry.mark.error(f"baseline: no case has {axis} {value!r}", hint=f"there is {', '.join(known)}")
    return found


def _unknown_axis(axis: str, entry: Node, cases: Sequence[Case]) -> PlanError:
    axes = list(dict.fromkeys(name for case in cases for name in case.labels)) or [_SYSTEM, "clients"]
    return entry.mark.error(f"baseline: no case has an axis '{axis}'", hint=did_you_mean(axis, axes))


def _text(value: Any) -> str:
    """A value as the labels of cases have it; a mapping is called by its kind."""
    if isinstance(value, dict):
        kind = value.get("kind")
        return str(kind.value) if isinstance(kind, Node) else ""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _written(node: Node) -> str:
    if node.mapping:
        return " ".join(f"{axis}={_text(entry.value)}" for axis, entry in node.mapping.items())
    return repr(node.value)


def _offered(cases: Sequence[Case]) -> str:
    shown = ", ".join(f"{case.id} ({case.title})" for case in cases[:6])
    return f"there is {shown}{', ...' if len(cases) > 6 else ''}"
