"""The keys of a test as options of a command line: one row per option. Records only; `cli.kind_command` uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline.errors import InputError


@dataclass(frozen=True, slots=True)
class Option:
    """One option, or an argument where it has no flags: what `--help` says of it, and the key that it sets."""

    flags: tuple[str, ...]
    help: str
    key: str | None = None
    """The key of the test as in a plan, with dots into its sections; None where the command itself uses the value."""
    type: Any = str
    default: Any = None
    required: bool = False
    metavar: str | None = None
    least: int | None = None
    most: int | None = None
    panel: str | None = None
    """The group of `--help` that it is in."""
    value: Any = None
    """What a flag sets the key to; options that set one key exclude each other."""
    read: Callable[[Any], Any] | None = None
    """Makes the key's value of the option's."""
    counts_threads: bool = False
    bare: str | None = None
    """What it stands for without a value; a value of such an option has one of < > =."""
    hint: str | None = None
    """What is right instead of this option and another one of the same key."""
    parameter: str | None = None
    """The option's name in code, where it is not its flag's."""

    @property
    def name(self) -> str:
        """The option's name in code."""
        return self.parameter or self.flag.replace("-", "_")

    @property
    def flag(self) -> str:
        """The long flag, without its dashes and without a negative form."""
        return self.flags[-1].partition("/")[0].lstrip("-") if self.flags else (self.parameter or "")


@dataclass(frozen=True, slots=True)
class Command:
    """A kind's command of `leadline`."""

    summary: str
    """What `--help` says first."""
    examples: str
    """What `--help` says last."""
    position: int
    """Its place among the commands of kinds."""
    options: tuple[Option, ...]
    """In the order of `--help`."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Keys of the test whose values come from an option of another key, and the flags of these."""

    @property
    def flags(self) -> dict[str, str]:
        """The flag of each key that an option sets."""
        found = {option.key: option.flag for option in reversed(self.options) if option.key is not None}
        return {**found, **self.names}


def test_values(options: Iterable[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys and values that options set, whose values are given by their names; None is not given.

    Raises:
        InputError: two options exclude each other.
    """
    found: dict[str, Any] = {}
    set_by: dict[str, Option] = {}
    for option in options:
        given = values[option.name]
        if option.key is None or given is None or (option.value is not None and not given):
            continue
        if option.key in set_by:
            first = set_by[option.key]
            raise InputError(f"--{first.flag} and --{option.flag} exclude each other", hint=first.hint or option.hint)
        set_by[option.key] = option
        section = found
        *sections, key = option.key.split(".")
        for name in sections:
            section = section.setdefault(name, {})
        section[key] = option.value if option.value is not None else option.read(given) if option.read else given
    return found


test_values.__test__ = False  # type: ignore[attr-defined]  # the name is not for pytest to collect


def listed(text: str) -> list[str]:
    """An option's list: `1,25,99.95`."""
    return [part.strip() for part in text.split(",")]


DURATION = Option(
    ("-d", "--duration"),
    "How long, warm-up included: 10s, 500ms, 1m; 10 is 10 seconds.",
    key="duration",
    default="10s",
    metavar="TIME",
)
WARMUP = Option(("--warmup",), "Leading time that is kept but not counted.", key="warmup", default="0s", metavar="TIME")
NUMBER = Option(
    ("-n", "--number"),
    "End after N requests or transactions, or N datagrams per flow.",
    key="number",
    type=int,
    least=1,
)
FLOWS = Option(("-P", "--parallel"), "Flows at once.", key="flows", type=int, default=1, least=1)
THREADS = Option(
    ("-t", "--threads"),
    "Generating threads, 1 to 256; no time, which is -d.",
    key="threads",
    type=int,
    default=1,
    metavar="N",
    counts_threads=True,
)
REVERSE = Option(
    ("-R", "--reverse"),
    "The server sends.",
    key="direction",
    type=bool,
    default=False,
    value="down",
    hint="--bidir has both directions",
)
BIDIRECTIONAL = Option(("--bidir",), "Both send at once.", key="direction", type=bool, default=False, value="both")
PERCENTILES = Option(
    ("--percentiles",),
    "Percentiles beside the usual ones: 1,25,99.95.",
    key="percentiles",
    metavar="LIST",
    read=listed,
)
HOST = Option(
    (),
    "Where `leadline serve` or `leadline-agent serve` runs.",
    required=True,
    metavar="HOST",
    parameter="host",
)
SESSION = (
    Option(("-4", "--ipv4"), "IPv4 only.", type=bool, default=False),
    Option(("-6", "--ipv6"), "IPv6 only.", type=bool, default=False),
    Option(("--bind",), "Local address.", metavar="ADDR"),
    Option(("-p", "--port"), "The server's port.", type=int, default=5201, least=1, most=65535, metavar="PORT"),
    Option(("--key-file",), "File with the key that the responder asks for.", type=Path, metavar="FILE"),
)
"""How the server is reached, of tests with a session."""
INTERVAL = Option(
    ("-i", "--interval"),
    "Print the figures of each interval of this length on stderr: 1s. With --json they are in the document.",
    metavar="TIME",
)
JSON = Option(("--json",), "One JSON document on stdout; progress stays on stderr.", type=bool, default=False)
OUT = Option(("--out",), "Keep every sample in a new run folder in this one.", type=Path, metavar="DIR")


def targets(example: str) -> Option:
    """`--target`, with an example whose metric the kind has."""
    text = f"Exit 3 unless it holds, as in '{example}'."
    return Option(("--target",), text, type=list, metavar="'METRIC < VALUE'")
