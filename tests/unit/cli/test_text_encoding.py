"""Locales whose character set lacks characters of Leadline's output: it is replaced, and files stay UTF-8."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leadline.cli import text_encoding

EVERY_CHARACTER = "10 µs ±3 %, ≥ 5, ≤ 6, a × b – c … ✓ ▲ ▍ é \ud800 日"
# What a command does: it prepares, prints, and writes files.
SCRIPT = f"""
import pathlib, sys
from leadline.cli.text_encoding import prepare_encodings
prepare_encodings()
text = {EVERY_CHARACTER!a}
print(text)
print(text, file=sys.stderr)
pathlib.Path(sys.argv[1]).write_text(text.replace(chr(0xd800), ""))
"""


def execute(file: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    unset = ("LC_ALL", "LC_CTYPE", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    argv = [sys.executable, "-c", SCRIPT, str(file)]
    return subprocess.run(argv, capture_output=True, check=False, env={**kept, **variables})


def test_characters_that_latin_1_lacks_are_replaced_and_the_others_stay(tmp_path: Path) -> None:
    done = execute(tmp_path / "file", LC_ALL="C.UTF-8", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode("latin-1") == "10 µs ±3 %, >= 5, <= 6, a × b - c ... + ^ # é ? ?\n"
    assert done.stderr == done.stdout


def test_ascii_has_a_replacement_for_every_character(tmp_path: Path) -> None:
    done = execute(tmp_path / "file", LC_ALL="C.UTF-8", PYTHONIOENCODING="ascii")
    assert done.stdout.decode("ascii") == "10 us +/-3 %, >= 5, <= 6, a x b - c ... + ^ # e ? ?\n"


def test_utf_8_stays_as_it_is(tmp_path: Path) -> None:
    done = execute(tmp_path / "file", LC_ALL="C.UTF-8")
    assert done.stdout.decode() == EVERY_CHARACTER.replace("\ud800", "?") + "\n"


def test_files_are_utf_8_in_a_latin_1_locale(tmp_path: Path) -> None:
    if shutil.which("localedef") is None:
        pytest.skip("there is no localedef here")
    made = tmp_path / "en_US.ISO-8859-1"
    argv = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", str(made)]
    if subprocess.run(argv, capture_output=True, check=False).returncode or not made.exists():
        pytest.skip("localedef has no sources of locales here")
    done = execute(tmp_path / "file", LC_ALL="en_US.ISO-8859-1", LOCPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode("latin-1").startswith("10 µs ±3 %, >= 5")
    assert (tmp_path / "file").read_text(encoding="utf-8") == EVERY_CHARACTER.replace("\ud800", "")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_bytes_of_a_file_name_are_printed_as_they_are(tmp_path: Path, encoding: str) -> None:
    argv = [
        sys.executable,
        "-c",
        SCRIPT.replace("print(text)\n", "print(sys.argv[2])\n"),
        str(tmp_path / "file"),
        "\udcff",
    ]
    variables = {**os.environ, "LC_ALL": "C.UTF-8", "PYTHONIOENCODING": encoding}
    done = subprocess.run(argv, capture_output=True, check=True, env=variables)
    assert done.stdout == b"\xff\n"


def test_what_decodes_wrongly_is_no_matter_of_replacements() -> None:
    error = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    with pytest.raises(UnicodeDecodeError):
        text_encoding._replace(error)
