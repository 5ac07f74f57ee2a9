"""Cross-checks: pairs over the repeats, what is left out of them, and the word that follows."""

from __future__ import annotations

from typing import Any

import pytest
from made_journals import MadeRun

from leadline.analysis import analyse
from leadline.analysis.cross_check_model import Agreement, CrossCheck
from leadline.analysis.cross_checks import ToolRepeat, of_run
from leadline.analysis.model import Metric, Summary, TestResult, TrialResult, Validity, Verdict


def trial(repeat: int, value: float | None, verdict: Verdict = Verdict.VALID) -> TrialResult:
    metric = Metric(value, "1/s", verdict=verdict)
    test = TestResult(
        "c01", repeat, "h", "http", {}, "done", None, {"requests_per_s": metric}, Validity(verdict), None, None, {}
    )
    return TrialResult(f"c01/{repeat}", "c01", repeat, "done", None, "route", None, None, (test,))


def repeated(repeat: int, value: float | None, **other: Any) -> ToolRepeat:
    record = {
        "tool": "wrk",
        "metric": "requests_per_s",
        "version": "4.1.0",
        "value": value,
        "failed": 0,
        "seconds": 1.0,
    }
    return ToolRepeat.read({"record": "cross-check", "label": f"c01/{repeat}/h", **record, **other})


SUMMARY = Summary("c01", "h", "http", {}, 3, 0, {}, Validity(Verdict.VALID))
OWN = [trial(1, 1000.0), trial(2, 1200.0), trial(3, 1100.0), trial(4, 900.0)]


def checked(trials: list[TrialResult], repeats: list[ToolRepeat]) -> CrossCheck:
    (found,) = of_run(trials, (SUMMARY,), repeats, 0.05)
    return found


@pytest.mark.parametrize(
    ("values", "word", "agreement"),
    [
        ([1001.0, 1199.0, 1102.0, 899.0], "equivalent", Agreement.AGREE),
        ([801.0, 961.0, 879.0, 720.0], "slower", Agreement.DIFFER),
        ([1299.0, 1561.0, 1430.0, 1171.0], "faster", Agreement.DIFFER),
        ([500.0, 2000.0, 1100.0, 900.0], "cannot tell", Agreement.CANNOT_TELL),
    ],
)
def test_pairs_decide_whether_the_tools_agree(values: list[float], word: str, agreement: Agreement) -> None:
    """The repeats differ by a third of their mean, which both tools have in common."""
    found = checked(OWN, [repeated(number, value) for number, value in enumerate(values, 1)])
    assert (found.ratio.word, found.agreement, found.repeats) == (word, agreement, 4)
    assert found.own[0] == 1050.0
    assert found.other[0] == pytest.approx(sum(values) / 4)
    assert found.versions == ("4.1.0",)


@pytest.mark.parametrize(
    ("trials", "repeats", "trouble"),
    [
        ([*OWN[:3], trial(4, 100.0, Verdict.DISTURBED)], {}, "a repeat's figure of Leadline's is disturbed"),
        ([*OWN[:3], trial(4, None)], {}, "a repeat has no figure of Leadline's"),
        (OWN, {"value": None, "error": "wrk is not installed or not executable"}, "wrk is not installed"),
        (OWN, {"failed": 20}, "20 requests of wrk failed"),
    ],
)
def test_repeat_that_says_nothing_is_left_out(trials: list[TrialResult], repeats: dict[str, Any], trouble: str) -> None:
    good = [repeated(number, value) for number, value in ((1, 1000.0), (2, 1201.0), (3, 1099.0))]
    found = checked(trials, [*good, repeated(4, **{"value": 900.0, **repeats})])
    assert (found.repeats, found.agreement) == (3, Agreement.AGREE)
    assert trouble in found.troubles[0]


def test_two_repeats_are_too_few_and_show_their_figures() -> None:
    found = checked(OWN[:2], [repeated(1, 1000.0), repeated(2, 1200.0)])
    assert found.agreement is Agreement.CANNOT_TELL
    assert found.ratio.value == 1.0
    assert found.ratio.reason == "2 repeats are too few: 3 of each are needed"


def test_figures_are_shown_where_every_repeat_is_doubtful() -> None:
    found = checked([trial(1, 1000.0, Verdict.DISTURBED)], [repeated(1, 900.0)])
    assert (found.own[0], found.other[0], found.ratio.value, found.repeats) == (1000.0, 900.0, None, 0)


@pytest.mark.usefixtures("damaged_journals")
def test_journal_has_the_second_tool_and_a_run_without_one_has_no_cross_check() -> None:
    made = MadeRun()
    made.begin()
    for number in (1, 2, 3):
        label = f"c01/{number}"
        made.begin_trial(label)
        made.test(label, 8e6)
        made.record("cross-check", label=f"{label}/tcp-up", tool="iperf3", metric="throughput_bps", value=8e6)
        made.end_trial(label)
    made.record("cross-check", label="torn")
    made.end()
    analysis = analyse({}, made.entries)
    (found,) = analysis.cross_checks
    assert (found.test, found.tool, found.unit) == ("tcp-up", "iperf3", "bit/s")
    assert analysis.journal.malformed == 1
    without = [entry for entry in made.entries if entry.get("record") != "cross-check"]
    assert analyse({}, without).cross_checks == ()
