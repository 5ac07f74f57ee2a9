"""Cuts a long journal into stretches, each of which ends with a trial, and reads what is most of each: the observations
and the progress, and the rows of the tables. Stretches are read by any process, in any order.

The reader that cuts decodes only what later trials depend on: clocks, greetings, beginnings and ends.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from leadline.analysis.frequent_events import FREQUENT_TYPES, MALFORMED, FrequentEvents
from leadline.analysis.test_data import TestData
from leadline.analysis.trial_tests import AnalysedTests, Pending, analyse_tests
from leadline.dataset import Entry, HostClocks, JournalReader, TableParts, reads_strictly, table_part_writer

# As `Journal.append_event` writes them.
_FREQUENT_LINE = re.compile(
    rb'\{"host":"[^"\\]*","at_ns":\d+,"event":\{"type":"(?:%s)"' % "|".join(sorted(FREQUENT_TYPES)).encode()
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a journal, the clocks at its begin, and the tests of its trial by label, without frequent events."""

    journal: Path
    begin_byte: int
    end_byte: int
    clocks: HostClocks
    tests: dict[str, TestData]


@dataclass(frozen=True, slots=True)
class ReadStretch:
    """What a stretch tells. `tables` is the error instead, if its rows could not be made."""

    tests: AnalysedTests
    tables: TableParts | Exception


def read_stretch(stretch: Stretch) -> ReadStretch:
    """Read the frequent events of a stretch, analyse its tests, and make its rows."""
    frequent, clocks = FrequentEvents(), deepcopy(stretch.clocks)
    tables = _Tables(stretch.clocks)
    reader = JournalReader(stretch.journal, stretch.begin_byte, (tables.take,), end_byte=stretch.end_byte)
    for entry in reader:
        frequent.note_damage(reader.damaged, reader.torn)
        try:
            frequent.read(entry, stretch.tests, clocks)
        except MALFORMED:
            if reads_strictly():
                raise
            frequent.note_malformed()
    frequent.note_damage(reader.damaged, reader.torn)
    return ReadStretch(analyse_tests(stretch.tests, frequent), tables.parts())


class _Tables:
    """The rows, until making them fails: that does not affect the analysis."""

    def __init__(self, clocks: HostClocks) -> None:
        self._writer = table_part_writer(clocks)
        self._error: Exception | None = None

    def take(self, entry: Entry) -> None:
        if self._error is None:
            try:
                self._writer.take(entry)
            except Exception as error:
                self._error = error

    def parts(self) -> TableParts | Exception:
        try:
            return self._error or self._writer.parts()
        except Exception as error:
            return error


Read: TypeAlias = Callable[[Stretch], "Future[ReadStretch]"]
"""Begins to read a stretch, whose content may change afterwards."""


class _UnderWay:
    """A stretch that is being read. Its rows are passed on with its tests, which are asked for in the order of the
    journal."""

    def __init__(self, future: Future[ReadStretch], into_tables: Callable[[TableParts | Exception], None]) -> None:
        self._future: Future[ReadStretch] | None = future
        self._into_tables = into_tables
        self._tests: AnalysedTests | None = None

    @property
    def is_read(self) -> bool:
        return self._future is None or self._future.done()

    def tests(self) -> AnalysedTests:
        """The tests of its trial; waits for them."""
        if self._future is not None:
            found = self._future.result()
            self._future, self._tests = None, found.tests
            self._into_tables(found.tables)
        assert self._tests is not None
        return self._tests


class JournalCutter:
    """Reads a journal without its frequent events, and has each stretch read when its trial has ended."""

    def __init__(
        self,
        journal: Path,
        read: Read,
        takers: Sequence[Callable[[Entry], None]],
        into_tables: Callable[[TableParts | Exception], None],
    ) -> None:
        self._reader = JournalReader(journal, takers=(*takers, self._note), skips=_FREQUENT_LINE.match)
        self._read = read
        self._into_tables = into_tables
        self._clocks = HostClocks()
        self._begin_byte, self._clocks_at_begin = 0, HostClocks()
        self._is_before_trial = False
        self._under_way: deque[_UnderWay] = deque()

    def entries(self) -> Iterator[Entry]:
        """All entries but frequent events."""
        for entry in self._reader:
            event = entry.get("event")
            # Another writer may order the keys otherwise.
            if not (isinstance(event, Mapping) and event.get("type") in FREQUENT_TYPES):
                yield entry
        self._is_before_trial = False

    def begin(self, tests: Mapping[str, TestData], _: FrequentEvents) -> Pending:
        """End a stretch: with the line that was read last, but before the beginning of the next trial."""
        end_byte = self._reader.line_begin_byte if self._is_before_trial else self._reader.line_end_byte
        stretch = Stretch(self._reader.path, self._begin_byte, end_byte, self._clocks_at_begin, dict(tests))
        self._begin_byte, self._clocks_at_begin = end_byte, deepcopy(self._clocks)
        stretch_read = _UnderWay(self._read(stretch), self._into_tables)
        self._under_way.append(stretch_read)
        # As soon as they are there: the rows of a whole run have no room in memory.
        while self._under_way and self._under_way[0].is_read:
            self._under_way.popleft().tests()
        return stretch_read.tests

    def _note(self, entry: Entry) -> None:
        record = entry.get("record")
        self._is_before_trial = record == "trial-begin"
        if record == "clock":
            self._clocks.note(entry)
