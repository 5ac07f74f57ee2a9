"""CPU and memory tables from cumulative accounts with known rates."""

# Figures are compared with pytest.approx within tuples.
# mypy: disable-error-code=comparison-overlap
from __future__ import annotations

from typing import cast

import pytest
from made_journals import EPOCH_NS, S, facts, observation, process, steady_test

from leadline.analysis import TestData, analyse_test
from leadline.analysis.host_metrics import observer_shares
from leadline.analysis.test_data import CPU_KINDS, HostSample
from leadline.contract.records import ObservationEvent


def watched(step_s: float = 0.1, host: str = "gateway", **changes: float) -> TestData:
    """30 % user, 50 % system, 20 % softirq, 5 % iowait of one CPU out of two; openvpn 12 % user and 34 % system."""
    data = steady_test()
    data.sut_processes = ("openvpn",)
    data.facts = {name: facts() for name in ("client1", "gateway", "server")}
    for step in range(-10, int(12 / step_s)):
        since = 100.0 + step * step_s
        cpu_s = {"user": 0.3 * since, "system": 0.5 * since, "softirq": 0.2 * since, "iowait": 0.05 * since}
        cpu_s["idle"] = 2 * since - sum(cpu_s.values())
        own = [
            process("openvpn", 9, 0.12 * since, 0.34 * since, 9_000_000),
            process("agent", 1, since, since, 1_000_000),
        ]
        data.add(host, observation(EPOCH_NS + round(step * step_s * S), cpu_s, own, cgroup_s=0.8 * since))
    return data


@pytest.mark.parametrize("step_s", [0.1, 0.37, 2.0])
def test_the_server_table_over_the_steady_window(step_s: float) -> None:
    server = analyse_test(watched(step_s)).server
    assert server is not None
    assert server.real_length_s == pytest.approx(10)
    assert server.cpu_user_percent == pytest.approx(30)
    assert server.cpu_system_percent == pytest.approx(50)
    assert server.cpu_softirq_percent == pytest.approx(20)
    assert server.cpu_total_percent == pytest.approx(100)
    assert server.cpu_wait_percent == pytest.approx(5)
    assert server.cpus == 2
    assert server.shared
    assert server.sut_user_percent == pytest.approx(12)
    assert server.sut_system_percent == pytest.approx(34)
    assert server.sut_memory_bytes == 9_000_000


def test_what_runs_between_ticks_counts_as_busy() -> None:
    data = watched()
    data.samples["gateway"] = [
        sample._replace(cpu_s=tuple(0.0 if kind in ("user", "softirq") else spent for kind, spent in spent_by))
        for sample in data.samples["gateway"]
        for spent_by in [list(zip(CPU_KINDS, sample.cpu_s or (), strict=True))]
    ]
    server = analyse_test(data).server
    assert server is not None
    assert (server.cpu_user_percent, server.cpu_system_percent) == (0, pytest.approx(50))
    assert server.cpu_total_percent == pytest.approx(100), "the rest of two CPUs, 95 % idle and 5 % waiting"


def test_a_window_between_two_samples_has_no_figures_of_its_own() -> None:
    server = analyse_test(watched(step_s=9.0)).server
    assert server is not None
    assert (server.cpu_total_percent, server.sut_user_percent) == (None, None)


def test_the_machines_samples_may_come_from_a_neighbour() -> None:
    data = watched()
    machine = data.samples.pop("gateway")
    data.samples["server"] = machine
    bare = [HostSample(s.t_ns, None, None, None, s.cgroup_s, 0.0, s.processes) for s in machine]
    data.samples["gateway"] = bare
    server = analyse_test(data).server
    assert server is not None
    assert server.cpu_total_percent == pytest.approx(100)
    assert server.sut_user_percent == pytest.approx(12)


def test_samples_that_cover_less_than_half_of_the_window_give_no_figure() -> None:
    data = watched()
    data.samples["gateway"] = [sample for sample in data.samples["gateway"] if sample.t_ns > EPOCH_NS + 6 * S]
    server = analyse_test(data).server
    assert server is not None
    assert (server.cpu_total_percent, server.sut_user_percent, server.sut_memory_bytes) == (None, None, None)
    data.samples["gateway"] = []
    server = analyse_test(data).server
    assert server is not None
    assert server.cpu_user_percent is None


def test_without_a_gateway_there_is_no_server_table() -> None:
    assert analyse_test(steady_test()).server is None


def test_a_route_has_no_processes_of_its_own() -> None:
    data = watched()
    data.sut_processes = ()
    server = analyse_test(data).server
    assert server is not None
    assert server.sut_user_percent is None
    assert server.cpu_user_percent == pytest.approx(30)


def test_series_are_rates_around_the_test_with_the_first_start_at_0() -> None:
    series = {(line.label, line.host, line.unit): line for line in analyse_test(watched()).series}
    user = series[("cpu user", "machine", "percent")]
    assert user.values == pytest.approx([30.0] * len(user.values))
    assert -0.5 <= user.t_s[0] < 0
    assert 10 < user.t_s[-1] <= 10.5
    own = series[("system under test", "gateway", "percent")]
    assert own.values == pytest.approx([46.0] * len(own.values))
    assert set(series[("system under test", "gateway", "bytes")].values) == {9_000_000.0}
    assert set(series[("memory in use", "machine", "bytes")].values) == {600.0}
    host = series[("all processes", "gateway", "percent")]
    assert host.values == pytest.approx([80.0] * len(host.values))


def test_what_observing_cost_over_several_lives_of_an_agent() -> None:
    def life(first_s: float, last_s: float, seconds: int) -> list[HostSample]:
        ends = ((EPOCH_NS, first_s), (EPOCH_NS + seconds * S, last_s))
        events = (observation(t_ns, observer_cpu_s=cpu_s) for t_ns, cpu_s in ends)
        return [HostSample.read(cast(ObservationEvent, event), 0) for event in events]

    shares = observer_shares([("a", life(0.5, 0.6, 10)), ("a", life(0.0, 0.1, 30)), ("b", life(0, 0, 5)[:1])])
    assert shares == {"a": pytest.approx(0.2 / 40), "b": None}
