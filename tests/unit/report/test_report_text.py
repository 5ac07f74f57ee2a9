"""The terminal's tables: what they say, and that they stay inside 80 columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packed_pages import with_open_cases
from rich.console import Console, RenderableType
from sample_runs import GENERATOR_LIMITED, VALID, doubted, gateway_run, many_trials, one_result

from leadline.analysis.model import Bound, Limit, LimitedBy, Metric, Reason, TrialResult, Validity, Verdict
from leadline.report import figures_table, measurement, render_html, run_renderables
from leadline.report.host_statistics import gateway_rows


def shown(*renderables: RenderableType, width: int = 80) -> str:
    console = Console(width=width, record=True, file=None, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        for renderable in renderables:
            console.print(renderable)
    return capture.get()


def line_with(text: str, *words: str) -> str:
    found = [line for line in text.splitlines() if all(word in line for word in words)]
    assert found, f"no line with {words} in\n{text}"
    return found[0]


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("run", [gateway_run(), many_trials(20)], ids=["gateway", "many"])
def test_no_line_is_wider_than_the_terminal(run: object, width: int) -> None:
    text = shown(*run_renderables(run), width=width)  # type: ignore[arg-type]
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [80, 140])
def test_figures_stand_beside_their_verdict(width: int) -> None:
    text = shown(figures_table(gateway_run()), width=width)
    assert "wireguard" in text
    assert "≥ generator-limited" in line_with(text, "http", "≥ 88.4 k/s", "≤ 88.0 µs", "≤ 273 µs")
    assert "valid" in line_with(text, "udp", "19.9 Mbit/s", "0.420 %")
    assert "1 of 3 failed" in line_with(text, "≈ unstable", "103 µs")
    assert "…" not in text


def test_repeats_that_failed_are_counted_among_those_that_began() -> None:
    """An interrupted repeat is shown as incomplete where no other one completed, and a disturbed one is left out."""
    run = gateway_run()
    summary = next(one for one in run.summaries if (one.case, one.test) == ("c01", "udp"))
    (first, *_) = (trial for trial in run.trials if trial.case == "c01")
    cut = replace(
        run, trials=(replace(first, status="interrupted"),), summaries=(replace(summary, repeats=1, failed=1),)
    )
    assert "1 of 1 failed" in line_with(shown(figures_table(cut)), "udp")
    few = replace(run, summaries=(replace(summary, repeats=1, failed=1),))
    assert "1 of 3 failed" in line_with(shown(figures_table(few)), "udp")


def test_tally_counts_planned_trials() -> None:
    killed = replace(many_trials(5), status="killed", missing_trials=tuple(f"c02/{number}" for number in range(1, 11)))
    assert "5 of 15 trials done, 10 not begun; results:" in shown(*run_renderables(killed))


def test_wide_tables_give_each_varying_parameter_a_column() -> None:
    head = shown(figures_table(many_trials(40)), width=140).splitlines()[1]
    titles = ["case", "clients", "packet", "test", "rate", "±95", "%", "lost", "p50", "p99", "verdict,", "limit"]
    assert head.split() == titles


@pytest.mark.parametrize(
    ("by", "cell"), [(LimitedBy.LINK, "✓ valid, link"), (LimitedBy.OFFERED_RATE, "✓ valid, offered"), (None, "✓ valid")]
)
def test_the_part_that_limited_a_test_stands_beside_its_verdict(by: LimitedBy | None, cell: str) -> None:
    run = gateway_run()
    limit = Limit(by, "it was full") if by is not None else None
    summaries = [replace(summary, limit=limit) for summary in run.summaries]
    text = shown(figures_table(replace(run, summaries=tuple(summaries))))
    assert line_with(text, "tcp-up", "18.4 Gbit/s").rstrip().endswith(cell)
    assert "…" not in text
    limited = line_with(text, "generator-limited").rstrip()
    assert limited.endswith("generator-limited"), "the verdict says it already"


def test_only_capacities_are_bounded_by_a_busy_generator() -> None:
    run = gateway_run()
    limited = [
        replace(summary, validity=GENERATOR_LIMITED, metrics=doubted(summary.metrics, GENERATOR_LIMITED))
        for summary in run.summaries
        if summary.kind == "udp"
    ]
    line = line_with(shown(figures_table(replace(run, summaries=tuple(limited)))), "udp")
    assert "≥ 20.0 Mbit/s" in line
    assert "≥ 0 %" not in line


def test_what_is_not_known_is_a_dash() -> None:
    run = gateway_run()
    summary = replace(run.summaries[0], metrics={"throughput_bps": Metric(None, "bit/s")}, validity=GENERATOR_LIMITED)
    text = shown(figures_table(replace(run, summaries=(summary,))))
    assert "≥ –" not in text
    assert "–" in line_with(text, "tcp-up")


def test_a_case_without_any_figure_is_still_listed() -> None:
    run = gateway_run()
    trials = tuple(replace(trial, status="failed", tests=()) for trial in run.trials if trial.case == "c03")
    text = shown(figures_table(replace(run, trials=trials, summaries=())))
    assert "c03" in text
    assert "3 × failed" in text


def test_client_and_server_statistics() -> None:
    text = shown(*run_renderables(gateway_run()))
    assert line_with(text, "c02", "tcp-up", "2,487.3").split() == [
        "c02",
        "tcp-up",
        "2",
        "2,487.3",
        "1,930.0",
        "241.25",
        "965.00",
    ]
    assert "10.31  24.1  61.7     38.2  131.4   0.3  96.0      9.0" in line_with(text, "c02", "tcp-up", "10.31")
    assert "2 CPUs, so 200 % at most" in text


def test_bring_up_counts_and_names_causes() -> None:
    text = shown(*run_renderables(gateway_run()))
    assert " ".join(line_with(text, "c03", "940 ms").split()) == "c03 57 3 0 422 to 442 ms 940 ms"
    assert "c03: openvpn 2.6.14" in text
    assert "3 × no address: the pool is used up" in text


def test_a_fleets_server_is_named_where_no_client_was_brought_up() -> None:
    run = gateway_run()
    trials = tuple(replace(trial, bring_up=None, sut="openvpn", sut_version="OpenVPN 2.6.14") for trial in run.trials)
    assert line_with(shown(*run_renderables(replace(run, trials=trials))), "c01: openvpn OpenVPN 2.6.14")
    plain = tuple(replace(trial, bring_up=None, sut="route", sut_version=None) for trial in run.trials)
    assert "c01: " not in shown(*run_renderables(replace(run, trials=plain)))


def test_failed_trials_targets_and_the_verdict_with_its_reasons() -> None:
    text = shown(*run_renderables(gateway_run()), width=120)
    assert "openvpn on gateway ended with status 1" in line_with(text, "c03/3 failed")
    assert "0.42 %, not below 0.1 %" in line_with(text, "✗ missed", "c03")
    assert "the result is unstable" in line_with(text, "? undecided")
    assert "1 of 9 trials failed: c03/3" in line_with(text, "trials-failed")
    assert text.index("Figures") < text.index("Targets") < text.index("What the figures say") < text.index("! Incompl")


def test_terminal_has_the_sentences_of_the_page() -> None:
    run = gateway_run()
    text = " ".join(shown(*run_renderables(run), width=80).split())
    for answer in run.answers:
        assert f"{answer.case} {answer.sentence}" in text


def test_what_to_do_next_is_said_once_with_its_cases() -> None:
    run = gateway_run()
    first, second, third = run.answers
    advised = (replace(first, next_step="measure"), replace(second, next_step="wait"), replace(third, next_step="wait"))
    text = shown(*run_renderables(replace(run, answers=advised)))
    assert "Next: c01: measure" in text
    assert "Next: c02, c03: wait" in text


def test_empty_run_says_so_without_tables() -> None:
    run = gateway_run(trials=(), summaries=(), targets=(), status="killed")
    text = shown(*run_renderables(run))
    assert "The run was killed" in text
    assert "0 of 0 trials done" in text
    assert "Server statistics" not in text


def test_markup_in_names_is_text() -> None:
    run = gateway_run(validity=Validity(Verdict.INCOMPLETE, ()), notes=())
    trial = replace(run.trials[-1], error="[bold red]no[/] [/broken")
    assert "[bold red]no[/] [/broken" in shown(*run_renderables(replace(run, trials=(trial,))), width=120)


@pytest.mark.parametrize(
    ("kind", "headline", "line"),
    [
        ("tcp", "18.3 Gbit/s  TCP throughput", ("retransmits", "17")),
        ("udp", "19.9 Mbit/s  UDP throughput", ("datagrams sent", "17,857")),
        ("rr", "41.6 k/s  request-response", ("15.3 µs", "67.9 µs", "1.31 ms")),
        ("http", "≥ 88.0 k/s  HTTP requests", ("generator", "6.42 s of CPU in 10.3 s", "97.0 %")),
    ],
)
def test_single_measurement_shows_headline_and_figures(kind: str, headline: str, line: tuple[str, ...]) -> None:
    text = shown(measurement(one_result(kind), verbose=True))
    assert headline in text
    assert line_with(text, *line)
    assert ("≥ generator-limited" if kind == "http" else "✓ valid") in text


def test_single_measurement_shows_its_intervals() -> None:
    rr = one_result("rr")
    metrics = {
        **rr.metrics,
        "transactions_per_s": Metric(41_600.0, "1/s", 41_200.0, 42_000.0),
        "latency_p99_us": Metric(67.9, "us", 66.0, 70.5),
    }
    text = shown(measurement(replace(rr, metrics=metrics), verbose=True))
    assert "41.6 k/s  request-response ±0.96 %" in text
    assert line_with(text, "95 % from", "66.0 µs") and line_with(text, "to", "70.5 µs")
    http = one_result("http")
    bounds = {"latency_p50_us": Metric(400.0, "us", 390.0, 411.0), "latency_p99_us": Metric(900.0, "us", 850.0, 990.0)}
    text = shown(measurement(replace(http, metrics={**http.metrics, **bounds}), verbose=True))
    assert line_with(text, "95 %: p50 390 µs to 411 µs, p99 850 µs to 990 µs")


def test_row_of_times_that_are_upper_bounds_says_so() -> None:
    http = one_result("http")
    p99 = replace(http.metrics["latency_p99_us"], verdict=Verdict.DISTURBED, reasons=("other-work",), bound=Bound.MOST)
    text = shown(measurement(replace(http, metrics={**http.metrics, "latency_p99_us": p99}), verbose=True))
    assert line_with(text, "  latency ≤")


@pytest.mark.parametrize("width", [80, 200])
def test_run_shows_intervals_at_every_width(width: int) -> None:
    text = shown(figures_table(gateway_run()), width=width)
    assert "±" in text and ("±95 %" in text or "95 %: " in text)


def test_head_and_tail_stands_below_the_figures() -> None:
    run = gateway_run()
    note = Reason("head-and-tail", "throughput_bps would be -15.8 % from the first start to the last end")
    first = run.summaries[0]
    noted = replace(first, validity=replace(first.validity, notes=(note,)))
    text = shown(*run_renderables(replace(run, summaries=(noted, *run.summaries[1:]))))
    assert line_with(text, f"{first.case} {first.test}: throughput_bps would be")


def test_service_and_lateness_stand_below_latency() -> None:
    text = shown(measurement(one_result("http"), verbose=True))
    assert line_with(text, "  late ", "270 µs").split()[1:3] == ["3.15", "µs"]
    assert text.index("  latency") < text.index("  service") < text.index("  late ")


def test_log_of_a_daemon_is_shown_once() -> None:
    """The daemon ended in each trial, and in the test that ran then; its log differs by times only."""
    run = gateway_run()

    def failed(trial: TrialResult, error: str) -> TrialResult:
        return replace(
            trial,
            status="failed",
            error=error,
            tests=tuple(replace(test, status="failed", error=error) for test in trial.tests),
        )

    trials = tuple(
        failed(trial, f"the daemon exited with 1; its log ends: no memory at {number}")
        for number, trial in enumerate(run.trials)
    )
    broken = replace(run, trials=trials)
    text = shown(*run_renderables(broken), width=160)
    assert text.count("the daemon exited with 1") == len(trials) and text.count("its log ends: no memory at 0") == 1
    assert text.count("its log ends") == 1
    assert with_open_cases(render_html(broken)).count("its log ends") == 1


def test_a_failed_measurement_names_its_error() -> None:
    failed = one_result("http", status="failed", error="connection refused", metrics={}, generator=None, window=None)
    text = shown(measurement(replace(failed, errors={"refused": 3}, validity=VALID), verbose=True))
    assert "failed: connection refused" in text
    assert "3 × refused" in text
    assert "its cost is unknown" in text


def test_a_kind_without_a_table_shows_its_metrics() -> None:
    result = one_result("rr", metrics={"line_rate_ratio": Metric(0.5, "ratio"), "sent": Metric(9.0, "count")})
    text = shown(measurement(replace(result, kind="packets"), verbose=True))
    assert "50.0 %" in text


def test_a_run_of_mixed_results_says_how_many_can_be_believed() -> None:
    run = gateway_run()
    whole = tuple(replace(trial, status="done") for trial in run.trials)
    text = shown(*run_renderables(replace(run, trials=whole, status="done")), width=120)
    assert "10 of 12 results can be believed: The others: 1 generator-limited, 1 unstable." in text


def test_a_given_system_is_called_by_its_label() -> None:
    run = gateway_run()
    assert "not brought up by this run" not in shown(*run_renderables(run))
    given = tuple(replace(trial, sut="given", sut_version="pfSense [2.7]", on_given_hosts=True) for trial in run.trials)
    text = shown(*run_renderables(replace(run, trials=given)))
    assert text.count("System under test on given hosts, not brought up by this run: pfSense [2.7]") == 1


def test_every_result_has_the_word_for_what_limited_it() -> None:
    run = gateway_run()
    limits = [Limit(by, f"evidence of {by.value}") for by in LimitedBy]
    summaries = tuple(replace(one, limit=limits[number % len(limits)]) for number, one in enumerate(run.summaries))
    text = " ".join(shown(*run_renderables(replace(run, summaries=summaries))).split())
    for by, first in zip(LimitedBy, summaries, strict=False):
        assert f"{by.value}: {first.case} {first.test}" in text
        assert f"evidence of {by.value}" in text
    same = tuple(replace(one, limit=limits[0]) for one in (*run.summaries, *run.summaries))
    text = " ".join(shown(*run_renderables(replace(run, summaries=same))).split())
    assert f"and {len(same) - 12} more" in text and text.count("evidence of") == 1


def test_gateways_keep_the_names_of_tests_whole_in_80_columns() -> None:
    run = gateway_run()
    costs = {
        "gateway_cpu_percent": Metric(100.0, "percent", bound=Bound.MOST),
        "gateway_cpu_percent_per_gbps": Metric(104.0, "percent", bound=Bound.MOST),
        "gateway_cpu_ns_per_packet": Metric(5_740.0, "ns", bound=Bound.MOST),
        "gateway_cpu_percent_per_client": Metric(100.0, "percent", bound=Bound.MOST),
        "gateway_memory_bytes": Metric(8e6, "bytes"),
        "gateway_memory_per_client_bytes": Metric(8e6, "bytes"),
    }
    summaries = tuple(replace(one, test="http-closed", metrics={**one.metrics, **costs}) for one in run.summaries)
    text = shown(*run_renderables(replace(run, summaries=summaries)))
    assert line_with(text, "http-closed", "≤ 104 %", "≤ 5.74 µs", "7.63 MiB")
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(("per_gbps", "cell"), [(3_000.0, "3000 %"), (4_000.0, "–")])
def test_cpu_per_gbps_of_hardly_any_payload_is_left_out(per_gbps: float, cell: str) -> None:
    run = gateway_run()
    costs = {
        "gateway_cpu_percent": Metric(3.6, "percent"),
        "gateway_cpu_percent_per_gbps": Metric(per_gbps, "percent"),
    }
    (summary, *_) = run.summaries
    rows = gateway_rows(replace(run, summaries=(replace(summary, metrics={**summary.metrics, **costs}),)))
    assert rows[0].cells[:2] == ("3.60 %", cell)


def test_unknown_lateness_of_the_generator_is_left_out() -> None:
    known = one_result()
    assert known.generator is not None
    without = replace(known, generator=replace(known.generator, late_p99_us=None, cpu_ns_per_unit=None))
    assert "sends late by p99" in shown(measurement(known, verbose=True))
    text = shown(measurement(without, verbose=True))
    assert "busiest thread" in text and "sends late" not in text and "of CPU per" not in text
