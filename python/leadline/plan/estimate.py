"""Estimates how long trials take, and lists what they need on the machine. Pure: does not inspect the machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from leadline.plan.base_test import BaseTest
from leadline.plan.hosts import GATEWAYS, EmulatorName, LinkSpec
from leadline.plan.model import Case, Trial
from leadline.plan.need import Need
from leadline.plan.sut import system_of


def trial_seconds(case: Case) -> float:
    """Estimated duration of one trial of a case: build, bring-up, every test at full length, and tear-down."""
    fixed, per_client = system_of(case.sut).bring_up_seconds(case.sut)
    hosts = case.client_hosts + (3 if case.topology == "site-to-site" else 2)
    tests = sum(test_seconds(test) + _BETWEEN_TESTS_S for test in case.tests)
    if case.fleet is not None:
        tests += len(case.tests) * case.fleet * _PER_FLEET_CLIENT_S + (len(case.tests) - 1) * _BETWEEN_FLEETS_S
    return hosts * _PER_HOST_S + fixed + (0 if case.fleet else case.clients) * per_client + tests + _TEAR_DOWN_S


def test_seconds(test: BaseTest) -> float:
    """Estimated duration of a test, and of its repetition with a second tool."""
    return (test.expected_ms if test.second_tool is None else 2 * test.expected_ms) / 1000


def expected_seconds(trials: Iterable[Trial]) -> float:
    """Estimated duration of all trials, one after another."""
    return sum(trial_seconds(trial.case) for trial in trials)


def needs(cases: Sequence[Case]) -> list[Need]:
    """The needs of the cases, each once, with the reason."""
    found: dict[tuple[str, str, str | None], Need] = {}
    for case in cases:
        for need in _needs_of(case):
            known = found.get((need.kind, need.name, need.where))
            if known is None or (known.optional and not need.optional):
                found[need.kind, need.name, need.where] = need
    return list(found.values())


def _needs_of(case: Case) -> list[Need]:
    found = [Need("program", "leadline-agent", "generates the load and watches every host")]
    if case.hosts is None:
        found.append(Need("privilege", "root or user namespaces", "the lab's hosts are network namespaces"))
    else:
        addresses = case.hosts.named(case.topology).values()
        if any(host.scheme == "ssh" for host in addresses):
            found.append(Need("program", "ssh", "hosts are given by ssh:// addresses"))
        carriers = dict.fromkeys(host.command[0] for host in addresses if host.scheme == "exec")
        found += [Need("program", program, "a host's exec: command starts its agent") for program in carriers]
    found += _needs_of_system(case)
    if case.profile:
        where = None if case.hosts is None else _GATEWAYS[case.topology]
        found.append(Need("program", "perf", "`profile` samples the system under test's call stacks", where=where))
    tools = dict.fromkeys(test.second_tool for test in case.tests if test.second_tool is not None)
    found += [Need("program", tool, "`cross_check` repeats a test with it") for tool in tools if _runs_here(tool, case)]
    return found + (_needs_of_link(case.link, case.emulator) if case.link is not None else [])


def _needs_of_system(case: Case) -> list[Need]:
    """What the system under test needs: on this machine, or on the given hosts that run it."""
    system = system_of(case.sut)
    found = system.needs(case.sut, fleet=case.fleet is not None)
    if case.hosts is None:
        return found
    if system.answers_itself:
        where = "gateway and server"
    else:
        where = _GATEWAYS[case.topology] if case.topology == "site-to-site" else "gateway and clients"
    found = [replace(need, where=where) for need in found]
    if system.comes_up_on_given_hosts:
        why = "routes between the hosts are set by it"
        found.append(Need("program", "ip", why, case.sut.optional, "apt-get install iproute2", "every host"))
    return found


def _runs_here(tool: str, case: Case) -> bool:
    """Whether a second tool runs on this machine: on one of the clients, or as a server of its own."""
    if case.hosts is None:
        return True
    server = (case.hosts.server.at,) if tool in _TOOLS_WITH_SERVER else ()
    return any(host.is_local for host in (*case.hosts.client_addresses[: case.client_hosts], *server))


def _needs_of_link(link: LinkSpec, emulator: EmulatorName | None) -> list[Need]:
    """Leadline's own emulator needs nothing of the kernel."""
    found = []
    if emulator == "netem" and link.is_impaired:
        found.append(Need("kernel", "netem", "lab.emulator is netem"))
    if link.rate_bps is not None and emulator != "own":
        found.append(Need("kernel", "tbf", "lab.link.rate limits the links"))
    if (link.loss and emulator != "own") or link.drop_every or link.drop_udp_every:
        found.append(Need("kernel", "nftables", "lab.link drops packets"))
    return found


_GATEWAYS = {topology: " and ".join(names) for topology, names in GATEWAYS.items()}
_TOOLS_WITH_SERVER = ("iperf3",)
"""Second tools that run on the server's host too."""
_PER_HOST_S = 0.08
_BETWEEN_TESTS_S = 0.7
_PER_FLEET_CLIENT_S = 0.004
_BETWEEN_FLEETS_S = 6.0
"""Pause until the gateway has forgotten the clients of the previous test."""
_TEAR_DOWN_S = 0.5
