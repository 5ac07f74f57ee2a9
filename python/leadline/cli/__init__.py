"""The command line: one file per subcommand. Parses, calls, prints; decides nothing about a measurement."""

from leadline.cli.app import main

__all__ = ["main"]
