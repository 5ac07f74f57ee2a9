"""Reads the `.prm` of a script: its parameters as they are written. `parameters` gives them their native form. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from leadline.scenario.expressions import Expression
from leadline.scenario.loadrunner.ini import Section, read_ini
from leadline.scenario.loadrunner.tokens import SourceLine


@dataclass(slots=True)
class Parameter:
    """A parameter of the `.prm`."""

    name: str
    section: Section
    place: SourceLine
    renewed: str
    """When it has a new value: iteration, occurrence or once."""
    source: str | None = None
    """The data source of a table."""
    value: Expression | None = None
    """What it is, for one that is computed."""
    is_used: bool = False
    is_advanced: bool = False
    """Whether a statement takes a further row."""
    is_used_before: bool = False
    """Whether `vuser_init` reads it."""


def read_parameters(text: str, file: str) -> dict[str, Parameter]:
    """The parameters of a `.prm`'s text, by name."""
    found: dict[str, Parameter] = {}
    for title, section in read_ini(text).items():
        if not title.lower().startswith("parameter:"):
            continue
        name = section.text("ParamName") or title.partition(":")[2]
        renewed = section.text("GenerateNewVal").lower().replace(" ", "")
        known = {"eachoccurrence": "occurrence", "occurrence": "occurrence", "once": "once"}
        found[name] = Parameter(name, section, SourceLine(file, section.line), known.get(renewed, "iteration"))
    return found
