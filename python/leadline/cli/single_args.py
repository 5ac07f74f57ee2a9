"""Parses the options that all single-test commands share: the test, its server, and the output. Measures nothing.

`run_single`, `run_search` and `tunnel_sweep` continue from here. Commands import those only when all arguments are
valid, so that a wrong command line fails fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from leadline.errors import InputError
from leadline.plan.field_types import validate_input
from leadline.plan.validation_errors import value_error_text

if TYPE_CHECKING:
    from leadline.analysis.model import TargetResult, TestResult
    from leadline.cli.sample_file import SampleFormat
    from leadline.plan import BaseTest
    from leadline.plan.repeats import PrecisionGoal
    from leadline.trial.second_tools import ToolRun
    from leadline.trial.workloads import Server

SHORTEST_INTERVAL_MS = 100
_INTERVAL_MS = 1000
_NO_INTERVAL = ("0", "0s")
LEAST_CONFIDENCE_PERCENT, MOST_CONFIDENCE_PERCENT = 50.0, 99.9

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class SummaryFile:
    """A file for the result in the layout of another tool."""

    path: Path
    document: Callable[[TestResult, Sequence[TargetResult]], Mapping[str, Any]]
    """Its content, from the result and the outcomes of its targets."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The options that control output, and those that end a measurement early."""

    target: str
    """The measured host or URL, as the user wrote it."""
    json: bool
    out: Path | None
    targets: list[str]
    hdr: Path | None = None
    """File for the interval histograms, in HdrHistogram's log format."""
    format: Literal["text", "wrk", "ab", "iperf3-json"] = "text"
    """The layout of the summary on stdout."""
    stop_on_miss: bool = False
    """Whether the load ends as soon as a target is missed."""
    aborting: Mapping[str, int] = field(default_factory=dict)
    """Of the targets, those that end the load when they are missed, and the ms before that may happen."""
    calibrate: bool = True
    """Whether the generator's ceiling is measured or looked up."""
    find_rate: str | None = None
    """Conditions of a search for the highest rate, as `latency_p99_us < 5000 and error_ratio < 0.001`."""
    interval_ms: int | None = None
    """Length of the intervals that are printed while the load runs."""
    precision: PrecisionGoal | None = None
    """Repeat the measurement until its figures are known this well; None for one measurement."""
    server_pid: int | None = None
    """Process of a server on this host whose CPU time and memory are counted."""
    samples: SampleFormat | None = None
    """File for the single requests."""
    summary: SummaryFile | None = None
    """File for the result in the layout of another tool, as JSON."""
    verbose: bool = False
    """Whether the summary has all figures, tables and reasons."""
    second_tool: ToolRun | None = None
    """A second tool's command lines; it repeats the measurement for a cross-check."""

    @property
    def has_interval_lines(self) -> bool:
        """Whether each interval has a line on stderr; a document has them as rows."""
        return self.interval_ms is not None and not self.json

    @property
    def is_document(self) -> bool:
        """Whether stdout has room for a document alone."""
        return self.json or self.format != "text"


def parse(model: type[Model], options: Mapping[str, Any], names: Mapping[str, str]) -> Model:
    """A test from the command line's options, which obey the same rules as a plan's keys. `names` maps keys to the
    options that have another name.

    Raises:
        InputError: the options that are wrong, one line each.
    """
    given = {key: value for key, value in options.items() if value is not None}
    try:
        return validate_input(model, given)
    except ValidationError as error:
        mistakes = Mistakes()
        for details in error.errors():
            with mistakes:
                raise _mistake(details, names) from None
        raise mistakes.error() from None


def _mistake(details: Any, names: Mapping[str, str]) -> InputError:
    """One of pydantic's errors, as a line about the option."""
    context = details.get("ctx", {})
    where = ".".join(str(part) for part in (*details["loc"], *context.get("at", ())) if isinstance(part, str))
    option = names.get(where, where.replace("_", "-").replace(".", " "))
    text, hint = value_error_text(details) or (details["msg"].removeprefix("Value error, "), context.get("hint"))
    return InputError(f"--{option}: {text}" if where else text, hint=hint)


class Mistakes:
    """Collects the mistakes of options that are read one after the other: `with mistakes:` around each."""

    def __init__(self) -> None:
        self._found: list[InputError] = []

    def __enter__(self) -> None:
        """Begin to read an option."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Keep its mistakes; any other error passes."""
        if not isinstance(error, InputError):
            return False
        self._found += [one for one in (error, *error.others) if str(one) not in map(str, self._found)]
        return True

    def error(self) -> InputError:
        """The first mistake, with the others."""
        first, *others = self._found
        first.others = tuple(others)
        return first

    def raise_all(self) -> None:
        """Raises InputError if there is a mistake."""
        if self._found:
            raise self.error()


def check_targets(test: str, kind: str, targets: Sequence[str] | None) -> None:
    """Check every `--target`. Raises InputError."""
    if not targets:
        return
    from leadline.analysis import parse_targets

    mistakes = Mistakes()
    for target in targets:
        with mistakes:
            parse_targets([target], {test: kind})
    mistakes.raise_all()


def interval(values: Mapping[str, Any]) -> int | None:
    """The length in ms of the intervals that are printed, by `--interval` among the values of a command's options; None
    for none. By default it is a second, unless stdout has a document, or each of several measurements has a line.

    Raises:
        InputError: it is not a duration, or is shorter than the period at which counters are read.
    """
    text = values["interval"]
    if text is None:
        is_document = values["json"] or values.get("output_format", "text") != "text"
        is_repeated = any(values.get(option) is not None for option in ("width", "confidence", "find_rate"))
        return None if is_document or is_repeated else _INTERVAL_MS
    return None if text in _NO_INTERVAL else interval_ms(text)


def interval_ms(text: str) -> int:
    """The length of an interval in ms.

    Raises:
        InputError: it is not a duration, or is shorter than the period at which counters are read.
    """
    from leadline.plan import units

    try:
        length_ms = units.duration_ms(text)
    except units.UnitError as error:
        raise InputError(f"--interval: {error}") from None
    if length_ms < SHORTEST_INTERVAL_MS:
        raise InputError(f"--interval: {text} is too short", hint=f"counters are read every {SHORTEST_INTERVAL_MS}ms")
    return length_ms


def precision(options: Mapping[str, Any]) -> PrecisionGoal | None:
    """`--width`, `--confidence` and `--most-repeats`; None if the measurement is not to be repeated, or its kind has no
    such options.

    Raises:
        InputError: a value is not a share or not a percentage, or `--most-repeats` stands alone.
    """
    from leadline.plan.repeats import PrecisionGoal

    goal = PrecisionGoal()
    width, confidence, most = options.get("width"), options.get("confidence"), options.get("most_repeats", goal.most)
    if width is None and confidence is None:
        if most != goal.most:
            raise InputError("--most-repeats without --width", hint="as in --width 5%")
        return None
    return PrecisionGoal(
        confidence=goal.confidence if confidence is None else _percentage(confidence),
        width=goal.width if width is None else _share(width),
        most=most,
    )


def refuse_two_documents(values: Mapping[str, Any]) -> None:
    """Check that stdout gets one document. Raises InputError."""
    form = values.get("output_format", "text")
    if values["json"] and form != "text":
        raise InputError(f"--json and --format {form} exclude each other", hint="give one of them")


def refuse_with_precision(output: OutputOptions) -> None:
    """Check that options that concern one measurement do not stand beside `--width`. Raises InputError."""
    if output.precision is None:
        return
    alone = {
        "--find-rate": output.find_rate is not None,
        "--stop-on-miss": output.stop_on_miss,
        "--hdr": output.hdr is not None,
        f"--format {output.format}": output.format != "text",
    }
    for option, is_given in alone.items():
        if is_given:
            raise InputError(
                f"{option} and --width exclude each other", hint="--width repeats the measurement; leave one out"
            )


def _percentage(text: str) -> float:
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not LEAST_CONFIDENCE_PERCENT <= percent <= MOST_CONFIDENCE_PERCENT:
        limits = f"{LEAST_CONFIDENCE_PERCENT:g} to {MOST_CONFIDENCE_PERCENT:g}"
        raise InputError(f"--confidence {text}: not a percentage from {limits}", hint="as in --confidence 95")
    return percent / 100


def _share(text: str) -> float:
    from leadline.plan import units

    try:
        found = units.fraction(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except units.UnitError as error:
        raise InputError(f"--width: {error}") from None
    if not 0 < found <= 1:
        raise InputError(f"--width {text}: not a share above 0 and up to 1", hint="as in --width 5%, or 0.05")
    return found


def family(ipv4: bool, ipv6: bool) -> Literal["v4", "v6"] | None:
    """The address family of `-4` and `-6`; None if neither is given (the first address that the name resolves to)."""
    if ipv4 and ipv6:
        raise InputError("--ipv4 and --ipv6 exclude each other")
    return "v6" if ipv6 else "v4" if ipv4 else None


def host(text: str) -> str:
    """A host's name or address, which has its port in another option.

    Raises:
        InputError: it is empty, has a space, is a URL, has a port, or is an address in brackets.
    """
    bare = text.strip("[]")
    if not text:
        raise InputError("HOST: it is empty", hint="write a name or address, as in 192.0.2.7")
    if "/" in text or any(letter.isspace() for letter in text):
        raise InputError(f"HOST {text}: this is no host", hint="write its name or address alone, as in 192.0.2.7")
    if bare.count(":") == 1:
        name, _, port = bare.partition(":")
        raise InputError(f"HOST {text}: the port is an option", hint=f"write {name} --port {port}")
    if "]:" in text:
        name, _, port = text.partition("]:")
        raise InputError(f"HOST {text}: the port is an option", hint=f"write {name.strip('[')} --port {port}")
    if bare != text:
        raise InputError(f"HOST {text}: an address has no brackets here", hint=f"write {bare}")
    return text


def key_of(path: Path | None) -> str | None:
    """The key in a file; None without one. Raises InputError."""
    from leadline.cli.key_file import read_key

    return None if path is None else read_key(path)


def second_tool(test: BaseTest, server: Server) -> ToolRun | None:
    """The command lines of the test's second tool against a server; None without one. A server of the tool's own is
    started only on this host."""
    if test.second_tool is None:
        return None
    from leadline.trial.second_tools import run_from_here

    return run_from_here(test, server)
