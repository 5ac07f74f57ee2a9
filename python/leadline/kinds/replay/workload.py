"""Converts a replay test to an agent's workload. Pure; the only module that knows the terms of both."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from leadline.contract.models import (
    Replay,
    ReplayAfter,
    ReplayAsRecorded,
    ReplayAt,
    ReplayAtRate,
    ReplayCapture,
    ReplayFile,
    ReplayHost,
    ScenarioPlan,
    ScenarioWorkload,
)
from leadline.errors import InputError
from leadline.kinds.replay.model import STDIN, ReplayTest, read_instant
from leadline.kinds.scenario.workload import users_workload


def replay_workload(
    test: ReplayTest, url: str, ip_version: Literal["v4", "v6"] | None, bind: Sequence[str] = ()
) -> ScenarioWorkload:
    """The replay as load; `url` is its target unless the test has one."""
    target = test.url or url
    pace = ReplayAsRecorded(speed=test.speed) if test.rate_per_s is None else ReplayAtRate(per_s=test.rate_per_s)
    plan = ScenarioPlan(
        name=test.name,
        populations=[],
        replay=Replay(
            source=_source(test),
            pace=pace,
            target=target,
            against=test.against,
            hosts=[_host(text, target) for text in test.map],
            copies=test.copies,
            begin=_instant(test.begin),
            end=_instant(test.end),
            only=list(test.only),
            writes=test.writes,
            compares=test.compare,
            notices_noise=test.noise,
            correlates=test.correlate,
        ),
    )
    return users_workload(test, plan, ip_version, bind)


def _source(test: ReplayTest) -> ReplayFile | ReplayCapture:
    if test.capture is not None:
        assert test.port is not None, "the test's rules require it"
        return ReplayCapture(device=test.capture, port=test.port)
    assert test.source is not None, "the test's rules require it"
    is_stdin = test.source == STDIN
    return ReplayFile(
        # The agent is another process of this user: it opens what this one has as its input.
        path=f"/proc/{os.getpid()}/fd/0" if is_stdin else str(Path(test.source).absolute()),
        format=test.format,
        port=test.port,
        follows=test.follow or (is_stdin and not _is_file(0)),
    )


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        raise InputError("-: stdin is closed", hint="name a recording, or pipe one") from None


def _host(text: str, target: str) -> ReplayHost:
    host, _, address = text.partition("=")
    scheme = target.partition("://")[0]
    return ReplayHost(host=host, target=address if "://" in address else f"{scheme}://{address}/")


def _instant(text: str | None) -> ReplayAt | ReplayAfter | None:
    if text is None:
        return None
    kind, ms = read_instant(text)
    return ReplayAt(epoch_ms=ms) if kind == "at" else ReplayAfter(ms=ms)
