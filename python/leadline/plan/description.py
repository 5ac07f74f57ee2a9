"""The description of a plan that `leadline plan` shows: plain records for a table or JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leadline.plan.estimate import expected_seconds, needs, trial_seconds
from leadline.plan.model import Case, Plan, Trial
from leadline.plan.need import Need
from leadline.plan.order import schedule


@dataclass(frozen=True, slots=True)
class TestLine:
    """One test of a case."""

    name: str
    kind: str
    parameters: dict[str, Any]
    """All fields of the model, with units in their names."""


@dataclass(frozen=True, slots=True)
class CaseLine:
    """One case."""

    id: str
    title: str
    labels: dict[str, str]
    topology: str
    clients: int
    fleet: bool
    """Whether its clients are a fleet."""
    sut: dict[str, Any]
    link: dict[str, Any] | None
    tests: tuple[TestLine, ...]
    trial_seconds: float
    baseline: str | None = None
    """The case that it is compared with."""


@dataclass(frozen=True, slots=True)
class PlanDescription:
    """The facts about a run that a user wants before it starts."""

    name: str
    description: str
    file: str
    axes: dict[str, tuple[str, ...]]
    cases: tuple[CaseLine, ...]
    order: tuple[str, ...]
    """Labels of the trials (c02/1), in the order of the run."""
    repeat: int
    most_repeats: int
    """Trials of each case at most; more than `repeat` if the plan repeats until a precision."""
    seed: int
    seed_is_derived: bool
    expected_seconds: float
    needs: tuple[Need, ...]
    targets: tuple[str, ...]
    notes: tuple[str, ...]


def describe(plan: Plan, cases: list[Case] | None = None) -> PlanDescription:
    """Describe a plan, or only the cases that `select` chose."""
    chosen = list(plan.cases) if cases is None else cases
    trials: list[Trial] = schedule(chosen, plan.repeat, plan.seed)
    return PlanDescription(
        name=plan.name,
        description=plan.description,
        file=str(plan.path),
        axes=plan.axes,
        cases=tuple(_line(case) for case in chosen),
        order=tuple(trial.label for trial in trials),
        repeat=plan.repeat,
        most_repeats=plan.until.max if plan.until is not None else plan.repeat,
        seed=plan.seed,
        seed_is_derived=plan.seed_is_derived,
        expected_seconds=expected_seconds(trials),
        needs=tuple(needs(chosen)),
        targets=tuple(target.text for target in plan.targets),
        notes=plan.notes,
    )


def _line(case: Case) -> CaseLine:
    return CaseLine(
        id=case.id,
        title=case.title,
        labels=case.labels,
        topology=case.topology,
        clients=case.fleet or case.clients,
        fleet=case.fleet is not None,
        sut=case.sut.model_dump(),
        link=case.link.model_dump() if case.link else None,
        tests=tuple(TestLine(test.name, test.kind, test.model_dump()) for test in case.tests),
        trial_seconds=trial_seconds(case),
        baseline=case.baseline,
    )
