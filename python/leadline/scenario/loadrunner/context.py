"""What is known while a script is read: its names, its files, and what became of its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from leadline.scenario.conversion import Conversion, Made
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.parameter_file import Parameter
from leadline.scenario.loadrunner.settings import Settings
from leadline.scenario.loadrunner.tokens import SourceLine

Steps = list[dict[str, Any]]


class CannotRun(ValueError):
    """A part that has no native form; the message says why."""

    def __init__(self, why: str, place: SourceLine | None = None) -> None:
        super().__init__(why)
        self.place = place


@dataclass(slots=True)
class Script:
    """A script while it is read."""

    file: str
    """The path of its `.usr`, as the user gave it."""
    conversion: Conversion
    skips: bool
    """Whether parts that cannot run are left out."""
    settings: Settings
    locale: str = ""
    braces: tuple[str, str] = ("{", "}")
    """Around the names of parameters."""
    actions: dict[str, c.Function] = field(default_factory=dict)
    """`vuser_init`, `vuser_end` and the actions, by name."""
    functions: dict[str, c.Function] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    """Those of the `.prm`, by name."""
    saved: set[str] = field(default_factory=set)
    """Names of parameters that statements save."""
    lists: set[str] = field(default_factory=set)
    """Those of them that are lists: `p_1`, `p_2` ... and `p_count`."""
    counts: set[str] = field(default_factory=set)
    """Those of them that are always whole numbers."""

    def kept(self, what: str, place: SourceLine) -> None:
        """A part does in the native form what it did."""
        self.conversion.kept(what, place.line, place.file)

    def changed(self, what: str, place: SourceLine, why: str) -> None:
        """A part is kept, with a difference."""
        self.conversion.changed(what, place.line, why, place.file)

    def dropped(self, what: str, place: SourceLine, why: str) -> None:
        """A part is left out, and has no effect on the requests."""
        self.conversion.dropped(what, place.line, why, place.file)

    def cannot(self, what: str, place: SourceLine, why: str) -> None:
        """A part has no native form: it stops the conversion, or is left out."""
        if self.skips:
            self.conversion.dropped(what, place.line, f"skipped: {why}", place.file)
        else:
            self.conversion.cannot(what, place.line, why, place.file)

    def variable(self, parameter: str) -> str:
        """The native variable of a parameter; the number of a list's values has another name there."""
        name = parameter.removesuffix("_count")
        return f"{name}_matchNr" if parameter != name and name in self.lists else parameter

    def is_parameter(self, name: str) -> bool:
        """Whether a text in braces is the name of a parameter."""
        if name in self.parameters or name in self.saved:
            return True
        head, _, tail = name.rpartition("_")
        return head in self.lists and (tail.isdecimal() or tail == "count")


def made(place: SourceLine, **entries: Any) -> Made:
    """A native mapping with its place in the script."""
    found = Made(place.line, **entries)
    found.origin = place.file
    return found
