"""The ladder of a plan: one test for each layer, from the bottom up, and the plain route beside each tunnel.

Owns which tests a ladder has, and which case is another one's baseline. Each kind of test names its own rungs. Works on
a plan's tree, so that the tests of a ladder are tests like any other: `--set`, targets and tables know them by name.
`analysis.ladder` makes the findings. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BeforeValidator, Field, GetPydanticSchema, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from leadline.errors import PlanError
from leadline.plan.field_types import (
    DurationMs,
    DurationOrZeroMs,
    Items,
    PlanModel,
    RateBps,
    rule,
    validate_input,
    validation_error,
)
from leadline.plan.matrix import Point, placeholder_names, resolve
from leadline.plan.source import Node, did_you_mean, name_of, plain
from leadline.plan.sut import PlanSystem
from leadline.registry import KINDS, SYSTEMS

TEST_PREFIX = "ladder-"
"""Before the name of a rung, this is the name of its test."""
SEARCH = "search"
"""As the rate of a ladder: the highest one that holds is searched for."""
BASELINE = "route"
"""The system under test whose ladder is the baseline of a tunnel's."""


class Chain(StrEnum):
    """The layers whose figures are in one unit, so that each is a share of the one below."""

    PAYLOAD = "payload"
    """Bits of payload per second."""
    REQUESTS = "requests"
    """Requests and their answers per second, one outstanding."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One test of a ladder, which a kind of test gives."""

    name: str
    layer: str
    """What it measures, as `layers` of a plan names it."""
    title: str
    """The layer's name in tables."""
    chain: Chain
    height: int
    """Its place in the chain: the rung with the next lower number is the layer below."""
    metric: str
    """The figure that is compared with those of the other layers."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The test's keys, as in a plan."""
    is_offered: bool = False
    """Whether it finds no rate by itself, so that a rate can be set: datagrams have no congestion control."""
    found_metric: str = ""
    """The figure that takes the place of `metric` where the test searches for its rate; empty if it cannot."""
    holds: str = ""
    """When a rate holds, where it searches by the ladder's own `rate: search`."""
    is_on_request: bool = False
    """Whether it is measured only where `layers` names it: it needs rights that not every host gives."""
    is_given: bool = False
    """Whether a plan gives its test, by its name: it needs what a ladder does not know, such as a file."""

    @property
    def test(self) -> str:
        """The name of its test."""
        return f"{TEST_PREFIX}{self.name}"


@dataclass(frozen=True, slots=True)
class Packets:
    """What a path leaves of each packet, for the share that headers take."""

    largest_bytes: int
    """Largest IP packet of the load itself: inside of the tunnel, if there is one."""
    overhead_bytes: int
    """What a tunnel adds to each packet, its outer IP header included."""
    ip: int = 4
    """IP version of the load."""

    @property
    def frame_overhead_bytes(self) -> int:
        """Bytes of a frame beside the load's IP packet; without preamble, checksum and gap, as interfaces count."""
        return self.overhead_bytes + ETHERNET_BYTES

    @property
    def ip_header_bytes(self) -> int:
        """The header of the load's IP packets."""
        return IP_HEADER_BYTES[self.ip]


class LadderKind(Protocol):
    """A kind of test, as ladders use it."""

    @property
    def rungs(self) -> Sequence[Rung]:
        """Its tests in a ladder; empty if it is no layer of one."""

    @property
    def shortfall(self) -> tuple[str, str] | None:
        """The share of a load that was not served, and its words; None if it has none."""

    def payload_share(self, test: Mapping[str, Any], packets: Packets) -> float | None:
        """The payload in the bytes that a test's frames take on a link; None if it cannot be calculated."""


def all_rungs() -> list[tuple[str, Rung]]:
    """Every rung with its kind, from the bottom up, the payload's chain first."""
    found: list[tuple[str, Rung]] = []
    for name in KINDS.names:
        kind: LadderKind = KINDS.get(name)
        found += [(name, rung) for rung in kind.rungs]
    return sorted(found, key=lambda one: (list(Chain).index(one[1].chain), one[1].height))


def layer_names() -> list[str]:
    """The names of the layers that a ladder makes tests for, from the bottom up."""
    rungs = sorted((rung for _, rung in all_rungs() if not rung.is_given), key=lambda one: one.height)
    return list(dict.fromkeys(rung.layer for rung in rungs))


def _known_layer(name: str) -> str:
    known = layer_names()
    if name not in known:
        raise validation_error(f"there is no layer {name!r}", hint=did_you_mean(name, known))
    return name


def _or_search(value: Any, rate_bps: Callable[[Any], int]) -> int | str:
    return value if value == SEARCH else rate_bps(value)


_LadderRate = Annotated[RateBps, WrapValidator(_or_search, json_schema_input_type=Literal["search"] | RateBps)]


class Ladder(PlanModel):
    """The layers that are measured from the bottom up, each as a share of what the layer below allows."""

    layers: Items[Annotated[str, AfterValidator(_known_layer)]] = ()
    """Layers to measure: packets, udp, tcp, rr, http, https; empty: all but packets, which need root at both ends."""
    duration_ms: DurationMs = Field(default=5_000, validation_alias="duration")
    """Length of each test, warm-up included."""
    warmup_ms: DurationOrZeroMs | None = Field(default=None, validation_alias="warmup")
    """Time at the start of each test that is not counted; null: a tenth of the duration."""
    rate_bps: Annotated[
        int | Literal["search"] | None,
        GetPydanticSchema(lambda _, handler: handler.generate_schema(_LadderRate | None)),
    ] = Field(default=None, validation_alias="rate")
    """Rate that datagrams are offered at; `search`: the highest one that holds; null: as fast as possible."""
    baseline: bool = True
    """Whether the same ladder is measured through a plain route, beside each case that is not one itself."""

    @rule
    def _warm_up_leaves_time(self) -> Iterator[PydanticCustomError]:
        if self.warmup_ms is not None and self.warmup_ms >= self.duration_ms:
            text = f"{self.warmup_ms} ms of warm-up leave no time of {self.duration_ms} ms"
            yield validation_error(text, at=("warmup",), hint="the duration includes the warm-up")

    @property
    def rungs(self) -> list[tuple[str, Rung]]:
        """The rungs that it makes tests for, with their kinds, from the bottom up."""
        known = [(kind, rung) for kind, rung in all_rungs() if not rung.is_given]
        return [
            (kind, rung) for kind, rung in known if rung.layer in self.layers or not (self.layers or rung.is_on_request)
        ]

    def test(self, kind: str, rung: Rung) -> dict[str, Any]:
        """The test of a rung, by a plan's keys."""
        warmup_ms = self.duration_ms // 10 if self.warmup_ms is None else self.warmup_ms
        lasts = {"duration": f"{self.duration_ms}ms", "warmup": f"{warmup_ms}ms"}
        rate: dict[str, Any] = {}
        if rung.is_offered and self.rate_bps == SEARCH:
            rate = {"search": {"metric": "rate", "until": rung.holds}}
        elif rung.is_offered and self.rate_bps is not None:
            rate = {"rate": f"{self.rate_bps}bit"}
        return {"name": rung.test, "kind": kind, **lasts, **rung.parameters, **rate}


def _spelt_out(value: Any) -> Any:
    if isinstance(value, bool):
        return {} if value else None
    if value is None or isinstance(value, dict | Ladder):
        return value
    raise PydanticCustomError(
        "plan", "{text}", {"text": f"{value!r} is not possible", "at": (), "hint": "write true, or {duration: 5s}"}
    )


PlanLadder = Annotated[Ladder | None, BeforeValidator(_spelt_out, json_schema_input_type=bool | Ladder | None)]
"""The key `ladder` of a plan: true, or its options."""


@dataclass(frozen=True, slots=True)
class CaseLadder:
    """The ladder of one case."""

    tests: tuple[str, ...]
    """Names of its tests that are rungs."""
    baseline: str | None
    """The case whose ladder is measured through a plain route, beside this one's."""
    why_alone: str | None
    """Why there is no baseline; None if there is one."""
    largest_bytes: int | None = None
    """Largest IP packet of the load, inside of the tunnel; None if it is not known."""
    overhead_bytes: int | None = None
    """What the system under test adds to each packet; None if it is not known."""


def read_ladder(root: Node) -> Ladder | None:
    """The ladder of a plan's tree; None if it has none, or one with mistakes, which the plan's own check reports."""
    given = root.mapping.get("ladder")
    if given is None:
        return None
    with suppress(ValidationError):
        return validate_input(_Frame, {"ladder": plain(given)}).ladder
    return None


class _Frame(PlanModel):
    ladder: PlanLadder = None


def with_ladder_tests(root: Node) -> Node:
    """The tree with the tests of its ladder behind its own ones. A test of the plan that has a rung's name takes its
    place."""
    ladder = read_ladder(root)
    if ladder is None:
        return root
    mark = root.mapping["ladder"].mark
    own = root.mapping.get("tests", Node([], mark))
    if not isinstance(own.value, list):
        return root
    names = {name_of(test) for test in own.items}
    added = [_tree(ladder.test(kind, rung), root) for kind, rung in ladder.rungs if rung.test not in names]
    return root.with_entry("tests", Node([*own.items, *added], own.mark))


def _tree(value: Any, root: Node) -> Node:
    mark = root.mapping["ladder"].mark
    return Node({key: _tree(below, root) for key, below in value.items()} if isinstance(value, dict) else value, mark)


def with_plain_routes(root: Node, points: Sequence[Point]) -> tuple[list[Point], list[tuple[int | None, str | None]]]:
    """The points with those of the plain routes behind them. For each point: the position of its baseline, or why it
    has none. Without a ladder nothing is added."""
    ladder = read_ladder(root)
    if ladder is None:
        return list(points), [(None, None)] * len(points)
    apart = "sut" in root.mapping and any("sut" not in point for point in points)
    found = [_with_system(root, point) if apart else dict(point) for point in points]
    known = {_identity(point): number for number, point in enumerate(found)}
    pairs: list[tuple[int | None, str | None]] = []
    plain_points: list[Point] = []
    for point in found:
        why = "the plan asks for none" if not ladder.baseline else _why_alone(root, point)
        if why is not None:
            pairs.append((None, why))
            continue
        route = _through_route(root, point)
        number = known.setdefault(_identity(route), len(found) + len(plain_points))
        if number == len(found) + len(plain_points):
            plain_points.append(route)
        pairs.append((number, None))
    if not plain_points and not any(number is not None for number, _ in pairs):
        return list(points), pairs
    pairs += [(None, IS_BASELINE)] * len(plain_points)
    return [*found, *plain_points], pairs


IS_BASELINE = "it is a plain route itself"


def _with_system(root: Node, point: Point) -> Point:
    """The point with its system as a value of its own, which tells it apart from the plain route."""
    return point if "sut" in point else {**point, "sut": root.mapping["sut"]}


def _why_alone(root: Node, point: Point) -> str | None:
    """Why a point has no plain route beside it; None if it has one."""
    try:
        tree = resolve(root, point)
    except PlanError:
        return "its system is not known"  # which the point's own check reports
    kind = tree.at(("sut", "kind")).value
    if not isinstance(kind, str) or kind not in SYSTEMS:
        return "its system is not known"
    system: PlanSystem = SYSTEMS.get(kind)
    if "hosts" in root.mapping and not system.comes_up_on_given_hosts:
        return "a given system is measured as it is"
    if not system.compared_with_route:
        return IS_BASELINE
    if tree.at(("clients", "fleet")).value is True:
        return "a fleet's clients need a VPN server"
    return None


def _through_route(root: Node, point: Point) -> Point:
    """Return the point with a plain route as its system; parameters of the system alone are left out."""
    kept = {name: value for name, value in point.items() if name != "sut" and not name.startswith("sut.")}
    used = _names_in(node for key, node in root.mapping.items() if key in ("tests", "lab"))
    paths = ("clients", "topology", "lab.", "tests.")
    kept = {name: value for name, value in kept.items() if name in used or name.startswith(paths)}
    mark = root.mapping["ladder"].mark
    return {"sut": Node({"kind": Node(BASELINE, mark)}, mark), **kept}


def _names_in(nodes: Iterable[Node]) -> set[str]:
    """The names of placeholders in texts."""
    return {name for node in nodes for name in placeholder_names(node)}


def _identity(point: Point) -> str:
    return repr(sorted((name, plain(node)) for name, node in point.items()))


IP_HEADER_BYTES: Mapping[int, int] = {4: 20, 6: 40}
ETHERNET_BYTES = 14
