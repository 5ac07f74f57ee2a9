"""The events of which a journal has thousands: observations of hosts, and progress of loads. Pure.

Owns what they add to the tests of a trial, and the lives of the agents, which tell what observing costs. A stretch is
the part of a journal that ends with a trial; another process may read its frequent events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from leadline.analysis import host_metrics
from leadline.analysis.test_data import HostSample, TestData
from leadline.contract import records
from leadline.dataset import HostClocks

FREQUENT_TYPES = frozenset({"observation", "progress"})

# The exceptions that an entry with missing or wrong fields raises.
MALFORMED = (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError)

# Time of samples before and after a test that is kept: longer than plots, warm-up and last answers need.
_MARGIN_NS = 3_000_000_000


class AgentLives:
    """The first and the last observation of each agent, from its start to its end."""

    def __init__(self) -> None:
        # Whether a greeting began it; otherwise it may be the rest of a life that began in an earlier stretch.
        self._lives: list[tuple[str, list[HostSample], bool]] = []

    def begin(self, host: str) -> None:
        """An agent has greeted."""
        self._lives.append((host, [], True))

    def take(self, host: str, sample: HostSample) -> None:
        """Add an observation."""
        life = next((life for name, life, _ in reversed(self._lives) if name == host), None)
        if life is None or (life and sample.observer_cpu_s < life[-1].observer_cpu_s):
            life = []
            self._lives.append((host, life, False))
        del life[1:]
        life.append(sample)

    def extend(self, later: AgentLives) -> None:
        """Add those of the stretch that follows."""
        for host, life, has_greeted in later._lives:
            if has_greeted:
                self.begin(host)
            for sample in life:
                self.take(host, sample)

    def observer_shares(self) -> dict[str, float | None]:
        """The cost of observing on each host, as a share of one CPU."""
        return host_metrics.observer_shares((host, life) for host, life, _ in self._lives)


class FrequentEvents:
    """What the frequent events of one stretch tell."""

    def __init__(self) -> None:
        self.lives = AgentLives()
        self.entries = 0
        """Frequent events that were read, also those that lack fields."""
        self.malformed = 0
        """Those of them that lack fields."""
        self.garbled = 0
        """Lines of the stretch that are no entries."""
        self.is_torn = False
        """Whether the last line is incomplete."""
        self._unreadable_in_trial = 0
        self._samples: dict[str, list[HostSample]] = {}
        self._tests: Mapping[str, TestData] | None = None

    def begin_trial(self, tests: Mapping[str, TestData]) -> None:
        """Count the samples from here on as a trial's; its tests, by label, may be known later."""
        self._tests = tests

    def take(self, host: str, event: Mapping[str, Any], offset_ns: int) -> None:
        """Add a frequent event. `offset_ns` is the host's clock minus the controller's."""
        if event["type"] == "observation":
            sample = HostSample.read(cast(records.ObservationEvent, event), offset_ns)
            self.lives.take(host, sample)
            if self._tests is not None:
                self._samples.setdefault(host, []).append(sample)
        elif self._tests is not None and event.get("trial") in self._tests:
            self._tests[event["trial"]].add(host, event, offset_ns)

    def complete(self, tests: Mapping[str, TestData]) -> None:
        """Give the tests of the trial the samples around them."""
        for data in tests.values():
            data.unreadable_lines += self._unreadable_in_trial
            data.samples = {host: _around_test(samples, data) for host, samples in self._samples.items()}
        self._samples, self._tests = {}, None

    def read(self, entry: Mapping[str, Any], tests: Mapping[str, TestData], clocks: HostClocks) -> None:
        """Take any entry of a stretch whose other entries were read before: only a greeting, a clock and the beginning
        of the trial matter of those."""
        event = entry.get("event")
        if not isinstance(event, Mapping):
            if entry.get("record") == "clock":
                clocks.note(entry)
            elif entry.get("record") == "trial-begin":
                self.begin_trial(tests)
        elif event.get("type") == "hello" and isinstance(entry.get("host"), str):
            self.lives.begin(entry["host"])
        elif event.get("type") in FREQUENT_TYPES:
            self.entries += 1
            self.take(entry["host"], event, clocks.offset_ns(entry))

    def note_malformed(self) -> None:
        """Count a frequent event that lacks fields."""
        self.malformed += 1
        self._unreadable_in_trial += self._tests is not None

    def note_damage(self, garbled: int, is_torn: bool) -> None:
        """Take the counts of a reader so far; new damage belongs to the trial, if it has begun."""
        if self._tests is not None:
            self._unreadable_in_trial += garbled - self.garbled
        self.garbled, self.is_torn = garbled, is_torn


def _around_test(samples: list[HostSample], data: TestData) -> list[HostSample]:
    """A host's samples around the test, with a margin, and one more sample at each end.

    The tests of a trial share its samples, and each test reads its own many times.
    """
    ends_ns = [found.t_ns for found in data.outcomes]
    ends_ns += [points[-1].t_ns for points in data.progress.values()]
    starts_ns = [*data.started_ns.values(), *(points[0].t_ns for points in data.progress.values())]
    if not ends_ns or not starts_ns:
        return samples
    first_ns, last_ns = min(starts_ns) - _MARGIN_NS, max(ends_ns) + _MARGIN_NS
    inside = [number for number, sample in enumerate(samples) if first_ns <= sample.t_ns <= last_ns]
    return samples[max(0, inside[0] - 1) : inside[-1] + 2] if inside else samples
