"""The command line: one file per subcommand. Parses, calls, prints; decides nothing about a measurement."""

import sys


def main() -> None:
    """Run the command line and exit. The commands are imported here, so that Ctrl-C meanwhile is no traceback."""
    try:
        if sys.argv[1:] == ["--version"] and _has_printed_version():
            sys.exit(0)
        from leadline.cli import app
    except KeyboardInterrupt:
        sys.exit(130)
    app.main()


def _has_printed_version() -> bool:
    """Print the version without the commands, whose import takes most of the time; they report it if that fails."""
    from leadline.cli.version import version_text

    try:
        print(version_text(), flush=True)
    except OSError:
        return False
    return True


__all__ = ["main"]
