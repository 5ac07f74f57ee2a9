"""Other work doubts what it could change, and nothing else: made tests beside a process that uses a tenth of the
machine, with the figures that they would have had without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from made_journals import EPOCH_NS, S, facts, histogram, load, observation, process, steady_test, thread

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import Bound, LimitedBy, Verdict
from leadline.analysis.test_data import ProcessUse
from leadline.analysis.test_spec import TestSpec
from leadline.registry import KINDS

CPUS = 4
FOREIGN = 0.1 * CPUS
SECONDS = range(-1, 13)
LINK_BPS = 100e6
AWAKE: dict[str, Any] = {"idle_poll": {"held": True, "reason": None}}
OPERATIONS = 10_000
"""Of a steady test of 10 s."""
P = {"latency_p50_us": 50, "latency_p99_us": 99}


def observe(data: TestData, *, busy: float, foreign: float = FOREIGN, bits: float = 0.0, backlog: bool = False) -> None:
    """The load's host, and that of the server, which is a machine of its own without other work."""
    wan = {"name": "eth0", "mtu": 1500, "speed_bps": LINK_BPS}
    data.facts = {
        "client1": facts(cpus=CPUS, interfaces=[wan], **AWAKE),
        "server": facts("another", cpus=CPUS, **AWAKE),
    }
    for second in SECONDS:
        past, t_ns = float(second + 2), EPOCH_NS + second * S
        for host, more in (("client1", foreign), ("server", 0.0)):
            used = (busy + more) * past
            cpu_s = {"user": used, "softirq": 0.1 * past, "idle": (CPUS - 0.1) * past - used}
            agent = [process("agent", 7, busy * past, 0.0, 1000)]
            moved = int(bits / 8 * past)
            event = observation(t_ns, cpu_s, agent, cpus=CPUS, interfaces={"eth0": (0, moved)})
            event["network"]["interfaces"][0] |= {"tx_packets": moved // 1514}
            row = {"packets": moved // 1514, "drops": 0, "overlimits": 0}
            event["network"]["queues"] = [{"name": "eth0", "kind": "tbf", "backlog_bytes": 9000 * backlog, **row}]
            data.add(host, event)


def stream(
    kind: str, asked_bps: float | None, carried_bps: float, waited: float, own: float = 1.0, **changes: Any
) -> TestData:
    """A tcp or udp test whose payload is this share of all on its link, where payloads add up to `carried_bps`."""
    ends: dict[str, Any] = {
        "generator": load(thread(0.3, waited)),
        "receiver": load(thread(0.3), side="peer", socket_drops=0),
    }
    data = steady_test(kind, own * carried_bps / 8, **ends)
    if kind == "udp":
        data.outcomes[0].outcome["flows"][0] |= {"lost": 0}
    given = {"rate_bps": asked_bps} if asked_bps else {}
    data.spec = TestSpec.read({"name": "t", "kind": kind, "duration_ms": 10_000, "interval_ms": 100, **given})
    observe(data, busy=0.3, bits=carried_bps * 1514 / 1448, **changes)
    return data


def delayed(generator: np.random.Generator, waited: float) -> tuple[np.ndarray, np.ndarray]:
    """Times of operations in ns, undisturbed and with the waits of their thread, which has one in flight: slices of
    some milliseconds, `waited` of 10 s in all."""
    times = 2e6 * np.exp(0.2 * generator.standard_normal(OPERATIONS))
    slices = generator.uniform(1e6, 4e6, max(1, round(waited * 10e9 / 2.5e6)))
    late = times.copy()
    np.add.at(late, generator.integers(0, OPERATIONS, len(slices)), slices if waited else 0.0)
    return times, late


def requests(kind: str, level: float | None, waited: float, generator: np.random.Generator) -> tuple[TestData, Any]:
    """An rr or http test at a rate, or closed (None), and what its figures would be without other work."""
    undisturbed, late = delayed(generator, waited)
    far = None if kind == "http" else load(thread(0.1), side="peer")
    ends: dict[str, Any] = {"generator": load(thread(0.2, waited)), "receiver": far}
    data = steady_test(kind, histograms=[histogram("latency", late.astype(np.int64))], **ends)
    rate = {"rate_per_s": 1000.0} if level is not None else {}
    spec = {"name": "t", "kind": kind, "duration_ms": 10_000, "interval_ms": 100, "connections": 2, **rate}
    data.spec = TestSpec.read(spec)
    outcome: Any = data.outcomes[0].outcome
    outcome["counts"] = {"unsent": 0}
    if far is None:
        outcome["counts"] |= {"requests_due": OPERATIONS, "responses": OPERATIONS}
    observe(data, busy=0.2)
    truth = {name: float(np.percentile(undisturbed, at)) / 1e3 for name, at in P.items()}
    # A closed loop's thread sends nothing while it waits.
    slower = 1.0 if level is not None else float(late.sum() / undisturbed.sum())
    return data, {**truth, f"{'requests' if kind == 'http' else 'transactions'}_per_s": 1000.0 * slower}


def made_set(waited: float, seed: int) -> Iterator[tuple[TestData, dict[str, float]]]:
    """Each kind at a tenth, a half and all of its capacity, whose threads waited for this share of the time."""
    generator = np.random.default_rng(seed)
    for level in (0.1, 0.5, None):
        for kind in ("tcp", "udp"):
            payload_bps = 95.6e6 * (level or 1.0)
            data = stream(kind, payload_bps if level else None, payload_bps, waited)
            yield data, {"throughput_bps": payload_bps, **({"lost_ratio": 0.0} if kind == "udp" else {})}
        for kind in ("rr", "http"):
            yield requests(kind, level, waited, generator)


def verdicts(waited: float, seed: int) -> Iterator[tuple[str, float, Verdict]]:
    """Of each leading figure how far off it is, and its verdict."""
    for data, truth in made_set(waited, seed):
        found = analyse_test(data)
        kind: Any = KINDS.find(data.spec.kind)
        assert set(truth) == {kind.primary, *kind.decisive}
        for name, true in truth.items():
            value = found.metrics[name].value
            assert value is not None, (data.spec.kind, name)
            off = abs(value / true - 1) if true else float(value != 0)
            yield f"{data.spec.kind} {name}", off, found.metrics[name].verdict


def test_figures_that_hold_beside_a_tenth_of_other_load_are_valid() -> None:
    """Of threads that the scheduler mostly keeps apart from other work, and of some that often wait for it."""
    found = [one for seed in range(3) for waited in (0.0, 0.0005, 0.002, 0.1) for one in verdicts(waited, seed)]
    near = [verdict is Verdict.VALID for _, off, verdict in found if off <= 0.03]
    assert len(near) >= 0.5 * len(found)
    assert sum(near) >= 0.8 * len(near), [one for one in found if one[1] <= 0.03 and one[2] is not Verdict.VALID]
    off = [one for one in found if one[1] >= 0.1]
    assert off, "some figures are off"
    assert not [one for one in off if one[2] is Verdict.VALID]


@pytest.mark.parametrize(
    ("stalled", "p50", "rate"),
    [
        (0.0, Verdict.VALID, Verdict.VALID),
        (0.0005, Verdict.VALID, Verdict.VALID),
        (0.004, Verdict.DISTURBED, Verdict.VALID),
        (0.2, Verdict.DISTURBED, Verdict.DISTURBED),
        (None, Verdict.DISTURBED, Verdict.DISTURBED),
    ],
)
def test_machine_on_which_no_task_waited_doubts_nothing_behind_a_gateway(
    stalled: float | None, p50: Verdict, rate: Verdict
) -> None:
    """The gateway's own waits are not known: those of all tasks of the machine are, as a share of the time."""
    data, _ = requests("rr", None, 0.0, np.random.default_rng(1))
    data.samples["gateway"] = data.samples["client1"]
    data.facts["gateway"] = data.facts["client1"]
    data.in_lab = True
    for host, samples in data.samples.items():
        data.samples[host] = [
            one._replace(
                cgroup_s=0.1 * second,
                cpu_stalled_s=None if stalled is None else stalled * second if host != "server" else 0.0,
            )
            for second, one in enumerate(samples)
        ]
    found = analyse_test(data)
    assert "other-work" in [reason.code for reason in found.validity.reasons]
    assert found.metrics["latency_p50_us"].verdict is p50
    assert found.metrics["transactions_per_s"].verdict is rate


def forward(data: TestData, waited: float | None, used: float = 0.3) -> None:
    """Add a gateway whose process waited for a CPU for this share of the time, and used one for another."""
    data.samples["gateway"] = [
        one._replace(
            cgroup_s=used * second,
            processes=(
                ProcessUse(
                    "openvpn", 9, used * second, 0.0, 1000, 1, None, None if waited is None else waited * second
                ),
            ),
        )
        for second, one in enumerate(data.samples["client1"])
    ]
    data.facts["gateway"] = data.facts["client1"]
    data.sut_processes = ("openvpn",)
    data.in_lab = True
    for host in ("client1", "server"):
        data.samples[host] = [one._replace(cgroup_s=0.1 * second) for second, one in enumerate(data.samples[host])]


@pytest.mark.parametrize(
    ("waited", "used", "p50", "rate"),
    [
        (0.0, 0.3, Verdict.VALID, Verdict.VALID),
        (0.015, 0.3, Verdict.DISTURBED, Verdict.VALID),
        (0.05, 0.3, Verdict.DISTURBED, Verdict.DISTURBED),
        (None, 0.3, Verdict.DISTURBED, Verdict.DISTURBED),
        # What the kernel forwards waits for other reasons than its process.
        (0.0, 0.0, Verdict.DISTURBED, Verdict.DISTURBED),
    ],
)
def test_waits_of_the_gateways_process_bound_what_other_work_did_to_it(
    waited: float | None, used: float, p50: Verdict, rate: Verdict
) -> None:
    data, _ = requests("rr", None, 0.0, np.random.default_rng(1))
    forward(data, waited, used)
    found = analyse_test(data)
    assert "other-work" in [reason.code for reason in found.validity.reasons]
    assert found.metrics["latency_p50_us"].verdict is p50
    assert found.metrics["transactions_per_s"].verdict is rate


@pytest.mark.parametrize(("own", "is_valid"), [(0.97, True), (0.9, False), (0.3, False)])
@pytest.mark.parametrize("shaped", [False, True])
def test_link_that_something_else_fills_too_explains_no_rate(own: float, is_valid: bool, shaped: bool) -> None:
    carried_bps = 0.5 * LINK_BPS if shaped else 0.985 * LINK_BPS * 1448 / 1538
    found = analyse_test(stream("tcp", None, carried_bps, waited=0.1, own=own, backlog=shaped))
    rate = found.metrics["throughput_bps"]
    assert (rate.verdict is Verdict.VALID, rate.bound) == ((True, None) if is_valid else (False, Bound.LEAST))


@pytest.mark.parametrize(("carried", "is_valid"), [(0.985, True), (0.9, False)])
def test_rate_that_its_link_explains_is_no_lower_bound(carried: float, is_valid: bool) -> None:
    """Although its threads waited for a CPU for a tenth of the time; its CPU figures are doubted all the same."""
    found = analyse_test(stream("tcp", None, carried * LINK_BPS * 1448 / 1538, waited=0.1))
    rate = found.metrics["throughput_bps"]
    assert (rate.verdict is Verdict.VALID, rate.bound) == ((True, None) if is_valid else (False, Bound.LEAST))
    assert found.metrics["client_cpu_ns_per_byte"].verdict is Verdict.DISTURBED
    assert found.limit is not None and (found.limit.by is LimitedBy.LINK) is is_valid


@pytest.mark.parametrize(("backlog", "verdict"), [(True, Verdict.VALID), (False, Verdict.DISTURBED)])
def test_shaper_that_always_holds_packets_explains_the_rate(backlog: bool, verdict: Verdict) -> None:
    """Of half of the interface's speed; a queue that is empty had nothing to hold back."""
    found = analyse_test(stream("tcp", None, 0.5 * LINK_BPS, waited=0.1, backlog=backlog))
    assert found.metrics["throughput_bps"].verdict is verdict


@pytest.mark.parametrize("socket_drops", [0, 4000])
def test_rate_behind_a_queue_that_overflows_is_not_doubted_by_other_work(socket_drops: int) -> None:
    """Unless the receiver dropped what came through: it may have waited for a CPU."""
    data = stream("udp", None, 0.5 * LINK_BPS, waited=0.1)
    outcome: Any = data.outcomes[0].outcome
    outcome["receiver"]["socket_drops"] = socket_drops
    for host, samples in data.samples.items():
        dropped = 900 if host == "client1" else 0
        data.samples[host] = [
            one._replace(queues=tuple(row._replace(drops=dropped * second) for row in one.queues))
            for second, one in enumerate(samples)
        ]
    found = analyse_test(data)
    rate = found.metrics["throughput_bps"]
    assert "other-work" in [reason.code for reason in (*found.validity.reasons, *found.validity.notes)]
    assert found.limit is not None
    assert found.limit.by is (LimitedBy.ANSWERING_SIDE if socket_drops else LimitedBy.LINK)
    assert (rate.verdict is Verdict.VALID, "other-work" in rate.reasons) == (not socket_drops, bool(socket_drops))
    assert rate.bound is (Bound.LEAST if socket_drops else None)


@pytest.mark.parametrize(
    ("window_bytes", "rtt_us", "verdict"),
    [(62_500, 10_000, Verdict.VALID), (62_500, 9_000, Verdict.DISTURBED), (80_000, 10_000, Verdict.DISTURBED)],
)
def test_window_explains_the_rate_if_round_trips_are_no_longer_than_the_shortest(
    window_bytes: int, rtt_us: int, verdict: Verdict
) -> None:
    """50 Mbit/s are 62,500 bytes in 10 ms."""
    data = stream("tcp", None, 50e6, waited=0.1)
    data.outcomes[0].outcome["flows"][0] |= {
        "sender_tcp": {"rtt_min_us": rtt_us},
        "receiver_tcp": {"receive_window_bytes": window_bytes},
    }
    assert analyse_test(data).metrics["throughput_bps"].verdict is verdict


def test_full_link_does_not_explain_a_rate_that_the_receivers_socket_cut() -> None:
    data = stream("udp", None, 0.985 * LINK_BPS * 1448 / 1538, waited=0.1)
    outcome: Any = data.outcomes[0].outcome
    outcome["receiver"]["socket_drops"] = 4000
    assert analyse_test(data).metrics["throughput_bps"].bound is Bound.LEAST
    outcome["receiver"]["socket_drops"] = 0
    assert analyse_test(data).metrics["throughput_bps"].verdict is Verdict.VALID
