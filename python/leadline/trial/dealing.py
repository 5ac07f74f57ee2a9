"""Deals a test's load to the hosts that generate it: who takes part, and the test of each. Pure.

`plan.portions` has the arithmetic. Clients that are hosts of their own and share nothing run the test as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leadline.plan import BaseTest
from leadline.plan.portions import portions


@dataclass(frozen=True, slots=True)
class Dealt:
    """A test's load, dealt to hosts."""

    test: BaseTest
    """The test as the plan has it."""
    tests: Mapping[str, BaseTest]
    """The test of each host that takes part."""
    shares: Mapping[str, Mapping[str, Any]]
    """What each of them has of the amounts that are dealt, and its number of clients, for the journal; empty if each
    host is a client with the test's own amounts."""
    left_out: tuple[str, ...] = ()
    """Hosts that have no part, because a total is too small for all."""


def deal(test: BaseTest, hosts: Sequence[str], clients: int, *, totals: frozenset[str] = frozenset()) -> Dealt:
    """Deal a test of this number of clients to hosts, at least as many clients as hosts. `totals` are amounts that all
    clients share beside those of a test that is split."""
    shared = test.totals | totals
    is_one = len(hosts) == 1 and clients == 1
    if is_one or (not shared and not test.split and clients == len(hosts)):
        return Dealt(test, dict.fromkeys(hosts, test), {})
    taking_part = hosts[: test.most_hosts or len(hosts)]
    dealt = {
        host: replace(portion, hosts=len(taking_part))
        for host, portion in portions(hosts, clients).items()
        if host in taking_part
    }
    tests = {host: test.dealt(portion, shared) for host, portion in dealt.items()}
    shares = {host: {"clients": portion.clients, **_amounts(tests[host])} for host, portion in dealt.items()}
    return Dealt(test, tests, shares, tuple(hosts[len(taking_part) :]))


def count_clients(hosts: Sequence[str], planned: Sequence[str], clients: int) -> int:
    """The clients on hosts that are left of the planned ones, which carry one client each, or all clients together."""
    if clients <= len(planned):
        return len(hosts)
    own = portions(planned, clients)
    return sum(own[host].clients for host in hosts)


def _amounts(test: BaseTest) -> dict[str, Any]:
    """The amounts of a host's test, as the journal has a test's."""
    return test.model_dump(include=set(test.amounts)) if test.amounts else {}
