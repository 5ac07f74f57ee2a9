"""Jumps of C in loops of the native form, which end one loop at a time: a jump out of several sets a variable that each
loop tests when the one in it has ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from leadline.scenario.expressions import Literal, Variable
from leadline.scenario.loadrunner.context import CannotRun
from leadline.scenario.loadrunner.tokens import SourceLine
from leadline.scenario.loadrunner.values import Output


@dataclass(slots=True)
class NativeLoop:
    """A loop of the native form that is open."""

    ends: frozenset[str]
    """The jumps that end it: break, continue, return."""
    goes_on: bool = False
    """Whether `continue` begins its next pass."""
    pending: list[tuple[str, str]] = field(default_factory=list)
    """Variables of jumps that lead further out, each with its kind."""
    flags: dict[str, str] = field(default_factory=dict)
    """Variables of jumps that end this loop from further in, by kind."""


class Jumps(Output):
    """Open loops, and jumps out of them."""

    loops: list[NativeLoop]

    def jump(self, kind: str, place: SourceLine) -> None:
        """`break`, `continue` or `return`, as far as loops are open for it. Raises CannotRun."""
        target = next((at for at in range(len(self.loops) - 1, -1, -1) if self._is_end(self.loops[at], kind)), None)
        if target is None:
            raise CannotRun(f"'{kind}' has nothing to end here", place)
        if target == len(self.loops) - 1:
            self.emit(place, stop=self._stop(self.loops[target], kind))
            return
        own = self.loops[target]
        if kind not in own.flags:
            own.flags[kind] = self.names.unique(f"{kind}s")
            self.names.first[own.flags[kind]] = "0"
        self.set(place, own.flags[kind], Literal(1))
        for loop in self.loops[target + 1 :]:
            if (own.flags[kind], kind) not in loop.pending:
                loop.pending.append((own.flags[kind], kind))
        self.emit(place, stop="loop")

    def _is_end(self, loop: NativeLoop, kind: str) -> bool:
        return kind in loop.ends or (kind == "continue" and loop.goes_on)

    def _stop(self, loop: NativeLoop, kind: str) -> str:
        return "pass" if kind == "continue" and loop.goes_on else "loop"

    def leave(self, loop: NativeLoop, place: SourceLine) -> None:
        """After a loop: go on with the jumps that lead further out."""
        for flag, kind in loop.pending:
            outer = self.loops[-1]
            is_target = outer.flags.get(kind) == flag
            with self.block() as steps:
                if is_target:
                    self.set(place, flag, Literal(0))
                self.emit(place, stop=self._stop(outer, kind) if is_target else "loop")
            self.emit(place, **{"if": f"{Variable(flag).name} == 1", "then": steps})
