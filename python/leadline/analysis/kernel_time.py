"""CPU time of a kernel's forwarding, which no process is charged with: what the ticks of its timer show, and what not.

Most kernels (CONFIG_TICK_CPU_ACCOUNTING) count user mode, system and soft interrupts by what a tick of the timer finds
(Documentation/admin-guide/cpu-load.rst). Sends at a multiple of the tick's period are therefore always, or never, in
the samples; and a CPU that sleeps has no ticks (NO_HZ), so that what an interrupt does on it is in none. Idle time is
measured instead, up to the interrupt that ends it (`tick_nohz_stop_idle`), and with it the busy time of all CPUs, which
bounds each kind of work. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from leadline.analysis.gateway_model import CountedTime
from leadline.analysis.test_data import TestData

LEAST_TICKED_S = 0.1
"""CPU time that ticks saw, from where on it bounds what they sample: ten ticks of 10 ms."""
_OF_PROGRAMS = 0.05
"""Of a machine's busy time: more user mode than this has to be known well, if the rest is to be the kernel's."""


def is_paced_by_timers(data: TestData) -> bool:
    """Whether timers decide when the load's packets are sent: at rates that may be multiples of the tick's."""
    spec = data.spec
    return spec.paced or spec.inside_gap_s is not None or spec.pacing_bps is not None


def on_shared_machine(
    shares: Mapping[str, float], busy: float, window_s: float, *, paced: bool
) -> tuple[float, CountedTime]:
    """The most that a kernel's work for one of several hosts can be, percent of one CPU: soft interrupts are where it
    forwards, and they are those of all hosts. Where ticks can miss it, all busy time is left."""
    ticked = shares["softirq"] + shares["irq"]
    if paced or ticked / 100 * window_s < LEAST_TICKED_S:
        return busy, CountedTime.BUSY
    # What no tick saw may have been soft interrupts.
    return max(ticked, busy - shares["user"] - shares["system"] - shares["steal"]), CountedTime.TICKS


def on_own_machine(
    shares: Mapping[str, float], busy: float, agent_system: float, *, paced: bool
) -> tuple[float, CountedTime]:
    """The kernel's work on a machine that does nothing else, percent of one CPU: what is left of the busy time after
    programs. Where that is much, and ticks may not show how much, all of the busy time bounds it."""
    of_programs = shares["user"] + agent_system
    own = busy - shares["steal"] - of_programs
    if own <= 0 or (paced and of_programs > _OF_PROGRAMS * busy):
        return busy, CountedTime.BUSY
    return own, CountedTime.OWN
