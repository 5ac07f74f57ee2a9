"""A run of the benchmarks: which rows it takes, what it does where some of them fail, and what the document says."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import run
from conditions import Conditions, summary, table
from document import Results, document
from programs import PeerMissing
from rows import Rounds, Row

ROUNDS = Rounds(3, 2)
QUIET = Conditions("rr", 12.4, 0.3, 0.001, 0.02)
STOLEN = Conditions("pacing", 30, 2.1, 0.08, 0.01)
SHARED = Conditions("tunnel", 30, 2.1, 0, 0.2)


def good(rounds: Rounds) -> Iterator[Row]:
    """One row."""
    yield Row("good", f"{rounds.count} rounds")


def broken(rounds: Rounds) -> Iterator[Row]:
    """A row, and then a failure that no row expects."""
    yield from good(rounds)
    raise KeyError("throughput_bps")


def missing(rounds: Rounds) -> Iterator[Row]:
    """A peer that is not installed."""
    raise PeerMissing("wrk is not installed")
    yield


def hanging(rounds: Rounds) -> Iterator[Row]:
    """A peer that never answers."""
    signal.pause()
    yield from good(rounds)


def test_failure_of_a_group_leaves_its_rows_and_the_other_groups() -> None:
    results = Results(ROUNDS)
    for name, group in (("broken", broken), ("missing", missing), ("good", good)):
        run.run_group(name, group, results)
    assert [row.what for row in results.rows] == ["good", "rows `broken`", "good"]
    assert results.rows[1].ours == "failed: KeyError: 'throughput_bps'"
    assert results.rows[1].holds is False
    assert results.left_out == ["rows `missing`: wrk is not installed"]
    assert [one.group for one in results.conditions] == ["broken", "missing", "good"]


def test_group_that_hangs_is_given_up() -> None:
    before = signal.signal(signal.SIGALRM, run.give_up)
    try:
        results = Results(ROUNDS)
        run.run_group("hanging", hanging, results, limit_s=0.1)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert results.rows[0].ours.startswith("failed: TimeoutError: ")


def test_groups_are_chosen_by_topic_and_by_name() -> None:
    assert list(run.groups_of(["scenario", "rr"])) == ["sessions", "static", "users", "arrivals", "replay", "rr"]
    assert sum(map(len, run.TOPICS.values())) == len(run.groups_of(None))


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ([QUIET], "The machine was quiet"),
        ([QUIET, STOLEN, SHARED], "during `pacing`, `tunnel`. The figures of these rows are in doubt."),
        ([Conditions("rr", 12, 4.2, 0, 0)], "busy before the bench began (load average 4.2)"),
    ],
)
def test_summary_says_whether_the_machine_was_quiet(seen: list[Conditions], says: str) -> None:
    assert says in summary(seen)


def test_conditions_are_written_for_each_group() -> None:
    assert table([QUIET])[2:] == ["| `rr` | 12 s | 0.3 | 0.1 % | 2.0 % |"]


def test_document_has_rows_conditions_and_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("document.versions", lambda: ["wrk: 4.1.0"])
    results = Results(ROUNDS, [Row("figure", "1")], ["rows `demand`: netperf is not installed"], [QUIET, STOLEN])
    text = document(results)
    assert "- wrk: 4.1.0" in text
    assert "| figure | 1 |" in text
    assert "Left out: rows `demand`: netperf is not installed." in text
    assert "The machine was not quiet" in text
    assert "over 3 rounds of 2 s" in text
