"""The command lines of wrk, ab and h2load as the second tool of `http` tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leadline.kinds.http.model import HttpTest
from leadline.trial.second_tools import ToolRun
from leadline.trial.workloads import Server

_AB_REQUESTS_PER_S = 500_000
"""More requests than ab can send: it ends with its time."""


def http_run(test: HttpTest, server: Server) -> ToolRun:
    """The tool against the same URL, with the same connections and threads, for the test's whole duration."""
    host = f"[{server.host}]" if ":" in server.host else server.host
    url = f"{test.scheme}://{host}:{server.http_port_of(tls=test.needs_https)}{test.request_target}"
    duration_s = math.ceil(test.duration_ms / 1000)
    headers = [word for header in test.headers for word in ("-H", f"{header.name}: {header.text}")]
    argv = _ARGV[test.second_tool or ""](test, duration_s)
    return ToolRun(tool=argv[0], argv=(*argv, *headers, url), duration_s=duration_s)


def _wrk(test: HttpTest, duration_s: int) -> Sequence[str]:
    timeout_s = max(1, math.ceil(test.timeout_ms / 1000))
    shape = ("-t", str(test.threads), "-c", str(test.connections), "-d", f"{duration_s}s")
    return ("wrk", *shape, "--timeout", f"{timeout_s}s")


def _ab(test: HttpTest, duration_s: int) -> Sequence[str]:
    # -t sets a number of requests of its own: -n has to follow it.
    shape = ("-t", str(duration_s), "-n", str(duration_s * _AB_REQUESTS_PER_S), "-c", str(test.connections))
    return ("ab", "-q", "-k", *shape, "-s", str(max(1, math.ceil(test.timeout_ms / 1000))))


def _h2load(test: HttpTest, duration_s: int) -> Sequence[str]:
    return ("h2load", "--h1", "-t", str(test.threads), "-c", str(test.connections), "-D", str(duration_s))


_ARGV = {"wrk": _wrk, "ab": _ab, "h2load": _h2load}
