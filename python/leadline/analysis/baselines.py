"""Which case each case of a run is compared with, and what cases are called in sentences. Pure.

Without a baseline by plan, it is the plain route with the same other parameters: what a tunnel costs is the difference
to the same load over the same links without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leadline.analysis.model import RunAnalysis, TrialResult

ROUTE = "route"
"""The system that is the baseline of the others."""
_SYSTEM = "sut"
# Parameters that only name the system.
_OF_NAME = (_SYSTEM, f"{_SYSTEM}.kind")


@dataclass(frozen=True, slots=True)
class Case:
    """A case with its system and parameters."""

    case: str
    name: str
    """What sentences call it: its system, with the parameters in which its run's cases differ."""
    system: str
    parameters: Mapping[str, Any]
    trials: tuple[TrialResult, ...]

    @property
    def load(self) -> dict[str, str]:
        """The parameters that do not describe the system."""
        return {name: str(value) for name, value in self.parameters.items() if not _is_of_system(name)}


def cases_of(analysis: RunAnalysis) -> dict[str, Case]:
    """Every case that has a trial, in the order of ids."""
    trials: dict[str, list[TrialResult]] = {}
    for trial in sorted(analysis.trials, key=lambda one: (natural(one.case), one.repeat)):
        trials.setdefault(trial.case, []).append(trial)
    parameters = {case: _parameters(found) for case, found in trials.items()}
    systems = {case: next((trial.sut for trial in found if trial.sut), "") for case, found in trials.items()}
    return {
        case: Case(case, _name(case, found, systems, parameters), systems[case], parameters[case], tuple(found))
        for case, found in trials.items()
    }


def baselines_of(cases: Mapping[str, Case]) -> dict[str, str]:
    """The baseline of each case that has one."""
    routes = [case for case in cases.values() if case.system == ROUTE]
    found = {}
    for case in cases.values():
        if case.system != ROUTE:
            same = next((route for route in routes if route.load == case.load), None)
            if same is not None:
                found[case.case] = same.case
    return found


def natural(case: str) -> tuple[str, int]:
    """Return a sort key that puts c2 before c10."""
    letters = case.rstrip("0123456789")
    return letters, int(case[len(letters) :] or -1)


def _parameters(trials: Iterable[TrialResult]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for trial in trials:
        for given in (trial.parameters, *(test.parameters for test in trial.tests)):
            for name, value in given.items():
                found.setdefault(name, value)
    return found


def _name(
    case: str, trials: Sequence[TrialResult], systems: Mapping[str, str], parameters: Mapping[str, Mapping[str, Any]]
) -> str:
    """The system, or the label of a given one, and the parameters in which the cases differ."""
    system, own = systems[case], parameters[case]
    label = next((trial.sut_version for trial in trials if trial.on_given_hosts and trial.sut_version), None)
    alike = [parameters[other] for other in parameters if systems[other] == system]
    # Among cases of one system its axis has labels for sets of parameters.
    names = [name for name in _varying(parameters.values()) if name not in _OF_NAME or name in _varying(alike)]
    shown = [f"{name.removeprefix('sut.')} {own[name]}" for name in names if name in own]
    title = label or next((trial.sut_title for trial in trials if trial.sut_title), None) or system or "the path"
    return f"{title} ({', '.join(shown)})" if shown else title


def _varying(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    """The parameters in which cases differ."""
    all_cases = list(cases)
    names = dict.fromkeys(name for parameters in all_cases for name in parameters)
    return [name for name in names if len({repr(parameters.get(name)) for parameters in all_cases}) > 1]


def _is_of_system(parameter: str) -> bool:
    return parameter == _SYSTEM or parameter.startswith(f"{_SYSTEM}.")
