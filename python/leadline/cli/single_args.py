"""What the single-test commands share before anything is measured: from options to one test, its server, and how the
command ends. Measures nothing.

`run_single`, `run_search` and `tunnel_sweep` continue from here. Commands import those once all arguments are valid: a
command that is refused does not wait for those imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from leadline.errors import InputError
from leadline.plan.field_types import validate_input

if TYPE_CHECKING:
    from leadline.plan import BaseTest
    from leadline.trial.workloads import LoadWorkload

SHORTEST_INTERVAL_MS = 100

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What a single-test command prints and keeps, and what ends it early."""

    target: str
    """What was measured, as the user wrote it."""
    json: bool
    out: Path | None
    targets: list[str]
    hdr: Path | None = None
    """File for the interval histograms, as an HdrHistogram log."""
    format: Literal["text", "wrk", "ab"] = "text"
    """Whose layout the summary on stdout has."""
    stop_on_miss: bool = False
    """Whether a target that is missed while the load runs ends it."""
    calibrate: bool = True
    """Whether the generator's own ceiling is measured or looked up."""
    find_rate: str | None = None
    """Conditions whose highest rate is searched for, as `latency_p99_us < 5000 and error_ratio < 0.001`."""
    interval_ms: int | None = None
    """Length of the intervals that are printed while the load runs."""
    server_pid: int | None = None
    """A server's process on this host, whose cost is counted too."""


def parse(model: type[Model], options: Mapping[str, Any], names: Mapping[str, str]) -> Model:
    """A test from the command line's options; they obey the same rules as a plan's keys. `names` tells which keys are
    options of another name.

    Raises:
        InputError: the first option that is wrong, in one line.
    """
    given = {key: value for key, value in options.items() if value is not None}
    try:
        return validate_input(model, given)
    except ValidationError as error:
        first = error.errors()[0]
        context = first.get("ctx", {})
        where = ".".join(str(part) for part in (*first["loc"], *context.get("at", ())) if isinstance(part, str))
        option = names.get(where, where.replace("_", "-").replace(".", " "))
        text = first["msg"].removeprefix("Value error, ")
        raise InputError(f"--{option}: {text}" if where else text, hint=context.get("hint")) from None


def interval(text: str | None) -> int | None:
    """`--interval` in ms.

    Raises:
        InputError: it is no duration, or shorter than the time between two readings of the counters.
    """
    from leadline.plan import units

    if text is None:
        return None
    try:
        length_ms = units.duration_ms(text)
    except units.UnitError as error:
        raise InputError(f"--interval: {error}") from None
    if length_ms < SHORTEST_INTERVAL_MS:
        raise InputError(f"--interval: {text} is too short", hint=f"counters are read every {SHORTEST_INTERVAL_MS}ms")
    return length_ms


def family(ipv4: bool, ipv6: bool) -> Literal["v4", "v6"] | None:
    """`-4` and `-6`; None for whatever the name resolves to first."""
    if ipv4 and ipv6:
        raise InputError("--ipv4 and --ipv6 exclude each other")
    return "v6" if ipv6 else "v4" if ipv4 else None


def build_workload(
    test: BaseTest,
    host: str,
    port: int,
    family: Literal["v4", "v6"] | None,
    bind: str | None,
    key_file: Path | None = None,
) -> LoadWorkload:
    """The load on a server, with what only a command line knows: the address family as given, the local address, the
    file with the server's key.
    """
    from leadline.cli.key_file import read_key
    from leadline.trial.workloads import Server, workload

    key = None if key_file is None else read_key(key_file)
    return workload(test, Server(host, port, key, bind, family or "any"))
