"""Doing one thing while others are watched: whichever comes first decides, and nothing of either is left running.

Knows nothing of what is done and watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def unless(work: Coroutine[Any, Any, T], *troubles: Coroutine[Any, Any, Exception]) -> T:
    """The result of the work, or the exception of the first trouble, whichever comes first."""
    working, watching = asyncio.create_task(work), [asyncio.create_task(trouble) for trouble in troubles]
    try:
        await asyncio.wait({working, *watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise next(watch for watch in watching if watch.done()).result()
    finally:
        for task in (working, *watching):
            task.cancel()
        # Errors raised during cancellation are ignored: they follow from the others' end.
        await asyncio.gather(working, *watching, return_exceptions=True)
