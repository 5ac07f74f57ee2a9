"""A long run's folder, made of a short one's of one trial per case: its trials over and over, each time as the next
repeat of a case, and after `REPEATS` of them as cases of their own.

The lines are the agents' own, shifted in time and renamed; nothing is invented but the run's length.

    python bench/made_journal.py SHORT_RUN FOLDER --rows 10000000
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

# Instants of a monotonic clock. Lengths of time, which have the same ending, are shorter; the time of day has its own.
_INSTANT = re.compile(rb'((?<!_wall)_ns":)(\d{12,})(?=[,}\]])')
REPEATS = 3
_PAUSE_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Trials:
    """All trials of the short run, as the texts between the instants in them, and the instants."""

    texts: list[bytes]
    instants: list[int]

    @classmethod
    def cut(cls, lines: list[bytes]) -> _Trials:
        parts = _INSTANT.split(b"".join(lines))
        # Text, the key of an instant, the instant, text ...: the key belongs to the text before it.
        texts = [*(before + key for before, key in zip(parts[::3], parts[1::3], strict=False)), parts[-1]]
        return cls(texts, [int(instant) for instant in parts[2::3]])

    @property
    def span_ns(self) -> int:
        """From the first instant to the last, and a pause."""
        return max(self.instants) - min(self.instants) + _PAUSE_NS

    def shifted(self, by_ns: int) -> bytes:
        """The lines, `by_ns` later."""
        later = (str(instant + by_ns).encode() for instant in self.instants)
        return b"".join(part for pair in zip(self.texts, later, strict=False) for part in pair) + self.texts[-1]


def make(short: Path, folder: Path, rows: int) -> int:
    """Write run.json and journal.ndjson into `folder`, of at least `rows` rows of samples; returns how many there are.

    `short` is a run that was concluded: its table of samples tells how many rows one copy has.
    """
    rows_each = int(pl.scan_parquet(short / "samples.parquet").select(pl.len()).collect().item())
    copies = -(-rows // rows_each // REPEATS) * REPEATS
    manifest = json.loads((short / "run.json").read_bytes())
    cases = [str(case["id"]) for case in manifest["cases"]]
    folder.mkdir(parents=True)
    with (folder / "journal.ndjson").open("wb") as journal:
        journal.writelines(_journal(short / "journal.ndjson", cases, copies))
    renamed = [
        {**case, "id": f"{case['id']}{copy:04}", "parameters": {**case["parameters"], "copy": copy}}
        for copy in range(copies // REPEATS)
        for case in manifest["cases"]
    ]
    (folder / "run.json").write_text(json.dumps({**manifest, "run_id": folder.name, "cases": renamed}))
    return copies * rows_each


def _journal(path: Path, cases: list[str], copies: int) -> Iterator[bytes]:
    lines = path.read_bytes().splitlines(keepends=True)
    marks = [number for number, line in enumerate(lines) if line.startswith(b'{"record":"trial-')]
    first, last = marks[0], marks[-1]
    trials = _Trials.cut(lines[first : last + 1])
    yield from lines[:first]
    for number in range(copies):
        copy, repeat = divmod(number, REPEATS)
        made = trials.shifted(number * trials.span_ns).replace(b'"repeat":1,', b'"repeat":%d,' % (repeat + 1))
        for case in (case.encode() for case in cases):
            made = made.replace(b'"%s/1' % case, b'"%s%04d/%d' % (case, copy, repeat + 1))
            made = made.replace(b'"%s"' % case, b'"%s%04d"' % (case, copy))
        yield made
    yield from lines[last + 1 :]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("short", type=Path, help="a run's folder, concluded, with one trial per case")
    parser.add_argument("folder", type=Path, help="the folder to make")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of samples, at least")
    given = parser.parse_args()
    print(f"{make(given.short, given.folder, given.rows):,} rows in {given.folder}")


if __name__ == "__main__":
    main()
