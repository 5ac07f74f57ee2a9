"""What gateways cost, from counters with known rates: whose CPU time counts, and what it is divided by."""

# Figures are compared with pytest.approx within tuples.
# mypy: disable-error-code=comparison-overlap
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_journals import BOOT, EPOCH_NS, S, facts, load, observation, process, steady_test, thread

from leadline.analysis import TestData, analyse_test
from leadline.analysis.gateways import SHARED, UNSEEN
from leadline.analysis.model import Bound, Metric, Verdict
from leadline.analysis.repeats import mean_with_interval
from leadline.plan.gateway_metrics import GATEWAY_METRICS
from leadline.plan.sut import CpuAttribution
from synthetic import assert_share

OTHER_BOOT = "2e0c0c5e"


def crossed(
    kind: str = "udp",
    hosts: tuple[str, ...] = ("gateway",),
    boot: str = OTHER_BOOT,
    others: float = 0.0,
    **load: Any,
) -> TestData:
    """1 MB/s of payload over 10 s; a gateway of two CPUs whose machine spends 14 % of one as user, 40 % as system, 20 %
    in soft interrupts and 4 % stolen; its system 12 % and 34 %, the agent 1 % and 2 %; 2000 packets each way.
    Processes that are not observed spend `others` of a CPU as user."""
    data = steady_test(kind, **load)
    data.sut_processes = ("openvpn-server",)
    data.facts = {"client1": facts()} | {host: facts(boot) for host in hosts}
    for host in hosts:
        for step in range(-10, 130):
            since = 100.0 + step * 0.1
            cpu_s = {
                "user": (0.14 + others) * since,
                "system": 0.4 * since,
                "softirq": 0.2 * since,
                "steal": 0.04 * since,
            }
            cpu_s["idle"] = 2 * since - sum(cpu_s.values())
            own = [
                {**process("openvpn-server", 9, 0.12 * since, 0.34 * since, 9_000_000), "threads": 1},
                process("agent", 1, 0.01 * since, 0.02 * since, 1_000_000),
            ]
            event = observation(EPOCH_NS + round(step * 0.1 * S), cpu_s, own, cgroup_s=0.8 * since)
            event["network"]["interfaces"] = interfaces(since)
            event["cgroup"]["memory_bytes"] = 7_000_000
            data.add(host, event)
    return data


def interfaces(since: float) -> list[dict[str, Any]]:
    none = {f"{way}_{what}": 0 for way in ("rx", "tx") for what in ("errors", "dropped")}
    names = {"lan": 1000, "wan": 1000, "lo": 9000}
    return [
        {
            "name": name,
            **{f"{way}_{what}": round(each * size * since) for way in ("rx", "tx") for what, size in SIZES.items()},
            **none,
        }
        for name, each in names.items()
    ]


SIZES = {"bytes": 540, "packets": 1}


def figure(data: TestData, name: str) -> Metric:
    return analyse_test(data).metrics[name]


def test_processes_of_the_system_are_what_it_cost() -> None:
    data = crossed()
    found = {name: metric.value for name, metric in analyse_test(data).metrics.items() if name.startswith("gateway")}
    assert found == pytest.approx(
        {
            "gateway_cpu_percent": 46,
            "gateway_cpu_percent_per_gbps": 46 / 0.008,
            "gateway_cpu_ns_per_byte": 460.0,
            "gateway_cpu_ns_per_packet": 0.46e9 / 2000,
            "gateway_cpu_percent_per_client": 46,
            "gateway_memory_bytes": 9_000_000,
            "gateway_memory_per_client_bytes": 9_000_000,
        }
    )
    [gateway] = analyse_test(data).gateways
    assert (gateway.host, gateway.attribution, gateway.basis) == ("gateway", "process", "openvpn-server")
    assert (gateway.threads, gateway.clients, gateway.packets_per_s) == (1, 1, pytest.approx(2000))


@pytest.mark.parametrize(
    ("attribution", "cpu_percent", "memory_bytes"),
    [
        (CpuAttribution.PROCESS, 46, 9_000_000),
        (CpuAttribution.CGROUP, 80 - 3, 7_000_000),
        (CpuAttribution.KERNEL, 60 - 2, None),
        (CpuAttribution.MACHINE, 74 - 3, 600),
    ],
)
def test_the_systems_word_says_whose_cpu_time_counts_on_a_machine_of_its_own(
    attribution: CpuAttribution, cpu_percent: float, memory_bytes: float | None
) -> None:
    data = crossed()
    data.cpu_attribution = attribution.value
    cpu, memory = (figure(data, f"gateway_{name}") for name in ("cpu_percent", "memory_bytes"))
    assert (cpu.value, cpu.verdict) == (pytest.approx(cpu_percent), Verdict.VALID)
    assert memory.value == memory_bytes
    assert (memory.unknown is None) == (memory_bytes is not None)


@pytest.mark.parametrize("attribution", list(CpuAttribution))
def test_other_work_on_the_gateway_is_known_where_the_system_is_its_processes(attribution: CpuAttribution) -> None:
    data = crossed(others=0.3)
    data.cpu_attribution = attribution.value
    found = analyse_test(data).validity
    disturbed = (Verdict.DISTURBED, ["other-work"])
    expected = disturbed if attribution is CpuAttribution.PROCESS else (Verdict.VALID, [])
    assert (found.verdict, [reason.code for reason in found.reasons]) == expected


def test_forwarding_on_a_shared_machine_is_an_upper_bound_with_a_note() -> None:
    data = crossed(boot="1f0c0c5e")
    data.cpu_attribution = "kernel"
    cpu = figure(data, "gateway_cpu_percent")
    assert (cpu.value, cpu.bound, cpu.reasons) == (pytest.approx(20), Bound.MOST, (SHARED,))
    found = analyse_test(data)
    assert found.validity.verdict is Verdict.VALID
    assert SHARED in [note.code for note in found.validity.notes]
    data.cpu_attribution = "process"
    assert figure(data, "gateway_cpu_percent").bound is None


def forwarding(
    attribution: str, softirq: float = 0.0, *, busy: float = 0.8, boot: str = BOOT, of_system: float = 0.0, **load: Any
) -> TestData:
    """A gateway on a machine of two CPUs that is busy for `busy` of one CPU, of which the ticks of the kernel's timer
    saw 30 % as user, 20 % as system, and this share in soft interrupts. Its system's process used `of_system`."""
    data = steady_test("udp", **load)
    data.sut_processes, data.cpu_attribution = ("openvpn-server",), attribution
    data.facts = {"client1": facts(), "gateway": facts(boot)}
    for step in range(-10, 130):
        since = 100.0 + step * 0.1
        cpu_s = {"user": 0.3 * since, "system": 0.2 * since, "softirq": softirq * since, "idle": (2 - busy) * since}
        own = [process("openvpn-server", 9, of_system * since, 0.0, 9_000_000)]
        data.add("gateway", observation(EPOCH_NS + round(step * 0.1 * S), cpu_s, own))
    return data


def paced(data: TestData) -> TestData:
    data.spec = replace(data.spec, send_gap_s=0.001)
    return data


def test_forwarding_that_no_tick_saw_is_at_most_the_machines_busy_time() -> None:
    found = analyse_test(forwarding("kernel"))
    for name in ("gateway_cpu_percent", "gateway_cpu_percent_per_gbps", "gateway_cpu_ns_per_byte"):
        metric = found.metrics[name]
        assert metric.value and metric.bound is Bound.MOST and metric.verdict is Verdict.UNDETERMINED, name
    assert found.metrics["gateway_cpu_percent"].value == pytest.approx(80)
    [note] = [note for note in found.validity.notes if note.code == UNSEEN]
    assert "upper bound" in note.text and "all busy time" in note.text


def test_ticks_bound_no_forwarding_of_a_load_that_timers_pace() -> None:
    """Sends at a multiple of the tick's period are always, or never, what a tick finds."""
    free, by_timer = forwarding("kernel", 0.1, busy=0.6), paced(forwarding("kernel", 0.1, busy=0.6))
    assert figure(free, "gateway_cpu_percent").value == pytest.approx(10)
    assert figure(by_timer, "gateway_cpu_percent").value == pytest.approx(60)
    assert figure(by_timer, "gateway_cpu_percent").bound is Bound.MOST


def test_busy_time_that_no_tick_saw_may_be_the_gateways() -> None:
    """A CPU that sleeps has no ticks: what an interrupt does meanwhile is in no sample."""
    cpu = figure(forwarding("kernel", 0.1, busy=0.9), "gateway_cpu_percent")
    assert (cpu.value, cpu.bound) == (pytest.approx(90 - 30 - 20), Bound.MOST)


def test_a_few_ticks_are_no_bound() -> None:
    cpu = figure(forwarding("kernel", 0.005, busy=0.6), "gateway_cpu_percent")
    assert (cpu.value, cpu.bound) == (pytest.approx(60), Bound.MOST)


@pytest.mark.parametrize("attribution", ["process", "cgroup", "kernel", "machine"])
@pytest.mark.parametrize("boot", [BOOT, OTHER_BOOT])
def test_a_gateway_that_carries_load_never_costs_nothing(attribution: str, boot: str) -> None:
    cpu = figure(forwarding(attribution, busy=0.5, boot=boot), "gateway_cpu_percent")
    if attribution == "process" or (attribution, boot) == ("kernel", BOOT):
        # Where processes explain no busy time, it may also be other work.
        bound = Bound.MOST if attribution == "kernel" else Bound.NONE
        assert (cpu.value, cpu.bound) == (pytest.approx(50), bound)
    else:
        assert (cpu.value is None) == (attribution == "cgroup" or boot == BOOT) == (cpu.unknown is not None)
        assert cpu.value != 0


def test_table_of_the_server_has_no_cpu_time_that_was_not_counted() -> None:
    server = analyse_test(forwarding("process")).server
    assert server is not None and (server.sut_user_percent, server.sut_system_percent) == (None, None)
    server = analyse_test(forwarding("process", of_system=0.1)).server
    assert server is not None and server.sut_user_percent == pytest.approx(10)


def test_work_that_ticks_ascribe_to_programs_leaves_the_kernels_an_upper_bound() -> None:
    """On a machine of its own, what is left of the busy time after user mode, which ticks sample, is the kernel's."""
    free = figure(forwarding("kernel", 0.1, busy=0.6, boot=OTHER_BOOT), "gateway_cpu_percent")
    by_timer = figure(paced(forwarding("kernel", 0.1, busy=0.6, boot=OTHER_BOOT)), "gateway_cpu_percent")
    assert (free.value, free.bound) == (pytest.approx(30), None)
    assert (by_timer.value, by_timer.bound) == (pytest.approx(60), Bound.MOST)


def test_gateway_without_any_busy_time_is_unknown() -> None:
    cpu = figure(forwarding("kernel", busy=0.0), "gateway_cpu_percent")
    assert cpu.value is None and cpu.unknown is not None and "busy time" in cpu.unknown


def test_interval_of_a_bound_by_busy_time_is_that_of_the_busy_time() -> None:
    cpu = figure(forwarding("kernel"), "gateway_cpu_percent")
    assert cpu.low == pytest.approx(80, rel=0.01) and cpu.high == pytest.approx(80, rel=0.01)


def test_upper_bounds_are_no_costs_of_hosts() -> None:
    [cost] = [one for one in analyse_test(forwarding("kernel")).host_costs if one.host == "gateway"]
    assert cost.cpu_percent is None and cost.reason is not None and "upper bound" in cost.reason


def test_mean_of_repeats_of_upper_bounds_is_one() -> None:
    bound = figure(forwarding("kernel"), "gateway_cpu_percent")
    mean = mean_with_interval([bound, bound, bound])
    assert (mean.value, mean.bound) == (pytest.approx(80), Bound.MOST)


def test_everything_on_a_shared_machine_is_not_the_gateways() -> None:
    data = crossed(boot="1f0c0c5e")
    data.cpu_attribution = "machine"
    cpu = figure(data, "gateway_cpu_percent")
    assert cpu.value is None
    assert cpu.unknown == "it shares its machine with other hosts of the test, and its processes are not known"
    assert figure(data, "gateway_cpu_ns_per_packet").unknown == cpu.unknown


def test_each_gateway_of_a_site_to_site_tunnel_has_figures_of_its_own() -> None:
    found = analyse_test(crossed(hosts=("gateway-a", "gateway-b")))
    assert [gateway.host for gateway in found.gateways] == ["gateway-b", "gateway-a"]
    for end in ("a", "b"):
        assert found.metrics[f"gateway_{end}_cpu_percent"].value == pytest.approx(46)
    assert "gateway_cpu_percent" not in found.metrics


def test_a_gateway_that_no_agent_observes_is_unknown_and_says_so() -> None:
    data = steady_test()
    data.given_gateways = {"gateway": ("client1", "server")}
    cpu = figure(data, "gateway_cpu_percent")
    assert (cpu.value, cpu.unknown) == (None, "no agent observes the gateway")
    assert not any(name.startswith("gateway") for name in analyse_test(steady_test()).metrics)


def test_bundles_that_an_interface_counts_as_one_are_the_packets_that_they_become() -> None:
    data = crossed("tcp")
    data.samples["gateway"] = [
        sample._replace(
            interfaces=tuple(
                use._replace(counted=tuple((count * 27, packets) for count, packets in use.counted))  # type: ignore[arg-type]
                for use in sample.interfaces
            )
        )
        for sample in data.samples["gateway"]
    ]
    [gateway] = analyse_test(data).gateways
    on_wire = (540 * 27 - 66) / (1514 - 66)
    assert gateway.packets_per_s == pytest.approx(2000 * on_wire, rel=1e-3)


def test_a_generator_at_its_end_leaves_the_use_a_lower_bound_and_the_cost_as_it_is() -> None:
    found = analyse_test(crossed("tcp", generator=load(thread(0.97)))).metrics
    assert found["gateway_cpu_percent"].bound is Bound.LEAST
    assert found["gateway_cpu_ns_per_packet"].verdict is Verdict.VALID
    assert found["gateway_memory_bytes"].verdict is Verdict.VALID


def test_journals_of_before_are_attributed_by_their_processes() -> None:
    data = crossed()
    data.cpu_attribution, data.sut_processes = None, ()
    assert analyse_test(data).gateways[0].attribution == "kernel"


def test_a_mean_of_repeats_keeps_the_reason_of_what_none_knows() -> None:
    unknown = Metric(None, "percent", unknown="no agent observes the gateway")
    assert mean_with_interval([unknown, unknown]).unknown == "no agent observes the gateway"
    assert mean_with_interval([unknown, Metric(3.0, "percent")]).unknown is None


def test_names_end_in_their_units() -> None:
    units = {spec.name.removeprefix("gateway_"): spec.unit for spec in GATEWAY_METRICS}
    assert units["cpu_percent"] == units["cpu_percent_per_gbps"] == units["cpu_percent_per_client"] == "percent"
    assert units["cpu_ns_per_byte"] == units["cpu_ns_per_packet"] == "ns"
    assert units["memory_bytes"] == units["memory_per_client_bytes"] == "bytes"


def noisy_gateway(generator: np.random.Generator, *, even: bool = True) -> TestData:
    """A gateway whose process uses 40 % of a CPU with noise of a tenth, and whose memory goes up and down; its packets
    have noise of a fifth, and its CPU time that noise, too, if it is not `even`."""
    data = steady_test("udp")
    data.sut_processes = ("openvpn-server",)
    data.facts = {"client1": facts(), "gateway": facts(OTHER_BOOT)}
    used_s, held, packets = 0.0, 9_000_000, 0
    for step in range(101):
        row = process("openvpn-server", 9, used_s / 4, used_s * 3 / 4, held)
        event = observation(EPOCH_NS + step * S // 10, {"idle": step / 5}, [row], interfaces={"lan": (0, 0)})
        event["network"]["interfaces"][0] |= {"rx_packets": packets, "rx_bytes": 3000 * packets}
        data.add("gateway", event)
        load = float(generator.normal(1, 0.2))
        # Each packet of 3,000 bytes is a bundle of about two on the wire, and takes 200 us.
        packets += round(200 * load)
        used_s += 0.04 * (1 if even else load) * float(generator.normal(1, 0.1))
        held = 9_000_000 + int(generator.normal(0, 100_000))
    return data


def test_interval_of_a_gateways_cpu_and_memory_contains_the_truth() -> None:
    generator = np.random.default_rng(1)
    truths = {
        "gateway_cpu_percent": 40,
        "gateway_cpu_percent_per_client": 40,
        "gateway_cpu_percent_per_gbps": 40 / 0.008,
        "gateway_cpu_ns_per_byte": 400,
        "gateway_memory_bytes": 9_000_000,
    }
    contained: dict[str, list[bool]] = {name: [] for name in truths}
    for _ in range(60):
        metrics = analyse_test(noisy_gateway(generator)).metrics
        for name, truth in truths.items():
            low, high = metrics[name].low, metrics[name].high
            assert low is not None and high is not None and (high - low) / truth < 0.08
            contained[name].append(low <= truth <= high)
    for found in contained.values():
        assert_share(found, 0.93)


WIRE = (3000 - 42) / (1500 + 14 - 42)
"""Packets on the wire for each of 3,000 bytes."""


@pytest.mark.parametrize("even", [True, False])
def test_interval_of_the_cpu_time_per_packet_contains_the_truth(even: bool) -> None:
    """Where CPU time follows the packets, what the load did to both is not in the interval."""
    generator, contained, widths = np.random.default_rng(2), [], []
    truth = 0.04e9 / 200 / WIRE
    for _ in range(60):
        found = analyse_test(noisy_gateway(generator, even=even)).metrics["gateway_cpu_ns_per_packet"]
        assert found.low is not None and found.high is not None
        contained.append(found.low <= truth <= found.high)
        widths.append((found.high - found.low) / truth)
    assert_share(contained, 0.93)
    # Twice 1.98 standard errors of 100 parts, whose noise is that of both or of the CPU time alone.
    assert np.mean(widths) < (0.12 if even else 0.055)


@pytest.mark.parametrize("attribution", CpuAttribution)
@pytest.mark.parametrize("boot", [OTHER_BOOT, BOOT])
def test_each_figure_of_a_gateway_has_both_bounds_or_says_why_not(attribution: CpuAttribution, boot: str) -> None:
    data = crossed(boot=boot)
    data.cpu_attribution = attribution.value
    for name, metric in analyse_test(data).metrics.items():
        if name.startswith("gateway") and metric.value is not None:
            is_bounded = metric.low is not None and metric.high is not None
            assert is_bounded == (metric.unbounded is None), name
            assert is_bounded, (name, metric)
            assert metric.low <= metric.value <= metric.high  # type: ignore[operator]
