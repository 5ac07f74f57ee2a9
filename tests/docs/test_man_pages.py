"""The man pages: one for each command, with every option of its help, and nothing that groff warns of."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from leadline.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
TOP: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
BELOW = {f"{name}-{word}": part for name, one in TOP.items() for word, part in getattr(one, "commands", {}).items()}
COMMANDS = {**TOP, **BELOW}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, ROOT / "scripts" / "man_pages.py", made], check=True, capture_output=True)
    return made / "man1"


def text_of(page: Path) -> str:
    """What a reader sees, but for the layout."""
    plain = page.read_text(encoding="utf-8").replace("\\-", "-").replace("\\e", "\\").replace("\\(ga", "`")
    return " ".join(plain.replace("\\&", "").split())


def test_each_command_has_a_page_and_there_is_no_other(folder: Path) -> None:
    assert {page.name for page in folder.iterdir()} == {"leadline.1", *(f"leadline-{name}.1" for name in COMMANDS)}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_page_has_every_option_and_example_of_the_help(folder: Path, name: str) -> None:
    shown = text_of(folder / f"leadline-{name}.1")
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "option":
            assert all(flag in shown for flag in parameter.opts), parameter.opts
        if getattr(parameter, "help", None):
            assert " ".join(parameter.help.split()) in shown
    for example in re.findall(r"leadline .*", COMMANDS[name].epilog or ""):
        assert " ".join(example.split()) in shown


def test_first_page_has_the_commands_and_the_exit_codes(folder: Path) -> None:
    shown = text_of(folder / "leadline.1")
    assert all(f".B {name} " in shown for name in TOP)
    codes = re.findall(r"\.B (\d+) (\w+)", shown.partition(".SH EXIT STATUS")[2])
    assert [code for code, _ in codes] == ["0", "1", "2", "3", "4", "130"]
    assert codes[0][1] == "done" and codes[-1][1] == "interrupted"


def test_groff_prints_no_warning(folder: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    for page in sorted(folder.iterdir()):
        argv = [groff, "-man", "-ww", "-Tutf8", "-Kutf8", str(page)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        # Only a whole groff has the preprocessor for UTF-8; Debian's base has none.
        if "preconv" in done.stderr:
            pytest.skip("this groff reads no UTF-8")
        assert (done.returncode, done.stderr) == (0, ""), page.name
