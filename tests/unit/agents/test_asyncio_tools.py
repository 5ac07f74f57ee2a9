"""Work while others are watched: the first one to end decides, and every exception is retrieved."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from leadline.agents.asyncio_tools import unless
from leadline.errors import TaskFailed


async def never() -> Exception:
    await asyncio.Event().wait()
    raise AssertionError("the event is never set")


async def at_once(found: Exception) -> Exception:
    return found


async def failing_on_its_way_out() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise ExceptionGroup("several", [OSError("no space")])


async def test_result_of_finished_work_is_returned() -> None:
    async def work() -> int:
        return 7

    assert await unless(work(), never(), never()) == 7


async def test_exception_of_the_work_is_raised() -> None:
    async def work() -> int:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await unless(work(), never())


async def test_errors_during_cancellation_are_ignored() -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    with pytest.raises(TaskFailed):
        await unless(failing_on_its_way_out(), never(), at_once(TaskFailed("c", "load", "gone", "it went")))
    assert asyncio.all_tasks() == {asyncio.current_task()}
    # asyncio reports an exception that was never retrieved when its task is collected.
    gc.collect()
    assert unheard == []
