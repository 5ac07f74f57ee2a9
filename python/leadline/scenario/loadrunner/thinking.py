"""Think times and pacing as waits. Pure."""

from __future__ import annotations

from leadline.scenario.expressions import Call, Expression, Literal, show
from leadline.scenario.loadrunner.context import Steps, made
from leadline.scenario.loadrunner.settings import Pace, ThinkTime
from leadline.scenario.loadrunner.tokens import SourceLine


def think_steps(rule: ThinkTime, seconds: Expression, place: SourceLine) -> Steps:
    """The wait of a recorded think time, as the settings change it; none if they leave it out."""
    if rule.kind == "none" or seconds == Literal(0):
        return []
    if rule.kind == "factor":
        seconds = _multiply(seconds, rule.factor)
    if rule.limit_s is not None:
        seconds = _limit(seconds, rule.limit_s)
    if rule.kind == "random":
        low, high = (
            _show_seconds(_multiply(seconds, percent / 100)) for percent in (rule.low_percent, rule.high_percent)
        )
        return [made(place, wait={"uniform": [low, high]})]
    return [made(place, wait=_show_seconds(seconds))]


def pace_steps(pace: Pace, iterations: int | None, place: SourceLine) -> Steps:
    """The wait at the end of an iteration, before the next one; after the last one there is none."""
    if pace.kind == "asap" or (pace.low_s <= 0 and pace.high_s <= 0):
        return []
    is_random = pace.high_s > pace.low_s
    if pace.kind == "delay":
        bounds = [_show_seconds(Literal(one)) for one in (pace.low_s, pace.high_s)]
        step = made(place, wait={"uniform": bounds} if is_random else bounds[0])
    elif is_random:
        low, high = (_show_plain(one) for one in (pace.low_s, pace.high_s))
        step = made(place, pace=f"${{random_number({low}, {high})}}s")
    else:
        step = made(place, pace=_show_seconds(Literal(pace.low_s)))
    if iterations is None:
        return [step]
    return [] if iterations == 1 else [made(place, **{"if": f"iteration() < {iterations - 1}", "then": [step]})]


def _multiply(seconds: Expression, factor: float) -> Expression:
    if isinstance(seconds, Literal) and isinstance(seconds.value, int | float):
        return Literal(round(seconds.value * factor, 6))
    return seconds if factor == 1 else Call("multiply", (seconds, Literal(factor)))


def _limit(seconds: Expression, limit_s: float) -> Expression:
    if isinstance(seconds, Literal) and isinstance(seconds.value, int | float):
        return Literal(min(float(seconds.value), limit_s))
    return Call("min", (seconds, Literal(limit_s)))


def _show_seconds(seconds: Expression) -> str:
    if isinstance(seconds, Literal) and isinstance(seconds.value, int | float):
        return f"{_show_plain(max(0.0, float(seconds.value)))}s"
    return f"${{{show(seconds)}}}s"


def _show_plain(seconds: float) -> str:
    return f"{seconds:.6f}".rstrip("0").rstrip(".")
