"""The record of how long an idle CPU takes to wake up; an agent measures it before a test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WakeUp:
    """How long an idle CPU of a host took to wake up, measured before the test."""

    samples: int
    """Wake-ups that were measured."""
    timer_p50_us: float
    """From when a sleeping thread's timer was due until it ran: the median."""
    timer_p99_us: float
    """The same at the 99th percentile."""
    thread_p50_us: float
    """From when a thread woke another one up, on another CPU if there is one, until that one ran: the median."""
    thread_p99_us: float
    """The same at the 99th percentile."""
