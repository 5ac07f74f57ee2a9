"""The model of a whole plan, and its published JSON Schema.

The model has two halves: `PlanFrame` has the keys of the whole plan, `PointSpec` those that may differ between the
points of its matrix. A plan is validated by halves, the second one once per point; their union exists only for the
schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from leadline.plan.base_test import BaseTest
from leadline.plan.clients import MOST_CLIENTS, FleetClients, PlanClients
from leadline.plan.field_types import (
    DURATION_PATTERN,
    Items,
    PeriodMs,
    PlanModel,
    Share,
    SomeItems,
    rule,
    validation_error,
)
from leadline.plan.hosts import SMALLEST_IPV6_MTU_BYTES, Hosts, LabSpec, Topology
from leadline.plan.kinds import AnyTest
from leadline.plan.ladder import PlanLadder
from leadline.plan.limits import Limits
from leadline.plan.repeats import PlanRepeat
from leadline.plan.sut import AnySut, plan_systems, system_of
from leadline.registry import KINDS, SYSTEMS


class Observe(PlanModel):
    """How hosts are observed."""

    period_ms: PeriodMs = Field(default=100, validation_alias="period")
    """Time between two samples of every counter."""


def _plan_name(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text, re.ASCII) is None:
        raise ValueError(f"{text!r} is not a name; use letters, digits, '.', '-' and '_' (at most 64)")
    return text


def _case_or_values(value: object) -> object:
    if value is not None and not isinstance(value, str | dict):
        raise validation_error("neither a case nor values of axes", hint="as in c01, or {sut: route}")
    return value


PlanBaseline = Annotated[
    Any,
    AfterValidator(_case_or_values),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "null"}]}),
]


class PlanFrame(PlanModel):
    """The keys of the whole plan."""

    name: Annotated[str, AfterValidator(_plan_name)]
    """Name of the run's folder."""
    description: str = ""
    """Description for people."""
    extends: str | None = None
    """Path of another plan, relative to this file, whose keys apply where this plan has none."""
    axes: dict[str, SomeItems[Any]] = Field(default={})
    """Lists to combine: `clients`, a path such as `sut.cipher`, or a free name that is used as "{name}"."""
    include: Items[dict[str, Any]] = ()
    """Additional points: axis to value."""
    exclude: Items[dict[str, Any]] = ()
    """Points to leave out: axis to value, for some of the axes."""
    repeat: PlanRepeat = 1
    """Number of trials of each case, or {min, max, until}: until the figures are known well enough."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Seed of the order of trials; null: derived from the plan's content."""
    targets: Items[str] = ()
    """`METRIC < VALUE` for every test that has it, or `TEST.METRIC < VALUE`; also <= > >= ==."""
    baseline: PlanBaseline = None
    """The case that the others are compared with: its name (`c01`, or its axes as in `sut=route`), or axis to value.
    Values that fit several cases stand for the one with the same other axes. `previous` compares each case with the one
    before it: a series of steps."""
    observe: Observe = Observe()
    """How hosts are observed."""
    ladder: PlanLadder = None
    """Whether each layer is measured from the bottom up (true), or how: {layers, duration, warmup, baseline}."""
    profile: bool = False
    """Whether call stacks of the system under test are sampled in every test (perf), for flame graphs in the run's
    folder."""
    interval_ms: PeriodMs = Field(default=100, validation_alias="interval")
    """Time between progress figures of every test."""
    limits: Limits = Limits()
    """The limits for verdicts."""
    tolerate: Annotated[Share, Field(ge=0, lt=1)] = 0.0
    """Share of the client hosts that a trial goes on without if they are lost. Its figures are then incomplete, and say
    so."""


class PointSpec(PlanModel):
    """The keys that may differ between the points of a plan's matrix."""

    topology: Topology = "remote-access"
    """remote-access: clients - gateway - server; site-to-site: client - gateway-a - gateway-b - server."""
    clients: PlanClients | None = None
    """Number of clients, each on a host of its own; null: 1, or all clients in `hosts`. More clients than there are
    `hosts` are dealt to them evenly. A fleet ({fleet: true, count: N}) is N VPN clients on one host."""
    lab: LabSpec | None = None
    """Hosts that are created on this machine; the default."""
    hosts: Hosts | None = None
    """Existing hosts, instead of `lab`."""
    sut: AnySut
    """The system under test."""
    tests: SomeItems[AnyTest]
    """The tests of every case, in this order."""

    @property
    def client_count(self) -> int:
        """The number of clients that are no fleet; a fleet is on one host."""
        given = len(self.hosts.client_addresses) if self.hosts else 1
        return self.clients if isinstance(self.clients, int) else given

    @property
    def client_hosts(self) -> int:
        """The number of hosts that have clients."""
        return min(self.client_count, len(self.hosts.client_addresses)) if self.hosts else self.client_count

    @property
    def fleet(self) -> int | None:
        """Number of clients of the fleet; None if clients are hosts."""
        return self.clients.count if isinstance(self.clients, FleetClients) else None

    @property
    def counted_tests(self) -> tuple[BaseTest, ...]:
        """The tests; tests of a fleet have their number of clients, by default the plan's."""
        fleet = self.fleet
        return tuple(test.with_fleet(fleet) for test in self.tests) if fleet else self.tests

    @rule
    def _hosts_fit(self) -> Iterator[PydanticCustomError]:
        if self.hosts is not None and self.lab is not None:
            yield validation_error("a plan has either lab or hosts, not both", at=("hosts",), hint="remove one of them")
        if self.topology == "site-to-site" and self.client_count != 1:
            yield validation_error(
                "a site-to-site plan has one client", at=("clients",), hint="use flows for more load"
            )
        if self.hosts is not None:
            yield from self.hosts.validation_errors(self.topology)
            if self.client_count > self.client_hosts:
                yield from _crowded_hosts(self)

    @rule
    def _the_system_fits_the_hosts(self) -> Iterator[PydanticCustomError]:
        """Require a system that is on the hosts already, or that can be brought up there."""
        kind, system = self.sut.kind, system_of(self.sut)
        is_possible = system.on_given_hosts or system.comes_up_on_given_hosts
        if self.hosts is not None and self.lab is None and not is_possible:
            brought_up = ", ".join(other.name for other in plan_systems() if other.comes_up_on_given_hosts)
            yield validation_error(
                f"{kind} cannot be brought up on given hosts",
                at=("sut", "kind"),
                hint=f'use {brought_up}, or say what stands there: sut: {{kind: given, label: "..."}}',
            )
        if self.hosts is not None and self.lab is None and system.comes_up_on_given_hosts:
            yield from self.hosts.conflicts_of_bring_up(self.topology, kind)
        if self.hosts is None and system.on_given_hosts:
            brought_up = ", ".join(other.name for other in plan_systems() if not other.on_given_hosts)
            yield validation_error(
                "the kind given is not possible on the lab's hosts",
                at=("sut", "kind"),
                hint=f"give hosts, or use another kind: {brought_up}",
            )

    @rule
    def _tests_fit(self) -> Iterator[PydanticCustomError]:
        seen: set[str] = set()
        for index, test in enumerate(self.tests):
            if test.name in seen:
                yield validation_error(
                    f"two tests are called '{test.name}'", at=("tests", index, "name"), hint="rename one"
                )
            seen.add(test.name)
            if test.clients is not None and test.clients > self.client_count:
                yield validation_error(
                    f"{test.clients} is more than the {self.client_count} clients",
                    at=("tests", index, "clients"),
                )

    @rule
    def _the_system_answers(self) -> Iterator[PydanticCustomError]:
        system = system_of(self.sut)
        for index, test in enumerate(self.tests):
            for key, text, hint in system.test_conflicts(self.sut, test):
                yield validation_error(text, at=("tests", index, key), hint=hint)
        if system.answers_itself and self.topology != "remote-access":
            text = f"{self.sut.kind} runs on the hosts of remote-access alone"
            yield validation_error(text, at=("topology",), hint="leave out topology")

    @rule
    def _the_fleet_fits(self) -> Iterator[PydanticCustomError]:
        for at, text, hint in _fleet_conflicts(self):
            yield validation_error(text, at=at, hint=hint)

    @rule
    def _the_server_obeys(self) -> Iterator[PydanticCustomError]:
        for index, test in enumerate(self.tests):
            given = test.given_host_conflicts() if self.hosts is not None else ()
            for key, text, hint in (*test.server_conflicts(), *given):
                yield validation_error(text, at=("tests", index, key), hint=hint)

    @rule
    def _ipv6_fits(self) -> Iterator[PydanticCustomError]:
        mtu = self.lab.link.mtu_bytes if self.lab is not None else None
        if mtu is not None and mtu < SMALLEST_IPV6_MTU_BYTES:
            user = "sut" if self.sut.uses_ipv6 else None
            user = user or next((f"test '{test.name}'" for test in self.tests if test.ip == 6), None)
            if user is not None:
                yield validation_error(
                    f"{mtu} is too small for IPv6, which {user} uses",
                    at=("lab", "link", "mtu"),
                    hint=f"at least {SMALLEST_IPV6_MTU_BYTES}",
                )


def _crowded_hosts(point: PointSpec) -> Iterator[PydanticCustomError]:
    """Errors for what needs a host for each client, on hosts that have to carry several."""
    text = f"{point.client_count} clients, but hosts has {point.client_hosts}"
    if system_of(point.sut).connects_hosts:
        hint = "give more of them in hosts.clients"
        yield validation_error(f"{text}: {point.sut.kind} makes one VPN client on each", at=("clients",), hint=hint)
    for index, test in enumerate(point.tests):
        if not test.is_divisible:
            hint = "give more of them in hosts.clients, or fewer clients to the test"
            why = f"a host carries one client of a {test.kind} test"
            if test.clients is None or test.clients > point.client_hosts:
                yield validation_error(f"{text}: {why}", at=("tests", index, "kind"), hint=hint)
        elif test.second_tool is not None:
            why = f"{test.second_tool} repeats the load of one client on each"
            yield validation_error(f"{text}: {why}", at=("tests", index, "cross_check"), hint="leave it out")


def _fleet_conflicts(point: PointSpec) -> Iterator[tuple[tuple[str | int, ...], str, str | None]]:
    """Conflicts about fleets: the key, the mistake, and the advice."""
    if not isinstance(point.clients, FleetClients):
        for index, test in enumerate(point.tests):
            if test.needs_fleet:
                text = f"a {test.kind} test needs a fleet"
                yield ("tests", index, "kind"), text, "give clients: {fleet: true, count: N}"
        return
    if point.clients.count is None:
        yield ("clients",), "the number of the fleet's clients is missing", "give count, or an axis of clients"
    for key, text, hint in system_of(point.sut).fleet_conflicts(point.sut):
        yield ("sut", key), text, hint
    if not system_of(point.sut).carries_fleets:
        yield (
            ("clients",),
            "a fleet needs a VPN gateway as the system under test",
            "use sut: {kind: openvpn}, {kind: wireguard} or {kind: strongswan}",
        )
    if point.hosts is not None or point.topology != "remote-access":
        yield ("clients",), "a fleet needs the lab's remote-access topology", "leave out hosts and topology"
    for index, test in enumerate(point.tests):
        for key, text, hint in test.fleet_conflicts(point.clients.count or MOST_CLIENTS):
            yield ("tests", index, key), text, hint


class PlanDocument(PlanFrame, PointSpec):
    """A whole plan, for the schema."""


FRAME_KEYS = frozenset(field.validation_alias or name for name, field in PlanFrame.model_fields.items())
"""Top-level keys of a YAML plan that belong to `PlanFrame`."""
POINT_KEYS = frozenset(PointSpec.model_fields)
"""Top-level keys that belong to `PointSpec`."""


def follow_registries() -> None:
    """Make the models again if kinds of test or systems were added or removed since they were made."""
    if KINDS.version or SYSTEMS.version:
        _rebuild(KINDS.version, SYSTEMS.version)


@cache
def _rebuild(kinds: int, systems: int) -> None:
    """Make the models once per version of the registries."""
    for model in (PointSpec, PlanDocument):
        model.model_rebuild(force=True)


def plan_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a plan's YAML, for editors and checks.

    A schema cannot check axes. It allows a placeholder for every value of a matrix point, and leaves `sut`, `name`
    and `tests` to `load_plan` if axes or `extends` may supply them.
    """
    follow_registries()
    schema = PlanDocument.model_json_schema(by_alias=True, mode="validation")
    definitions: dict[str, Any] = schema["$defs"]
    for title, definition in [("plan", schema), *definitions.items()]:
        for key, value in definition.get("properties", {}).items():
            _write_default_as_yaml(value)
            if title not in _WITHOUT_PLACEHOLDERS and key not in ("kind", "name"):
                definition["properties"][key] = _or_placeholder(value)
    definitions["Placeholder"] = {
        "type": "string",
        "pattern": r"\{[A-Za-z_][A-Za-z0-9_.-]*\}",
        "description": "Replaced by the value of the axis with that name.",
    }
    schema["required"] = []
    schema["anyOf"] = [{"required": ["extends"]}, {"required": ["name", "tests"]}, {"required": ["name", "ladder"]}]
    schema["title"] = "Leadline plan"
    schema["description"] = "What to measure: hosts, the system under test, axes that are crossed, and tests."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _write_default_as_yaml(value: dict[str, Any]) -> None:
    """Convert defaults from the models' internal form to YAML with units; omits the contents of sections."""
    default = value.get("default")
    if isinstance(default, dict):
        del value["default"]
    elif DURATION_PATTERN in str(value.get("pattern")) and isinstance(default, int):
        value["default"] = f"{default // 1000}s" if default % 1000 == 0 else f"{default}ms"


def _or_placeholder(value: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {key: value[key] for key in ("title", "description", "default") if key in value}
    rest = {key: part for key, part in value.items() if key not in shown}
    return {**shown, "anyOf": [rest, {"$ref": "#/$defs/Placeholder"}]}


_WITHOUT_PLACEHOLDERS = frozenset({"plan", "Observe", "Limits", "StabilityLimit", "Hosts"})
