"""Measures the ceiling of a generator: the maximum rate of requests of one shape, in a second of closed loop against
a null responder.

Owns the conversion of a load to such a calibration, and the meaning of its figures; `ceiling_cache` stores the
results. Runs before or after a measurement, never during one, and contacts only its own server;
docs/decisions/0005-ceiling.md has the reasons.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from leadline import __version__
from leadline.agents import Agent, Launch, agent_binary
from leadline.analysis import analyse
from leadline.analysis.model import Ceiling, TestResult
from leadline.analysis.validity import LEAST_BUSY, SATURATED_BUSY
from leadline.contract.models import HttpRequest, HttpRoute, HttpWorkload, ServeWorkload
from leadline.errors import LeadlineError
from leadline.trial.ceiling_cache import CeilingCache
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.interrupt import Interrupt
from leadline.trial.load import Load, Part
from leadline.trial.runner import Runner, begin_trial, end_trial
from leadline.trial.workloads import PLAIN_ANSWER

CALIBRATION_MS = 1000
MOST_CONNECTIONS = 1024
"""Maximum number of connections of a calibration. More would take longer to open than it lasts, and hardly change the
result."""
LARGEST_ANSWER_BYTES = 1 << 20
IO_URING_SETTING = Path("/proc/sys/kernel/io_uring_disabled")
"""The kernel's switch for the faster engine; older kernels lack the file."""

_GENERATOR, _RESPONDER = "this host", "null responder"
_ENGINE_VARIABLE = "LEADLINE_HTTP_ENGINE"
# For tests that run each example of the documents, whatever its ceiling: ms instead of `CALIBRATION_MS`.
_LENGTH_VARIABLE = "LEADLINE_CALIBRATION_MS"
# Functions by which a script chooses its own addresses, or does more than make requests. Load for the null responder
# must not reach other servers, and what a script does to files or programs must not happen twice.
_MORE_THAN_REQUESTS = (
    *("addr", "lookup", "connect"),
    *("require", "dofile", "loadfile", "loadstring", "io.open", "io.popen", "os."),
)


async def ceiling_for(
    load: HttpWorkload, interrupt: Interrupt, began: Callable[[], None], warn: Callable[[str], None]
) -> Ceiling | None:
    """The ceiling of a generator here for such a load, from the cache or measured now; None if it cannot be measured.

    `began` is called if it must be measured, which takes one to two seconds; `warn` is called with errors.
    """
    if not _can_be_calibrated(load):
        return None
    known = known_ceiling(load, warn)
    if known is not None or interrupt.asked.is_set():
        return known
    if not await _is_found(load):
        return None
    began()
    try:
        result = await calibrate(load, interrupt)
    except LeadlineError as error:
        warn(f"the generator's own ceiling is unknown: {error}")
        return None
    if result is None or interrupt.asked.is_set():
        return None
    found = ceiling_of(result, load.threads, len(load.cpus) or len(os.sched_getaffinity(0)))
    if found is not None:
        CeilingCache.here(warn).keep(_key(load), found)
    return found


def known_ceiling(load: HttpWorkload, warn: Callable[[str], None]) -> Ceiling | None:
    """The ceiling of a generator here for such a load, if it was measured before; `warn` is called with errors."""
    return CeilingCache.here(warn).find(_key(load)) if _can_be_calibrated(load) else None


def _key(load: HttpWorkload) -> str:
    return key_of(host_fingerprint(), shape_of(load))


def ceiling_of(result: TestResult, threads: int, cpus: int) -> Ceiling | None:
    """The rate of the generating threads if they could run all the time.

    If the generator was at its limit, the measured rate is the ceiling. Otherwise the null responder was the limit,
    or took the CPUs; the rate is then extrapolated at the same cost per request.
    """
    rate, cost = result.metrics["requests_per_s"].value, result.generator
    if not rate or cost is None or cost.cpu_s is None or not cost.wall_s or result.status != "done":
        return None
    most = min(threads, cpus)
    busy = cost.cpu_s / cost.wall_s / most
    if busy < LEAST_BUSY:
        return None
    if busy >= SATURATED_BUSY:
        return Ceiling(rate, extrapolated=False, engine=cost.engine)
    return Ceiling(rate / busy, extrapolated=True, engine=cost.engine)


async def calibrate(load: HttpWorkload, interrupt: Interrupt) -> TestResult | None:
    """Run one second of the load's shape against a null responder on loopback; None if that cannot answer it.

    The output of a script is discarded.

    Raises:
        LeadlineError: an agent could not be started, or the load failed.
    """
    entries: list[dict[str, Any]] = []
    event_log = EventLog(EntryList(entries))
    trial = begin_trial(event_log, "c01", 1, {})
    async with AsyncExitStack() as stack:
        launch = Launch((str(agent_binary()),))
        responder = await Agent.start(_RESPONDER, launch, sink=lambda *_: None)
        stack.push_async_callback(responder.close)
        secure = load.tls is not None and load.requests[0].url.startswith("https:")
        ready = await responder.prepare("calibration", "serve", _serve(load, secure))
        port = ready.https_port if secure else ready.http_port
        if port is None:
            return None
        generator = await Agent.start(_GENERATOR, launch, sink=event_log.on_event)
        stack.push_async_callback(generator.close)
        clock = await generator.compare_clocks()
        event_log.record("clock", host=_GENERATOR, offset_ns=clock.offset_ns, bound_ns=clock.bound_ns)
        aimed = aimed_at(load, port, secure)
        one = Load(f"{trial}/http", {"name": "http", **aimed.model_dump()}, [Part(_GENERATOR, aimed)])
        ended = await Runner({_GENERATOR: generator}, {_GENERATOR: clock}, event_log, interrupt).run(one)
    if ended.failure is not None:
        raise ended.failure
    end_trial(event_log, trial, ended.status)
    return analyse({}, entries).trials[0].tests[0]


def aimed_at(load: HttpWorkload, port: int, secure: bool) -> HttpWorkload:
    """Return the load as a closed loop on the null responder: the same bytes, threads and connections, another
    address."""
    tls = load.tls
    if tls is not None:
        tls = tls.model_copy(update={"verify": False, "ca_pem": None, "identity": None, "server_name": None})
    scheme = "https" if secure else "http"
    return load.model_copy(
        update={
            "requests": [
                request.model_copy(update={"url": f"{scheme}://127.0.0.1:{port}{_padded(request)}"})
                for request in load.requests
            ],
            "ip_version": None,
            "connections": min(load.connections, MOST_CONNECTIONS),
            "threads": min(load.threads, MOST_CONNECTIONS),
            "duration_ms": int(os.environ.get(_LENGTH_VARIABLE, CALIBRATION_MS)),
            "warmup_ms": 0,
            "number": None,
            "rate": [],
            "route": HttpRoute(bind=[], resolve=[], dns="run"),
            "tls": tls,
        }
    )


def shape_of(load: HttpWorkload) -> dict[str, Any]:
    """The parameters that determine the cost of a request. Sizes and digests: no address, no header value, no
    secret."""
    tls = load.tls
    return {
        "requests": [
            (
                request.method,
                len(_target(request)),
                sum(len(header.name) + len(header.value) for header in request.headers),
                len(request.headers),
                len(request.body_base64 or ""),
                request.weight,
                _answer_bytes_to(request),
            )
            for request in load.requests
        ],
        "script": None if load.script is None else _digest([load.script.source, *load.script.args]),
        "connections": min(load.connections, MOST_CONNECTIONS),
        "threads": load.threads,
        "cpus": load.cpus,
        "requests_per_connection": load.requests_per_connection,
        "socket": load.socket.model_dump(),
        "tls": None
        if tls is None
        else [tls.oldest, tls.newest, tls.cipher_suites, tls.alpn, tls.resumption, tls.early_data],
        "answer_bytes": _answer_bytes(load),
        "engine": os.environ.get(_ENGINE_VARIABLE),
    }


def host_fingerprint() -> dict[str, Any]:
    """The properties of the host that determine a ceiling: processor, kernel, allowed engine, agent."""
    agent = agent_binary().stat()
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "io_uring_disabled": _io_uring_disabled(),
        # Two builds of one version may differ.
        "agent": [__version__, agent.st_size, agent.st_mtime_ns],
    }


def key_of(fingerprint: dict[str, Any], shape: dict[str, Any]) -> str:
    """The key of a ceiling in the cache."""
    return _digest([fingerprint, shape])


def _serve(load: HttpWorkload, secure: bool) -> ServeWorkload:
    return ServeWorkload(
        bind=["127.0.0.1"],
        http_port=None if secure else 0,
        https_port=0 if secure else None,
        answer=PLAIN_ANSWER.model_copy(update={"body_bytes": _answer_bytes(load)}),
        longest_ms=2 * CALIBRATION_MS,
        most_flows=1,
    )


def _can_be_calibrated(load: HttpWorkload) -> bool:
    """Whether a calibration is representative of this load and harmless.

    The null responder has no Unix socket, no proxy and no name to resolve. Loads that use these have costs that it
    does not measure.
    """
    route = load.route
    if route.unix_socket is not None or route.proxy is not None or route.dns == "connection":
        return False
    return load.script is None or not any(word in load.script.source for word in _MORE_THAN_REQUESTS)


async def _is_found(load: HttpWorkload) -> bool:
    """Whether the load's host has an address. A load without one fails at once, and needs no calibration."""
    parts = urlsplit(load.requests[0].url)
    host = parts.hostname or ""
    if any(one.host.casefold() == host.casefold() for one in load.route.resolve):
        return True
    try:
        await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return True


def _answer_bytes(load: HttpWorkload) -> int:
    """The average size of a response body: the null responder has one size for all requests."""
    weighted = sum(request.weight * _answer_bytes_to(request) for request in load.requests)
    return round(weighted / sum(request.weight for request in load.requests))


def _answer_bytes_to(request: HttpRequest) -> int:
    """The size requested from `leadline serve`; the sizes of other servers' responses are unknown in advance."""
    for text in parse_qs(urlsplit(request.url).query).get("size", []):
        if text.isascii() and text.isdecimal():
            return min(int(text), LARGEST_ANSWER_BYTES)
    return PLAIN_ANSWER.body_bytes


def _target(request: HttpRequest) -> str:
    parts = urlsplit(request.url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _padded(request: HttpRequest) -> str:
    """A request target of the same length, without query parameters that the null responder would obey."""
    return "/".ljust(len(_target(request)), "x")


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _io_uring_disabled() -> str:
    try:
        return IO_URING_SETTING.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return "absent"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name"))
    return next(named, platform.machine())
