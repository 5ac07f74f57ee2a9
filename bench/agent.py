"""Our own generators as the bench runs them: one agent, told over its pipe what the command would tell it.

The command's own work (Python, calibration) is no part of generating, so the agent is driven directly; its account is
its whole process's, from its start to its end, as the peers' is. `observer_share` asks the agent's observer likewise.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from peers import CONNECTIONS, Cost
from programs import GENERATOR_CPU, cpu_until_end, pinned

from leadline.agents.messages import Command, ContractEvent, encode, parse_event
from leadline.analysis.histograms import decode
from leadline.contract.models import (
    CryptoWorkload,
    Failed,
    Finished,
    HttpCounts,
    HttpScript,
    HttpWorkload,
    Ikev2Connections,
    ObservationEvent,
    Observe,
    Outcome,
    Prepare,
    Prepared,
    ProfileIdentity,
    RateStage,
    ScenarioWorkload,
    Start,
    Target,
    TunnelExpectation,
    TunnelWorkload,
    UdpWorkload,
    WireguardFiles,
)
from leadline.kinds.http.model import HttpTest
from leadline.kinds.http.workload import http_workload
from leadline.kinds.scenario.model import LoadedScenario, ScenarioTest
from leadline.kinds.scenario.workload import scenario_workload
from leadline.scenario.files import reader_below
from leadline.scenario.formats import FormatOptions, read_scenario

ReportedEvent = TypeVar("ReportedEvent")
Workload = CryptoWorkload | HttpWorkload | ScenarioWorkload | TunnelWorkload | UdpWorkload

_TRIAL, _TASK = "bench", "http"
_ENGINE_VARIABLE = "LEADLINE_HTTP_ENGINE"


@dataclass(frozen=True, slots=True)
class Load:
    """What came of one load."""

    outcome: Outcome
    cpu_s: float
    """CPU time of the agent's whole process."""
    peak_bytes: int
    """The most memory that the agent had resident."""


def load(url: str, script: Path | None = None, engine: str | None = None, **options: Any) -> Load:
    """Run one load; `options` are the keys of a plan's `http` test."""
    return run(_workload(url, script, options), environment={} if engine is None else {_ENGINE_VARIABLE: engine})


def scenario(file: Path, bind: Sequence[str] = (), **params: str) -> Load:
    """Run a scenario with values of its parameters, from local addresses where given."""
    read_file = reader_below(file.parent)
    read, _ = read_scenario(file.read_bytes(), file.name, FormatOptions(), read_file)
    loaded = LoadedScenario(file.name, read, read_file)
    test = ScenarioTest.model_validate({"name": _TASK, "kind": "scenario", "file": loaded, "params": params})
    return run(scenario_workload(test, {}, "v4", bind))


def run(workload: Workload, prefix: Sequence[str] = (), environment: Mapping[str, str] = MappingProxyType({})) -> Load:
    """Run any load, on a host that commands get to by `prefix`."""
    with _agent(environment, prefix) as (process, events):
        _tell(process, Prepare(type="prepare", trial=_TRIAL, task=_TASK, workload=workload))
        _expect(events, Prepared)
        _tell(process, Start(type="start", trial=_TRIAL, at_ns=0))
        outcome = _expect(events, Finished).outcome
        peak_bytes = _peak_bytes(process.pid)
    return Load(outcome, cpu_until_end(process), peak_bytes)


def closed(url: str, seconds: int, script: Path | None = None, engine: str | None = None, **options: Any) -> Cost:
    """A closed loop over as many connections as the peers have."""
    done = load(url, script, engine, connections=CONNECTIONS, duration=f"{seconds}s", **options)
    outcome = done.outcome
    if outcome.errors:
        raise RuntimeError(f"errors: {outcome.errors}")
    requests = http_counts(outcome).responses
    began_ns = min(flow.due_ns for flow in outcome.flows)
    ended_ns = max(flow.end_ns or flow.due_ns for flow in outcome.flows)
    threads = () if outcome.generator is None else outcome.generator.threads
    return Cost(
        requests,
        requests / ((ended_ns - began_ns) / 1e9),
        done.cpu_s,
        sum(thread.user_s + thread.system_s for thread in threads) * 1e6 / requests,
        _p99_us(outcome, "kernel_wait"),
    )


def http_counts(outcome: Outcome) -> HttpCounts:
    """The counters of an HTTP load.

    Raises:
        RuntimeError: it was another load.
    """
    if not isinstance(outcome.counts, HttpCounts):
        raise RuntimeError(f"counters of an HTTP load were expected: {outcome.counts!r}")
    return outcome.counts


def datagrams(
    target: Target, seconds: int, datagram_bytes: int, rate_pps: float, direction: Literal["up", "down"]
) -> UdpWorkload:
    """One flow of paced datagrams to our server, or from it."""
    return UdpWorkload(
        kind="udp",
        target=target,
        flows=1,
        threads=1,
        direction=direction,
        duration_ms=seconds * 1000,
        warmup_ms=0,
        datagram_bytes=datagram_bytes,
        rate_pps=rate_pps,
        interval_ms=1000,
    )


def arrivals(clients: int, per_s: float) -> RateStage:
    """VPN clients that arrive at a rate, with a second to spare for the last of them."""
    return RateStage(from_per_s=per_s, to_per_s=per_s, duration_ms=round(clients / per_s * 1000) + 1000)


def fleet(
    identities: Ikev2Connections | ProfileIdentity | WireguardFiles,
    *,
    clients: int,
    duration_ms: int,
    expect: TunnelExpectation,
    **more: Any,
) -> TunnelWorkload:
    """VPN clients that send nothing but what verifies their tunnels, all at once by default; `more` are further fields
    of the workload, or others in their place."""
    usual: dict[str, Any] = {
        "profile": "",
        "threads": 1,
        "users": [],
        "bind": [],
        "arrivals": [],
        "settled": 0,
        "settling_ms": 0,
        "attempt_ms": 60_000,
        "retries": 0,
        "first_data_ms": 30_000,
        "actions": [],
        "interval_ms": 1000,
    }
    return TunnelWorkload(
        kind="tunnel",
        identities=identities,
        clients=clients,
        duration_ms=duration_ms,
        expect=expect,
        **{**usual, **more},
    )


def observer_share() -> float:
    """CPU time that the agent's observer takes at 10 Hz, as a share of one core, from its own account."""
    with _agent({}) as (process, events):
        _tell(process, Observe(type="observe", trial=_TRIAL, period_ms=100, machine=True))
        samples = [_expect(events, ObservationEvent) for _ in range(31)]
    process.wait()
    first, last = samples[0], samples[-1]
    return (last.observer_cpu_s - first.observer_cpu_s) / ((last.t_ns - first.t_ns) / 1e9)


@contextmanager
def _agent(
    environment: Mapping[str, str], prefix: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[str], Iterator[ContractEvent]]]:
    """An agent that ends with this; the caller waits for that."""
    process = subprocess.Popen(
        [*prefix, *pinned(GENERATOR_CPU, ["leadline-agent"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process, map(parse_event, process.stdout)
    except BaseException:
        process.kill()
        raise
    finally:
        process.stdin.close()
        # The rest of its output is read: a process that nothing reads from would wait.
        process.stdout.read()
        process.stdout.close()


def _tell(process: subprocess.Popen[str], command: Command) -> None:
    assert process.stdin is not None
    process.stdin.write(encode(command).decode())
    process.stdin.flush()


def _expect(events: Iterator[ContractEvent], kind: type[ReportedEvent]) -> ReportedEvent:
    for event in events:
        if isinstance(event, kind):
            return event
        if isinstance(event, Failed):
            raise RuntimeError(f"the agent failed: {event.error.message}")
    raise RuntimeError("the agent ended")


def _workload(url: str, script: Path | None, options: Mapping[str, Any]) -> HttpWorkload:
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    tls = {"tls": {"verify": False, "resume": False}} if parts.scheme == "https" else {}
    given = {"name": _TASK, "kind": "http", "scheme": parts.scheme, "path": path, **tls, **options}
    workload = http_workload(HttpTest.model_validate(given), parts.hostname or "", parts.port, "v4")
    if script is not None:
        workload.script = HttpScript(name=script.name, source=script.read_text(), args=[])
    return workload


def _peak_bytes(pid: int) -> int:
    # Not ru_maxrss: that has the parent's size in it, whose image the process was before its own.
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _p99_us(outcome: Outcome, metric: str) -> float | None:
    report = next((one for one in outcome.histograms if one.metric == metric), None)
    return None if report is None else decode(report.model_dump()).percentile_us(99)
