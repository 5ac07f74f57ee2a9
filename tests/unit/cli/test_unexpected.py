"""An exception that no command foresees: one line, exit code 1, and the traceback where the line says."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from leadline.cli import app, trend
from leadline.cli.app import _status as status
from leadline.errors import InputError

SECRET = "s3cr3t-of-the-user"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    """Runs a command line in which reading the runs fails; returns its code, what it printed, and the traceback."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.delenv("LEADLINE_TRACEBACK", raising=False)

    def go(failure: Exception, *arguments: str) -> tuple[int, str, str, str]:
        def fail(*_: object) -> None:
            raise failure

        monkeypatch.setattr(trend, "_recorded", fail)
        monkeypatch.setattr(sys, "argv", ["leadline", "trend", str(tmp_path), *arguments])
        code = status()
        said = capsys.readouterr()
        files = list((tmp_path / "tmp").glob("leadline-traceback-*.log"))
        return code, said.out, said.err, files[0].read_text() if files else ""

    return go


def test_is_one_line_that_names_the_file_of_the_traceback(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err, traceback = run(ZeroDivisionError("division\nby zero"))
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    named = re.fullmatch(
        r"leadline: leadline failed unexpectedly: ZeroDivisionError: division by zero; its traceback is in (\S+); "
        "this is a defect of leadline: please report it",
        line,
    )
    assert named is not None and Path(named[1]).parent == tmp_path / "tmp"
    assert Path(named[1]).stat().st_mode & 0o077 == 0
    assert traceback.startswith("Traceback") and "in fail" in traceback


def test_with_json_it_is_a_document_too(run) -> None:  # type: ignore[no-untyped-def]
    code, out, _, _ = run(KeyError("case"), "--json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (1, "unforeseen") and "KeyError: 'case'" in error["message"]


def test_traceback_is_printed_if_asked_for(run, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("LEADLINE_TRACEBACK", "1")
    _, _, err, traceback = run(KeyError("case"))
    assert traceback in err and err.splitlines()[-1].startswith("leadline: leadline failed unexpectedly: KeyError")


@pytest.mark.usefixtures("no_temporary_folder")
def test_without_a_temporary_folder_it_stays_one_line(run, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    code, _, err, _ = run(KeyError("case"))
    (line,) = err.splitlines()
    assert code == 1
    assert line == (
        "leadline: leadline failed unexpectedly: KeyError: 'case'; set TMPDIR to a writable folder to keep its "
        "traceback; this is a defect of leadline: please report it"
    )
    monkeypatch.setenv("LEADLINE_TRACEBACK", "1")
    _, _, err, _ = run(KeyError("case"))
    assert err.startswith("Traceback") and err.endswith(f"{line}\n")


@pytest.mark.usefixtures("no_temporary_folder")
def test_run_without_a_temporary_folder_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.yaml").write_text("name: x\nsut: {kind: route}\ntests: [{name: t, kind: tcp, duration: 1s}]\n")
    monkeypatch.setenv("LEADLINE_AGENT", sys.executable)
    # The tests' process may have threads, and must not be forked.
    monkeypatch.setattr("threading.active_count", lambda: 1)
    monkeypatch.setattr("leadline.lab.jail._fork_inside", lambda *_: pytest.fail("the process was forked"))
    monkeypatch.setattr(sys, "argv", ["leadline", "run", str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "runs")])
    assert status() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "No usable temporary directory found" in line and "set TMPDIR" in line


def test_group_names_its_cause_and_a_known_error_stays_what_it_is(run) -> None:  # type: ignore[no-untyped-def]
    code, _, err, _ = run(ExceptionGroup("tasks", [InputError("no such thing"), ValueError("odd")]))
    assert code == 1 and "ValueError: odd" in err
    code, _, err, _ = run(ExceptionGroup("tasks", [InputError("no such thing")]))
    assert (code, err) == (2, "leadline: no such thing\n")


@pytest.mark.parametrize("option", [("--bearer", SECRET), (f"--basic=user:{SECRET}",), ("-H", f"Token: {SECRET}")])
def test_secrets_of_the_command_line_are_in_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail(**_: object) -> None:
        raise ValueError(f"odd: {SECRET}")

    monkeypatch.setattr(app, "app", fail)
    monkeypatch.setattr(sys, "argv", ["leadline", "http", "http://192.0.2.7/", *option])
    assert status() == 1
    (log,) = tmp_path.iterdir()
    assert SECRET not in capsys.readouterr().err and SECRET not in log.read_text()
