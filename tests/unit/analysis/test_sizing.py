"""Plans for gateways: FreeS/WAN's rule from its own cost, and costs that are found again in a run's figures."""

# Figures are compared with pytest.approx within tuples.
# mypy: disable-error-code=comparison-overlap
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from leadline.analysis.gateway_model import GatewayStatistics
from leadline.analysis.model import (
    Bound,
    Metric,
    RunAnalysis,
    TestResult,
    TrialResult,
    Validity,
    Verdict,
)
from leadline.analysis.size_model import ClientNeed
from leadline.analysis.sizing import LINKS, Asked, carried, clocked, given_cost, is_useless, of_run, sized, work_of
from synthetic import assert_share, contains

NS_PER_PACKET, NS_PER_BYTE = 900.0, 0.6
ASKED = Asked(links=(), packets=(1400.0, 64.0), hz=None, cores=1, threads=None, busy=0.7)
TABLE_OF_2002 = {"DSL": 25, "cable": 75, "Ethernet": 250, "T3, E3": 1125, "100M": 2500, "OC3": 3875}
"""Machine speed in MHz for each link, from FreeS/WAN's documentation."""


def test_the_rule_of_2002_from_its_own_140_cycles_per_byte() -> None:
    needs = sized(given_cost(0.0, 140.0), ASKED).links
    assert [(need.link, need.bps) for need in needs] == list(LINKS)
    for need in needs:
        mbit = need.bps / 1e6
        assert (need.hz, need.planned_hz) == (pytest.approx(mbit * 17.5e6), pytest.approx(mbit * 25e6))
    planned = {need.link: need.planned_hz for need in needs}
    assert {link: planned[link] for link in TABLE_OF_2002} == pytest.approx(
        {link: mhz * 1e6 for link, mhz in TABLE_OF_2002.items()}
    )


def test_a_machine_of_140_mhz_carries_a_megabyte_per_second() -> None:
    [found] = carried(work_of(given_cost(0.0, 140.0)), (1400.0,), hz=140e6, cores=1, threads=None)
    assert found.bps == pytest.approx(8e6)


def result(size: float, *, clients: float = 10, verdict: Verdict = Verdict.VALID, repeat: int = 1) -> TestResult:
    """Datagrams of one size through a gateway with the costs above, which holds 8 MB and 100 kB for each client."""
    ns = NS_PER_PACKET + NS_PER_BYTE * size
    packets_per_s = 50_000.0
    gateway = GatewayStatistics(
        host="gateway",
        attribution="process",
        basis="openvpn-server",
        cpu_percent=packets_per_s * ns / 1e7,
        cpu_unknown=None,
        at_most=False,
        memory_bytes=8e6 + 1e5 * clients,
        memory_unknown=None,
        threads=1,
        payload_bps=8 * size * packets_per_s,
        packets_per_s=packets_per_s,
        clients=clients,
        clock_hz=2e9,
    )
    bound = None if verdict is Verdict.VALID else Bound.NONE
    metrics = {
        "gateway_cpu_ns_per_packet": Metric(ns, "ns", verdict=verdict, bound=bound),
        "gateway_cpu_ns_per_byte": Metric(ns / size, "ns", verdict=verdict, bound=bound),
    }
    return TestResult(
        case="c01",
        repeat=repeat,
        test="udp",
        kind="udp",
        parameters={},
        status="done",
        error=None,
        metrics=metrics,
        validity=Validity(Verdict.VALID),
        window=None,
        generator=None,
        errors={},
        gateways=(gateway,),
    )


def run_of(*results: TestResult) -> RunAnalysis:
    trials = tuple(
        TrialResult(f"c{number:02}/1", f"c{number:02}", 1, "done", None, "openvpn", None, None, (one,))
        for number, one in enumerate(results, start=1)
    )
    return RunAnalysis(
        run_id="r",
        name="made",
        status="done",
        started_at="",
        plan_text="",
        command="",
        version="",
        hosts={},
        trials=trials,
        summaries=(),
        targets=(),
        validity=Validity(Verdict.VALID),
        notes=(),
        observer_cpu_share={},
    )


def test_costs_of_a_packet_and_of_a_byte_are_found_again() -> None:
    [cost] = of_run(run_of(*(result(size) for size in (64, 512, 1400))))
    assert cost.per_packet_ns is not None
    assert (cost.per_packet_ns.value, cost.per_byte_ns.value) == (
        pytest.approx(NS_PER_PACKET, rel=0.05),
        pytest.approx(NS_PER_BYTE, rel=0.05),
    )
    assert (cost.system, cost.kind, cost.host, cost.threads, cost.clock_hz) == ("openvpn", "udp", "gateway", 1, 2e9)
    found = sized(cost, replace(ASKED, links=[("1gbit", 1e9)], cores=4, packets=(1000.0,)))
    [need], [one] = found.links, found.carried
    cycles = 1e9 / 8 * (2 * NS_PER_BYTE + 2 * NS_PER_PACKET / 1000)
    assert (need.hz, need.cpus) == (pytest.approx(cycles, rel=0.05), pytest.approx(cycles / 2e9 / 0.7, rel=0.05))
    assert (found.usable, one.cores) == (1, 1), "one thread uses one core"
    assert one.bps == pytest.approx(1e9 * 2e9 / cycles, rel=0.05)


def test_intervals_of_needs_contain_the_truth() -> None:
    """Of six sizes with noise of 3 %: the line's interval at a size, and what a CPU then carries."""
    generator, found = np.random.default_rng(3), []
    sizes, truth = (64, 128, 256, 512, 1024, 1400), NS_PER_PACKET + NS_PER_BYTE * 1000
    asked = replace(ASKED, links=[("1gbit", 1e9)], packets=(1000.0,), busy=1.0, hz=None)
    for noise in generator.normal(1.0, 0.03, (1000, len(sizes))):
        [cost] = of_run(run_of(*(noisy(size, float(factor)) for size, factor in zip(sizes, noise, strict=True))))
        size = sized(cost, asked)
        [need], [link] = size.links, size.carried
        assert need.cpus_low is not None and need.cpus_high is not None and link.bps_low and link.bps_high
        cpus = 1e9 / 8 * truth / 1000 / 1e9
        found.append(contains(need.cpus_low, need.cpus_high, cpus))
        assert found[-1] is contains(link.bps_low, link.bps_high, 1e9 / cpus)
        assert need.cpus is not None and need.cpus_high / need.cpus < 1.12
    assert_share(found, 0.93, 0.97)


def noisy(size: int, factor: float) -> TestResult:
    """A result whose costs are this many times the truth."""
    made = result(size)
    costs = {
        name: replace(one, value=(one.value or 0.0) * factor)
        for name, one in made.metrics.items()
        if name.startswith("gateway_cpu_ns_per_")
    }
    return replace(made, metrics={**made.metrics, **costs})


def test_clients_for_a_cpu_are_bounded_over_repeats_and_two_sizes_bound_nothing() -> None:
    [cost] = of_run(run_of(result(64, clients=100), result(64, clients=100), result(1400, clients=100)))
    need = cost.clients
    assert need is not None and need.per_cpu is not None
    assert need.per_cpu_low is not None and need.per_cpu_high is not None
    assert need.per_cpu_low < need.per_cpu < need.per_cpu_high
    [one] = sized(cost, replace(ASKED, packets=(1000.0,), links=[("1gbit", 1e9)])).links
    assert (one.cpus_low, one.cpus_high) == (None, None)
    assert "2 numbers give no interval" in " ".join(cost.notes)


def crowd(clients: float, repeat: int, *, cpu: float, memory: float) -> TestResult:
    """A result whose clients take 0.4 % of a CPU and 100 kB each, beside 8 MB, times what noise makes of both."""
    made = result(1000, clients=clients, repeat=repeat)
    gateway = replace(made.gateways[0], cpu_percent=0.4 * clients * cpu, memory_bytes=(8e6 + 1e5 * clients) * memory)
    return replace(made, gateways=(gateway,))


@pytest.mark.parametrize("repeats", [3, 10])
def test_intervals_of_clients_for_a_cpu_and_a_gibibyte_contain_the_truth(repeats: int) -> None:
    """Repeats with 1,000 clients, noise of 5 %: 250 of them for a CPU, and 9,942 for a gibibyte with their share of
    what the system takes anyway."""
    generator, per_cpu, per_gib = np.random.default_rng(4), [], []
    for noise in generator.normal(1.0, 0.05, (600, repeats, 2)).tolist():
        rows = [crowd(1000, number, cpu=cpu, memory=memory) for number, (cpu, memory) in enumerate(noise, 1)]
        need = only_need(run_of(*rows))
        assert need.per_cpu_low and need.per_cpu_high and need.per_gib_low and need.per_gib_high
        per_cpu.append(contains(need.per_cpu_low, need.per_cpu_high, 250))
        per_gib.append(contains(need.per_gib_low, need.per_gib_high, 2**30 / 1.08e5))
    assert_share(per_cpu, 0.93, 0.97)
    assert_share(per_gib, 0.93, 0.97)


@pytest.mark.parametrize("numbers", [(100, 300, 1000), (50, 100, 200, 400, 800)])
def test_interval_of_clients_for_a_gibibyte_by_their_growth_contains_the_truth(numbers: tuple[int, ...]) -> None:
    """Memory over numbers of clients, noise of 3 %: what the system takes anyway is none of theirs."""
    generator, found = np.random.default_rng(5), []
    for noise in generator.normal(1.0, 0.03, (600, len(numbers))).tolist():
        rows = [crowd(number, 1, cpu=1.0, memory=memory) for number, memory in zip(numbers, noise, strict=True)]
        need = only_need(run_of(*rows))
        assert need.per_gib_low is not None
        found.append(contains(need.per_gib_low, need.per_gib_high, 2**30 / 1e5))
    assert_share(found, 0.93, 0.97)


def only_need(run: RunAnalysis) -> ClientNeed:
    [cost] = of_run(run)
    assert cost.clients is not None
    return cost.clients


def test_packets_of_one_size_leave_a_cost_per_byte_with_a_note() -> None:
    [cost] = of_run(run_of(result(1000), result(1000)))
    assert cost.per_packet_ns is None
    assert cost.per_byte_ns.value == pytest.approx(NS_PER_BYTE + NS_PER_PACKET / 1000)
    assert "packets of about one size alone (1000 bytes of payload)" in cost.notes[0]
    found = sized(clocked(cost, None), ASKED)
    assert {need.packet_bytes for need in found.links} == {None}


def test_sizes_that_vary_between_repeats_of_one_load_make_no_line() -> None:
    """A line through them would say anything of other sizes."""
    [cost] = of_run(run_of(result(800), result(1000), result(1200), result(1000)))
    assert cost.per_packet_ns is None and "about one size alone (1000 bytes" in cost.notes[0]
    [cost] = of_run(run_of(result(500), result(1000)))
    assert cost.per_packet_ns is not None


def test_figures_that_are_not_known_from_above_are_left_out() -> None:
    assert of_run(run_of(result(1000, verdict=Verdict.UNDETERMINED))) == ()


def test_search_without_a_rate_that_holds_has_no_cost() -> None:
    """Its gateway was seen, and its figures are those of the search alone."""
    without = replace(result(1400), metrics={"found_rate_per_s": Metric(None, "1/s")})
    assert of_run(run_of(result(64), result(1400), without)) == of_run(run_of(result(64), result(1400)))


def test_clients_for_each_cpu_and_gibibyte() -> None:
    [cost] = of_run(run_of(result(64, clients=10), result(512, clients=100), result(1400, clients=1000)))
    need = cost.clients
    assert need is not None
    percent = 50_000 * (NS_PER_PACKET + NS_PER_BYTE * 1400) / 1e7
    assert (need.clients, need.per_cpu) == (1000, pytest.approx(100 * 1000 / percent))
    assert need.per_gib == pytest.approx(2**30 / 1e5, rel=0.01), "its growth, not the 8 MB that it takes anyway"


def test_without_a_clock_the_plan_is_in_cpus_like_the_measured_one() -> None:
    [cost] = of_run(run_of(result(64), result(512), result(1400)))
    found = sized(replace(cost, clock_hz=None), replace(ASKED, links=[("1gbit", 1e9)], packets=(1000.0,)))
    assert (found.hz, found.links[0].hz) == (None, None)
    busy = 1e9 / 8 * (NS_PER_BYTE + NS_PER_PACKET / 1000) / 1e9
    assert found.links[0].cpus == pytest.approx(busy / 0.7, rel=0.05)
    assert found.carried[0].bps == pytest.approx(1e9 / busy, rel=0.05)


def test_packets_that_hardly_carry_payload_are_no_plan() -> None:
    """The cost of a request of a byte and its acknowledgements by its bytes says nothing of a link."""
    assert of_run(run_of(result(0.5), result(0.5))) == ()
    [cost] = of_run(run_of(result(0.5), result(1400)))
    assert [point.packet_bytes for point in cost.points] == [pytest.approx(1400)]


def test_single_client_says_nothing_of_many() -> None:
    [cost] = of_run(run_of(result(1400, clients=1)))
    assert cost.clients is None


def test_cost_with_an_interval_wider_than_itself_has_no_plan() -> None:
    noisy = [
        replace(
            one,
            metrics={name: replace(metric, value=(metric.value or 0) * times) for name, metric in one.metrics.items()},
        )
        for one, times in zip([result(1400, repeat=number) for number in (1, 2, 3)], (0.2, 1.0, 4.0), strict=True)
    ]
    [cost] = of_run(run_of(*noisy))
    assert is_useless(cost) and cost.links == () and "too uncertain" in cost.notes[-1]
