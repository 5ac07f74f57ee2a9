"""Parts of a test that charts shade: seconds with other work or steal above the bound, and stalls of the rate."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_journals import EPOCH_NS, MS, S, counters, facts, finished, flow, observation, outcome, progress, test_data

from leadline.analysis import TestData, analyse_test
from leadline.analysis.trial_records import MarkKind

CPUS = 2


def with_rates(rate_of: Callable[[int], float], kind: str = "tcp") -> TestData:
    """10 s with this many bytes, or answers, in each 100 ms."""
    data, moved, side = test_data(kind), 0, "peer" if kind == "tcp" else "local"
    for step in range(100):
        moved += round(rate_of(step))
        units = {} if kind == "tcp" else {"sent_units": moved, "received_units": moved}
        data.add("client1", progress(EPOCH_NS + (step + 1) * 100 * MS, [counters(0, moved, moved, **units)], side=side))
    report = flow(0, EPOCH_NS, EPOCH_NS + 10 * S, sent_bytes=moved, received_bytes=moved, **units)
    data.add("client1", finished(EPOCH_NS + 10 * S, outcome([report])))
    return data


def observed(data: TestData, *, foreign: Callable[[int], float], steal: Callable[[int], float]) -> TestData:
    """The gateway uses 0.5 CPUs; others and a hypervisor use these in each second."""
    data.in_lab, data.facts = True, {name: facts() for name in ("gateway", "client1")}
    user = stolen = idle = 0.0
    for second in range(-1, 13):
        t_ns, past = EPOCH_NS + second * S, float(second + 2)
        cpu_s = {"user": user, "steal": stolen, "idle": idle}
        data.add("gateway", observation(t_ns, cpu_s, cpus=CPUS, cgroup_s=0.5 * past))
        data.add("client1", observation(t_ns, cgroup_s=0.0))
        used, taken = 0.5 + foreign(second), steal(second)
        user, stolen, idle = user + used, stolen + taken, idle + CPUS - used - taken
    return data


def marks(data: TestData) -> list[tuple[MarkKind, float, float, float]]:
    found = analyse_test(data).time_marks
    return [(one.kind, round(one.start_s, 3), round(one.end_s, 3), round(one.mean, 3)) for one in found]


def test_seconds_with_other_work_and_stolen_time_are_marked() -> None:
    """The bound is a twentieth of two CPUs; a tenth of a CPU is at it."""
    data = observed(
        with_rates(lambda _: 1e5),
        foreign=lambda second: {2: 0.5, 3: 0.7, 7: 0.09}.get(second, 0.02),
        steal=lambda second: 0.4 if second == 8 else 0.0,
    )
    assert marks(data) == [(MarkKind.OTHER_WORK, 2.0, 4.0, 0.6), (MarkKind.STOLEN, 8.0, 9.0, 0.4)]


def test_quiet_machine_and_steady_rate_have_no_mark() -> None:
    assert marks(observed(with_rates(lambda _: 1e5), foreign=lambda _: 0.05, steal=lambda _: 0.05)) == []


def test_other_work_on_given_hosts_is_not_known() -> None:
    data = observed(with_rates(lambda _: 1e5), foreign=lambda _: 0.5, steal=lambda second: 0.4 * (second == 3))
    data.in_lab = False
    assert [mark[:3] for mark in marks(data)] == [(MarkKind.STOLEN, 3.0, 4.0)]


def test_seconds_without_samples_are_not_marked() -> None:
    data = observed(with_rates(lambda _: 1e5), foreign=lambda _: 0.0, steal=lambda _: 0.0)
    data.samples = {host: samples[:7] for host, samples in data.samples.items()}
    assert marks(data) == []


@pytest.mark.parametrize("kind", ["tcp", "rr"])
def test_stall_of_the_rate_is_marked(kind: str) -> None:
    found = marks(with_rates(lambda step: 0 if 40 <= step < 55 else 100, kind))
    assert found == [(MarkKind.STALL, 4.0, 5.5, 0.0)]


def test_gap_that_chance_leaves_is_no_stall() -> None:
    """One interval without bytes; and a rate of one answer in a second, most of whose intervals have none."""
    assert marks(with_rates(lambda step: 0 if step == 40 else 1e5)) == []
    assert marks(with_rates(lambda step: 1 if step % 10 == 0 else 0, "rr")) == []
