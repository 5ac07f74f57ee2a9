"""Whole searches by `leadline http --find-rate` whose measurements are scripted: every ending, with its rows, verdict,
document and exit code. Two searches of real servers are in tests/lab.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from in_process import leadline
from leadline.analysis.model import Metric, Reason, Validity, Verdict
from leadline.analysis.model import TestResult as Result
from leadline.errors import LeadlineError
from leadline.trial import Single

CAPACITY_PER_S = 1000.0
QUICK_US, SLOW_US = 2_000.0, 90_000.0
CONDITIONS = "latency_p99_us < 5000"
VALID = Validity(Verdict.VALID)
LATE = Validity(Verdict.GENERATOR_LIMITED, (Reason("sends-late", "sends were 9 ms late at p99"),))
Measured = Callable[[float], tuple[float, Validity]]
"""By a rate: the latency, and what the figures are worth."""


def server(rate_per_s: float) -> tuple[float, Validity]:
    return (QUICK_US if rate_per_s <= CAPACITY_PER_S else SLOW_US), VALID


def slow_server(_: float) -> tuple[float, Validity]:
    return SLOW_US, VALID


def quick_server(_: float) -> tuple[float, Validity]:
    return QUICK_US, VALID


def generator_that_is_late(rate_per_s: float) -> tuple[float, Validity]:
    return (QUICK_US, VALID) if rate_per_s <= 700 else (SLOW_US, LATE)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Callable[[Measured], None]:
    """Sets what the trials of the next search measure."""

    def set_to(measured: Measured) -> None:
        async def measure(single: Single, *_: Any) -> Result:
            rate_per_s = single.parameters["rate_per_s"]
            latency_us, validity = (QUICK_US, VALID) if rate_per_s is None else measured(rate_per_s)
            answered_per_s = min(rate_per_s or CAPACITY_PER_S, CAPACITY_PER_S)
            figures = {"requests_per_s": answered_per_s, "latency_p99_us": latency_us, "error_ratio": 0.0}
            metrics = {name: Metric(value, "", value, value) for name, value in figures.items()}
            return Result(single.case, 1, "http", "http", {}, "done", None, metrics, validity, None, None, {})

        monkeypatch.setattr("leadline.trial.find_rate.measure", measure)

    return set_to


def search(*options: str) -> tuple[int, str, str]:
    url = "http://127.0.0.1:1/"
    done = leadline("http", url, "-c", "10", "-d", "500ms", "--find-rate", CONDITIONS, "--no-calibrate", *options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("measured", "ending", "verdict", "code"),
    [
        (server, "found", "valid", 0),
        (slow_server, "none-held", "valid", 3),
        (quick_server, "all-held", "undetermined", 0),
        (generator_that_is_late, "generator-limited", "generator-limited", 0),
    ],
)
def test_ending_decides_verdict_and_exit_code(
    trials: Callable[[Measured], None], measured: Measured, ending: str, verdict: str, code: int
) -> None:
    trials(measured)
    returned, out, _ = search("--json")
    found = json.loads(out)
    assert (found["ending"], found["validity"]["verdict"], returned) == (ending, verdict, code)
    assert found["metrics"]["closed_loop_per_s"]["value"] == CAPACITY_PER_S
    assert found["trials"][0]["rate_per_s"] == 2 * CAPACITY_PER_S
    assert all(trial["why"] for trial in found["trials"])


def test_found_rate_is_bounded_by_a_trial_that_holds_and_one_that_does_not(
    trials: Callable[[Measured], None],
) -> None:
    trials(server)
    found = json.loads(search("--json")[1])
    rate = found["metrics"]["found_rate_per_s"]
    assert rate["value"] == rate["low"] <= CAPACITY_PER_S < rate["high"] <= 1.02 * rate["low"] + 1
    assert rate["low"] in [trial["rate_per_s"] for trial in found["trials"] if trial["holds"]]
    assert rate["high"] in [trial["rate_per_s"] for trial in found["trials"] if not trial["holds"]]


def test_slow_server_has_no_rate(trials: Callable[[Measured], None]) -> None:
    trials(slow_server)
    rate = json.loads(search("--json")[1])["metrics"]["found_rate_per_s"]
    assert (rate["value"], rate["low"]) == (None, None)
    code, out, _ = search()
    assert code == 3 and "no rate that holds" in out


def test_each_trial_is_a_row_on_stdout_before_the_headline(trials: Callable[[Measured], None]) -> None:
    trials(server)
    number = len(json.loads(search("--json")[1])["trials"])
    code, out, err = search()
    assert (code, err) == (0, "")
    outcomes = ("holds", "does not hold", "too few samples")
    rows = [line for line in out.splitlines() if "/s" in line and any(outcome in line for outcome in outcomes)]
    assert len([row for row in rows if "latency_p99_us" in row and row.lstrip()[0].isdigit()]) == number
    assert f"highest rate with {CONDITIONS}" in out and "which holds" in out


def test_failed_trial_ends_the_search_with_its_error(trials: Callable[[Measured], None]) -> None:
    def broken() -> Iterator[tuple[float, Validity]]:
        yield SLOW_US, VALID
        raise LeadlineError("the server went away")

    results = broken()
    trials(lambda _: next(results))
    code, out, err = search("--json")
    assert (code, json.loads(out)["ending"]) == (1, "failed")
    assert "the server went away" in err


@pytest.mark.parametrize("record", [b'"found-rate"', b'"run-end"'], ids=bytes.decode)
def test_full_disk_at_the_end_keeps_the_rate_that_was_found(
    trials: Callable[[Measured], None], fill_disk: Callable[[bytes], None], record: bytes, tmp_path: Path
) -> None:
    trials(server)
    fill_disk(record)
    code, out, err = search("--json", "--out", str(tmp_path))
    found = json.loads(out)
    assert (code, found["ending"], found["validity"]["verdict"]) == (1, "found", "valid")
    assert found["metrics"]["found_rate_per_s"]["value"] is not None
    assert err.count("no space left on the device") == 1
