"""Runs a capacity search in a thread of its own: it is synchronous, and the event loop talks to the agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module

from leadline.analysis.search_findings import Trial
from leadline.trial.capacity_search import Limits, SearchResult


async def search_in_thread(measure: Callable[[float, float], Trial], limits: Limits) -> SearchResult:
    """Find the highest rate that holds. `measure` takes a rate per second and a duration in seconds, in that thread."""
    return await asyncio.to_thread(_search, measure, limits)


def _search(measure: Callable[[float, float], Trial], limits: Limits) -> SearchResult:
    # When MLRsearch is imported, it reads the source of every frame of the stack, ten times over: a thread has few.
    mlr_search = import_module("leadline.trial.mlr_search")
    found: SearchResult = mlr_search.search(measure, limits)
    return found
