"""The `leadline` command: its subcommands, and the conversion of each error to one line and an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from leadline import __version__
from leadline.cli import (
    compare,
    convert,
    crypto,
    doctor,
    export,
    ladder,
    observe,
    plan,
    report,
    results,
    run,
    serve,
    size,
    trend,
)
from leadline.cli.help_format import PanelHelpCommand
from leadline.cli.kind_command import add_commands as add_kinds
from leadline.cli.output import print_error, print_json
from leadline.errors import InputError, LeadlineError

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
        app.command(module.NAME, cls=getattr(module, "CLASS", PanelHelpCommand), epilog=module.EXAMPLE)(module.command)


_add_commands(run, plan)
add_kinds(app)
_add_commands(convert, ladder, crypto, serve, observe, results, report, compare, trend, size, export, doctor)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from leadline.cli.version import commit

        known = commit()
        print(f"leadline {__version__} ({f'commit {known}' if known else 'commit unknown'})")
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
    sys.exit(_status())


def _status() -> int:
    try:
        result = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except _WrongUsage as error:
        return _failed("bad_usage", _usage(error), 2)
    except LeadlineError as error:
        others = error.others if isinstance(error, InputError) else ()
        return _failed(error.code, str(error), error.exit_code, [str(other) for other in others])
    except BrokenPipeError:
        # The reader of the output has closed it (`| head`). Exit like a process that SIGPIPE ends, and print nothing
        # more, not even at exit.
        sys.stderr.close()
        return 128 + signal.SIGPIPE
    except Exception as failure:
        from leadline.cli.unexpected import named

        found = named(failure, sys.argv[1:])
        return _failed(found.code, str(found), found.exit_code)
    return result if isinstance(result, int) else 0


def _failed(code: str, message: str, status: int, others: Sequence[str] = ()) -> int:
    """Print one line per mistake; with --json, also one document on stdout."""
    if "--json" in sys.argv[1:]:
        error = {"code": code, "message": " ".join(message.splitlines()), "others": list(others)}
        print_json({"schema": "leadline.error/1", "error": error})
    for line in (message, *others[:_MOST_LINES]):
        print_error(line, status)
    if len(others) > _MOST_LINES:
        print_error(f"and {len(others) - _MOST_LINES} more mistakes (--json prints all)", status)
    return status


def _usage(error: BaseException) -> str:
    """A usage error in one line: what is wrong, and which command prints help."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "leadline"
    message: str = getattr(error, "format_message", error.__str__)()
    text = " ".join(message.split()).rstrip(".").replace("Value error, ", "")
    return f"{text}; see `{where} --help`"


_MOST_LINES = 30
"""Number of mistakes that a terminal shows after the first."""
