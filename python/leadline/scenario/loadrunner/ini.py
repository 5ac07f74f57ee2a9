"""Reads the INI files of LoadRunner (`.usr`, `.usp`, `.cfg`, `.prm`): sections of entries, each with its line. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_NUMBER = 1e12
"""Above any count, percentage or number of seconds; infinity and what is no number are above it too."""


@dataclass(slots=True)
class Section:
    """The entries of one section; names of entries are compared without case."""

    name: str
    line: int
    entries: dict[str, str] = field(default_factory=dict)
    """Values without quotation marks, by the name in lower case."""
    names: list[str] = field(default_factory=list)
    """The names as they are written, in order."""

    def text(self, name: str, default: str = "") -> str:
        """The value of an entry."""
        return self.entries.get(name.lower(), default)

    def number(self, name: str, default: float = 0) -> float:
        """The number of an entry: `60`, `60.000` or `60,000`."""
        return read_number(self.text(name), default)

    def is_set(self, name: str, default: bool = False) -> bool:
        """Whether an entry says yes."""
        text = self.text(name).strip().lower()
        return default if not text else text in ("1", "true", "yes", "on")


def read_ini(text: str) -> dict[str, Section]:
    """The sections by name. A section that is repeated goes on; text before the first one is left out."""
    found: dict[str, Section] = {}
    section: Section | None = None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            name = stripped[1:-1].strip()
            section = found.setdefault(name, Section(name, number))
        elif section is not None and "=" in stripped and not stripped.startswith(";"):
            name, _, value = line.strip("\r\n").partition("=")
            name, value = name.strip(), value.strip(" ")
            if len(value) >= 2 and value[0] == value[-1] == '"':
                value = value[1:-1]
            if name.lower() not in section.entries:
                section.names.append(name)
            section.entries[name.lower()] = value
    return found


def read_number(text: str, default: float = 0) -> float:
    """The number of a text, whose decimal sign may be a comma; the default if there is none that can be meant."""
    try:
        found = float(text.strip().strip('"').replace(",", "."))
    except ValueError:
        return default
    return found if abs(found) <= MAX_NUMBER else default
