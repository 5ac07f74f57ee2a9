"""HAProxy as a tier: its configuration, and what its log and its statistics tell. Pure.

The log has the format `httplog`, with two captures, `traceparent` of the request and `Server-Timing` of the answer, and
at the end the time from the request's arrival to the log, us: HAProxy's own timers are in whole milliseconds.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from leadline.sut.stack.parameters import HaproxyTier

CONNECT_S, IDLE_S, KEPT_S = 5, 60, 75
_FORMAT = (
    "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r "
    "%[date(0,us),sub(txn.begin)]"
)
_VERSIONS = {"1.2": ("TLSv1.2", "TLSv1.2"), "1.3": ("TLSv1.3", "TLSv1.3"), "1.2-1.3": ("TLSv1.2", "TLSv1.3")}


@dataclass(frozen=True, slots=True)
class HaproxyPaths:
    """The files of one HAProxy."""

    statistics: str
    """Socket that answers `show stat`."""
    certificate: str | None
    """Certificate with its key; None without TLS."""


def write_config(tier: HaproxyTier, binds: Sequence[str], servers: Sequence[str], paths: HaproxyPaths) -> str:
    """The text of haproxy.cfg: listen on `binds`, and pass requests on to `servers` in turn."""
    threads = tier.nbthread or tier.cpus
    lines = [
        "global",
        *([f"  nbthread {threads}"] if threads is not None else []),
        f"  stats socket {paths.statistics} mode 600 level user",
        *([f"  log stdout format raw sample 1:{tier.log_every} local0"] if tier.log_every else []),
        "defaults",
        "  mode http",
        f"  timeout connect {CONNECT_S}s",
        f"  timeout client {IDLE_S}s",
        f"  timeout server {IDLE_S}s",
        f"  timeout http-keep-alive {KEPT_S}s",
        f"  option {tier.keep_alive}",
        f"  http-reuse {tier.reuse}",
        f"frontend {tier.name}",
        *(f"  bind {bind}{_write_tls_options(tier, paths)}" for bind in binds),
        *(_write_log_lines() if tier.log_every else []),
        "  default_backend next",
        "backend next",
        "  balance roundrobin",
        *(f"  server worker{number} {server}" for number, server in enumerate(servers, 1)),
    ]
    return "\n".join(lines) + "\n"


def _write_tls_options(tier: HaproxyTier, paths: HaproxyPaths) -> str:
    if tier.tls == "off":
        return ""
    oldest, newest = _VERSIONS[tier.tls]
    names = (tier.ciphers or "").split(":") if tier.ciphers else []
    suites, older = [one for one in names if one.startswith("TLS_")], [one for one in names if one[:4] != "TLS_"]
    chosen = f" ciphers {':'.join(older)}" if older else ""
    chosen += f" ciphersuites {':'.join(suites)}" if suites else ""
    return f" ssl crt {paths.certificate} alpn http/1.1 ssl-min-ver {oldest} ssl-max-ver {newest}{chosen}"


def _write_log_lines() -> list[str]:
    return [
        "  log global",
        "  http-request set-var(txn.begin) date(0,us)",
        "  capture request header traceparent len 55",
        "  capture response header Server-Timing len 80",
        f'  log-format "{_FORMAT}"',
    ]


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request in the log, with the times that are known."""

    whole_us: float
    """From its arrival at HAProxy until its answer was sent."""
    parts_us: Mapping[str, float]
    """The durations of `Server-Timing` by name, each with what is behind it."""
    status: int
    trace: str | None
    """Its `traceparent`."""


def read_log(lines: Iterable[str]) -> Iterator[LoggedRequest]:
    """The requests of a log; other lines are left out."""
    for line in lines:
        match = _LINE.search(line)
        if match is None:
            continue
        parts = {name: 1000 * float(duration) for name, duration in _DURATION.findall(match["timing"])}
        yield LoggedRequest(float(match["whole"]), parts, int(match["status"]), match["trace"] or None)


_LINE = re.compile(
    r"\] \S+ \S+/\S+ -?\d+/-?\d+/-?\d+/-?\d+/\+?-?\d+ (?P<status>\d{3}) .*?"
    r"\{(?P<trace>[0-9a-f-]*)\} \{(?P<timing>[^}]*)\} \".*\" (?P<whole>\d+)\s*$",
    re.ASCII,
)
_DURATION = re.compile(r"([A-Za-z0-9_-]+);dur=([0-9]{1,12}(?:\.[0-9]{1,9})?)", re.ASCII)

_COUNTERS = {"requests": "req_tot", "connections": "conn_tot"}
_NEXT_COUNTERS = {"opened": "connect", "reused": "reuse", "retried": "wretr", "failed": "eresp", "refused": "econ"}


def read_statistics(text: str) -> dict[str, int]:
    """The counters of `show stat`: requests and connections of clients, and of connections to the next tier those
    opened, reused, retried, failed and refused. A counter that it lacks is missing."""
    rows = list(csv.DictReader(text.removeprefix("# ").splitlines()))
    found: dict[str, int] = {}
    for place, names in (("FRONTEND", _COUNTERS), ("BACKEND", _NEXT_COUNTERS)):
        row = next((row for row in rows if row.get("svname") == place), {})
        for name, column in names.items():
            value = row.get(column) or ""
            if value.isdecimal():
                found[name] = int(value)
    return found
