"""The switch of the rules about the machine: what it leaves out, what it keeps, and that every output states it."""

from __future__ import annotations

import json

import pytest
from made_journals import EPOCH_NS, MadeRun, S, steady_test
from rich.console import Console, RenderableType
from test_disturbance import on_one_machine
from test_run import MANIFEST, whole_run

from leadline.analysis import analyse, analyse_test
from leadline.analysis.comparison import Side, compare_sides
from leadline.analysis.findings_json import encode_findings
from leadline.analysis.machine_rules import RULES_OFF, is_judged_alike, notes_without_machine
from leadline.analysis.model import Reason, Verdict
from leadline.cli.output import plain, run_document
from leadline.dataset.machine_rules import MACHINE_RULES_VARIABLE, OFF
from leadline.report import measurement, run_renderables, run_summary
from leadline.report.html import render_html


@pytest.fixture
def rules_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MACHINE_RULES_VARIABLE, OFF)


def shown(*parts: RenderableType) -> str:
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(*parts)
    return " ".join(capture.get().split())


def uneven_run() -> MadeRun:
    """Two repeats whose rates differ by half."""
    run = MadeRun()
    run.begin()
    for number, rate in enumerate((1.0e6, 1.7e6), start=1):
        run.begin_trial(f"c01/{number}", clients=1)
        run.test(f"c01/{number}", rate, begin_ns=EPOCH_NS + number * 60 * S)
        run.end_trial(f"c01/{number}")
    run.end()
    return run


def test_other_work_disturbs_nothing_where_the_rules_are_off(rules_off: None) -> None:
    found = analyse_test(on_one_machine(foreign=0.5)).validity
    assert (found.verdict, found.reasons, found.notes[0].code) == (Verdict.VALID, (), RULES_OFF)


def test_no_note_speaks_of_an_uneven_rate_where_the_rules_are_off(rules_off: None) -> None:
    notes = [Reason(code, "") for code in ("periodic-stalls", "roughly-known", "errors")]
    assert [note.code for note in notes_without_machine(notes)] == ["errors"]


def test_uneven_repeats_agree_where_the_rules_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    (strict,) = analyse(MANIFEST, uneven_run().entries).summaries
    monkeypatch.setenv(MACHINE_RULES_VARIABLE, OFF)
    (summary,) = analyse(MANIFEST, uneven_run().entries).summaries
    assert (strict.validity.verdict, summary.validity.verdict) == (Verdict.UNSTABLE, Verdict.VALID)
    rate, strict_rate = summary.metrics["throughput_bps"], strict.metrics["throughput_bps"]
    assert (rate.value, rate.low, rate.high) == (strict_rate.value, strict_rate.low, strict_rate.high)


def test_incomplete_tests_stay_incomplete(rules_off: None) -> None:
    data = steady_test()
    data.status = "interrupted"
    assert analyse_test(data).validity.verdict is Verdict.INCOMPLETE
    without_receiver = analyse_test(steady_test(receiver=None)).validity
    assert "no-receiver-figures" in {reason.code for reason in without_receiver.reasons}


@pytest.mark.parametrize("value", ["on", "", "0", None])
def test_any_other_value_leaves_the_rules_on(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is not None:
        monkeypatch.setenv(MACHINE_RULES_VARIABLE, value)
    found = analyse_test(on_one_machine(foreign=0.5)).validity
    assert found.verdict is Verdict.DISTURBED
    assert RULES_OFF not in {note.code for note in found.notes}


def test_every_output_states_that_the_rules_are_off(rules_off: None) -> None:
    analysis = analyse(MANIFEST, whole_run().entries)
    assert MACHINE_RULES_VARIABLE in shown(*run_renderables(analysis))
    assert MACHINE_RULES_VARIABLE in shown(*run_summary(analysis))
    assert MACHINE_RULES_VARIABLE in render_html(analysis)
    assert MACHINE_RULES_VARIABLE in encode_findings(analysis, "0.1.0", 1).decode()
    document = json.loads(json.dumps(run_document(analysis, "runs/made", ()), default=plain))
    assert RULES_OFF in {reason["code"] for reason in document["validity"]["reasons"]}
    assert MACHINE_RULES_VARIABLE in shown(measurement(analysis.trials[0].tests[0]))


def test_comparison_states_it_too(rules_off: None) -> None:
    sides = [Side(label, analyse(MANIFEST, whole_run().entries), {}) for label in ("run", "other")]
    (found,) = compare_sides(*sides).differences
    assert (MACHINE_RULES_VARIABLE in found.what, found.baseline, found.candidate) == (True, "off", "off")


def test_run_is_judged_again_where_the_switch_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    on = analyse(MANIFEST, whole_run().entries)
    assert is_judged_alike(on)
    monkeypatch.setenv(MACHINE_RULES_VARIABLE, OFF)
    assert not is_judged_alike(on)
    off = analyse(MANIFEST, whole_run().entries)
    assert is_judged_alike(off)
    monkeypatch.delenv(MACHINE_RULES_VARIABLE)
    assert not is_judged_alike(off)
