"""Draws the histories of figures on the terminal: shifts first, then a row for each history, then what parts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.trend import Change, History, Separation, Shift, StaleFigure, Trend

TONES = {Shift.REGRESSION: "red", Shift.IMPROVEMENT: "green", Shift.SMALL: "dim", Shift.NEUTRAL: ""}
MARKS = {Shift.REGRESSION: "▼", Shift.IMPROVEMENT: "▲", Shift.SMALL: "·", Shift.NEUTRAL: "◆"}
_SHOWN = (Shift.REGRESSION, Shift.IMPROVEMENT, Shift.NEUTRAL)


def trend_blocks(trend: Trend) -> Iterator[RenderableType]:
    """The answer, the shifts, the histories, and where runs are not comparable."""
    yield Text(answer(trend), style="bold")
    shifts = [_shift(*found, has_plans=_has_plans(trend)) for found in shown_shifts(trend)]
    if shifts:
        yield Group(*shifts)
    if trend.silent:
        yield Group(*(Text(text, style="yellow") for text in stale_of(trend.silent)))
    if trend.histories:
        yield _table(trend)
    reasons = reasons_of(trend)
    cautions = [*cautions_of(trend), *stale_of(one for one in trend.stale if one.is_in_newest)]
    if cautions:
        yield Group(*(Text(text, style="dim") for text in cautions))
    if reasons:
        yield Group(*(Text(f"not judged: {text}", style="dim") for text in reasons))
    if trend.separations:
        yield Group(*(Text(text, style="dim") for text in separations_of(trend.separations)))


def answer(trend: Trend) -> str:
    """One sentence: whether something became worse lately."""
    if not trend.runs:
        return "No run was found: there is nothing to judge."
    if not trend.judged:
        return f"{quantities.counted(trend.runs, 'run')}: nothing can be judged yet."
    new = trend.of_shift(Shift.REGRESSION, is_new=True)
    of = f"{quantities.counted(trend.runs, 'run')}, {len(trend.judged)} of {_histories(len(trend.histories))} judged"
    if new:
        return f"{quantities.counted(len(new), 'regression')} in the newest {trend.newest} runs ({of})."
    older = len(trend.of_shift(Shift.REGRESSION))
    before = f"; {quantities.counted(older, 'regression')} before" if older else ""
    if trend.silent:
        have = "figure has" if len(trend.silent) == 1 else "figures have"
        silent = {(one.plan, one.name, one.metric) for one in trend.silent}
        is_all = all((one.plan, one.name, one.metric) in silent for one in trend.judged)
        others = "" if is_all else "; no regression of the others"
        nothing = f"{len(trend.silent)} {have} no value to judge in the newest {trend.newest} runs"
        return f"{nothing}{others}{before} ({of})."
    return f"No regression in the newest {trend.newest} runs{before} ({of})."


def shown_shifts(trend: Trend) -> list[tuple[History, Change]]:
    """The shifts beyond the margin: regressions first, the newest of each first."""
    return [
        found
        for shift in _SHOWN
        for found in sorted(trend.of_shift(shift), key=lambda one: one[1].started_at, reverse=True)
    ]


def share_of(change: Change) -> str:
    """The shift of the level as text: `-5.1 %`."""
    return "from 0" if change.ratio is None else quantities.rounded_share(change.ratio - 1, 1, signed=True)


def change_line(history: History, change: Change) -> str:
    """`-5.1 %: 941 Mbit/s -> 893 Mbit/s`."""
    before, after = (quantities.metric(value, history.unit) for value in (change.before, change.after))
    return f"{share_of(change)}: {before} -> {after}"


def place_line(change: Change) -> str:
    """Where a shift is, how long it has lasted, and what else changed there."""
    runs = quantities.counted(change.runs_since, "run")
    new = ", new" if change.is_new else ""
    differs = f"; {', '.join(change.differences)}" if change.differences else ""
    if change.best is not None:
        level = f"{change.best.first_run} to {change.best.last_run}"
        return f"little by little, from the best level, {level}, to the newest {runs}{_interval(change)}{new}{differs}"
    return f"near {change.run}{_day(change.started_at)}, {runs} since{new}{differs}"


def _interval(change: Change) -> str:
    """The interval of a shift beside the level before: `, by -5.2 % to -2.9 % (99 %)`; empty where it has none."""
    if change.low is None or change.high is None or not change.before:
        return ""
    ends = sorted(end / abs(change.before) for end in (change.low, change.high))
    low, high = (quantities.rounded_share(end, 1, signed=True) for end in ends)
    return f", by {low} to {high} (99 %)"


def reasons_of(trend: Trend) -> list[str]:
    """Why histories are not judged, each reason once, with the tests that it concerns."""
    found: dict[str, list[str]] = {}
    for history in trend.histories:
        if history.reason is not None:
            found.setdefault(history.reason, []).append(f"{history.name} {history.metric}")
    return [f"{names[0]}{_more(len(names) - 1)}: {reason}" for reason, names in found.items()]


def cautions_of(trend: Trend) -> list[str]:
    """Histories whose shifts are less certain than they look."""
    return [f"{history.name} {history.metric}: {history.caution}" for history in trend.histories if history.caution]


def stale_of(stale: Iterable[StaleFigure]) -> list[str]:
    """Since when figures have no value to judge, each place once, with the figures that it concerns."""
    found: dict[str, list[str]] = {}
    for one in stale:
        newest = "the newest run" if one.runs == 1 else f"the newest {one.runs} runs"
        place = f"no value to judge in {newest}, the last one is of {one.run}{_day(one.started_at)}"
        found.setdefault(place, []).append(f"{one.name} {one.metric}")
    return [f"{names[0]}{_more(len(names) - 1)}: {place}" for place, names in found.items()]


def separations_of(separations: Sequence[Separation]) -> list[str]:
    """Where a history of its own begins, each place once."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in separations:
        found.setdefault((one.run, one.differences), []).append(one.test)
    return [
        f"a history of its own from {run} on ({', '.join(dict.fromkeys(tests))}): {', '.join(differences)}"
        for (run, differences), tests in found.items()
    ]


def _shift(history: History, change: Change, *, has_plans: bool) -> RenderableType:
    name = f"{history.plan}: {history.name}" if has_plans else history.name
    head = Text.assemble(
        (f"{MARKS[change.shift]} {change.shift.value}", TONES[change.shift]),
        "  ",
        (f"{name} {history.metric}", "bold"),
        f"  {change_line(history, change)}",
    )
    return Group(head, Padding(Text(place_line(change), style="dim"), (0, 0, 0, 4), expand=False))


def _table(trend: Trend) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    has_plans = _has_plans(trend)
    if has_plans:
        table.add_column("plan", overflow="fold")
    table.add_column("test", overflow="fold")
    table.add_column("figure", overflow="fold")
    for title in ("runs", "level", "±"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("last shift", no_wrap=True)
    for history in trend.histories:
        level = history.levels[-1] if history.levels else None
        last = history.changes[-1] if history.changes else None
        shift = "not judged" if history.reason else "none"
        cells = (
            history.name,
            history.metric,
            f"{len(history.points)}",
            quantities.UNKNOWN if level is None else quantities.metric(level.mean, history.unit),
            "" if level is None else quantities.plus_minus(level.mean, level.low, level.high),
            Text(shift, style="dim")
            if last is None
            else Text(f"{MARKS[last.shift]} {share_of(last)}{_day(last.started_at)}", style=TONES[last.shift]),
        )
        table.add_row(*((history.plan,) if has_plans else ()), *cells)
    return table


def _has_plans(trend: Trend) -> bool:
    return len({history.plan for history in trend.histories}) > 1


def _day(started_at: str) -> str:
    return f" ({started_at[:10]})" if started_at else ""


def _more(number: int) -> str:
    return f" and {number} more" if number else ""


def _histories(number: int) -> str:
    return "1 history" if number == 1 else f"{number:,} histories"
