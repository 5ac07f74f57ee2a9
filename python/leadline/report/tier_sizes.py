"""Draws plans for stacks: the CPUs of each tier for rates of requests. `analysis.tier_sizing` has computed them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.tier_sizing import TierNeed

_DOUBTED = "≈: the measurement is not valid, so the plan is a rough one; measure on a quiet machine."


def tier_size_blocks(needs: Sequence[TierNeed], busy: float) -> list[RenderableType]:
    """A table for each case and test: CPU time a request, requests a CPU carries, CPUs for each rate."""
    groups: dict[tuple[str, str], list[TierNeed]] = {}
    for need in needs:
        groups.setdefault((need.case, need.test), []).append(need)
    blocks: list[RenderableType] = []
    for (case, test), found in groups.items():
        title = f"CPUs of each tier, planned to be {quantities.rounded_share(busy)} busy"
        head = Text.assemble((f"{case} {test}  ", "bold"), (title, "underline"))
        blocks.append(Group(head, Padding(_table(found), (0, 0, 0, 2), expand=False), ""))
    if any(need.is_doubted for need in needs):
        blocks.append(Text(_DOUBTED, style="dim"))
    return blocks


def _table(needs: Sequence[TierNeed]) -> Table:
    rates = list(dict.fromkeys(need.rate_per_s for need in needs))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("tier")
    for title in ("a request", "a CPU carries", *(quantities.per_second(rate) for rate in rates)):
        table.add_column(title, justify="right", no_wrap=True)
    by_tier: dict[str, list[TierNeed]] = {}
    for need in needs:
        by_tier.setdefault(need.tier, []).append(need)
    for tier, found in by_tier.items():
        first = found[0]
        cost = ("≈ " if first.is_doubted else "") + quantities.microseconds(first.cpu_us_per_request)
        cells = [quantities.significant(need.planned_cpus, 2) for need in found]
        table.add_row(tier, cost, quantities.per_second(first.per_cpu_per_s), *cells)
    table.add_row("all", "", "", *_sums(by_tier.values(), len(rates)))
    return table


def _sums(tiers: Iterable[Sequence[TierNeed]], rates: int) -> list[str]:
    rows = list(tiers)
    return [quantities.significant(sum(row[number].planned_cpus for row in rows), 2) for number in range(rates)]
