"""`--width` and `--confidence` of the single-test commands: what is refused, and the document of real repeats."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import started_command

from in_process import leadline
from leadline.analysis.model import Metric, TestResult, Validity, Verdict
from leadline.trial import Single, repeated
from waiting import WITHIN_S, free_port


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    number = free_port()
    argv = [started_command.program, "serve", "--bind", "127.0.0.1", "-p", str(number), "--no-http"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        yield number
        process.terminate()
        process.wait(WITHIN_S)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--width", "5"], "--width 5: not a share above 0 and up to 1; as in --width 5%, or 0.05"),
        (["--width", "much"], "--width: 'much' is not a share"),
        (["--confidence", "0.95"], "--confidence 0.95: not a percentage from 50 to 99.9; as in --confidence 95"),
        (["--confidence", "sure"], "--confidence sure: not a percentage"),
        (["--most-repeats", "5"], "--most-repeats without --width; as in --width 5%"),
    ],
)
def test_wrong_precision_is_one_clear_line(arguments: list[str], words: str) -> None:
    ended = leadline("tcp", "127.0.0.1", *arguments)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert words in ended.stderr.replace(" (", "; ").replace(")", "")


@pytest.mark.parametrize(
    "option", [["--find-rate", "error_ratio < 1%"], ["--stop-on-miss"], ["--hdr", "x.hlog"], ["--format", "wrk"]]
)
def test_options_of_one_measurement_are_refused_beside_width(option: list[str]) -> None:
    ended = leadline("http", "http://127.0.0.1:1/", "--width", "5%", *option)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"{' '.join(option[:1])}" in ended.stderr
    assert "exclude each other" in ended.stderr


FIFTY = ("-n", "50", "-d", "60s", "--timeout", "60s")
"""Each repeat has fifty transactions, however long they take."""


@pytest.mark.agent
@pytest.mark.decided_by("the number of transactions, which is the same in each repeat")
def test_document_has_means_with_intervals_and_every_repeat(port: int, tmp_path: Path) -> None:
    ended = leadline(
        *("rr", "127.0.0.1", "-p", str(port), *FIFTY, "--width", "50%", "--most-repeats", "4", "--json"),
        *("--out", str(tmp_path), "--target", "transactions == 50"),
    )
    document = json.loads(ended.stdout)
    assert (ended.returncode, document["schema"]) == (0, "leadline.result/1"), ended.stderr
    figure = document["metrics"]["transactions_per_s"]
    assert figure["low"] <= figure["value"] <= figure["high"]
    precision = document["precision"]
    assert (precision["confidence"], precision["width"], precision["disturbed"]) == (0.95, 0.5, 0)
    # How much the repeats differ is the machine's; what follows from it is not.
    assert precision["reached"] == (precision["half_width_ratio"]["transactions_per_s"] <= 0.5)
    assert precision["counted"] == len(document["repeats"]) in ((3, 4) if precision["reached"] else (4,))
    assert [one["repeat"] for one in document["repeats"]] == list(range(1, len(document["repeats"]) + 1))
    assert [one["metrics"]["transactions"]["value"] for one in document["repeats"]] == [50] * len(document["repeats"])
    assert document["targets"][0]["outcome"] == "met"
    [folder] = tmp_path.iterdir()
    rows = json.loads(leadline("results", str(folder), "--json").stdout)["rows"]
    assert {row["trial"] for row in rows} >= {"c01/1", "c01/2", "c01/3", None}


@pytest.mark.agent
@pytest.mark.decided_by("nothing: the folder has the same figures, whatever they are")
def test_folder_has_the_figures_that_the_command_printed(port: int, tmp_path: Path) -> None:
    """Percentiles of all repeats' values and intervals that allow for the ending, in both."""
    ended = leadline(
        *("rr", "127.0.0.1", "-p", str(port), *FIFTY, "--width", "50%", "--json"),
        *("--most-repeats", "4", "--out", str(tmp_path)),
    )
    [folder] = tmp_path.iterdir()
    kept = json.loads(leadline("report", str(folder), "--json").stdout)
    [summary] = kept["summaries"]
    printed = json.loads(ended.stdout)
    assert summary["repeats"] >= 3
    for name, figure in printed["metrics"].items():
        assert summary["metrics"][name] == figure, name


async def uneven(single: Single, *_: object) -> tuple[TestResult, None]:
    """Repeats of 90 and 112 transactions per second in turn."""
    figures = {"transactions_per_s": Metric(90.0 if single.repeat % 2 else 112.0, "1/s")}
    validity = Validity(Verdict.VALID)
    return TestResult("c01", single.repeat, "rr", "rr", {}, "done", None, figures, validity, None, None, {}), None


def test_goal_out_of_reach_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "measure_repeat", uneven)
    ended = leadline("rr", "192.0.2.1", "--width", "0.0001%", "--most-repeats", "3")
    assert "not within ±0.000100 % of the mean" in ended.stderr
    assert "repeat 3: " in ended.stderr
    assert "3 repeats, 95 % interval" in ended.stdout


@pytest.mark.parametrize(
    ("target", "outcome", "code"),
    [
        ("transactions_per_s > 100", "undecided", 4),
        ("transactions_per_s > 50", "met", 0),
        ("transactions_per_s > 150", "missed", 3),
    ],
)
def test_target_is_decided_on_the_interval_over_repeats(
    monkeypatch: pytest.MonkeyPatch, target: str, outcome: str, code: int
) -> None:
    monkeypatch.setattr(repeated, "measure_repeat", uneven)
    ended = leadline("rr", "192.0.2.1", "--width", "1%", "--most-repeats", "6", "--json", "--target", target)
    judged = json.loads(ended.stdout)["targets"][0]
    assert (judged["outcome"], ended.returncode) == (outcome, code)
