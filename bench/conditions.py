"""What else the machine did while rows ran: the load average, the time that its host took, and the CPU time of programs
that the bench did not start. Knows no rows.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_DISTURBED = 0.05
"""Share of all CPUs, of the host or of other programs, from which figures are in doubt."""
_BUSY_LOAD = 1.0
"""Load average of the first group, before which the bench has done nothing, from which the machine is not quiet."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The machine while one group of rows ran."""

    group: str
    seconds: float
    load_average: float
    """Of one minute, as the group began. The groups before it are in it."""
    stolen: float
    """Share of the CPUs' time that the host took."""
    others: float
    """Share of the CPUs' time that programs took which the bench did not start."""

    @property
    def is_disturbed(self) -> bool:
        """Whether the figures of the group are in doubt."""
        return self.stolen > _DISTURBED or self.others > _DISTURBED


class Watch:
    """Watches the machine from here to `end`."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._load_average = os.getloadavg()[0]
        self._began_s = time.monotonic()
        self._began = _readings()

    def end(self) -> Conditions:
        """What was seen since."""
        seconds = time.monotonic() - self._began_s
        stolen, used, own = (now - then for now, then in zip(_readings(), self._began, strict=True))
        whole = max(seconds, 1e-9) * (os.cpu_count() or 1)
        return Conditions(self._group, seconds, self._load_average, stolen / whole, max(0.0, used - own) / whole)


def summary(seen: Sequence[Conditions]) -> str:
    """Whether the machine was quiet, in one sentence."""
    disturbed = ", ".join(f"`{one.group}`" for one in seen if one.is_disturbed)
    if disturbed:
        return (
            f"The machine was not quiet: its host or other programs took more than {_percent(_DISTURBED)} of its CPUs'"
            f" time during {disturbed}. The figures of these rows are in doubt."
        )
    if seen and seen[0].load_average > _BUSY_LOAD:
        return (
            f"The machine was busy before the bench began (load average {seen[0].load_average:.1f}), but no row was"
            " disturbed."
        )
    return "The machine was quiet: no row was disturbed."


def table(seen: Sequence[Conditions]) -> list[str]:
    """The groups' conditions as lines of Markdown."""
    rows = (
        f"| `{one.group}` | {one.seconds:.0f} s | {one.load_average:.1f}"
        f" | {_percent(one.stolen)} | {_percent(one.others)} |"
        for one in seen
    )
    return [
        "| Rows | Took | Load average at its start | Taken by the host | Taken by other programs |",
        "|---|---|---|---|---|",
        *rows,
    ]


def _readings() -> tuple[float, float, float]:
    """CPU time of the machine that its host took and that programs took, and of the bench and its children, s."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, *_, stolen = fields
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own_s = sum(usage.ru_utime + usage.ru_stime for usage in own)
    return stolen / ticks_per_s, (user + nice + system) / ticks_per_s, own_s


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"
