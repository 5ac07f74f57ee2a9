"""Other work on the machine of a test: found in a lab by what its hosts' groups did not use, and on
given hosts by what neither agents nor a responder used; steal counts everywhere.
Heat and quotas from above, found by what the kernel counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_journals import BOOT, EPOCH_NS, S, facts, histogram, load, observation, process, steady_test, thread

from leadline.analysis import TestData, analyse_test, disturbance
from leadline.analysis.model import Bound, Metric, Verdict, Window
from leadline.analysis.test_data import InterfaceUse
from leadline.analysis.wake_up_times import WakeUp
from leadline.plan.gateway_metrics import of_gateway

CPUS = 2
SECONDS = range(-1, 13)


def on_one_machine(
    kind: str = "tcp", *, foreign: float = 0.0, steal: float = 0.0, softirq: float = 0.2, cpus: int = CPUS
) -> TestData:
    """Gateway and client use 0.5 and 0.3 CPUs, the controller 0.1; `foreign`, `steal` and `softirq` are CPUs too."""
    data = steady_test(kind)
    data.in_lab = True
    data.facts = {name: facts() for name in ("gateway", "client1")}
    busy = 0.5 + 0.3 + 0.1 + foreign
    for second in SECONDS:
        past = float(second + 2)
        machine = {
            "user": busy * past,
            "softirq": softirq * past,
            "steal": steal * past,
            "idle": (cpus - busy - softirq - steal) * past,
        }
        t_ns = EPOCH_NS + second * S
        data.add("gateway", observation(t_ns, machine, cpus=cpus, cgroup_s=0.5 * past))
        data.add("client1", observation(t_ns, cgroup_s=0.3 * past))
    data.controller_cpu = [(EPOCH_NS - S, 1.0), (EPOCH_NS + 11 * S, 2.2)]
    data.controller_boot_id = BOOT
    return data


def codes(data: TestData) -> tuple[str, list[str]]:
    found = analyse_test(data).validity
    return found.verdict.value, [reason.code for reason in found.reasons]


def test_what_the_run_itself_used_disturbs_nothing() -> None:
    assert codes(on_one_machine()) == ("valid", [])
    assert codes(on_one_machine(foreign=0.09)) == ("valid", [])


def test_other_work_is_named_with_its_figures() -> None:
    found = analyse_test(on_one_machine(foreign=0.5)).validity
    assert found.verdict is Verdict.DISTURBED
    (reason,) = found.reasons
    assert reason.code == "other-work"
    assert "used 50 % of one CPU" in reason.text
    assert "busy 160 %: hosts 80 %, soft interrupts 20 %, Leadline's controller 10 %" in reason.text


@pytest.mark.parametrize(
    ("foreign", "waited", "code"),
    [(1.0, 0.2, ["other-work"]), (1.0, 0.01, []), (0.4, 0.2, []), (2.0, 0.0, ["other-work"])],
)
def test_one_busy_loop_counts_on_many_cpus_if_load_threads_wait(foreign: float, waited: float, code: list[str]) -> None:
    data = on_one_machine(foreign=foreign, cpus=32)
    outcome: Any = data.outcomes[0].outcome
    for one in outcome["generator"]["threads"]:
        one["runnable_wait_s"] = waited * one["wall_s"]
    assert outcome["generator"]["threads"]
    assert codes(data)[1] == code


def test_time_that_a_hypervisor_took_counts_everywhere() -> None:
    data = on_one_machine(steal=0.2)
    assert codes(data) == ("disturbed", ["cpu-stolen"])
    data.in_lab = False
    assert codes(data) == ("disturbed", ["cpu-stolen"])


def test_on_a_given_gateway_unknown_processes_may_be_the_system_under_test() -> None:
    data = on_one_machine(foreign=0.5)
    data.in_lab = False
    assert codes(data) == ("valid", [])


def test_a_host_whose_group_is_unknown_leaves_it_open() -> None:
    data = on_one_machine(foreign=0.5)
    data.samples["client1"] = [sample._replace(cgroup_s=None) for sample in data.samples["client1"]]
    assert codes(data) == ("valid", [])


@pytest.mark.parametrize("boot_id", [BOOT, "another"])
def test_the_controller_counts_on_its_own_machine_alone(boot_id: str) -> None:
    data = on_one_machine(foreign=0.05)
    data.controller_boot_id = boot_id
    assert codes(data)[0] == ("valid" if boot_id == BOOT else "disturbed")


def test_a_rate_that_was_delivered_whole_is_not_doubted() -> None:
    data = on_one_machine("udp", foreign=0.5)
    outcome = data.outcomes[0].outcome
    outcome["flows"][0] |= {"lost": 0, "jitter_us": 3.0}
    found = analyse_test(data)
    assert found.metrics["throughput_bps"].bound is Bound.LEAST
    assert found.metrics["jitter_us"].bound is Bound.MOST
    spec = {"name": "t", "kind": "udp", "duration_ms": 10_000, "interval_ms": 100, "rate_pps": 1000.0}
    data.spec = type(data.spec).read(spec)
    found = analyse_test(data)
    assert found.validity.verdict is Verdict.VALID
    assert (found.metrics["lost_ratio"].value, found.metrics["lost_ratio"].verdict) == (0, Verdict.VALID)
    assert found.metrics["throughput_bps"].verdict is Verdict.VALID
    [reason] = found.validity.reasons
    costs = [f"{end}_cpu_ns_per_packet" for end in ("client", "server")]
    assert [name for name in reason.metrics if not of_gateway(name)] == ["jitter_us", *costs]


def with_hardware(**grown: Any) -> TestData:
    """Clocks and quota are read each second; `grown` says what grows per second, and how the clock goes."""
    data = on_one_machine()
    data.samples.clear()
    for second in SECONDS:
        past = second + 2
        event = observation(EPOCH_NS + second * S, {"user": 0.2 * past, "idle": 1.8 * past}, cpus=CPUS, cgroup_s=past)
        mhz = 3000.0 * (1.0 - grown.get("slower", 0.0) * (second % 2))
        cores, packages = (
            int(number * max(0, min(past, grown.get("until", 99)))) for number in grown.get("hot", (0, 0))
        )
        event["machine"]["clocks"] = [
            {"cpu": 0, "mhz": mhz, "core_throttles": 7 + cores, "package_throttles": 3 + packages},
            {"cpu": 1, "mhz": mhz, "core_throttles": 0, "package_throttles": 3 + packages},
        ]
        if "held" in grown:
            held_s = 40.0 + grown["held"] * past
            event["quota"] = {"group": "/sys/fs/cgroup/box", "cpus": 1.5, "throttled_periods": 4, "throttled_s": held_s}
        data.add("gateway", event)
        data.add("client1", {**observation(EPOCH_NS + second * S, cgroup_s=0.0), "quota": event.get("quota")})
    return data


def test_cpus_that_heat_slowed_down_are_named_with_their_counts() -> None:
    assert codes(with_hardware()) == ("valid", [])
    for hot, text in (((1, 0), "cores 10 times, packages 0 times"), ((0, 2), "cores 0 times, packages 20 times")):
        found = analyse_test(with_hardware(hot=hot)).validity
        assert found.verdict is Verdict.DISTURBED
        (reason,) = found.reasons
        assert reason.code == "heat-throttled"
        assert "the machine that the hosts share" in reason.text and reason.text.endswith(text)


@pytest.mark.parametrize(("events", "code"), [((0, 0), []), ((1, 0), ["heat-throttled"]), ((0, 1), ["heat-throttled"])])
def test_one_time_that_the_kernel_counted_is_heat_and_none_is_not(events: tuple[int, int], code: list[str]) -> None:
    data = with_hardware()
    for place, sample in enumerate(data.samples["gateway"]):
        later = SECONDS[place] >= 5
        data.samples["gateway"][place] = sample._replace(heat_throttles=(7 + later * events[0], 3 + later * events[1]))
    assert codes(data)[1] == code


def test_heat_before_the_window_disturbs_nothing() -> None:
    assert codes(with_hardware(hot=(5, 5), until=2)) == ("valid", [])


@pytest.mark.parametrize(("held", "said"), [(0.04, []), (0.12, ["quota-held-back"])])
@pytest.mark.parametrize("in_lab", [True, False])
def test_a_quota_from_above_that_held_threads_back_is_named_once(held: float, said: list[str], in_lab: bool) -> None:
    data = with_hardware(held=held)
    data.in_lab = in_lab
    found = analyse_test(data).validity
    assert [reason.code for reason in found.reasons] == said
    assert (found.verdict is Verdict.DISTURBED) == bool(said)
    for reason in found.reasons:
        assert "a quota of 1.5 CPUs from above, of the control group /sys/fs/cgroup/box" in reason.text
        assert "waiting for 12 % of the time" in reason.text


@pytest.mark.parametrize(("slower", "noted"), [(0.08, False), (0.2, True)])
def test_a_clock_that_changed_is_a_note(slower: float, noted: bool) -> None:
    found = analyse_test(with_hardware(slower=slower)).validity
    assert found.verdict is Verdict.VALID
    notes = [note.text for note in found.notes if note.code == "clock-changed"]
    assert bool(notes) is noted
    if noted:
        assert "from 2.4 to 3 GHz" in notes[0]


def with_clocks(base_hz: int | None, busy_mhz: float, busy: float) -> TestData:
    """The first CPU of the machine is busy for this share of the time, with this clock; the second one sleeps."""
    data = on_one_machine()
    data.samples.clear()
    for second in SECONDS:
        event = observation(EPOCH_NS + second * S, {"user": 0.2, "idle": 1.8}, cpus=CPUS, cgroup_s=0.0)
        event["machine"]["clocks"] = [
            {"cpu": 0, "mhz": busy_mhz, "core_throttles": None, "package_throttles": None},
            {"cpu": 1, "mhz": 800.0, "core_throttles": None, "package_throttles": None},
        ]
        for row, used in zip(event["machine"]["cpus"], (busy, 0.01), strict=True):
            row |= {"cpu": row["cpu"], "idle_s": (1 - used) * (second + 2), "user_s": used * (second + 2)}
        data.add("gateway", event)
    data.facts["gateway"] = {**data.facts.get("gateway", {}), "base_clock_hz": base_hz}
    return data


@pytest.mark.parametrize(
    ("base_hz", "busy_mhz", "busy", "noted"),
    [
        (2_600_000_000, 2000.0, 0.9, True),
        (2_600_000_000, 2400.0, 0.9, False),
        (2_600_000_000, 3500.0, 0.9, False),
        (2_600_000_000, 2000.0, 0.3, False),
        (None, 2000.0, 0.9, False),
    ],
)
def test_busy_cpus_below_their_base_clock_are_a_note(
    base_hz: int | None, busy_mhz: float, busy: float, noted: bool
) -> None:
    """An idle CPU's clock says nothing, and nor does one whose base is not known."""
    data = with_clocks(base_hz, busy_mhz, busy)
    window = Window(EPOCH_NS, EPOCH_NS, EPOCH_NS + 10 * S, EPOCH_NS + 10 * S)
    texts = [note.text for note in disturbance.notes(data, window) if note.code == "clock-below-base"]
    assert len(texts) == noted
    if noted:
        assert "ran at 2 GHz, 23 % below their base clock of 2.6 GHz" in texts[0]


def on_given_host(
    kind: str = "rr",
    *,
    foreign: float = 0.0,
    unseen: float = 0.0,
    answering: float = 0.4,
    far_busy: float | None = None,
    waited: float = 0.0,
) -> TestData:
    """One host without a control group of its own, whose agent uses 0.3 CPUs and a responder on the same machine
    `answering` ones; `unseen` are interrupts that no tick counts. `far_busy` is how busy the responder's machine was,
    if that is another one."""
    busy = 0.3 + 0.1 + answering + foreign
    own_use = machine_use(busy + unseen + 0.2)
    far_use = own_use if far_busy is None else machine_use(far_busy)
    data = steady_test(
        kind,
        generator=load(thread(0.3, waited), machine=own_use),
        receiver=load(thread(answering), side="peer", machine=far_use),
    )
    data.facts = {"client1": facts()}
    for second in SECONDS:
        past = float(second + 2)
        idle = CPUS - busy - 0.2 - unseen
        machine = {"user": 0.4 * busy * past, "system": 0.6 * busy * past, "softirq": 0.2 * past, "idle": idle * past}
        agent = [process("agent", 7, 0.1 * past, 0.2 * past, 1000)]
        crossed = {"lo": (10**6 * (second + 2),) * 2, "eth0": (1000 * (second + 2),) * 2}
        data.add("client1", observation(EPOCH_NS + second * S, machine, agent, cpus=CPUS, interfaces=crossed))
    data.controller_cpu = [(EPOCH_NS - S, 1.0), (EPOCH_NS + 11 * S, 2.2)]
    data.controller_boot_id = BOOT
    return data


@pytest.mark.parametrize(("asked_bps", "is_doubted"), [(8.0e6, False), (8.2e6, True)])
def test_stream_whose_rate_was_delivered_whole_is_not_doubted(asked_bps: float, is_doubted: bool) -> None:
    """8 Mbit/s beside other work: all that was asked for, or 98 % of it."""
    data = on_given_host("tcp", foreign=0.5, waited=0.1)
    spec = {"name": "t", "kind": "tcp", "duration_ms": 10_000, "interval_ms": 100, "rate_bps": asked_bps}
    data.spec = type(data.spec).read(spec)
    found = analyse_test(data)
    assert (found.validity.verdict is Verdict.DISTURBED) == is_doubted
    assert (found.metrics["throughput_bps"].verdict is Verdict.VALID) != is_doubted


def machine_use(busy: float) -> dict[str, Any]:
    moved = {f"{way}_{what}": 1000 for way in ("sent", "received") for what in ("bytes", "units")}
    return {"wall_s": 10.0, "cpus": CPUS, "busy_s": 10.0 * busy, "softirq_s": 2.0, **moved}


@pytest.mark.parametrize("kind", ["tcp", "rr"])
def test_other_work_on_a_given_host_is_named_with_its_figures(kind: str) -> None:
    assert codes(on_given_host(kind)) == ("valid", [])
    assert codes(on_given_host(kind, foreign=0.09)) == ("valid", [])
    found = analyse_test(on_given_host(kind, foreign=0.5, waited=0.31)).validity
    assert found.verdict is Verdict.DISTURBED
    (reason,) = found.reasons
    assert reason.code == "other-work"
    assert "used 50 % of one CPU, of the 2 CPUs that client1 is on" in reason.text
    assert "busy 150 %: agents and responder 70 %, soft interrupts 20 %, Leadline's controller 10 %" in reason.text
    assert reason.text.endswith("; a load thread waited for a CPU 31 % of the time")


def answered(**facts_of_host: Any) -> dict[str, Metric]:
    """The figures of request-response of 38 us beside other work."""
    data = on_given_host("rr", foreign=0.5, waited=0.1)
    data.facts = {name: facts(**facts_of_host) for name in ("client1", "server")}
    report: Any = histogram("latency", [38_000] * 10_000)
    data.outcomes[0].outcome["histograms"] = [report]
    return analyse_test(data).metrics


def test_closed_loop_beside_other_work_is_bounded_on_no_side() -> None:
    """CPUs that others keep awake answer sooner: the same path may take longer on an idle machine."""
    metrics = answered()
    p50, rate = metrics["latency_p50_us"], metrics["transactions_per_s"]
    assert [one.verdict for one in (p50, rate)] == [Verdict.DISTURBED] * 2
    assert [one.bound for one in (p50, rate)] == [Bound.NONE] * 2


@pytest.mark.parametrize(
    "awake",
    [
        {"idle_poll": {"held": True, "reason": None}},
        {"wake_up": dict(zip(WakeUp.__dataclass_fields__, (100, 0.1, 0.1, 0.1, 0.15), strict=True))},
    ],
)
def test_closed_loop_whose_cpus_hardly_sleep_is_bounded_beside_other_work(awake: dict[str, Any]) -> None:
    metrics = answered(**awake)
    assert metrics["latency_p50_us"].bound is Bound.MOST
    assert metrics["transactions_per_s"].bound is Bound.LEAST


def test_two_ends_on_one_machine_do_not_accuse_each_other() -> None:
    assert codes(on_given_host(answering=0.7)) == ("valid", [])
    # The same use of the CPUs, on a machine that the responder is not on, is other work.
    elsewhere = on_given_host(answering=0.7, far_busy=0.3)
    assert codes(elsewhere) == ("disturbed", ["other-work"])


@pytest.mark.parametrize(("far_boot", "code"), [(BOOT, []), ("another", ["other-work"]), (None, [])])
def test_equal_machine_elsewhere_is_known_by_its_boot_id(far_boot: str | None, code: list[str]) -> None:
    """As many CPUs, equally busy; an older agent does not name its boot."""
    data = on_given_host(answering=0.7)
    outcome: Any = data.outcomes[0].outcome
    for side, boot_id in (("generator", BOOT), ("receiver", far_boot)):
        outcome[side]["machine"] = {**outcome[side]["machine"], "boot_id": boot_id}
    assert codes(data)[1] == code


def test_interrupts_that_no_tick_counted_are_no_other_work() -> None:
    assert codes(on_given_host(unseen=0.4)) == ("valid", [])


def test_other_work_is_not_known_where_a_program_of_the_machine_may_carry_the_payload() -> None:
    data = on_given_host(foreign=0.5)
    tunnel = (InterfaceUse("tun0", ((0, 0), (0, 0))), InterfaceUse("tun0", ((10**7, 9), (10**7, 9))))
    data.samples["client1"] = [
        one._replace(interfaces=(*one.interfaces, tunnel[number > 2]))
        for number, one in enumerate(data.samples["client1"])
    ]
    assert codes(data) == ("valid", [])


def test_other_work_is_not_known_beside_a_server_that_does_not_report() -> None:
    data = on_given_host(foreign=0.5)
    data.outcomes[0].outcome["receiver"] = None
    assert "other-work" not in codes(data)[1]


@pytest.mark.parametrize("quiet_share", [0.0, 0.5, 1.0])
def test_responders_cpu_time_inside_the_window_is_in_step_with_its_answers(quiet_share: float) -> None:
    """Before the window a responder answers at a share of the rate, with as much of its CPU time."""
    data, warm_s, length_s = on_given_host(answering=0.8), 5, 10
    data.spec = replace(data.spec, warmup_ns=warm_s * S)
    number = 0
    for points in data.progress.values():
        for place, point in enumerate(points):
            since_s = min((point.t_ns - EPOCH_NS) / S, length_s)
            number = round(1000 * (quiet_share * min(since_s, warm_s) + max(0.0, since_s - warm_s)))
            moved = dict.fromkeys(("sent_bytes", "received_bytes", "sent_units", "received_units"), number)
            points[place] = point._replace(**moved)
    made: Any = data.outcomes[0].outcome
    made["flows"][0] |= {"received_units": number, "received_bytes": number, "sent_bytes": number}
    made["receiver"]["threads"] = [thread(0.8 * number / 1000 / length_s)]
    assert codes(data) == ("valid", [])
    for place, sample in enumerate(data.samples["client1"]):
        past = float(SECONDS[place] + 2)
        assert sample.cpu_s is not None
        user, *middle, idle = sample.cpu_s
        data.samples["client1"][place] = sample._replace(cpu_s=(user + 0.2 * past, *middle, idle - 0.2 * past))
    assert codes(data) == ("disturbed", ["other-work"]), "it is not hidden by more of its own than there was"


def test_answering_agent_of_a_plan_counts_with_its_process() -> None:
    """Its load's threads are in it, and count once."""
    data = on_given_host(answering=0.0, foreign=0.5)
    data.facts["server"] = facts()
    for second in SECONDS:
        agent = [process("agent", 8, 0.0, 0.45 * (second + 2), 1000)]
        data.add("server", observation(EPOCH_NS + second * S, None, agent))
    assert codes(data) == ("valid", [])
    data.facts["server"] = facts("another")
    assert codes(data) == ("disturbed", ["other-work"])


def test_synthetic_machines_are_disturbed_where_other_work_is_above_the_limit() -> None:
    """Any mix of own work, interrupts that no tick counts, and other work: the latter alone decides."""
    generator = np.random.default_rng(11)
    for _ in range(60):
        answering, unseen = float(generator.uniform(0, 0.5)), float(generator.uniform(0, 0.3))
        little, much = float(generator.uniform(0, 0.095)), float(generator.uniform(0.105, 0.6))
        quiet = on_given_host(answering=answering, unseen=unseen, foreign=little)
        assert codes(quiet) == ("valid", []), (answering, unseen, little)
        beside = on_given_host(answering=answering, unseen=unseen, foreign=much)
        assert codes(beside) == ("disturbed", ["other-work"]), (answering, unseen, much)
