"""The `leadline` command: its subcommands, and the conversion of each error to one line and an exit code."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from leadline.cli import (
    compare,
    convert,
    crypto,
    demo,
    doctor,
    export,
    fleet,
    ladder,
    observe,
    plan,
    record,
    report,
    results,
    run,
    serve,
    size,
    trend,
    truths,
)
from leadline.cli.help_format import PanelHelpCommand, summary
from leadline.cli.kind_command import add_commands as add_kinds
from leadline.cli.output import print_error, print_json
from leadline.cli.text_encoding import prepare_encodings
from leadline.errors import InputError, LeadlineError
from leadline.masking import mask_text

# The base class of usage errors: typer's own, or click's in older versions of typer. Both publish a subclass of it.
_WrongUsage: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")

app = typer.Typer(
    name="leadline",
    help="Measure a network at every layer, and report whether the figures are valid.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add_commands(*modules: Any) -> None:
    for module in modules:
        parser = getattr(module, "CLASS", PanelHelpCommand)
        short = summary(module.command.__doc__)
        app.command(module.NAME, cls=parser, short_help=short, epilog=module.EXAMPLE)(module.command)


_add_commands(demo, run, plan)
add_kinds(app)
_add_commands(
    convert, record, ladder, crypto, serve, observe, results, report, compare, trend, truths, size, export, doctor
)
app.add_typer(fleet.app, name=fleet.NAME, short_help=summary(fleet.command.__doc__), epilog=fleet.EXAMPLE)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from leadline.cli.version import version_text

        print(version_text())
        raise typer.Exit


@app.callback()
def _global(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Measure a network at every layer, and report whether the figures are valid."""
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(2)


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 bad input, 3 target missed, 4 undecidable, 130 interrupted."""
    # Entries of journals and figures stay for as long as a command runs: the collector need not walk through them each
    # time that some thousands are new.
    gc.set_threshold(50_000, 20, 50)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell (`>&-`)
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    prepare_encodings()
    sys.exit(_status())


def _status() -> int:
    try:
        result = app(standalone_mode=False)
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except _WrongUsage as error:
        from leadline.cli.usage_errors import usage_line

        return _failed("bad_usage", usage_line(error), 2)
    except LeadlineError as error:
        others = error.others if isinstance(error, InputError) else ()
        return _failed(error.code, str(error), error.exit_code, [str(other) for other in others])
    except (BrokenPipeError, SystemExit) as end:
        # The parser's library and rich convert the error to an exit with code 1.
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        return _unread()
    except Exception as failure:
        return _unforeseen(failure)
    return result if isinstance(result, int) else 0


def _unread() -> int:
    """The reader of the output has closed it (`| head`): exit like a process that SIGPIPE ends, and print nothing."""
    _discard_output()
    return 128 + signal.SIGPIPE


def _unforeseen(failure: Exception) -> int:
    """A full disk under stdout, or a defect of Leadline."""
    if isinstance(failure, OSError) and failure.filename is None and failure.errno in _UNWRITABLE:
        _discard_output()
        return print_error(f"cannot write the output: {failure.strerror}", 1)
    from leadline.cli.unexpected import named

    found = named(failure, sys.argv[1:])
    return _failed(found.code, str(found), found.exit_code)


def _failed(code: str, message: str, status: int, others: Sequence[str] = ()) -> int:
    """Print one line per mistake; with --json, also one document on stdout."""
    if "--json" in sys.argv[1:]:
        line = " ".join(message.splitlines())
        error = {"code": code, "message": mask_text(line), "others": [mask_text(other) for other in others]}
        try:
            print_json({"schema": "leadline.error/1", "error": error})
            sys.stdout.flush()
        except OSError:
            _discard_output()
    for line in (message, *others[:_MOST_LINES]):
        print_error(line, status)
    if len(others) > _MOST_LINES:
        print_error(f"and {len(others) - _MOST_LINES} more mistakes (--json prints all)", status)
    return status


def _discard_output() -> None:
    """Let what is left of the output go nowhere. Otherwise the flush at the process's end would fail once more."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a write. Files that a command writes are named in an error of their own, so this is stdout."""
_MOST_LINES = 30
"""Number of mistakes that a terminal shows after the first."""
