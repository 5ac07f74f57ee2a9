"""Work that is broken off by a trouble: the trouble is what is told, whatever the work makes of it."""

from __future__ import annotations

import asyncio
import gc

import pytest

from leadline.errors import LeadlineError
from leadline.trial.attempt import _unless


async def for_ever() -> None:
    """Fails in its own way when it is broken off."""
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        raise OSError("no space left on the device") from None


async def test_only_the_trouble_is_told_of_work_that_fails_by_it() -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))

    async def trouble() -> Exception:
        return LeadlineError("the disk is full")

    async def another() -> Exception:
        raise OSError("no space left on the device")

    with pytest.raises(LeadlineError, match="the disk is full"):
        await _unless(for_ever(), trouble(), another())
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_work_that_ends_first_gives_what_it_has() -> None:
    async def trouble() -> Exception:
        await for_ever()
        return LeadlineError("never")

    assert await _unless(asyncio.sleep(0, "done"), trouble()) == "done"
