"""Selects the cases to run, and orders their trials. Pure; a seed gives the same order with every Python version."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from leadline.errors import InputError
from leadline.plan.model import Case, Plan, Trial
from leadline.plan.source import did_you_mean


def expand(plan: Plan) -> list[Case]:
    """The cases of a plan, in the order of its matrix."""
    return list(plan.cases)


def schedule(cases: Sequence[Case], repeat: int, seed: int) -> list[Trial]:
    """Order the trials as randomised multiple interleaved trials: each repeat is a round of all cases in its own
    order.

    A slow drift of the machine thus affects all cases equally (Abedi and Brecht, "Conducting repeatable experiments
    in highly variable cloud computing environments", ICPE 2017). A case's position is a hash of seed, round and id:
    there is no random generator, and cases that `select` leaves out do not change the order of the others.
    """
    return [trial for number in range(1, repeat + 1) for trial in one_round(cases, number, seed)]


def one_round(cases: Sequence[Case], number: int, seed: int) -> list[Trial]:
    """One round of these cases, in its own order."""
    return [Trial(case, number) for case in sorted(cases, key=lambda case: _rank(seed, number, case.id))]


def select(cases: Sequence[Case], patterns: Sequence[str]) -> list[Case]:
    """The cases, and of them the tests, that match the `--only` patterns; all without a pattern.

    A pattern is a case's id, a test's name or `axis=value`; `*` and `?` match as in file names. Patterns for the same
    axis, for ids, or for tests are alternatives; different kinds of patterns must all match. Besides axes, `clients`,
    `topology`, `sut` (its kind) and `sut.KEY` can be matched.

    Raises:
        InputError: a pattern that matches nothing, or a combination that matches nothing.
    """
    chosen = list(cases)
    by_axis: dict[str, list[str]] = {}
    ids: list[str] = []
    tests: list[str] = []
    for pattern in patterns:
        axis, is_axis, value = pattern.partition("=")
        if is_axis:
            _check_axis(pattern, axis.strip(), value.strip(), cases)
            by_axis.setdefault(axis.strip(), []).append(value.strip())
        elif any(fnmatchcase(case.id, pattern) for case in cases):
            ids.append(pattern)
        elif any(fnmatchcase(name, pattern) for name in _test_names(cases)):
            tests.append(pattern)
        else:
            raise _no_such(pattern, cases)
    for axis, values in by_axis.items():
        chosen = [case for case in chosen if any(_value_matches(case, axis, value) for value in values)]
    if ids:
        chosen = [case for case in chosen if any(fnmatchcase(case.id, pattern) for pattern in ids)]
    if tests:
        chosen = [reduced for case in chosen if (reduced := _with_tests(case, tests)).tests]
    if not chosen:
        raise InputError(f"--only {' --only '.join(patterns)}: no case matches all of these", hint=_available(cases))
    return chosen


def _rank(seed: int, round_number: int, case_id: str) -> bytes:
    return hashlib.sha256(f"{seed}/{round_number}/{case_id}".encode()).digest()


def _with_tests(case: Case, patterns: list[str]) -> Case:
    kept = tuple(test for test in case.tests if any(fnmatchcase(test.name, pattern) for pattern in patterns))
    return dataclasses.replace(case, tests=kept)


def _value_matches(case: Case, axis: str, pattern: str) -> bool:
    return any(fnmatchcase(text, pattern) for text in axis_texts(case, axis))


def axis_texts(case: Case, axis: str) -> list[str]:
    """The texts that match a case's value of an axis."""
    texts = [case.labels[axis]] if axis in case.labels else []
    if axis == "clients":
        texts.append(str(case.fleet or case.clients))
    elif axis == "topology":
        texts.append(case.topology)
    elif axis == "sut":
        texts.append(case.sut.kind)
    elif axis.startswith("sut.") and axis.removeprefix("sut.") in type(case.sut).model_fields:
        value = getattr(case.sut, axis.removeprefix("sut."))
        texts.append("none" if value is None else str(value))
    return texts


def _check_axis(pattern: str, axis: str, value: str, cases: Sequence[Case]) -> None:
    known = [text for case in cases for text in axis_texts(case, axis)]
    if not known:
        axes = list(dict.fromkeys(name for case in cases for name in case.labels)) or ["sut", "clients"]
        raise InputError(f"--only {pattern}: no case has an axis '{axis}'", hint=did_you_mean(axis, axes))
    if not any(fnmatchcase(text, value) for text in known):
        raise InputError(
            f"--only {pattern}: no case has {axis} {value!r}", hint=f"there is {', '.join(dict.fromkeys(known))}"
        )


def _no_such(pattern: str, cases: Sequence[Case]) -> InputError:
    return InputError(f"--only {pattern}: neither a case, a test nor AXIS=VALUE", hint=_available(cases))


def _available(cases: Sequence[Case]) -> str:
    ids = cases[0].id if len(cases) == 1 else f"{cases[0].id} to {cases[-1].id}"
    axes = dict.fromkeys(axis for case in cases for axis in case.labels)
    return f"cases {ids}; tests {', '.join(_test_names(cases))}" + (f"; axes {', '.join(axes)}" if axes else "")


def _test_names(cases: Iterable[Case]) -> list[str]:
    return list(dict.fromkeys(test.name for case in cases for test in case.tests))
