"""The command line: one file per subcommand. Parses, calls, prints; decides nothing about a measurement."""

import sys


def main() -> None:
    """Run the command line and exit. The commands are imported here, so that Ctrl-C meanwhile is no traceback."""
    try:
        from leadline.cli import app
    except KeyboardInterrupt:
        sys.exit(130)
    app.main()


__all__ = ["main"]
