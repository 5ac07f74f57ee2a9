"""The command lines of iperf3 as the second tool of `tcp` and `udp` tests, and the tests that it cannot repeat."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from leadline.plan.base_test import BaseTest, Conflict
from leadline.plan.field_types import validation_error

if TYPE_CHECKING:
    from leadline.trial.second_tools import ToolRun
    from leadline.trial.workloads import Server

_CONNECT_MS = 5000
_KEY = "cross_check"


def iperf3_errors(test: BaseTest, direction: str, number: int | None = None) -> Iterator[PydanticCustomError]:
    """Keys of a test that iperf3 cannot repeat."""
    if test.second_tool is None:
        return
    if direction == "both":
        hint = "check each direction by a test of its own"
        yield validation_error("iperf3 cannot repeat it: its figure has one direction", at=(_KEY,), hint=hint)
    for key, value in (("number", number), ("search", test.searched)):
        if value is not None:
            hint = f"leave out {key}, or {_KEY}"
            yield validation_error(f"iperf3 cannot repeat it: the test has {key}", at=(_KEY,), hint=hint)


def fleet_conflicts(test: BaseTest) -> Iterator[Conflict]:
    """A fleet's tunnels carry no other program's traffic."""
    if test.second_tool is not None:
        yield _KEY, f"{test.second_tool} cannot send through a fleet's tunnels", "leave it out"


def iperf3_run(
    test: BaseTest, server: Server, port: int, *, flows: int, direction: str, options: Sequence[str]
) -> ToolRun:
    """iperf3 for the test's whole duration, and its own server for one client."""
    from leadline.trial.second_tools import ToolRun

    duration_s = math.ceil(test.duration_ms / 1000)
    family = {"v4": ("-4",), "v6": ("-6",)}.get(server.family or "", ())
    options = [*family, *(("-B", server.bind) if server.bind else ()), *options]
    client = ("iperf3", "-J", "-c", server.host, "-p", str(port), "-t", str(duration_s), "-P", str(flows), *options)
    if direction == "down":
        client = (*client, "-R")
    return ToolRun(
        tool="iperf3",
        argv=(*client, "--connect-timeout", str(_CONNECT_MS)),
        server_argv=("iperf3", "-s", "-1", "--forceflush", "-p", str(port)),
        duration_s=duration_s,
    )
