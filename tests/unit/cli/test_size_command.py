"""`leadline size` with given cycles: its table, its document, and what it refuses."""

from __future__ import annotations

import json
import sys

import pytest

from leadline.cli import app


def size(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["leadline", "size", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    return int(ended.value.code or 0)


def test_the_table_of_the_rule(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert size(monkeypatch, "--cycles-per-byte", "140") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["OC3", "155", "2.71", "GHz", "3.88", "GHz"] in rows
    assert ["DSL", "1.00", "17.5", "MHz", "25.0", "MHz"] in rows


def test_a_link_and_a_cpu_as_a_document(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--cycles-per-byte", "10", "--cycles-per-packet", "3000", "--link", "1gbit", "--packet", "1000")
    assert size(monkeypatch, *given, "--cpu", "3GHz", "--cores", "4", "--busy", "50%", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "leadline.size/1"
    [one] = document["sizes"]
    [need], [carried] = one["links"], one["carried"]
    assert (need["hz"], need["planned_hz"], need["cpus"]) == pytest.approx((1.625e9, 3.25e9, 3.25 / 3))
    assert (carried["bps"], carried["planned_bps"]) == pytest.approx((12e9 * 8 / 13, 6e9 * 8 / 13))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to plan with; name a run, or give --cycles-per-byte 140"),
        (("--cycles-per-byte", "0"), "one of them has to be above 0"),
        (("--cycles-per-byte", "nan"), "--cycles-per-byte nan: not a number of cycles from 0.000001 to 1,000,000,000"),
        (("--cycles-per-byte", "1e308", "--link", "100gbit"), "--cycles-per-byte 1e+308: not a number of cycles"),
        (("--cycles-per-byte", "1", "--cycles-per-packet", "-5"), "--cycles-per-packet -5: not a number of cycles"),
        (("--cycles-per-byte", "1", "--link", "9" * 400), "a rate must be above 0 and at most 1,000 Tbit/s"),
        (("--cycles-per-byte", "1", "--cpu", "1e300GHz"), "--cpu 1e300GHz: '1e300GHz' is not a clock frequency"),
        (("--cycles-per-byte", "1", "--busy", "1e-300"), "--busy 1e-300: it has to be 0.1% or more"),
        (("--cycles-per-byte", "1", "--link", "5x"), "--link 5x: '5x' is not a rate"),
        (("--cycles-per-byte", "1", "--link", "0"), "--link 0: a rate must be above 0"),
        (("--cycles-per-byte", "1", "--cpu", "fast"), "--cpu fast: 'fast' is not a clock frequency; write 3GHz"),
        (("--cycles-per-byte", "1", "--busy", "0%"), "--busy 0%: it has to be 0.1% or more"),
        (("--cycles-per-byte", "1", "--packet", "0"), "a packet's payload has 1 to 65,507 bytes"),
        (("--cycles-per-byte", "1", "--packet", "65508"), "a packet's payload has 1 to 65,507 bytes"),
        (("--cycles-per-byte", "1", "--cpu", "3"), "--cpu 3: '3' is not a clock frequency; write 3GHz"),
        (("--cycles-per-byte", "1", "--frequency", "3GHz"), "--frequency is the clock of a measured gateway"),
        (("somewhere", "--cycles-per-byte", "1"), "a run and given cycles exclude each other"),
        (("/nowhere",), "/nowhere"),
    ],
)
def test_bad_input_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert size(monkeypatch, *arguments) == 2
    error = capsys.readouterr().err
    assert words in " ".join(error.split())
