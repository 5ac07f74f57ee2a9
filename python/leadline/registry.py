"""Parts that lower floors use without importing them: kinds of test and systems under test, by name.

A registry imports the module of a built-in part when that part is first asked for, so that a package may use a part
that is built on the package itself. The decision is in `docs/decisions/0009-kinds-of-test.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

UNKNOWN = "unknown"
"""The module that holds the part which stands for any other name."""


class Registry:
    """Maps names to parts. Each package that uses the parts has a view of it that says which type they have there.

    The package `package` lists the names of its built-in parts as `NAMES`; its module of that name holds the part as
    `attribute`.
    """

    def __init__(self, package: str, attribute: str) -> None:
        self._package = package
        self._attribute = attribute
        self._added: dict[str, Any] = {}
        self.version = 0
        """Grows with each change: what was made from all parts has to be made again."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parts: the built-in ones in the order of their package, then the added ones."""
        return (*import_module(self._package).NAMES, *self._added)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def get(self, name: str) -> Any:
        """The part of that name.

        Raises:
            KeyError: there is none.
        """
        if name in self._added:
            return self._added[name]
        if name not in self.names and name != UNKNOWN:
            raise KeyError(name)
        return getattr(import_module(f"{self._package}.{name}"), self._attribute)

    def find(self, name: str) -> Any:
        """The part of that name; the package's `unknown` for a name that there is not, as a record of another version
        may have it.
        """
        return self.get(name if name in self else UNKNOWN)

    @contextmanager
    def added(self, name: str, part: Any) -> Iterator[None]:
        """Have one more part for a while.

        Raises:
            ValueError: the name is taken.
        """
        if name in self:
            raise ValueError(f"there is a {name!r} already")
        self._added[name] = part
        self.version += 1
        try:
            yield
        finally:
            del self._added[name]
            self.version += 1


KINDS = Registry("leadline.kinds", "KIND")
"""The kinds of test."""

SYSTEMS = Registry("leadline.sut", "SYSTEM")
"""The systems under test."""
