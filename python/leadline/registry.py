"""Registries of parts that lower floors use without importing them: kinds of test and systems under test, by name.

A registry imports the module of a built-in part on first use. A package can therefore use a part that is built on the
package itself. The decision is in `docs/decisions/0009-kinds-of-test.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

UNKNOWN = "unknown"
"""The module of the part that stands for unknown names."""


class Registry:
    """Maps names to parts. Each package that uses the parts declares the type that it needs of them.

    The package `package` lists the names of its built-in parts as `NAMES`. Its module of that name (with _ for
    -) has the part as `attribute`. It may have `ALIASES`: other names of them, which agents' tasks have.
    """

    def __init__(self, package: str, attribute: str) -> None:
        self._package = package
        self._attribute = attribute
        self._added: dict[str, Any] = {}
        self._found: dict[str, Any] = {}
        self.version = 0
        """Increases with each change: what was made from all parts must then be made again."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parts: the built-in ones in the order of their package, then the added ones."""
        return (*import_module(self._package).NAMES, *self._added)

    @property
    def has_added(self) -> bool:
        """Whether there are parts that other processes do not know."""
        return bool(self._added)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def get(self, name: str) -> Any:
        """The part of that name.

        Raises:
            KeyError: there is no such part.
        """
        if name in self._added:
            return self._added[name]
        name = getattr(import_module(self._package), "ALIASES", {}).get(name, name)
        if name not in self.names and name != UNKNOWN:
            raise KeyError(name)
        return getattr(import_module(f"{self._package}.{name.replace('-', '_')}"), self._attribute)

    def find(self, name: str) -> Any:
        """The part of that name; for an unknown name, which a record of another version may have, the package's
        `unknown`.
        """
        if name not in self._found:
            if name not in self:
                return self.get(UNKNOWN)
            self._found[name] = self.get(name)
        return self._found[name]

    @contextmanager
    def added(self, name: str, part: Any) -> Iterator[None]:
        """Register one more part while the block runs.

        Raises:
            ValueError: the name is taken.
        """
        if name in self:
            raise ValueError(f"there already is a {name!r}")
        self._added[name] = part
        self._found.clear()
        self.version += 1
        try:
            yield
        finally:
            del self._added[name]
            self._found.clear()
            self.version += 1


KINDS = Registry("leadline.kinds", "KIND")
"""The kinds of test."""

SYSTEMS = Registry("leadline.sut", "SYSTEM")
"""The systems under test."""
