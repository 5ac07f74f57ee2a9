"""Runs one trial from build to tear-down: the order of its phases, and its records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from leadline.agents import ReachedHosts
from leadline.agents.asyncio_tools import unless
from leadline.agents.devices import check_devices
from leadline.analysis.model import TestResult
from leadline.errors import (
    AgentError,
    ClosedDevice,
    DatasetError,
    Interrupted,
    LeadlineError,
    MissingBinary,
    MissingKernelFeature,
    NoClientConnected,
    SutFailed,
    TaskFailed,
    each_failure,
)
from leadline.plan import BaseTest, Trial, needs
from leadline.plan.spread_starts import SpreadTest, starts_ms
from leadline.plan.sut import system_of
from leadline.sut.model import BringUp, ClientState, FleetAccess, Site
from leadline.sut.running import SystemUnderTest
from leadline.trial import environment, load
from leadline.trial.case_record import case_record
from leadline.trial.clock_checks import clocks_checked
from leadline.trial.dealing import Dealt, count_clients, deal
from leadline.trial.environment import SERVER, Environment
from leadline.trial.event_log import EventLog
from leadline.trial.interrupt import Interrupt
from leadline.trial.notifications import PhaseBegan, TestBegan, TestEnded, TrialBegan, TrialEnded
from leadline.trial.plan_search import PlanSearch, condition_metrics
from leadline.trial.profile import profiled
from leadline.trial.runner import Runner, analyse_load, begin_trial, end_trial
from leadline.trial.second_tools import cross_check
from leadline.trial.unforeseen import unforeseen
from leadline.trial.workloads import FORGOTTEN_S, LoadWorkload, Server, fleet_workload, kind_of, workload


@dataclass(frozen=True, slots=True)
class RunContext:
    """The parts that all trials of a run share."""

    event_log: EventLog
    interrupt: Interrupt
    logs: Path
    observe_period_ms: int
    reached: ReachedHosts
    """What reaches given hosts, over all trials."""
    tolerate: float = 0.0
    """The share of clients that may be lost, 0 to 1."""
    entries: list[dict[str, Any]] | None = None
    """The trial's entries so far, if one of its tests is a search, whose loads are analysed one by one."""


async def run_trial(trial: Trial, number: int, context: RunContext) -> str:
    """Run one trial; returns `done`, `failed`, `skipped` or `interrupted`. A failure, even an unexpected one, ends
    only this trial: it is recorded, and the run goes on.

    Raises:
        DatasetError: the journal cannot be written, so nothing more can be kept.
    """
    event_log, case = context.event_log, trial.case
    parameters = {
        axis: value if isinstance(value, int | float | str) else case.labels[axis]
        for axis, value in case.parameters.items()
    }
    entries: list[dict[str, Any]] = []
    if any(test.searched is not None for test in case.tests):
        context = replace(context, entries=entries)
    stop_copying = event_log.copy_to(entries) if context.entries is not None else None
    begin_trial(event_log, case.id, trial.repeat, parameters, system_of(case.sut).title or None)
    event_log.notify(TrialBegan(trial.label, number, case, trial.repeat))
    status = "done"
    error: LeadlineError | None = None
    try:
        await _stages(trial, context)
    except DatasetError:
        raise
    except Interrupted:
        status = "interrupted"
    except (MissingBinary, ClosedDevice, MissingKernelFeature) as failure:
        status, error = "skipped" if case.sut.optional else "failed", failure
    except LeadlineError as failure:
        status, error = "failed", failure
    except Exception as failure:
        status, error = "failed", _named(failure, trial, context.logs)
    finally:
        if stop_copying is not None:
            stop_copying()
    unwritten = end_trial(event_log, trial.label, status, error=error)
    if unwritten is not None:
        raise unwritten
    event_log.notify(TrialEnded(trial.label, status, str(error) if error else None))
    return status


async def _stages(trial: Trial, context: RunContext) -> None:
    """Build, bring up, test, and always tear down."""
    event_log, label = context.event_log, trial.label
    if trial.case.hosts is None:
        check_devices(needs([trial.case]))
    async with _phase(event_log, label, "build"):
        built = environment.build(
            trial.case, label, event_log, logs=context.logs, reached=context.reached, tolerate=context.tolerate
        )
        env = await unless(built, _stop_requested(context.interrupt))
    # Closing twice does nothing: this close is for a journal that cannot store the phase's beginning.
    async with aclosing(env):
        try:
            await environment.observe(env, f"{label}/bring-up", context.observe_period_ms, event_log)
            async with _brought_up(trial, env, context) as up:
                for number, test in enumerate(trial.case.tests):
                    if number and up.fleet is not None:
                        await context.interrupt.pause(FORGOTTEN_S)
                    async with _phase(event_log, label, test.name):
                        await _test(test, label, up, env, context)
        finally:
            async with _phase(event_log, label, "tear-down"):
                await env.aclose()


@dataclass(frozen=True, slots=True)
class _Up:
    """A system under test that carries traffic."""

    clients: list[str]
    """The hosts that can be measured."""
    site: Site
    """The trial's hosts; closed when the system is taken down."""
    sut: SystemUnderTest
    profiled: tuple[str, ...] = ()
    """Processes whose call stacks are sampled during tests."""
    fleet: FleetAccess | None = None
    """How the case's fleet connects; None without a fleet."""
    answers: BringUp | None = None
    """The bring-up of a system that answers HTTP itself; None: the run's own server answers."""

    def server(self, test: BaseTest, env: Environment) -> Server:
        """What answers a test.

        Raises:
            LeadlineError: nothing does over its IP version.
        """
        if self.answers is None or self.answers.port is None:
            address = env.server_address.get(test.ip)
            if address is None:
                raise LeadlineError(f"{test.name}: the hosts have no IPv{test.ip}")
            return Server(address, key=env.key)
        address = self.answers.target.get(test.ip)
        if address is None:
            raise LeadlineError(f"{test.name}: the system under test does not answer over IPv{test.ip}")
        scheme: Literal["http", "https"] = "https" if self.answers.scheme == "https" else "http"
        return Server(address, http_port=self.answers.port, scheme=scheme)


@asynccontextmanager
async def _brought_up(trial: Trial, env: Environment, context: RunContext) -> AsyncIterator[_Up]:
    """Bring the system up, and always take it down."""
    event_log, label = context.event_log, trial.label
    site = env.site(context.logs)
    sut = SystemUnderTest(trial.case.sut, site)
    try:
        async with _phase(event_log, label, "bring-up"):
            try:
                up = await unless(sut.bring_up(), _stop_requested(context.interrupt), env.failure())
            except NoClientConnected as failure:
                _tell_bring_up(event_log, trial, BringUp(failure.version, failure.clients, {}, ()))
                raise
            _tell_bring_up(event_log, trial, up)
        connected = [client.host for client in up.clients if client.state == "connected"]
        # A system without clients of its own (a route) has no count of them.
        profiled_processes = up.processes if trial.case.profile else ()
        able = connected if up.clients else list(env.clients)
        yield _Up(able, site, sut, profiled_processes, up.fleet, up if up.port is not None else None)
    finally:
        # The cost of the take-down must not count for the last test. A lost agent has been reported already.
        with suppress(AgentError):
            await environment.observe_afterwards(env, f"{label}/tear-down", context.observe_period_ms, event_log)
        await sut.take_down()


async def _test(test: BaseTest, label: str, up: _Up, env: Environment, context: RunContext) -> None:
    """Run one test on the connected clients; its failure is a failure of the trial."""
    event_log, name = context.event_log, f"{label}/{test.name}"
    wanted = list(env.clients)[: test.clients] if test.clients else list(env.clients)
    able = [client for client in wanted if client in up.clients]
    clients = count_clients(able, env.planned_clients, test.clients or env.case.clients)
    if not able:
        raise SutFailed(f"{test.name}: none of its {len(wanted)} clients is connected")
    server = up.server(test, env)
    await environment.observe(env, name, context.observe_period_ms, event_log)
    event_log.notify(TestBegan(name, test.name, test.kind, test.expected_ms / 1000))
    if test.searched is not None:
        await _search(test, able, up, env, context, clients=clients)
        return
    one = _load(name, deal(test, able, clients), server, up, env)
    await _one_load(one, test.name, up, env, context)
    if test.second_tool is not None:
        await environment.observe_afterwards(env, f"{name}.cross-check", context.observe_period_ms, event_log)
        repeated = cross_check(test, label, able, server, site=up.site)
        found = await unless(repeated, _stop_requested(context.interrupt), env.failure(), up.sut.failure())
        found.record(test, name, event_log)


def _load(
    label: str, dealt: Dealt, server: Server, up: _Up, env: Environment, *, search: str | None = None
) -> load.Load:
    """The load of a test, on the hosts to which it is dealt."""
    test, hosts = dealt.test, list(dealt.tests)
    starts = starts_ms(test, hosts)
    parts = [
        *load.generators(_workloads(dealt.tests, starts, server, up, env), starts),
        *_receivers(test, hosts, server),
    ]
    shares, left_out = dealt.shares, dealt.left_out
    return load.Load(
        label,
        test.model_dump(),
        parts,
        goes_on_without=env.goes_on_without,
        search=search,
        shares=shares,
        left_out=left_out,
    )


def _workloads(
    tests: Mapping[str, BaseTest], starts: Mapping[str, int], server: Server, up: _Up, env: Environment
) -> dict[str, LoadWorkload]:
    """The load of each host, or of the fleet on the only one."""
    if up.fleet is not None and env.case.fleet is not None:
        return {host: fleet_workload(test, up.fleet, env.case.fleet, server.host) for host, test in tests.items()}
    return {
        host: workload(test.delayed(starts[host]) if isinstance(test, SpreadTest) else test, server)
        for host, test in tests.items()
    }


def _receivers(test: BaseTest, clients: list[str], server: Server) -> list[load.Part]:
    """What receives the load or sends it back; empty if the run's own server does."""
    return load.receiving_parts(kind_of(test).receivers(test, server), clients[0], SERVER)


async def _search(
    test: BaseTest, hosts: list[str], up: _Up, env: Environment, context: RunContext, *, clients: int
) -> None:
    """Search for the test's highest rate: a load for each rate, analysed when it ends."""
    event_log, name, entries = context.event_log, f"{env.label}/{test.name}", context.entries or []
    before = list(takewhile(lambda entry: entry.get("record") != "test-begin", entries))
    server = up.server(test, env)

    async def measure(at_rate: BaseTest, number: int) -> TestResult:
        lost = next((host for host in hosts if host not in env.clients), None)
        if lost is not None and env.losses is not None:
            # The rates that follow would be those of fewer hosts.
            raise LeadlineError(f"{test.name}: the search ends with the loss of a host: {env.losses.reasons[lost]}")
        label = f"{name}.{number}"
        begin = len(entries)
        await environment.observe(env, label, context.observe_period_ms, event_log)
        dealt = deal(at_rate, hosts, clients, totals=frozenset(at_rate.rates))
        one = _load(label, dealt, server, up, env, search=name)
        await _one_load(one, test.name, up, env, context)
        manifest = {"cases": [case_record(env.case)], "asked": condition_metrics(test)}
        return analyse_load(manifest, before, entries[begin:])

    try:
        await PlanSearch(name, test, measure, context.interrupt).run(event_log)
    finally:
        event_log.notify(TestEnded(name, test.name, "done", None))


async def _one_load(one: load.Load, test: str, up: _Up, env: Environment, context: RunContext) -> None:
    """Run one load to its end; its failure is a failure of the trial."""
    guard = partial(_watched, up=up, env=env, interrupt=context.interrupt)
    runner = Runner(env.agents, env.clocks, context.event_log, context.interrupt, guard)
    before = await up.sut.read_counters()
    try:
        async with clocks_checked(one.label, env.agents, env.clocks, context.event_log):
            ended = await runner.run(one, profiled(one.label, up.profiled, env))
    except BaseException as failure:
        status = "interrupted" if isinstance(failure, asyncio.CancelledError) else "failed"
        context.event_log.notify(TestEnded(one.label, test, status, None))
        raise
    context.event_log.notify(TestEnded(one.label, test, ended.status, ended.cause))
    if before:
        after = await up.sut.read_counters(before)
        context.event_log.record("system-counters", label=one.label, before=before, after=after)
    if ended.failure is not None:
        raise ended.failure
    if context.interrupt.asked.is_set():
        raise Interrupted("stopped by the user")


async def _watched(course: Coroutine[Any, Any, None], *, up: _Up, env: Environment, interrupt: Interrupt) -> None:
    """The result of the coroutine, or the failure of an agent or of the system under test."""
    troubles = [_overdue(interrupt), env.failure(), up.sut.failure()]
    try:
        await unless(course, *troubles)
    except TaskFailed:
        # A client notices its server's end before this process does, and does not know the cause.
        await env.sync_agents()
        raise


async def _stop_requested(interrupt: Interrupt) -> LeadlineError:
    """Wait for the user's request to stop, then for the time limit of an orderly end."""
    await interrupt.asked.wait()
    return Interrupted("stopped by the user")


async def _overdue(interrupt: Interrupt) -> LeadlineError:
    """`load` stops a test, which reports what it has; the test is aborted only if that takes too long."""
    await interrupt.asked.wait()
    await asyncio.sleep(_ORDERLY_END_S)
    return Interrupted("stopped by the user")


# A stopped test reports within a second or two.
_ORDERLY_END_S = 8.0


@asynccontextmanager
async def _phase(event_log: EventLog, label: str, phase: str) -> AsyncIterator[None]:
    event_log.record("phase", trial=label, phase=phase, edge="begin")
    event_log.notify(PhaseBegan(label, phase))
    try:
        yield
    finally:
        event_log.record("phase", trial=label, phase=phase, edge="end")


def _tell_bring_up(event_log: EventLog, trial: Trial, up: BringUp) -> None:
    clients: list[ClientState] = up.clients
    event_log.record(
        "bring-up",
        trial=trial.label,
        sut=trial.case.sut.model_dump(),
        version=up.version or None,
        clients=[asdict(client) for client in clients],
        processes=list(up.processes),
        cpu_quotas=up.cpu_quotas,
        cpu_attribution=(up.cpu_attribution or system_of(trial.case.sut).cpu_attribution(trial.case.sut)).value,
        name=up.name,
        title=up.title,
        **({"tiers": [asdict(tier) for tier in up.tiers]} if up.tiers else {}),
    )


def _named(failure: Exception, trial: Trial, logs: Path) -> LeadlineError:
    """The first failure of Leadline's own in a group; anything else is a defect, whose traceback is kept.

    Raises:
        DatasetError: the group has one.
    """
    found = list(each_failure(failure))
    lost = next((one for one in found if isinstance(one, DatasetError)), None)
    if lost is not None:
        raise lost
    other = next((one for one in found if not isinstance(one, LeadlineError)), None)
    if other is None:
        return next(one for one in found if isinstance(one, LeadlineError))
    secrets = [secret for test in trial.case.tests for secret in test.secrets]
    log = logs / f"{trial.label.replace('/', '-')}-traceback.log"
    return unforeseen(failure, log, cause=other, secrets=secrets)
