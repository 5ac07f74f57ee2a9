"""Runs the `leadline` command within the tests' own process, which takes a hundredth of an interpreter's time.

For commands that leave the process as it is: a lab's jail takes it over, and `leadline serve` becomes the agent. The
commands with all their options are built once: that takes longer than most of them run.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

import typer.main

from leadline.cli import main
from leadline.cli.app import app

built = cache(typer.main.get_command)


def subcommand(name: str) -> Any:
    """A subcommand and its options, as click knows them."""
    commands: Any = built(app)
    return commands.commands[name]


def leadline(
    *arguments: str | Path, folder: Path | None = None, variables: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """Run the command to its end, in a folder and with further environment variables where given."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv = ["leadline", *map(str, arguments)]
    refusal = AssertionError(f"{argv[1:2]} needs a process of its own")
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", argv))
        # By this click knows that it was started as a program, and not as a module.
        stack.enter_context(mock.patch.object(sys.modules["__main__"], "__package__", None))
        stack.enter_context(mock.patch.object(typer.main, "get_command", built))
        stack.enter_context(mock.patch.dict(os.environ, variables or {}))
        # What the module remembers of TMPDIR.
        stack.enter_context(mock.patch.object(tempfile, "tempdir", None))
        stack.enter_context(mock.patch("leadline.lab.jail.enter", side_effect=refusal))
        stack.enter_context(mock.patch("os.execv", side_effect=refusal))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        if folder is not None:
            stack.enter_context(chdir(folder))
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
    return CompletedProcess(argv, code, out.getvalue(), err.getvalue())
