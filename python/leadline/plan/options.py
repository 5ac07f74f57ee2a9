"""Command-line options that set the keys of a test, one row per option. Records only; `cli.kind_command` uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from leadline.errors import InputError
from leadline.plan.base_test import BaseTest
from leadline.plan.option_fields import option_field


@dataclass(frozen=True, slots=True)
class Option:
    """One option, or an argument if it has no flags: its text in `--help`, and the key that it sets.

    An option with a key takes what it leaves out (type, limits, default, metavar, value of a flag) from the key's field
    in the model of its command.
    """

    flags: tuple[str, ...]
    help: str
    key: str | None = None
    """The test's key as in a plan, with dots for nested sections; None if the command itself uses the value."""
    type: Any = None
    """None: the field's; without a key, text."""
    default: Any = ...
    """None if nothing is set by default. Left out: the field's."""
    required: bool = False
    metavar: str | None = None
    least: int | None = None
    most: int | None = None
    panel: str | None = None
    """Its group in `--help`."""
    value: Any = None
    """The value that a flag sets its key to. Options that set the same key exclude each other."""
    read: Callable[[Any], Any] | None = None
    """Converts the option's value to the key's value."""
    counts_threads: bool = False
    bare: str | None = None
    """The value that the option has if the user gives none. A value of such an option contains <, > or =."""
    hint: str | None = None
    """The advice in the error when another option sets the same key."""
    parameter: str | None = None
    """The option's name in code, if it differs from its flag."""

    @property
    def name(self) -> str:
        """The option's name in code."""
        return self.parameter or self.flag.replace("-", "_")

    @property
    def flag(self) -> str:
        """The long flag, without its dashes and without a negative form."""
        return self.flags[-1].partition("/")[0].lstrip("-") if self.flags else (self.parameter or "")

    @property
    def is_switch(self) -> bool:
        """Whether its flag has no negative form."""
        return "/" not in self.flags[-1] if self.flags else False

    def completed(self, model: type[BaseModel]) -> Option:
        """The option with what it leaves to its field."""
        if self.key is None:
            return replace(self, type=self.type or str, default=None if self.default is ... else self.default)
        field = option_field(model, self.key)
        if self.value is not None:
            return replace(self, type=bool, default=False)
        if field.type is bool and field.default is not None and self.is_switch:
            return replace(self, type=bool, default=False, value=not field.default)
        return replace(
            self,
            type=self.type or field.type,
            default=field.default if self.default is ... else self.default,
            metavar=self.metavar or field.metavar,
            least=field.least if self.least is None else self.least,
            most=field.most if self.most is None else self.most,
        )


@dataclass(frozen=True, slots=True)
class Command:
    """The command of a kind of test."""

    model: type[BaseModel]
    """The test's parameters, which the options set."""
    summary: str
    """The first paragraph of `--help`."""
    examples: str
    """The last paragraph of `--help`."""
    position: int
    """Its position among the commands of all kinds."""
    rows: tuple[Option, ...]
    """The options as they are declared, in the order of `--help`."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Keys of the test that an option of another key supplies, each with that option's flag."""

    @property
    def options(self) -> tuple[Option, ...]:
        """The options, each with what it takes from the model."""
        return tuple(row.completed(self.model) for row in self.rows)

    @property
    def flags(self) -> dict[str, str]:
        """The flag of each key that an option sets."""
        found = {row.key: row.flag for row in reversed(self.rows) if row.key is not None}
        return {**found, **self.names}


def test_values(options: Iterable[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys and values that the options set. `values` has each option's value by its name in code; None means not
    given.

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


test_values.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect this function


def group(panel: str, *options: Option) -> tuple[Option, ...]:
    """The options as one group of `--help`."""
    return tuple(replace(option, panel=panel) for option in options)


def listed(text: str) -> list[str]:
    """The items of a comma-separated option: `1,25,99.95`."""
    return [part.strip() for part in text.split(",")]


DURATION = Option(
    ("-d", "--duration"), "Length of the test, warm-up included: 10s, 500ms, 1m; 10 means 10 seconds.", key="duration"
)
WARMUP = Option(("--warmup",), "Time at the start whose samples are kept but not counted.", key="warmup")
NUMBER = Option(
    ("-n", "--number"), "End after N requests or transactions, or after N datagrams per flow.", key="number"
)
FLOWS = Option(("-P", "--parallel"), "Number of parallel flows.", key="flows")
THREADS = Option(
    ("-t", "--threads"),
    f"Number of load threads, 1 to {option_field(BaseTest, 'threads').most} (the duration is -d).",
    key="threads",
    metavar="N",
    counts_threads=True,
)
REVERSE = Option(
    ("-R", "--reverse"),
    "The server sends, the client receives.",
    key="direction",
    value="down",
    hint="--bidir measures both directions",
)
BIDIRECTIONAL = Option(("--bidir",), "Both sides send at the same time.", key="direction", value="both")
PERCENTILES = Option(
    ("--percentiles",),
    "Percentiles to report in addition to the usual ones: 1,25,99.95.",
    key="percentiles",
    type=str,
    metavar="LIST",
    read=listed,
)
HOST = Option(
    (),
    "Name or address of the host that runs `leadline serve` or `leadline-agent serve`. Default: this machine's "
    "loopback, with a server of its own.",
    metavar="HOST",
    parameter="host",
)
FAMILY = (
    Option(("-4", "--ipv4"), "Use IPv4 only.", type=bool, default=False),
    Option(("-6", "--ipv6"), "Use IPv6 only.", type=bool, default=False),
)
SESSION = (
    *FAMILY,
    Option(("--bind",), "Local address to send from.", metavar="ADDR"),
    Option(("-p", "--port"), "The server's port.", type=int, default=5201, least=1, most=65535, metavar="PORT"),
    Option(("--key-file",), "File with the key of the server, if it requires one.", type=Path, metavar="FILE"),
)
"""Options that reach the server, for tests with a control session."""


def cross_check(model: type[BaseModel]) -> Option:
    """The option that repeats a measurement with one of the tools that the model names."""
    tools = option_field(model, "cross_check").type
    which = " or ".join([", ".join(tools[:-1]), tools[-1]] if len(tools) > 1 else tools)
    text = f"Repeat the measurement with a second tool, and say whether the two agree: {which}. --width repeats both."
    return Option(("--cross-check",), text, key="cross_check", metavar="TOOL")


PEER = Option(("--peer",), "The server's program: `leadline serve`, or a real `iperf3 -s`.", key="peer")
_IPERF3 = "With --peer iperf3"
LOGIN = group(
    _IPERF3,
    Option(("--username",), "User at a server that asks for one; the password is IPERF3_PASSWORD.", metavar="NAME"),
    Option(("--rsa-public-key-path",), "The server's public RSA key, a PEM file.", type=Path, metavar="FILE"),
    Option(("--use-pkcs1-padding",), "The server is older than 3.17, and pads as it did.", type=bool, default=False),
)
"""Options that log in at an iperf3 server."""
IPERF3 = group(
    _IPERF3,
    Option(
        ("--local-port",),
        "Local port of the first flow; each further flow has the next one. Default: the host's choice.",
        type=int,
        least=1,
        most=65535,
        metavar="PORT",
    ),
    Option(
        ("--get-server-output",),
        "Print what the server printed; in iperf3's document it has its own field.",
        type=bool,
        default=False,
    ),
    Option(("--repeating-payload",), "Both ends send the digits 0 to 9 again and again.", type=bool, default=False),
)
"""What a test asks of an iperf3 server."""
SHORT_COUNTERS = Option(
    ("--udp-counters-32bit",),
    "Number datagrams with 32 bits, as iperf3 does without an option, instead of 64.",
    type=bool,
    default=False,
    panel=_IPERF3,
)
FORMAT = Option(
    ("--format",),
    "Layout of the summary: Leadline's own, or the JSON document of `iperf3 -J`.",
    type=("text", "iperf3-json"),
    default="text",
    parameter="output_format",
)
INTERVAL = Option(
    ("-i", "--interval"),
    "Print figures on stderr at this interval; 0 prints none. Default: 1s; none with --json, whose document has them.",
    metavar="TIME",
)
PRECISION = (
    Option(
        ("--width",),
        "Repeat the measurement until half of the mean's interval is at most this share of the mean: 5%.",
        metavar="SHARE",
    ),
    Option(
        ("--confidence",),
        "Confidence of that interval in percent. Default with --width: 95. Alone, it implies --width 5%.",
        metavar="PERCENT",
    ),
    Option(
        ("--most-repeats",),
        "Repeats at most, disturbed ones included; three are the least.",
        type=int,
        default=15,
        least=3,
        most=1000,
        metavar="N",
    ),
)
"""Options that repeat a measurement until its figures are known well enough."""
JSON = Option(("--json",), "Print one JSON document on stdout; progress goes to stderr.", type=bool, default=False)
VERBOSE = Option(
    ("--verbose",),
    "Print all figures and tables, every reason of the verdict, and what to do about each.",
    type=bool,
    default=False,
)
OUT = Option(("--out",), "Keep all samples in a new run folder below DIR.", type=Path, metavar="DIR")


FIND_RATES = Option(
    ("--find-rate",),
    "Find the highest rate with these conditions: 'lost_ratio <= 0' is the NDR, 'lost_ratio <= 0.5%' a PDR; given"
    " twice, one search finds both. -d is the length of a trial.",
    type=list,
    metavar="'METRIC < VALUE and ...'",
)


def targets(example: str) -> Option:
    """The option `--target`; its example uses a metric of this kind."""
    text = f"Exit with code 3 if this does not hold, as in '{example}'."
    return Option(("--target",), text, type=list, metavar="'METRIC < VALUE'")
