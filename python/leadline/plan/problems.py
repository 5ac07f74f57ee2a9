"""Collects the mistakes of one plan while it is read, so that one run of `leadline plan` shows all of them.

Each mistake is stored once: points of a matrix repeat mistakes in the part that they share. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from leadline.errors import PlanError


class Problems:
    """Mistakes found so far."""

    def __init__(self) -> None:
        self._found: dict[str, PlanError] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, errors: Iterable[PlanError]) -> None:
        """Store these mistakes, and those that they contain, unless they are already known."""
        for error in errors:
            for one in (error, *error.others):
                self._found.setdefault(str(one), one)

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Store a mistake that the block raises, and go on after the block."""
        try:
            yield
        except PlanError as error:
            self.add([error])

    def raise_any(self) -> None:
        """Raise the first mistake, with the others in it; does nothing without mistakes.

        Files come in the order of their first mistake, each from its top.
        """
        files = list(dict.fromkeys(error.file for error in self._found.values()))
        ordered = sorted(self._found.values(), key=lambda error: (files.index(error.file), error.line or 0))
        if ordered:
            first, *rest = ordered
            for error in rest:
                error.others = ()
            first.others = tuple(rest)
            raise first
