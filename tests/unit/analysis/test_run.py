"""Whole journals: a run with known figures, the same cut off after any entry, and a run with a failed trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from made_journals import EPOCH_NS, MadeRun, S

from leadline.analysis import analyse, result_rows
from leadline.analysis.model import JournalDamage, RunAnalysis, Verdict
from leadline.dataset import Journal, RunFolder, read_journal, rebuild, write_results

MANIFEST: dict[str, Any] = {
    "run_id": "20260412T091500Z-made-7f3a00",
    "name": "made",
    "started_at": "2026-04-12T09:15:00+00:00",
    "plan": {
        "name": "made",
        "targets": ["tcp-up.throughput_bps > 5mbit", "tcp-up.throughput_bps > 1gbit"],
        "limits": {"stability": {"spread": 0.1}},
    },
    "plan_text": "name: made\n",
    "command": "leadline run made.yaml",
    "version": "0.1.0",
    "cases": [
        {"id": "c01", "parameters": {"clients": 1}, "tests": [{"name": "tcp-up", "kind": "tcp"}]},
        {"id": "c02", "parameters": {"clients": 2}, "tests": [{"name": "tcp-up", "kind": "tcp"}]},
    ],
}


def whole_run() -> MadeRun:
    run = MadeRun()
    run.begin()
    for number, rate in enumerate((1.0e6, 1.02e6), start=1):
        run.begin_trial(f"c01/{number}", clients=1)
        run.test(f"c01/{number}", rate, begin_ns=EPOCH_NS + number * 60 * S)
        run.end_trial(f"c01/{number}")
    run.end()
    return run


def codes(analysis: RunAnalysis) -> list[str]:
    return [reason.code for reason in analysis.validity.reasons]


def test_a_whole_run() -> None:
    analysis = analyse(MANIFEST, whole_run().entries)
    assert (analysis.status, analysis.name, analysis.version) == ("done", "made", "0.1.0")
    assert [trial.trial for trial in analysis.trials] == ["c01/1", "c01/2"]
    first = analysis.trials[0]
    assert (first.status, first.error, first.sut, first.sut_version) == ("done", None, "openvpn", "2.6.14")
    assert first.bring_up is not None
    assert (first.bring_up.connected, first.bring_up.time_p50_s) == (1, 0.5)
    (test,) = first.tests
    assert test.metrics["throughput_bps"].value == pytest.approx(8e6, rel=1e-6)
    assert test.window is not None
    assert test.window.start_ns == EPOCH_NS + 60 * S
    assert test.server is not None
    assert test.server.cpu_total_percent == pytest.approx(100, rel=1e-6)
    assert test.server.sut_system_percent == pytest.approx(50, rel=1e-6)
    assert test.validity.verdict is Verdict.VALID
    (summary,) = analysis.summaries
    assert summary.metrics["throughput_bps"].value == pytest.approx(8.08e6, rel=1e-6)
    assert (summary.repeats, summary.failed, summary.parameters) == (2, 0, {"clients": 1})
    assert [target.outcome for target in analysis.targets] == ["met", "missed"]
    assert analysis.validity.verdict is Verdict.VALID
    assert analysis.observer_cpu_share["gateway"] == pytest.approx(0.002)
    assert analysis.observer_cpu_share["client1"] is None
    assert set(analysis.hosts) == {"client1", "gateway", "server"}
    assert [note.code for note in analysis.notes] == ["shared-cpus", "observer-cost"]
    assert analysis.notes[1].text == "observing cost at most 0.20 % of one CPU on one machine, 0.20 % per host"


def test_the_same_entries_give_the_same_findings() -> None:
    entries = whole_run().entries
    assert analyse(MANIFEST, entries) == analyse(MANIFEST, iter(entries))


def test_a_run_cut_off_after_any_entry_keeps_what_had_arrived() -> None:
    entries = whole_run().entries
    whole = analyse(MANIFEST, entries)
    first_end = next(index for index, entry in enumerate(entries) if entry.get("record") == "trial-end")
    for length in range(0, len(entries), 7):
        analysis = analyse(MANIFEST, entries[:length])
        assert analysis.status == "killed"
        assert analysis.validity.verdict is Verdict.INCOMPLETE
        assert "run-killed" in codes(analysis)
        assert len(analysis.targets) == (2 if analysis.summaries else len(MANIFEST["plan"]["targets"]))
        if length > first_end:
            assert analysis.trials[0] == whole.trials[0]
        if analysis.trials and length <= first_end:
            assert analysis.trials[0].status == "interrupted"


def test_a_test_cut_off_in_the_middle_still_has_its_rate() -> None:
    entries = whole_run().entries
    seen = [index for index, entry in enumerate(entries) if entry.get("event", {}).get("type") == "progress"]
    (trial,) = analyse({}, entries[: seen[49] + 1]).trials
    (test,) = trial.tests
    assert (trial.status, test.status) == ("interrupted", "interrupted")
    assert test.metrics["throughput_bps"].value == pytest.approx(8e6, rel=1e-6)
    assert test.window is not None
    assert test.window.length_s == pytest.approx(5.0)
    assert test.metrics["retransmits"].value is None
    assert test.validity.verdict is Verdict.INCOMPLETE
    assert test.server is not None
    assert test.server.cpu_user_percent == pytest.approx(40, rel=1e-6)


@pytest.mark.parametrize(
    "target",
    ["client_cpu_ns_per_byte > 500", "client_cpu_ns_per_byte > 500.0", "tcp-up.client_cpu_ns_per_byte > 500.0"],
)
def test_figures_that_targets_name_are_judged_however_the_value_is_written(target: str) -> None:
    run = MadeRun()
    run.begin()
    for number, rate in enumerate((1.0e6, 2.0e6, 1.2e6), start=1):
        run.begin_trial(f"c01/{number}", clients=1)
        run.test(f"c01/{number}", rate, begin_ns=EPOCH_NS + number * 60 * S)
        run.end_trial(f"c01/{number}")
    run.end()
    plan = {**MANIFEST["plan"], "targets": [target]}
    summary = analyse({**MANIFEST, "plan": plan}, run.entries).summaries[0]
    assert "repeats-disagree" in summary.metrics["client_cpu_ns_per_byte"].reasons
    other = {**MANIFEST["plan"], "targets": ["tcp-up.throughput_bps > 5.5mbit"]}
    summary = analyse({**MANIFEST, "plan": other}, run.entries).summaries[0]
    assert not summary.metrics["client_cpu_ns_per_byte"].reasons


def test_a_failed_trial_is_named_and_the_others_count() -> None:
    run = MadeRun()
    run.begin()
    run.begin_trial("c01/1", clients=1)
    run.test("c01/1", 1e6)
    run.end_trial("c01/1")
    for trial in ("c01/2", "c02/1"):
        run.begin_trial(trial)
        run.end_trial(trial, "failed", {"code": "sut_failed", "message": "openvpn on gateway ended with status 1"})
    run.end("failed")
    analysis = analyse(MANIFEST, run.entries)
    assert analysis.status == "failed"
    assert [trial.status for trial in analysis.trials] == ["done", "failed", "failed"]
    assert analysis.trials[1].error == "openvpn on gateway ended with status 1"
    one, other = analysis.summaries
    assert (one.case, one.repeats, one.failed) == ("c01", 1, 1)
    assert (other.case, other.repeats, other.failed) == ("c02", 0, 1)
    assert other.parameters == {"clients": 2}
    assert other.validity.verdict is Verdict.INCOMPLETE
    assert "trials-failed" in codes(analysis)
    outcomes = {(target.case, target.target[-5:]): target.outcome for target in analysis.targets}
    assert outcomes[("c01", "5mbit")] == "undecided"  # one of two repeats is not enough
    assert outcomes[("c02", "5mbit")] == "undecided"


def test_clients_that_did_not_come_up_are_counted_by_cause() -> None:
    run = MadeRun()
    run.begin_trial("c01/1")
    clients = [
        {"host": "client1", "state": "connected", "time_s": 0.2, "missing": [], "cause": None},
        {"host": "client2", "state": "connected", "time_s": 0.4, "missing": [], "cause": None},
        {"host": "client3", "state": "partial", "time_s": 0.9, "missing": ["address"], "cause": None},
        {"host": "client4", "state": "failed", "time_s": None, "missing": [], "cause": "TLS handshake failed"},
    ]
    run.record("bring-up", trial="c01/1", sut="openvpn", version="2", clients=clients, processes=["openvpn"])
    run.test("c01/1", 1e6)
    run.end_trial("c01/1")
    (trial,) = analyse({}, run.entries).trials
    assert trial.bring_up is not None
    found = trial.bring_up
    assert (found.connected, found.partial, found.failed) == (2, 1, 1)
    assert (found.time_p50_s, found.time_max_s) == (0.4, 0.9)
    assert found.causes == {"missing: address": 1, "TLS handshake failed": 1}
    assert trial.tests[0].validity.reasons[0].code == "clients-missing"


def test_system_with_a_name_of_its_own_is_never_shown_by_its_kind_alone() -> None:
    """With `auto` the data plane is known at the bring-up; a plan's word for the system would hide it."""
    run = MadeRun()
    run.begin_trial("c01/1", sut="strongswan(esp=chacha20poly1305)", clients=2)
    name, title = "strongswan (kernel-libipsec)", "IPsec by strongSwan with kernel-libipsec (user space)"
    client = {"host": "client1", "state": "connected", "time_s": 0.2, "missing": [], "cause": None}
    sut = {"kind": "strongswan"}
    run.record(
        "bring-up", trial="c01/1", sut=sut, version="5", clients=[client], processes=["c"], name=name, title=title
    )
    run.test("c01/1", 1e6)
    run.end_trial("c01/1")
    found = analyse({}, run.entries)
    (trial,) = found.trials
    assert (trial.sut, trial.sut_title) == (name, title)
    assert trial.parameters == {"sut": "strongswan (kernel-libipsec)(esp=chacha20poly1305)", "clients": 2}
    assert trial.tests[0].parameters == trial.parameters
    assert [note.text.partition(" is not")[0] for note in found.notes if note.code == "user-space-data-plane"] == [
        title
    ]


def codes_of(analysis: RunAnalysis, trial: int) -> list[str]:
    return [reason.code for reason in analysis.trials[trial].tests[0].validity.reasons]


@pytest.mark.usefixtures("damaged_journals")
def test_entries_that_lack_what_they_promise_are_counted_in_their_trial() -> None:
    entries = whole_run().entries
    second = [index for index, entry in enumerate(entries) if entry.get("record") == "trial-end"][1]
    spoiled = [
        *entries[:second],
        {"host": "gateway", "event": {"type": "observation"}},
        {"event": {"type": "progress"}},
        {"record": "observe", "host": "gateway", "period_ms": "often"},
        {},
        {"record": "from-the-future"},
        *entries[second:],
    ]
    analysis = analyse(MANIFEST, spoiled)
    assert analysis.journal == JournalDamage(lines=len(spoiled), garbled=0, malformed=4, torn=False)
    assert codes_of(analysis, 0) == []
    assert codes_of(analysis, 1) == ["journal-damaged"]
    assert analysis.summaries[0].validity.verdict is Verdict.UNDETERMINED
    [said] = [reason.text for reason in analysis.validity.reasons if reason.code == "journal-damaged"]
    assert f"4 of {len(spoiled)} lines of the journal could not be read (4 without required fields)" in said
    # The figures of what could be read are the same.
    spoilt, whole = (one.trials[1].tests[0].metrics for one in (analysis, analyse(MANIFEST, entries)))
    assert {name: metric.value for name, metric in spoilt.items()} == {name: one.value for name, one in whole.items()}
    assert {metric.verdict for metric in spoilt.values()} == {Verdict.UNDETERMINED}


@pytest.mark.usefixtures("damaged_journals")
def test_a_test_whose_end_is_malformed_has_no_figures_and_says_why() -> None:
    entries = whole_run().entries
    ends = [entry for entry in entries if entry.get("event", {}).get("type") == "finished"]
    del ends[0]["event"]["outcome"]["generator"]
    analysis = analyse(MANIFEST, entries)
    [test] = analysis.trials[0].tests
    assert (test.status, test.metrics) == ("failed", {})
    assert "KeyError: 'generator'" in str(test.error)
    assert analysis.trials[1].tests[0].metrics["throughput_bps"].value is not None
    assert (analysis.journal.malformed, analysis.validity.verdict) == (1, Verdict.INCOMPLETE)


@pytest.mark.parametrize("entry", [{"host": "gateway", "event": {"type": "observation"}}, {}])
def test_an_entry_of_our_own_that_cannot_be_read_is_an_error(entry: dict[str, Any]) -> None:
    with pytest.raises(KeyError):
        analyse(MANIFEST, [*whole_run().entries, entry])


def test_a_test_of_our_own_that_cannot_be_analysed_is_an_error() -> None:
    entries = whole_run().entries
    del next(entry for entry in entries if entry.get("event", {}).get("type") == "finished")["event"]["outcome"][
        "flows"
    ]
    with pytest.raises(KeyError):
        analyse(MANIFEST, entries)


@pytest.mark.usefixtures("damaged_journals")
def test_garbled_and_torn_lines_are_reported_with_their_trial(tmp_path: Path) -> None:
    lines = [json.dumps(entry).encode() for entry in whole_run().entries]
    second = [index for index, line in enumerate(lines) if b"trial-begin" in line][1]
    for index in range(second + 20, second + 30):
        lines[index] = lines[index].replace(b":", b";", 3)
    path = tmp_path / "journal.ndjson"
    path.write_bytes(b"\n".join(lines) + b'\n{"record": "to')
    analysis = analyse(MANIFEST, read_journal(path))
    assert analysis.journal == JournalDamage(lines=len(lines) + 1, garbled=10, malformed=0, torn=True)
    assert (codes_of(analysis, 0), codes_of(analysis, 1)) == ([], ["journal-damaged"])
    assert "journal-torn" in [note.code for note in analysis.notes]
    assert {row["validity"] for row in result_rows(analysis) if row["trial"] == "c01/2"} == {"undetermined"}
    assert {row["validity"] for row in result_rows(analysis) if row["trial"] == "c01/1"} == {"valid"}
    assert [target.outcome for target in analysis.targets] == ["undecided", "undecided"]


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        ({"per_s": 5000, "extrapolated": True}, 5000.0),
        ({"per_s": 5000.5}, 5000.5),
        ({"per_s": 0}, None),
        ({"per_s": "5000"}, None),
        ({}, None),
    ],
)
def test_a_ceiling_is_of_the_trial_that_it_was_noted_in(record: dict[str, Any], wanted: float | None) -> None:
    run = MadeRun()
    run.begin()
    for number in (1, 2):
        run.begin_trial(f"c01/{number}", clients=1)
        if number == 1:
            run.record("ceiling", host="client1", **record)
        run.test(f"c01/{number}", 1e6, begin_ns=EPOCH_NS + number * 60 * S)
        run.end_trial(f"c01/{number}")
    found = [trial.tests[0].generator for trial in analyse(MANIFEST, run.entries).trials]
    assert [generator.ceiling_per_s for generator in found if generator is not None] == [wanted, None]


def test_a_ceiling_that_was_measured_after_the_load_is_its_own() -> None:
    run = MadeRun()
    run.begin()
    run.begin_trial("c01/1", clients=1)
    run.test("c01/1", 1e6, begin_ns=EPOCH_NS + 60 * S)
    run.record("ceiling", host="client1", per_s=5000, extrapolated=True)
    run.end_trial("c01/1")
    (trial,) = analyse(MANIFEST, run.entries).trials
    generator = trial.tests[0].generator
    assert generator is not None and generator.ceiling_per_s == 5000.0


def test_an_empty_journal_is_a_run_without_results() -> None:
    analysis = analyse({}, [])
    assert (analysis.status, analysis.trials, analysis.summaries) == ("killed", (), ())
    assert "no-results" in codes(analysis)


def test_from_a_folder_to_rows_and_back(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "made")
    run.write_manifest(MANIFEST)
    with Journal(run.journal_path) as journal:
        for entry in whole_run().entries:
            journal.append(entry)
    rebuild(run)
    analysis = analyse(run.read_manifest(), read_journal(run.journal_path))
    assert analysis == analyse(MANIFEST, whole_run().entries)
    write_results(run, result_rows(analysis))
    table = pl.read_parquet(run.path / "results.parquet")
    rates = table.filter(pl.col("metric") == "throughput_bps")
    assert rates["trial"].to_list() == ["c01/1", "c01/2", None]
    assert rates["value"].to_list() == pytest.approx([8e6, 8.16e6, 8.08e6], rel=1e-6)
    assert rates["low"].null_count() == 0
    assert rates["bound"].null_count() == 3
    assert (rates["low"] <= rates["value"]).all()


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        (None, "valid"),
        ({"stability": {"spread": "1%"}}, "unstable"),
        ({"stability": {"spread": 0.01}}, "unstable"),
        ({"stability": {"spread": "nonsense"}}, "valid"),
    ],
)
def test_the_plans_own_limit_counts_as_it_was_written(limits: Any, verdict: str) -> None:
    # The two repeats are 2 % apart.
    plan = {"name": "made", "limits": limits}
    (summary,) = analyse({**MANIFEST, "plan": plan}, whole_run().entries).summaries
    assert summary.validity.verdict.value == verdict


@pytest.mark.parametrize(
    ("began", "read"), [(1_790_000_000_123_000_000, 1_790_000_000.123), (None, None), ("odd", None)]
)
def test_a_test_knows_when_it_began_by_the_wall_clock(began: Any, read: float | None) -> None:
    """Journals of older versions do not have it."""
    run = whole_run()
    for entry in run.entries:
        if entry.get("record") == "test-begin":
            entry["start_wall_ns"] = began
    (test,) = analyse(MANIFEST, run.entries).trials[0].tests
    # A float of this size is exact to less than a microsecond.
    assert test.started_at_s == (None if read is None else pytest.approx(read, rel=0, abs=1e-6))


def test_planned_trials_that_never_began_are_named() -> None:
    planned = [f"c01/{number}" for number in range(1, 16)]
    killed = [entry for entry in whole_run().entries if entry.get("record") != "run-end"]
    analysis = analyse({**MANIFEST, "order": planned}, killed)
    assert (analysis.status, analysis.missing_trials) == ("killed", tuple(planned[2:]))
    texts = {reason.code: reason.text for reason in analysis.validity.reasons}
    assert texts["trials-failed"] == "13 of 15 trials did not complete: c01/3, c01/4, c01/5, c01/6, c01/7 ..."
    assert analyse({**MANIFEST, "order": planned[:2]}, killed).missing_trials == ()
    assert analyse(MANIFEST, killed).missing_trials == ()


def test_trials_of_a_journal_without_a_manifest_are_those_that_its_records_name() -> None:
    run = MadeRun()
    run.record("run-begin", trials=["c01/1", "c01/2"])
    for number in (1, 2):
        run.begin_trial(f"c01/{number}", clients=1)
        run.end_trial(f"c01/{number}")
    run.record("round", trials=["c01/3"])
    assert analyse({}, run.entries).missing_trials == ("c01/3",)


@pytest.mark.parametrize("order", [5, {"a": 1}, "c01/1"])
def test_order_that_is_no_list_names_no_trial(order: Any) -> None:
    assert analyse({**MANIFEST, "order": order}, whole_run().entries).missing_trials == ()
