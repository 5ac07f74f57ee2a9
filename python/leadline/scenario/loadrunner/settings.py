"""Run-time settings of a script: the run logic of its `.usp`, and pacing, think time and errors of its `default.cfg`.

The Controller's scenario has both files as texts of its own, which replace those of the script. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from leadline.scenario.loadrunner.ini import Section, read_ini

MAX_BLOCK_DEPTH = 10
MAX_ACTIONS = 1_000
"""Actions and blocks of a run logic, those of a block once for each place that names it."""


class RunLogicError(ValueError):
    """A run logic that cannot be followed."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True, slots=True)
class Action:
    """One action, or a block of them."""

    name: str
    percent: float = 0
    """Its share in a block whose mode is random."""
    block: Block | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Actions in order or at random, repeated."""

    actions: tuple[Action, ...]
    iterations: int = 1
    is_random: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """When the next iteration begins."""

    kind: Literal["asap", "interval", "delay"] = "asap"
    """At once; a time after the beginning of the last one; a time after its end."""
    low_s: float = 0
    high_s: float = 0
    """Above `low_s` for a random time."""


@dataclass(frozen=True, slots=True)
class ThinkTime:
    """What becomes of recorded think times."""

    kind: Literal["recorded", "none", "factor", "random"] = "recorded"
    factor: float = 1
    low_percent: float = 50
    high_percent: float = 150
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All that the files say about running a script."""

    run: Block
    pace: Pace = Pace()
    think_time: ThinkTime = ThinkTime()
    continues_on_error: bool = False
    has_action_transactions: bool = False
    """Whether each action is a transaction."""
    keeps_user: bool = False
    """Whether the next iteration has the cookies and connections of the last one."""
    fetches_resources: bool = True
    """Whether pages load what they name."""
    simulates_cache: bool = False
    user_agent: str = ""
    unread: tuple[str, ...] = field(default=())


def read_settings(actions: list[str], usp: str, cfg: str) -> Settings:
    """The settings of a script whose actions, beside `vuser_init` and `vuser_end`, are these. Raises RunLogicError."""
    logic, config = read_ini(usp), read_ini(cfg)
    general, web = (config.get(name, Section(name, 1)) for name in ("General", "WEB"))
    run = _read_run_logic(logic)
    times = config.get("Iterations", Section("Iterations", 1))
    if run is None:
        run = Block(tuple(Action(name) for name in actions), max(1, int(times.number("NumOfIterations", 1))))
    return Settings(
        run=run,
        pace=_read_pace(logic.get("RunLogicRunRoot"), times),
        think_time=_read_think_time(config.get("ThinkTime")),
        continues_on_error=general.is_set("ContinueOnError"),
        has_action_transactions=general.is_set("AutomaticTransactions"),
        keeps_user=not web.is_set("ResetContext", True),
        fetches_resources=web.is_set("SearchForImages", True),
        simulates_cache=web.is_set("SimulateCache"),
        user_agent=_read_user_agent(web),
    )


def _read_run_logic(sections: dict[str, Section]) -> Block | None:
    root = sections.get("RunLogicRunRoot")
    return None if root is None else _RunLogic(sections).read_block(root, ("RunLogicRunRoot",), (root,))


@dataclass(slots=True)
class _RunLogic:
    sections: dict[str, Section]
    count: int = 0
    """Actions and blocks so far."""

    def read_block(self, section: Section, path: tuple[str, ...], around: tuple[Section, ...]) -> Block:
        """The block of a section; `around` are it and the sections that it is in. Raises RunLogicError."""
        order = section.text("RunLogicActionOrder") or section.text("MercIniTreeSons")
        found: list[Action] = []
        for name in filter(None, (one.strip() for one in order.split(","))):
            self.count += 1
            if self.count > MAX_ACTIONS:
                raise RunLogicError(f"the run logic has more than {MAX_ACTIONS} actions", section.line)
            # A block's own section is below the root's, whatever it is in.
            one = self.sections.get(":".join((*path, name))) or self.sections.get(f"{path[0]}:{name}")
            one = one or Section(name, section.line)
            block = None
            if _is_block(one):
                if any(one is outer for outer in around):
                    raise RunLogicError(f"the run logic's block '{name}' is in itself", one.line)
                if len(around) > MAX_BLOCK_DEPTH:
                    raise RunLogicError(f"the run logic has blocks in more than {MAX_BLOCK_DEPTH} others", one.line)
                block = self.read_block(one, (*path, name), (*around, one))
            found.append(Action(one.text("Name") or name, one.number("RunLogicPercentToRun", 0), block))
        iterations = max(1, int(section.number("RunLogicNumOfIterations", 1)))
        return Block(tuple(found), iterations, section.text("RunLogicRunMode").lower() == "random")


def _is_block(one: Section) -> bool:
    has_actions = bool(one.text("RunLogicActionOrder") or one.text("MercIniTreeSons"))
    return has_actions and one.text("RunLogicObjectKind").lower() in ("block", "group")


def _read_pace(root: Section | None, times: Section) -> Pace:
    """The pace of the run logic, else that of `default.cfg`."""
    if root is not None and root.text("RunLogicPaceType"):
        kind, names = _LOGIC_PACES.get(root.text("RunLogicPaceType").lower(), ("asap", ()))
        return Pace(kind, *(root.number(name) for name in names))
    kind, names = _CONFIG_PACES.get(times.text("IterationPace").lower(), ("asap", ()))
    return Pace(kind, *(times.number(name) for name in names))


def _read_think_time(section: Section | None) -> ThinkTime:
    if section is None:
        return ThinkTime()
    kinds: dict[str, Any] = {"nothink": "none", "factor": "factor", "multiply": "factor", "random": "random"}
    return ThinkTime(
        kind=kinds.get(section.text("Options").lower(), "recorded"),
        factor=section.number("Factor", 1),
        low_percent=section.number("ThinkTimeRandomLow", 50),
        high_percent=section.number("ThinkTimeRandomHigh", 150),
        limit_s=section.number("Limit") if section.is_set("LimitFlag") else None,
    )


def _read_user_agent(web: Section) -> str:
    text = web.text("UserAgent") or web.text("CustomUserAgent")
    return text if "/" in text else ""


_PaceKind = Literal["asap", "interval", "delay"]
_LOGIC_PACES: dict[str, tuple[_PaceKind, tuple[str, ...]]] = {
    "const": ("interval", ("RunLogicPaceConstTime",)),
    "random": ("interval", ("RunLogicRandomPaceMin", "RunLogicRandomPaceMax")),
    "after": ("delay", ("RunLogicPaceConstAfterTime",)),
    "constafter": ("delay", ("RunLogicPaceConstAfterTime",)),
    "randomafter": ("delay", ("RunLogicAfterPaceMin", "RunLogicAfterPaceMax")),
    "afterrandom": ("delay", ("RunLogicAfterPaceMin", "RunLogicAfterPaceMax")),
}
_CONFIG_PACES: dict[str, tuple[_PaceKind, tuple[str, ...]]] = {
    "iterationafterend": ("delay", ("StartEvery",)),
    "iterationevery": ("interval", ("StartEvery",)),
    "iterationstartevery": ("interval", ("StartEvery",)),
    "iterationrandom": ("interval", ("RandomMin", "RandomMax")),
    "iterationrandomafterend": ("delay", ("RandomMin", "RandomMax")),
}
"""Words for paces, each with the entries that have its least and its greatest time."""
