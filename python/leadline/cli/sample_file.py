"""A file that gets the single requests of a measurement while they come. Owns the file and the count of those that are
missing; the layout of a line is the kind's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, cast

from leadline.cli.output import naming, print_note
from leadline.contract import models, records
from leadline.errors import InputError


@dataclass(frozen=True, slots=True)
class SampleFormat:
    """Which file gets them, and how they are written."""

    option: str
    path: Path
    head: str
    text_of: Callable[[records.SampleBatch], str]


class SampleFile:
    """The file, open for as long as the block."""

    def __init__(self, form: SampleFormat, on_problem: Callable[[str], None]) -> None:
        """`on_problem` is called at the end of the block with what kept the file from being written."""
        self._form = form
        self._on_problem = on_problem
        self._file: IO[str] | None = None
        self._failure: OSError | None = None
        self._left_out = 0

    def __enter__(self) -> SampleFile:
        """Open the file, and write its head.

        Raises:
            InputError: it cannot be written.
        """
        with naming(self._form.option, self._form.path):
            self._file = self._form.path.open("w", encoding="utf-8", newline="")
            self._file.write(self._form.head)
        return self

    def take(self, samples: models.SampleBatch) -> None:
        """Write a batch. A file that cannot be written gets no further ones."""
        self._left_out = max(self._left_out, samples.left_out)
        if self._file is None or self._failure is not None:
            return
        try:
            self._file.write(self._form.text_of(cast("records.SampleBatch", samples.model_dump())))
        except OSError as error:
            self._failure = error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file, and say what is missing."""
        assert self._file is not None, "it is open within the block"
        try:
            with naming(self._form.option, self._form.path):
                self._file.close()
                if self._failure is not None:
                    raise self._failure
        except InputError as unwritten:
            self._on_problem(str(unwritten))
        if self._left_out:
            print_note(
                f"{self._form.option}: {self._left_out:,} requests and transactions are missing in the file: "
                "they ended faster than they were written"
            )
