"""What a host did between two samples, from counters with known growth."""

# Figures are compared with pytest.approx within tuples.
# mypy: disable-error-code=comparison-overlap
from __future__ import annotations

from typing import Any

import pytest
from made_journals import S, observation, process

from leadline.analysis.host_usage import CommandCost, HostUsage, between, machine_cost
from leadline.contract.models import ObservationEvent

BEGAN_NS = 7 * S
CPU_S = {"user": 1.0, "system": 0.5, "irq": 0.1, "softirq": 0.3, "steal": 0.2, "iowait": 0.4, "idle": 1.5}
"""Of two CPUs, in 2 s."""


def sample(at_s: float, machine: dict[str, Any] | None = None, **changes: Any) -> ObservationEvent:
    """One sample, this many seconds after the first one; `cpu_s` and the like as in `observation`."""
    made = {name: changes.pop(name) for name in ("interfaces", "observer_cpu_s", "processes") if name in changes}
    cpu_s = changes.pop("cpu_s", {})
    row = observation(BEGAN_NS + round(at_s * S), cpu_s, **made)
    for cpu in row["machine"]["cpus"]:
        cpu["nice_s"] = 0.0
    row["machine"] |= machine or {}
    return ObservationEvent.model_validate(row | changes)


def usage(before: ObservationEvent, after: ObservationEvent, **more: Any) -> HostUsage:
    found = between(before, after, began_ns=BEGAN_NS, **more)
    assert found is not None
    return found


def soaked(slices: int, fastest_ns: int | None, recent_ns: int | None, cpu_s: float | None) -> list[dict[str, Any]]:
    return [{"cpu": 0, "slices": slices, "fastest_ns": fastest_ns, "recent_ns": recent_ns, "cpu_s": cpu_s}]


def test_cpu_time_becomes_shares_of_each_cpu() -> None:
    found = usage(sample(1), sample(3, cpu_s=CPU_S))
    assert (found.start_s, found.end_s, found.length_s) == (1, 3, 2)
    assert [one.cpu for one in found.cpus] == [0, 1]
    for one in found.cpus:
        assert (one.user, one.system, one.softirq) == (0.25, 0.125, pytest.approx(0.1)), "soft and hard interrupts"
        assert (one.steal, one.iowait, one.idle) == (0.05, 0.1, 0.375)
        assert (one.left, one.left_by_kernel, one.speed, one.mhz) == (None, None, None, None)
    assert found.cpu("user") == 0.25
    assert found.cpu("left") is None


def test_shares_of_an_interval_shorter_than_its_ticks_are_no_more_than_a_whole() -> None:
    """Of each of two CPUs, three ticks of 10 ms in 19 ms."""
    found = usage(sample(0), sample(0.019, cpu_s={"user": 0.04, "system": 0.02}))
    assert [(one.user, one.system) for one in found.cpus] == [(pytest.approx(2 / 3), pytest.approx(1 / 3))] * 2


def test_time_of_niced_tasks_counts_once() -> None:
    before, after = sample(0), sample(2, cpu_s={"user": 3.0, "idle": 1.0})
    assert after.machine is not None
    for cpu in after.machine.cpus:
        cpu.nice_s = cpu.user_s  # which it is a part of
    assert [(one.user, one.idle) for one in usage(before, after).cpus] == [(0.75, 0.25)] * 2


def test_mean_over_the_cpus_needs_all_of_them() -> None:
    before = sample(0, soaker=soaked(100, 30_000, 30_000, 0.0))
    found = usage(before, sample(1, soaker=soaked(20_100, 30_000, 30_000, 0.6)))
    assert found.cpus[0].left == pytest.approx(0.6)
    assert found.cpu("left") is None, "the soaker did not run on the other CPU"


def test_slices_tell_what_was_left() -> None:
    # The soaker's own time is niced; /proc/stat saw it for 1.2 s of 2 s, the scheduler for 1 s.
    rows = [{"cpu": 0, **{f"{kind}_s": 0.0 for kind in CPU_S}, "nice_s": 0.0}]
    later = [rows[0] | {"idle_s": 0.2, "user_s": 1.8, "nice_s": 1.2}]
    before = sample(0, {"cpus": rows}, soaker=soaked(1000, 26_000, 26_000, 3.0))
    after = sample(2, {"cpus": later}, soaker=soaked(33_000, 25_000, 31_250, 4.0))
    [found] = usage(before, after).cpus
    assert found.left == pytest.approx(32_000 * 25_000 / 1e9 / 2)
    assert found.speed == pytest.approx(0.8)
    assert found.left_by_kernel == pytest.approx((0.2 + 1.0) / 2)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (None, soaked(9, 1, 1, 0.0)),
        (soaked(9, 1, 1, 0.0), None),
        (soaked(9, 1, 1, 0.0), soaked(3, 1, 1, 0.0)),  # started again
        (soaked(0, None, None, 0.0), soaked(0, None, None, 0.0)),  # never had the CPU
    ],
)
def test_what_was_left_is_not_known_without_slices_to_compare(first: Any, last: Any) -> None:
    found = usage(sample(0, soaker=first), sample(1, soaker=last)).cpus[0]
    assert (found.left, found.left_by_kernel, found.speed) == (None, None, None)


def test_soaker_that_had_nothing_in_an_interval_found_nothing_left() -> None:
    found = usage(sample(0, soaker=soaked(9, 1, 1, 0.0)), sample(1, soaker=soaked(9, 1, None, 0.0))).cpus[0]
    assert (found.left, found.speed) == (0, None)


def test_no_time_or_no_machine_gives_nothing() -> None:
    assert between(sample(1), sample(1), began_ns=BEGAN_NS) is None
    early, late = (ObservationEvent.model_validate(observation(BEGAN_NS + at_s * S)) for at_s in (0, 2))
    assert between(early, sample(1), began_ns=BEGAN_NS) is None
    assert between(sample(1), late, began_ns=BEGAN_NS) is None


def test_cpu_that_came_meanwhile_is_left_out() -> None:
    first = sample(0)
    assert first.machine is not None
    del first.machine.cpus[1]
    assert [one.cpu for one in usage(first, sample(1)).cpus] == [0]


def test_memory_switches_interrupts_and_pressure() -> None:
    def pressure(us: int) -> dict[str, Any]:
        return {"cpu": {"some_us": us}, "io": {"some_us": 2 * us, "full_us": us}, "irq": {"full_us": 3 * us}}

    before = sample(0, {"context_switches": 100, "interrupts": 7, "pressure": pressure(0)})
    after = sample(2, {"context_switches": 500, "interrupts": 27, "pressure": pressure(100_000)})
    found = usage(before, after)
    assert (found.memory_used_bytes, found.memory_total_bytes) == (600, 1000)
    assert (found.context_switches_per_s, found.interrupts_per_s) == (200, 10)
    assert found.pressure == {"cpu": 0.05, "memory": None, "io": 0.1, "irq": pytest.approx(0.15)}


def test_counters_that_are_not_there_or_went_down_give_no_rate() -> None:
    found = usage(sample(0, {"interrupts": 9}), sample(1, {"interrupts": 3}))
    assert (found.context_switches_per_s, found.interrupts_per_s) == (None, None)
    assert (found.tcp_retransmits, found.tcp_segments) == (None, None)
    assert (found.quota_cpus, found.quota_throttled_s, found.thermal_throttles) == (None, None, None)


def test_interfaces_have_rates_and_one_that_was_made_again_has_none() -> None:
    before = sample(0, interfaces={"lo": (0, 0), "eth0": (100, 900), "tun0": (5000, 0)})
    after = sample(2, interfaces={"lo": (10**6, 10**6), "eth0": (1100, 900), "tun0": (10, 0), "new": (1, 1)})
    found = usage(before, after)
    assert [(one.name, one.rx_bps, one.tx_bps) for one in found.interfaces] == [
        ("lo", 4e6, 4e6),
        ("eth0", 4000, 0),
    ]
    assert found.traffic("rx_bps") == 4000, "without the loopback interface, since there is another one"
    alone = usage(sample(0, interfaces={"lo": (0, 0)}), sample(1, interfaces={"lo": (125, 0)}))
    assert alone.traffic("rx_bps") == 1000


def test_disks() -> None:
    def disk(reads: int, busy_ms: int) -> dict[str, Any]:
        counts = {"reads": reads, "writes": 0, "read_bytes": reads * 512, "written_bytes": 0, "busy_ms": busy_ms}
        return {"disks": [{"name": "sda", **counts}]}

    [found] = usage(sample(0, disk(10, 0)), sample(2, disk(30, 500))).disks
    assert (found.read_bytes_per_s, found.operations_per_s, found.busy) == (5120, 10, 0.25)
    assert usage(sample(0, disk(30, 0)), sample(1, disk(10, 0))).disks == ()


def test_quota_heat_and_dropped_frames() -> None:
    def machine(count: int) -> dict[str, Any]:
        clocks = [{"cpu": 0, "mhz": 2600.0, "core_throttles": count}, {"cpu": 1}]
        softnet = [{"cpu": cpu, "processed": 0, "dropped": count, "squeezed": 0} for cpu in (0, 1)]
        return {"clocks": clocks, "softnet": softnet}

    def quota(throttled_s: float) -> dict[str, Any]:
        return {"cpus": 1.5, "group": "/box", "throttled_periods": 0, "throttled_s": throttled_s}

    found = usage(sample(0, machine(2), quota=quota(1.0)), sample(1, machine(5), quota=quota(1.25)))
    assert (found.quota_cpus, found.quota_throttled_s) == (1.5, 0.25)
    assert (found.thermal_throttles, found.backlog_drops) == (3, 6)
    assert [one.mhz for one in found.cpus] == [2600, None]


def test_processes_have_shares_since_their_earlier_sample() -> None:
    def seen(user_s: float) -> list[dict[str, Any]]:
        return [process("agent", 1, 9, 9, 1), process("nginx", 5, user_s, user_s / 2, 4096)]

    before, after = sample(0, processes=[]), sample(4, processes=seen(3.0))
    [fresh] = usage(before, after).processes
    assert (fresh.name, fresh.user, fresh.system, fresh.resident_bytes) == ("nginx", None, None, 4096)
    middle = sample(2, processes=seen(1.0))
    [found] = usage(middle, after).processes
    assert (found.user, found.system) == (1.0, 0.5)
    kept = {5: (middle.t_ns, middle.processes[1])}
    [whole] = usage(before, after, processes=kept).processes
    assert (whole.user, whole.system) == (1.0, 0.5), "the total counts from its first sample"


def test_cost_of_observing_and_of_the_machine() -> None:
    after = sample(2, cpu_s=CPU_S, observer_cpu_s=0.01, interfaces={"eth0": (0, 0)})
    found = usage(sample(0, interfaces={"eth0": (0, 0)}), after)
    assert found.observer == pytest.approx(0.005)
    cost = machine_cost(found)
    assert (cost.user_s, cost.system_s, cost.softirq_s) == (1.0, 0.5, pytest.approx(0.4))


@pytest.mark.parametrize(("code", "signal", "status"), [(0, None, 0), (7, None, 7), (None, 9, 137), (None, None, 0)])
def test_status_of_a_command_is_that_of_a_shell(code: int | None, signal: int | None, status: int) -> None:
    assert CommandCost(("x",), code, signal, 1.0, None, None, None).status == status
