"""The system `stack`: tiers of real daemons that answer HTTP, on the gateway and the server.

`parameters` is its model; `placement` chooses hosts, ports and CPUs, `bring_up` starts and verifies, `counters` reads
what the daemons count themselves. `bank.js` is the service of the tier `node`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from leadline.plan.need import Need
from leadline.sut.stack.parameters import TIER_MODELS, CommandTier, HaproxyTier, NodeTier, RedisTier, StackSut
from leadline.sut.system import System

if TYPE_CHECKING:
    from leadline.plan.base_test import BaseTest, Conflict
    from leadline.plan.source import Node
    from leadline.sut.daemons import Daemons
    from leadline.sut.model import BringUp, Site


class Stack(System[StackSut]):
    """Tiers of daemons, each of which asks the next one. They end with the trial."""

    name = "stack"
    title = "the stack"
    model = StackSut
    compared_with_route = False
    answers_itself = True
    comes_up_on_given_hosts = True

    def test_conflicts(self, parameters: StackSut, test: BaseTest) -> Iterator[Conflict]:
        """Tests of other kinds than HTTP, and those that speak TLS where the first tier does not, or the reverse."""
        if test.kind not in _KINDS:
            yield "kind", f"stack answers HTTP itself, and no {test.kind} test", f"use {' or '.join(_KINDS)}"
        first, scheme = parameters.tiers[0].name, "https" if parameters.uses_tls else "http"
        # A scenario's scheme is a parameter, which is the stack's.
        if getattr(test, "scheme", scheme) != scheme:
            spoken = "TLS" if parameters.uses_tls else "no TLS"
            yield "scheme", f"the stack's first tier, '{first}', speaks {spoken}", f"write scheme: {scheme}"

    def axis_paths(self, written: Node) -> list[str]:
        """The keys of each tier, by its name."""
        from leadline.plan.source import name_of
        from leadline.plan.validation_errors import keys_of

        keys = dict.fromkeys(key for model in TIER_MODELS for key in keys_of(model) if key not in ("name", "kind"))
        tiers = written.at(("tiers",)).items
        return [f"tiers.{name}.{key}" for tier in tiers if (name := name_of(tier)) is not None for key in keys]

    def needs(self, parameters: StackSut, *, fleet: bool) -> list[Need]:
        """The program of each tier, and taskset for tiers with CPUs of their own."""
        from leadline.sut.stack.bring_up import INSTALL

        needs = []
        for tier in parameters.tiers:
            why = f"the tier '{tier.name}' runs it"
            match tier:
                case HaproxyTier() | NodeTier() | RedisTier():
                    needs.append(Need("program", tier.binary, why, parameters.optional, INSTALL[tier.kind]))
                case CommandTier():
                    needs.append(Need("program", tier.argv[0], why, parameters.optional))
            if isinstance(tier, RedisTier):
                needs.append(
                    Need("program", "redis-cli", "it reads Redis' counters", parameters.optional, INSTALL["redis"])
                )
        return needs

    def bring_up_seconds(self, parameters: StackSut) -> tuple[float, float]:
        """Each tier waits for the one behind it."""
        return 1.0 + 0.3 * len(parameters.tiers), 0.05

    async def bring_up(self, parameters: StackSut, site: Site, daemons: Daemons) -> BringUp:
        """Start the tiers, the last one first, and send a request through all of them."""
        from leadline.sut.stack.bring_up import bring_up

        return await bring_up(parameters, site, daemons)

    async def read_counters(
        self, parameters: StackSut, site: Site, daemons: Daemons, before: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """HAProxy's statistics and logged requests, and Redis' commands."""
        from leadline.sut.stack.bring_up import find_places
        from leadline.sut.stack.counters import read_counters

        return await read_counters(await find_places(parameters, site), site, daemons, before)


_KINDS = ("http", "scenario")

SYSTEM = Stack()
