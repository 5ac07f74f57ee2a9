"""What differed in the environment of a run's trials: facts of the same host that changed from one trial to another.

Kernel, CPU, memory, offloads, clocks, versions: as agents state them when they start, once for each trial. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from leadline.analysis.model import TrialResult
from leadline.analysis.trial_records import FactDifference

# A measured error differs from one start to the next without meaning.
_NOISE = ("clock max_error_us", "clock resolution_ns")
_UNKNOWN = "unknown"


class Environment:
    """Collects the facts of each trial's agents, and tells which changed."""

    def __init__(self) -> None:
        self._facts: dict[tuple[str, str], dict[str, list[str]]] = {}

    def note(self, trial: str, host: str, facts: Mapping[str, Any]) -> None:
        """Take the facts that an agent stated in a trial; empty between trials."""
        for name, value in _flat(facts):
            if name not in _NOISE:
                trials = self._facts.setdefault((host, name), {}).setdefault(value, [])
                if trial and trial not in trials:
                    trials.append(trial)

    def differences(self, trials: Iterable[TrialResult]) -> tuple[FactDifference, ...]:
        """Facts with several values, and the versions of each system under test that has several."""
        found = [
            FactDifference(host, name, {value: tuple(named) for value, named in values.items()})
            for (host, name), values in self._facts.items()
            if len(values) > 1
        ]
        versions: dict[str, dict[str, list[str]]] = {}
        for trial in trials:
            if trial.sut_version is not None and not trial.on_given_hosts:
                versions.setdefault(trial.sut, {}).setdefault(trial.sut_version, []).append(trial.trial)
        for system, of_system in versions.items():
            if len(of_system) > 1:
                values = {version: tuple(named) for version, named in of_system.items()}
                found.append(FactDifference(system, "version", values))
        return tuple(found)


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each fact with its name in full: `clock source`, `interfaces wan mtu`, `capabilities tun available`."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        elif isinstance(value, list | tuple) and all(isinstance(item, Mapping) and "name" in item for item in value):
            for item in value:
                own = {key: part for key, part in item.items() if key != "name"}
                yield from _flat(own, f"{prefix}{name} {item['name']} ")
        else:
            yield f"{prefix}{name}", _UNKNOWN if value is None else str(value)
