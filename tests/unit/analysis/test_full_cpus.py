"""CPUs of a lab's hosts that had no time left, and what a gateway's figures are then."""

from __future__ import annotations

import pytest
from made_gateways import with_gateway
from made_journals import facts, steady_test

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import Bound, LimitedBy, Verdict


def limit(data: TestData) -> tuple[LimitedBy, str]:
    found = analyse_test(data).limit
    assert found is not None
    return found.by, found.evidence


def with_busy_cpus(
    data: TestData, own: dict[str, list[int]], busy: tuple[float, ...], own_share: float = 1.0
) -> TestData:
    """Hosts of one machine with CPUs of their own, each of which is busy for this share of the time; the hosts' control
    groups used a share of that."""
    data = with_gateway(data)
    data.in_lab = True
    for host in ("client1", "gateway", "server"):
        data.facts[host] = {**facts(), "own_cpus": own.get(host)}
    for number, sample in enumerate(data.samples["gateway"]):
        unused = {cpu: (1 - share) * number for cpu, share in enumerate(busy)}
        idle_s, used_s = sum(unused.values()), sum(busy) * number
        data.samples["gateway"][number] = sample._replace(
            cpu_s=(used_s, 0.0, 0.0, 0.0, 0.0, 0.0, idle_s),
            cpus=len(busy),
            unused_s=unused,
            cgroup_s=own_share * used_s,
        )
    return data


TWO_CPUS = {"client1": [0], "server": [0], "gateway": [1]}
FIVE_CPUS = {"client1": [0, 1], "server": [2], "gateway": [3, 4]}


@pytest.mark.parametrize(
    ("own", "busy", "by", "evidence"),
    [
        (
            TWO_CPUS,
            (0.99, 0.7),
            LimitedBy.ENDS_CPUS,
            "the only CPU of client1 and server was 99 % busy: it had no time left",
        ),
        (TWO_CPUS, (0.7, 0.96), LimitedBy.GATEWAY, "the only CPU of gateway was 96 % busy: it had no time left"),
        (TWO_CPUS, (0.97, 0.97), LimitedBy.GATEWAY, "the only CPU of gateway was 97 % busy: it had no time left"),
        (TWO_CPUS, (0.9, 0.9), LimitedBy.UNKNOWN, ""),
        (FIVE_CPUS, (1.0, 0.98, 0.3, 0.5, 0.5), LimitedBy.ENDS_CPUS, "the 2 CPUs of client1 were 99 % busy"),
        (FIVE_CPUS, (1.0, 0.5, 0.3, 1.0, 0.5), LimitedBy.UNKNOWN, ""),
        ({}, (0.99, 0.7), LimitedBy.UNKNOWN, ""),
    ],
)
def test_cpus_of_hosts_that_had_no_more(
    own: dict[str, list[int]], busy: tuple[float, ...], by: LimitedBy, evidence: str
) -> None:
    found, text = limit(with_busy_cpus(steady_test(), own, busy))
    assert found is by
    assert text.startswith(evidence)


# How busy the CPU of client and server was, and that of the gateway, and the share that the gateway's socket dropped.
RUNS_OF_ONE_MACHINE = [
    *((0.98, 0.80, 0.015), (0.97, 0.84, 0.051), (0.98, 0.79, 0.0), (0.99, 0.86, 0.03), (0.96, 0.75, 0.004)),
    *((0.94, 0.82, 0.022), (0.93, 0.88, 0.051), (0.95, 0.81, 0.009), (0.92, 0.78, 0.002), (0.985, 0.9, 0.12)),
]


def with_socket_drops(data: TestData, host: str, dropped: float) -> TestData:
    """Of 1,000,000 datagrams a second a share that the sockets of a host dropped."""
    for number, sample in enumerate(data.samples[host]):
        counts = round(1e6 * (1 - dropped)) * number, round(1e6 * dropped) * number
        data.samples[host][number] = sample._replace(datagrams=counts)
    return data


@pytest.mark.parametrize(("ends", "gateway", "dropped"), RUNS_OF_ONE_MACHINE)
def test_drops_that_follow_from_busy_cpus_are_no_cause_of_their_own(
    ends: float, gateway: float, dropped: float
) -> None:
    """TCP through a tunnel: in runs of one machine the drops come and go, and the CPU stays."""
    data = with_socket_drops(with_busy_cpus(steady_test(), TWO_CPUS, (ends, gateway)), "gateway", dropped)
    found = analyse_test(data)
    assert found.limit is not None and found.limit.by is LimitedBy.ENDS_CPUS
    assert found.limit.evidence.startswith(f"the only CPU of client1 and server was {100 * ends:.0f} % busy")
    assert ("sockets on gateway dropped" in found.limit.evidence) == (dropped > 0)
    rate = found.metrics["throughput_bps"]
    assert (rate.side, rate.verdict, rate.reasons) == (Bound.LEAST, Verdict.VALID, ("ends-cpus-full",))
    assert "the gateway may carry more" in next(one.text for one in found.validity.notes if one.code in rate.reasons)


@pytest.mark.parametrize(
    ("kind", "busy", "dropped", "by", "side"),
    [
        pytest.param("tcp", (0.6, 0.7), 0.03, LimitedBy.GATEWAY, None, id="nothing else was busy"),
        pytest.param("tcp", (0.93, 0.8), 0.0, LimitedBy.UNKNOWN, None, id="nothing was dropped"),
        pytest.param("tcp", (0.88, 0.97), 0.03, LimitedBy.GATEWAY, None, id="the gateway was full"),
        pytest.param("udp", (0.98, 0.8), 0.03, LimitedBy.GATEWAY, None, id="datagrams, which no drop slows down"),
        pytest.param("rr", (0.98, 0.8), 0.0, LimitedBy.ENDS_CPUS, None, id="one transaction at a time"),
        pytest.param("tcp", (0.98, 0.8), 0.0, LimitedBy.ENDS_CPUS, Bound.LEAST, id="the ends were full"),
    ],
)
def test_full_cpus_of_the_ends_bound_what_a_gateway_carries(
    kind: str, busy: tuple[float, float], dropped: float, by: LimitedBy, side: Bound | None
) -> None:
    data = with_socket_drops(with_busy_cpus(steady_test(kind), TWO_CPUS, busy), "gateway", dropped)
    found = analyse_test(data)
    assert found.limit is not None and found.limit.by is by
    leading = "transactions_per_s" if kind == "rr" else "throughput_bps"
    assert (found.metrics[leading].side, found.validity.verdict) == (side, Verdict.VALID)


def test_cpus_that_other_work_filled_are_no_limit() -> None:
    found = analyse_test(with_busy_cpus(steady_test(), TWO_CPUS, (0.7, 1.0), own_share=0.5))
    assert found.validity.verdict is Verdict.DISTURBED
    assert found.limit is not None and found.limit.by is LimitedBy.UNKNOWN


@pytest.mark.parametrize(("own", "busy"), [(TWO_CPUS, (1.0, 0.7)), ({}, (0.97, 0.97))])
def test_drops_beside_cpus_that_something_else_filled_have_no_known_cause(
    own: dict[str, list[int]], busy: tuple[float, ...]
) -> None:
    """Other work took the CPU from the tunnel's process, or hosts share all CPUs and have none left."""
    share = 0.5 if own else 1.0
    data = with_socket_drops(with_busy_cpus(steady_test(), own, busy, own_share=share), "gateway", 0.05)
    found = analyse_test(data)
    assert found.validity.verdict in (Verdict.DISTURBED, Verdict.UNDETERMINED)
    assert found.limit is not None and found.limit.by is LimitedBy.UNKNOWN
