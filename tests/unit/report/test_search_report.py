"""A capacity search as a terminal shows it: what each ending's headline promises, and every trial's reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from leadline.analysis.model import Metric, Reason, Validity, Verdict
from leadline.analysis.search_findings import Trial
from leadline.report.search_report import found_rate, trial_line, trial_row, trials_head

CONDITIONS = "latency_p99_us < 5000"
VALID = Validity(Verdict.VALID)
LIMITED = Validity(Verdict.GENERATOR_LIMITED, (Reason("generator-limited-trials", "from 1020/s on it was late"),))
CUT = Validity(Verdict.INCOMPLETE, (Reason("ended-early", "the search was interrupted"),))
TRIALS = (
    Trial(2000.0, 1.0, False, False, 0.5, "latency_p99_us 90000 is not < 5000", {}),
    Trial(1020.0, 10.0, False, True, 0.98, "sends were 3 ms late at p99", {}),
    Trial(0.5, 10.0, True, False, 1.0, "latency_p99_us 1200", {}),
)


def shown(low: float | None, high: float | None, validity: Validity) -> list[str]:
    console = Console(width=120, color_system=None, highlight=False)
    with console.capture() as capture:
        rate = Metric(low, "1/s", low, high)
        console.print(found_rate(rate, ("closed loop", Metric(1050.0, "1/s")), CONDITIONS, validity))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize(
    ("low", "high", "validity", "headline", "between"),
    [
        (1000.4, 1020.0, VALID, "1,000/s", "1,000/s, which holds, and 1,020/s, which does not"),
        (12.345, 12.5, VALID, "12.35/s", "12.35/s, which holds, and 12.5/s, which does not"),
        (1000.0, None, LIMITED, "≥ 1,000/s", "1,000/s, which holds, and no known limit"),
        (1000.0, 1300.0, CUT, "≥ 1,000/s", "1,000/s, which holds, and 1,300/s, which does not"),
        (None, 2.0, VALID, "none", "no rate that holds and 2/s, which does not"),
        (None, None, CUT, "unknown", "unknown"),
        (1000.0, 1300.0, LIMITED, "≥ 1,000/s", "1,000/s, which holds, and 1,300/s, which does not"),
        (None, 1300.0, LIMITED, "< 1,300/s", "no rate that holds and 1,300/s, which does not"),
        (None, 1300.0, CUT, "< 1,300/s", "no rate that holds and 1,300/s, which does not"),
    ],
)
def test_the_headline_promises_no_more_than_is_known(
    low: float | None, high: float | None, validity: Validity, headline: str, between: str
) -> None:
    lines = shown(low, high, validity)
    assert lines[0].split(maxsplit=1) == ["between", between]
    assert lines[1].split() == ["closed", "loop", "1,050/s"]
    assert lines[3] == f"{headline}  highest rate with {CONDITIONS}"
    assert lines[4].lstrip("✓≥≈?! ").startswith(f"{validity.verdict.value}: ")


def test_trials_line_up_below_their_titles_though_each_is_drawn_alone() -> None:
    console = Console(width=80, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(trials_head())
        for trial in TRIALS:
            console.print(trial_row(trial))
    head, *rows = [line.rstrip() for line in capture.get().splitlines()]
    assert [row.split(maxsplit=3)[0] for row in rows] == ["2,000/s", "1,020/s", "0.5/s"]
    for row, outcome, trial in zip(rows, ("does not hold", "generator-limited", "holds"), TRIALS, strict=True):
        assert row[head.index("because") :] == trial.why and outcome in row
        assert row.index("/s ") + 2 == head.index("rate") + len("rate")
        assert row.index(" s ") + 2 == head.index("for") + len("for")


def test_reason_of_a_trial_is_one_statement_unless_all_is_asked_for() -> None:
    why = "9 of 99 datagrams that were due were sent; sends of this host were 478 ms late at p99"
    console = Console(width=80, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(trial_row(replace(TRIALS[1], why=why)))
        console.print(trial_row(replace(TRIALS[1], why=why), verbose=True))
    text = " ".join(capture.get().split())
    assert text.count("were sent") == 2 and text.count("478 ms late at p99") == 1


def test_a_trial_in_a_line() -> None:
    assert trial_line(7, TRIALS[1]) == ("trial 7: 1,020/s for 10.0 s generator-limited: sends were 3 ms late at p99")
