"""How many lines each command ends with at 80 columns, and that the answer is among the last of them.

The results are made, and as bad as measured ones get: several long reasons, notes, a limit, every figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from rich.console import RenderableType
from sample_runs import VALID, gateway_run, one_result

import made_ladders
from leadline.analysis.advice import ADVICE
from leadline.analysis.answers import answers_of
from leadline.analysis.model import (
    Bound,
    ClientBringUp,
    Generator,
    Limit,
    LimitedBy,
    Metric,
    Reason,
    RunAnalysis,
    TestResult,
    Validity,
    Verdict,
)
from leadline.cli.terminal import Terminal
from leadline.plan.service_demand_metrics import Unit, service_demand_specs
from leadline.report import measurement, run_summary, trial_headline
from leadline.report.brief import MAX_CAUSES
from leadline.report.ladder_summary import ladder_summary

BUDGETS = {"tcp": 14, "http": 20, "rr": 14, "udp": 14}
LADDER_LINES, RUN_LINES = 40, 100
SCREEN = 24
OTHER_WORK = Reason(
    "other-work",
    "processes outside of this run used 119 % of one CPU, of the 2 CPUs that this host is on (busy 200 %: agents and "
    "responder 46 %, soft interrupts 33 %, Leadline's controller 1 %); a load thread waited for a CPU 59 % of the time",
    Verdict.DISTURBED,
)
UNKNOWN = Reason(
    "precision-unknown",
    "the rate is not known well enough: the series is too short for its slow changes: it is worth 0.92 independent "
    "values; parts of the window lie -65.8 % to +27.2 % from its mean; it is so uneven, or changes so slowly, that "
    "what moves it has to be found first; what may move it: a thread of this host waited for a CPU 37 % of the time",
    Verdict.UNDETERMINED,
)
UNEVEN = Reason(
    "intervals-disagree",
    "the rate is uncertain by ±37.9 %; the limit is 10.0 %; as uneven as it is, that takes a window of about 18 s; "
    "what may move it: a thread of this host waited for a CPU 59 % of the time",
    Verdict.UNSTABLE,
)
DROPS = Reason(
    "receiver-socket-drops",
    "39,935 bundles of datagrams arrived and were dropped by the socket on the server that this host used, of up to "
    "128 each; 1,837,010 datagrams count as lost",
    Verdict.RECEIVER_LIMITED,
)
JITTER = Reason(
    "sends-late", "sends of client1 were 51.2 ms late at p99; the limit is 1 ms", Verdict.DISTURBED, ("jitter_us",)
)
WAKE_UP = Reason(
    "idle-wake-up",
    "an idle CPU takes 36.2 µs on this host to wake up (median before the test): 36.2 µs per operation, if idle each "
    "time, are 53 % of the p50 of 68.5 µs; on busy hosts, which do not sleep, it is shorter",
)
BATCHED = Reason(
    "batched-datagrams",
    "datagrams passed the kernel in batches (GSO, GRO): jitter and delay are those of the batches; --no-gso measures "
    "single datagrams",
)
LIMIT = Limit(
    LimitedBy.PATH,
    "the senders waited for the path 59.2 % of the time, with 6 segments lost and sent again",
)
NOTES = (WAKE_UP, BATCHED)
VALIDITIES = {
    "valid": Validity(Verdict.VALID, notes=NOTES),
    "doubted": Validity(Verdict.VALID, (JITTER, UNEVEN), NOTES),
    "disturbed": Validity(Verdict.DISTURBED, (OTHER_WORK, DROPS, UNEVEN, UNKNOWN), NOTES),
    "unstable": Validity(Verdict.UNSTABLE, (UNEVEN, UNKNOWN), NOTES),
    "undetermined": Validity(Verdict.UNDETERMINED, (UNKNOWN,), NOTES),
    "receiver-limited": Validity(Verdict.RECEIVER_LIMITED, (DROPS, UNEVEN), NOTES),
}
GENERATOR = Generator(
    6.42, 10.31, 0.61, 14.0, 3120.0, "epoll", "io_uring_setup: Operation not permitted", ceiling_per_s=116_000.0
)
UNITS: Mapping[str, Unit] = {"tcp": "byte", "udp": "packet", "rr": "transaction"}
KERNEL = {
    **dict.fromkeys(("sent_bytes", "received_bytes"), Metric(1.79e9, "bytes")),
    **dict.fromkeys(("rtt_idle_us", "rtt_max_us"), Metric(902.0, "us")),
    **dict.fromkeys(("congestion_window_bytes", "receive_window_bytes"), Metric(3.31e6, "bytes")),
    **dict.fromkeys(("pacing_bps", "delivery_bps"), Metric(31.7e9, "bit/s")),
    **dict.fromkeys(("receiver_limited_ratio", "path_limited_ratio", "sender_idle_ratio"), Metric(0.4, "ratio")),
    **dict.fromkeys(("zerocopy_copied_ratio", "zerocopy_fallback_ratio"), Metric(0.4, "ratio")),
    **dict.fromkeys(("tcp_efficiency_ratio", "buffer_delay_ratio", "line_use_ratio"), Metric(0.9, "ratio")),
    "out_of_order": Metric(40.0, "count"),
}
DATAGRAMS = {
    **dict.fromkeys(("duplicates", "loss_bursts", "loss_burst_max", "reorder_extent_max"), Metric(9_139.0, "count")),
    **dict.fromkeys(("one_way_delay_mean_us", "one_way_delay_max_us"), Metric(14.4, "us")),
    "reordered": Metric(12.0, "count"),
    "lost_ratio": Metric(0.498, "ratio"),
}
PARTS = ("p50", "p99", "max")
TIMES = {
    f"{histogram}_{name}_us": Metric(3_490.0, "us", 18.7, 8_860.0, bound=Bound.MOST)
    for histogram, names in {
        "latency": ("min", "mean", "p50", "p90", "p99", "p999", "max"),
        "service": PARTS,
        "connect": PARTS,
    }.items()
    for name in names
}
MORE = {"tcp": KERNEL, "udp": DATAGRAMS, "rr": {**TIMES, "unsent": Metric(12.0, "count")}, "http": {}}


def lines(*renderables: RenderableType) -> list[str]:
    console = Terminal(width=80, color_system=None, file=None)
    with console.capture() as capture:
        for number, renderable in enumerate(renderables):
            if number:
                console.print()
            console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


def full_result(kind: str, validity: Validity) -> TestResult:
    made = one_result(kind)
    metrics = {**made.metrics, **MORE[kind]}
    if kind in UNITS:
        metrics |= {spec.name: Metric(1.16e4, "ns") for spec in service_demand_specs(UNITS[kind])}
    return replace(made, metrics=metrics, validity=validity, limit=LIMIT, generator=GENERATOR)


def disturbed_run(*validities: Validity) -> RunAnalysis:
    """The gateways' run, all of it measured: the results have these validities in turn."""
    worst = min((one.verdict for one in validities), key=list(Verdict).index)
    run = gateway_run(validity=Validity(worst), status="done", targets=())
    trials = tuple(
        replace(trial, status="done", error=None, bring_up=ClientBringUp(20, 0, 0, 0.02, 0.03)) for trial in run.trials
    )
    summaries = tuple(
        replace(one, validity=validities[number % len(validities)], limit=LIMIT, failed=0)
        for number, one in enumerate(run.summaries)
    )
    whole = replace(run, trials=trials, summaries=summaries)
    return replace(whole, answers=answers_of(whole))


@pytest.mark.parametrize("name", VALIDITIES)
@pytest.mark.parametrize("kind", BUDGETS)
def test_measurement_keeps_its_lines(kind: str, name: str) -> None:
    shown = lines(measurement(full_result(kind, VALIDITIES[name])))
    text = "\n".join(shown)
    assert len(shown) <= BUDGETS[kind], text
    assert max(map(len, shown)) <= 80 and "…" not in text, text
    assert text.count("To do: ") == (VALIDITIES[name].verdict is not Verdict.VALID), text


@pytest.mark.parametrize("kind", BUDGETS)
def test_measurement_ends_with_figure_verdict_and_one_reason(kind: str) -> None:
    text = " ".join(" ".join(lines(measurement(full_result(kind, VALIDITIES["disturbed"])))).split())
    _, _, ending = text.partition("over 9.59 s, 6.98 % cut at head and tail ")
    assert ending == (
        "! disturbed: processes outside of this run used 119 % of one CPU, of the 2 CPUs that this host is on; "
        "a load thread waited for a CPU 59 % of the time "
        "To do: stop what else runs on the machine that is named (`top` shows it), and run it again "
        "3 more reasons, 2 notes: --verbose"
    )


@pytest.mark.parametrize("kind", BUDGETS)
def test_verbose_measurement_has_every_reason_note_and_advice(kind: str) -> None:
    shown = lines(measurement(full_result(kind, VALIDITIES["disturbed"]), verbose=True))
    text = " ".join(" ".join(shown).split())
    assert len(shown) > BUDGETS[kind]
    for reason in (*VALIDITIES["disturbed"].reasons, *NOTES):
        assert f"{reason.code}: {reason.text}" in text
    assert "generator" in text and "What to do" in text and LIMIT.evidence in text


def test_note_of_a_disturbed_result_is_behind_verbose() -> None:
    valid, disturbed = (
        "\n".join(lines(measurement(full_result("rr", VALIDITIES[name])))) for name in ("valid", "disturbed")
    )
    assert "an idle CPU takes 36.2 µs" in valid and "an idle CPU" not in disturbed
    assert "1 more note: --verbose" in valid


@pytest.mark.parametrize("verbose", [False, True])
def test_what_is_doubted_is_never_believed_first(verbose: bool) -> None:
    doubted = replace(full_result("udp", VALIDITIES["doubted"]), limit=None)
    text = "\n".join(lines(measurement(doubted, verbose=verbose)))
    assert "These figures can be believed" not in text
    assert "✓ valid" in text and ("jitter_us only" if verbose else "jitter is doubted: sends of client1") in text


def test_interval_that_rounds_to_none_is_left_out() -> None:
    made = one_result("tcp", validity=VALID)
    exact = replace(made, metrics={**made.metrics, "throughput_bps": Metric(1e9, "bit/s", 1e9, 1e9)})
    assert "±" not in "\n".join(lines(measurement(exact)))
    assert "±0.0 %" in "\n".join(lines(measurement(exact, verbose=True)))


@pytest.mark.parametrize(
    "validities",
    [(Validity(Verdict.VALID),), (VALIDITIES["disturbed"],), tuple(VALIDITIES.values())],
    ids=["valid", "disturbed", "mixed"],
)
def test_run_of_the_gateways_keeps_its_lines(validities: tuple[Validity, ...]) -> None:
    run = disturbed_run(*validities)
    progress = [trial_headline(trial.tests) for trial in run.trials]
    shown = lines(*run_summary(run))
    text = "\n".join(shown)
    # As many further rounds fit as the plan allows: 15 of 3 trials, and a line for each round.
    assert len(shown) + 15 * 3 + 9 <= RUN_LINES, text
    assert all("\n" not in line.plain for line in progress)
    assert max(map(len, shown)) <= 80, text
    for title in ("Client statistics", "Server statistics", "Gateways", "Bring-up", "Compared with", "Head and tail"):
        assert title not in text
    ending = " ".join(" ".join(shown[-SCREEN:]).split())
    assert all(answer.sentence in ending for answer in run.answers), text


def test_run_with_one_cause_says_it_beside_its_verdict() -> None:
    shown = "\n".join(lines(*run_summary(disturbed_run(VALIDITIES["disturbed"]))))
    assert "! Disturbed: processes outside of this run used 119 % of one CPU" in shown
    assert shown.count("processes outside of this run") == 1


def test_figures_at_the_end_of_a_run_have_the_limits_of_valid_results_only() -> None:
    valid, disturbed = (
        "\n".join(lines(*run_summary(disturbed_run(VALIDITIES[name])))) for name in ("valid", "disturbed")
    )
    assert "✓ valid, path" in valid and "! disturbed, path" not in disturbed


def test_run_counts_the_causes_that_it_does_not_name() -> None:
    made = [
        Validity(Verdict.DISTURBED, (Reason(f"cause-{letter}", f"cause {letter}", Verdict.DISTURBED),))
        for letter in "abcdef"
    ]
    shown = lines(*run_summary(disturbed_run(*made)))
    assert sum(": cause " in line for line in shown) == MAX_CAUSES
    assert f"  {len(made) - MAX_CAUSES} more causes of 6 results" in shown


def test_run_shows_bring_up_only_where_a_client_failed() -> None:
    run = disturbed_run(VALID)
    assert "Bring-up" not in "\n".join(lines(*run_summary(run)))
    failed = ClientBringUp(19, 0, 1, 0.02, 0.03, {"no address: the pool is used up": 1})
    trials = (replace(run.trials[0], bring_up=failed), *run.trials[1:])
    assert "1 × no address" in "\n".join(lines(*run_summary(replace(run, trials=trials))))


def test_advice_to_measure_again_never_follows_that_all_can_be_believed() -> None:
    run = disturbed_run(VALID)
    assert "✓ Valid: These figures can be believed." in lines(*run_summary(run))
    advised = tuple(replace(answer, next_step=ADVICE["other-work"]) for answer in run.answers)
    text = "\n".join(lines(*run_summary(replace(run, answers=advised))))
    assert "✓ Valid" in text and "can be believed" not in text


@pytest.mark.parametrize("name", ["disturbed", "mixed"])
def test_ladder_keeps_its_lines(name: str) -> None:
    validities = list(VALIDITIES.values()) if name == "mixed" else [VALIDITIES[name]]
    rungs = ("udp", "tcp", "http", "https", "rr-udp", "rr-tcp", "http-small", "https-small")
    figures = {"c01": {**made_ladders.PLAIN, **dict.fromkeys(rungs[4:], 18_500.0)}}
    doubts = {("c01", rung): (Verdict.DISTURBED, Bound.NONE) for rung in rungs}
    made = made_ladders.ladders(
        figures,
        repeats=(1.0,),
        doubts=doubts,
        baseline=None,
        limits=dict.fromkeys(doubts, LIMIT),
        missing={("c01", "https-small"): "192.0.2.7:8443 answered nothing within 5 s: is it `leadline serve`?"},
    )
    (first, *_) = gateway_run().summaries
    summaries = tuple(
        replace(first, case="c01", test=f"ladder-{rung}", validity=validities[number % len(validities)])
        for number, rung in enumerate(rungs)
    )
    run = gateway_run(summaries=summaries, ladders=tuple(made.values()))
    shown = lines(*ladder_summary(run, verbose=False))
    text = "\n".join(shown)
    assert len(rungs) + len(shown) <= LADDER_LINES, text
    assert max(map(len, shown)) <= 80 and "…" not in text, text
    assert made["c01"].look_first in " ".join(" ".join(shown[-SCREEN:]).split())
    assert len(lines(*ladder_summary(run, verbose=True))) > LADDER_LINES
