"""Runs one coroutine while others are watched. The first one to end decides, and the others are cancelled.

Knows nothing of what the coroutines do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def unless(work: Coroutine[Any, Any, T], *troubles: Coroutine[Any, Any, Exception]) -> T:
    """The result of the work, or the exception of the first watched failure, whichever comes first."""
    working, watching = asyncio.create_task(work), [asyncio.create_task(trouble) for trouble in troubles]
    try:
        await asyncio.wait({working, *watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise next(watch for watch in watching if watch.done()).result()
    finally:
        for task in (working, *watching):
            task.cancel()
        # Errors raised during cancellation are ignored: they follow from the end of the other.
        await asyncio.gather(working, *watching, return_exceptions=True)
