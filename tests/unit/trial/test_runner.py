"""How loads end, and what their records say of it: without agents, since what runs them fails before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from leadline.errors import Interrupted, LeadlineError
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.interrupt import Interrupt
from leadline.trial.load import Load
from leadline.trial.runner import LoadEnd, Runner


def end_of(failure: BaseException | None, *, asked: bool = False) -> tuple[LoadEnd | None, dict[str, Any]]:
    """How a load ends whose course fails like this, and the record of that; no end if the failure is raised."""
    entries: list[dict[str, Any]] = []

    async def guard(course: Coroutine[Any, Any, None]) -> None:
        course.close()
        if failure is not None:
            raise failure

    async def run() -> LoadEnd:
        interrupt = Interrupt()
        if asked:
            interrupt.asked.set()
        runner = Runner({}, {}, EventLog(EntryList(entries)), interrupt, guard)
        return await runner.run(Load("c01/1/tcp", {"name": "tcp"}, []))

    try:
        ended = asyncio.run(run())
    except (RuntimeError, asyncio.CancelledError):
        ended = None
    (record,) = entries
    assert (record["record"], record["label"]) == ("test-end", "c01/1/tcp")
    return ended, record


@pytest.mark.parametrize(
    ("make", "asked", "status", "cause"),
    [
        (lambda: None, False, "done", None),
        (lambda: None, True, "interrupted", None),
        (lambda: LeadlineError("no way"), False, "failed", "no way"),
        (lambda: LeadlineError("no way"), True, "failed", "no way"),
        (lambda: Interrupted("stopped by the user"), True, "interrupted", None),
    ],
)
def test_end_of_a_load_is_recorded_and_returned(
    make: Callable[[], LeadlineError | None], asked: bool, status: str, cause: str | None
) -> None:
    failure = make()
    ended, record = end_of(failure, asked=asked)
    assert ended == LoadEnd(status, cause, failure)
    assert (record["status"], record["error"]) == (status, cause)


@pytest.mark.parametrize(("failure", "status"), [(RuntimeError(), "failed"), (asyncio.CancelledError(), "interrupted")])
def test_load_that_a_defect_or_a_cancellation_ends_has_an_end(failure: BaseException, status: str) -> None:
    ended, record = end_of(failure)
    assert ended is None
    assert (record["status"], record["error"]) == (status, None)
