"""The live view: what it draws of which notification, that it ends, and that it is silent where it should be."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline.analysis.model import Metric, TestResult, Validity, Verdict
from leadline.cli import run_single
from leadline.cli.progress import Progress, describe
from leadline.cli.terminal import Terminal
from leadline.plan import Case
from leadline.trial import (
    FirstRoundMeasured,
    LiveFigures,
    RunBegan,
    RunEnded,
    ScriptOutput,
    TargetOpen,
    TestBegan,
    TestEnded,
    TrialBegan,
    TrialEnded,
    TrialMeasured,
    Waiting,
)
from leadline.trial.rounds import FirstRound

LABEL = "c01/1/http"
FULL = LiveFigures(
    LABEL,
    3.0,
    11.4e6,
    88_046.0,
    latency_p50_us=92.0,
    latency_p99_us=2_550.0,
    late_p99_us=3.6,
    errors=1_234,
    connections=50,
    busiest_thread=0.303,
)


TCP = TestResult(
    case="c07",
    repeat=2,
    test="tcp-up",
    kind="tcp",
    parameters={},
    status="done",
    error=None,
    metrics={
        "throughput_bps": Metric(941e6, "bit/s"),
        "retransmits": Metric(12, "count"),
        "rtt_mean_us": Metric(1330.0, "us"),
    },
    validity=Validity(Verdict.VALID),
    window=None,
    generator=None,
    errors={},
)


def drawn(progress: Progress) -> list[str]:
    return progress._lines().plain.splitlines()


def began() -> Progress:
    progress = Progress()
    progress(TestBegan(LABEL, "http", "http", 10.0))
    return progress


def test_load_shows_its_rate_and_its_health_below() -> None:
    progress = began()
    progress(FULL)
    first, second = drawn(progress)
    assert first.startswith("http  88.0 k/s  11.4 Mbit/s  1,234 errors  0 s, about 10 s ") and first.endswith("left")
    assert second.split("  ")[1:] == [
        "p50 92.0 µs, p99 2.55 ms",
        "50 connections",
        "thread 30.3 %",
        "late 3.60 µs",
    ]
    assert max(len(first), len(second)) <= 80


def test_figures_of_printed_intervals_are_not_drawn_again() -> None:
    progress = Progress(has_intervals=True)
    progress(TestBegan(LABEL, "http", "http", 10.0))
    progress(FULL)
    first, second = drawn(progress)
    assert first.startswith("http  1,234 errors  0 s, about 10 s ") and first.endswith("left")
    assert second.split("  ")[1:] == ["50 connections", "thread 30.3 %", "late 3.60 µs"]


def test_time_left_is_visible_beside_a_long_title() -> None:
    progress = Progress()
    progress(RunBegan(36, 288.0))
    case = cast(Case, SimpleNamespace(title="sut.kind=openvpn sut.cipher=CHACHA20-POLY1305 clients=100 packet=1400"))
    progress(TrialBegan("c07/2", 7, case, 2))
    progress(TestBegan(LABEL, "throughput", "udp", 10.0))
    progress(FULL)
    lines = drawn(progress)
    assert lines[0].startswith("[7/36] sut.kind=openvpn") and lines[0].endswith("…  0 s, about 4 min 48 s left")
    assert lines[1] == "  88.0 k/s  11.4 Mbit/s  1,234 errors"
    assert lines[2].startswith("  p50 92.0 µs, p99 2.55 ms  50 connections")
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("kind", "figures", "shown"),
    [
        ("tcp", {"retransmits": 1, "rtt_us": 1330.0}, "941 Mbit/s  1 retransmit  RTT 1.33 ms"),
        ("tcp", {"retransmits": 12_345}, "941 Mbit/s  12,345 retransmits"),
        ("udp", {"units_per_s": 84_000.0, "lost_ratio": 0.0123}, "84.0 k/s  941 Mbit/s  lost 1.23 %"),
    ],
)
def test_each_kind_has_its_figures(kind: str, figures: dict[str, Any], shown: str) -> None:
    progress = Progress()
    progress(TestBegan(LABEL, kind, kind, 10.0))
    progress(LiveFigures(LABEL, 3.0, 941e6, **{"units_per_s": None, **figures}))
    [line] = drawn(progress)
    assert line.startswith(f"{kind}  {shown}  0 s, about 10 s ")
    assert len(line) <= 80


def test_trial_that_ended_has_one_line_with_the_figure_of_each_test(capsys: pytest.CaptureFixture[str]) -> None:
    doubted = replace(TCP, test="tcp-down", validity=Validity(Verdict.DISTURBED))
    measured = TrialMeasured("c07/2", (TCP, doubted, replace(TCP, test="rr", status="failed", error="refused")))
    for progress in (Progress(), Progress(quiet=True)):
        progress(TrialEnded("c07/2", "done", None))
        progress(measured)
    assert capsys.readouterr().err.splitlines() == [
        "[0/1] c07/2   1 ! disturbed  1 ✓ valid  tcp-up 941 Mbit/s, tcp-down 941 Mbit/s, rr failed: refused"
    ]


def test_trial_without_figures_still_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress(TrialEnded("c07/2", "failed", "no route"))
    progress(TrialEnded("c07/3", "skipped", None))
    progress(RunEnded("done"))
    assert capsys.readouterr().err.splitlines() == ["[0/1] c07/2   failed: no route", "[0/1] c07/3   skipped"]


def test_a_fleet_has_its_clients_by_state() -> None:
    progress = began()
    states = {"configured": 812, "connecting": 120, "partial": 0, "failed": 3}
    progress(LiveFigures(LABEL, 1.0, 0.0, None, clients=states))
    [line] = drawn(progress)
    assert line.startswith("http  812 configured, 120 connecting, 3 failed  0 s, about 10 s ")
    assert "bit/s" not in line, "a fleet that carries nothing"


@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        (Waiting(1, 0, 0, 47.2), "waiting up to 47 s more: 1 client unanswered"),
        (Waiting(0, 12, 0, 47.2), "waiting up to 47 s more: 12 clients not up yet"),
        (Waiting(0, 0, 40, 130.0), "waiting up to 2 min 10 s more: 40 clients to try again"),
        (
            Waiting(1000, 120, 999, 9999.0),
            "waiting up to 2 h 46 min more: 1,000 clients unanswered, 120 not up yet, 999 to try again",
        ),
    ],
)
def test_overdue_fleet_shows_the_clients_it_waits_for(waiting: Waiting, said: str) -> None:
    states = {"configured": 97_000, "connecting": 1_120, "partial": 812, "failed": 999}
    progress = Progress()
    progress(TestBegan(LABEL, "tunnel", "tunnel", 0.0))
    figures = LiveFigures(LABEL, 20.0, 0.0, None, busiest_thread=0.01, clients=states, waiting=waiting)
    progress(figures)
    first, second = drawn(progress)
    assert first.endswith("  0 s, waiting")
    assert second.startswith(f"  {said}") and len(said) < 90
    progress(TestBegan(LABEL, "tunnel", "tunnel", 100.0))
    still = began()
    still(figures)
    assert "waiting" not in "".join(drawn(still)), "as long as it was to take"


def test_log_of_a_failed_daemon_is_left_to_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    error = "server on gateway was ended by signal 9; its log ends: one | two"
    with began() as progress:
        progress(TrialEnded("c01/1", "failed", error))
        progress(TrialMeasured("c01/1", (replace(TCP, status="failed", error=error),)))
    said = capsys.readouterr().err
    assert said.count("server on gateway was ended by signal 9") == 2 and "one | two" not in said


def test_unknown_figures_are_not_drawn() -> None:
    progress = began()
    progress(LiveFigures(LABEL, 1.0, None, None))
    assert len(drawn(progress)) == 1


def test_an_ended_test_leaves_no_figures() -> None:
    progress = began()
    progress(FULL)
    progress(TestEnded(LABEL, "http", "done", None))
    assert "k/s" not in "".join(drawn(progress)) and len(drawn(progress)) == 1


@pytest.mark.parametrize("no_colour", [True, False])
def test_colours_are_off_by_no_color(monkeypatch: pytest.MonkeyPatch, no_colour: bool) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = io.StringIO()
    progress = began()
    progress._console = Terminal(file=terminal, force_terminal=True, width=80)
    with progress:
        progress(FULL)
    text = terminal.getvalue()
    assert "88.0 k/s" in text and "50 connections" in text
    assert ("\x1b[3" in text) is False
    assert text.endswith(("\x1b[2K", "\x1b[?25h")), "the lines are taken away and the cursor is given back"


def test_without_a_terminal_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress(TestBegan(LABEL, "http", "http", 10.0))
        progress(FULL)
    assert capsys.readouterr() == ("", "")


def test_script_output_goes_to_stdout_unless_a_document_does(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    run_single.print_script_output(progress, json=False, notification=ScriptOutput(LABEL, "a line [bold]"))
    assert capsys.readouterr() == ("a line [bold]\n", "")
    run_single.print_script_output(progress, json=True, notification=ScriptOutput(LABEL, "a line [bold]"))
    assert capsys.readouterr() == ("", "a line [bold]\n")


def test_redirected_stdout_gets_its_lines_while_progress_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress._console = Terminal(file=io.StringIO(), force_terminal=True, width=80)
    with progress:
        print("for a file", file=sys.stdout)
    assert capsys.readouterr().out == "for a file\n"


def test_a_load_that_goes_on_although_a_target_is_missed_says_why_even_beside_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Progress(quiet=True)(TargetOpen(LABEL, "latency_p50_us < 1", "92 µs is not < 1 µs", "sends are 5 ms late"))
    assert capsys.readouterr().err == (
        "the load goes on although latency_p50_us < 1 is missed so far (92 µs is not < 1 µs): sends are 5 ms late\n"
    )


def test_first_round_names_the_noise_and_what_further_rounds_bring() -> None:
    quiet = FirstRound(results=18, disturbed=0, cause=None, round_s=40.0, needed=5, possible=15)
    assert describe(FirstRoundMeasured(quiet)) == (
        "after round 1, no result of 18 is disturbed. About 5 rounds are needed, 2 min 40 s more; at most 15 rounds "
        "are run, 9 min 20 s more"
    )
    busy = replace(quiet, disturbed=18, cause="another process used 90 % of one CPU", needed=None)
    assert describe(FirstRoundMeasured(busy)) == (
        "after round 1, 18 of 18 results are disturbed: another process used 90 % of one CPU. As busy as now, at most "
        "15 rounds are run, 9 min 20 s more, and too few of them will count: stop what else runs here"
    )
