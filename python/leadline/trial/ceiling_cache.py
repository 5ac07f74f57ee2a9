"""The cache of measured ceilings, in `$XDG_CACHE_HOME/leadline/ceilings.json`.

Nothing depends on it: if the file is damaged, of another version or not writable, a calibration takes one second.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.analysis.model import Ceiling
from leadline.dataset.atomic import replace
from leadline.errors import DatasetError

SCHEMA = "leadline.ceilings/1"
OLDEST_S = 30 * 86_400
"""Maximum age of a ceiling: firmware, cooling and neighbours change."""
MOST_ENTRIES = 200
LARGEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CeilingCache:
    """The file, and a callback for warnings. Without a path nothing is found or stored."""

    path: Path | None
    warn: Callable[[str], None]
    now_s: Callable[[], float] = time.time

    @classmethod
    def here(cls, warn: Callable[[str], None]) -> CeilingCache:
        """The user's own cache, by the XDG base directory specification, which ignores relative paths."""
        named = os.environ.get("XDG_CACHE_HOME", "")
        if Path(named).is_absolute():
            return cls(Path(named) / "leadline" / "ceilings.json", warn)
        try:
            return cls(Path.home() / ".cache" / "leadline" / "ceilings.json", warn)
        except RuntimeError:  # no home directory
            return cls(None, warn)

    def find(self, key: str) -> Ceiling | None:
        """The ceiling under a key, unless it is too old."""
        row = self._rows().get(key)
        return Ceiling(row["per_s"], row["extrapolated"], row.get("engine")) if row is not None else None

    def keep(self, key: str, ceiling: Ceiling) -> None:
        """Store a ceiling under a key; removes the oldest entries if there are too many."""
        if self.path is None:
            return
        row = {"per_s": ceiling.per_s, "extrapolated": ceiling.extrapolated, "engine": ceiling.engine}
        rows = {**self._rows(), key: {**row, "measured_at_s": round(self.now_s())}}
        newest = sorted(rows, key=lambda name: rows[name]["measured_at_s"], reverse=True)[:MOST_ENTRIES]
        text = json.dumps({"schema": SCHEMA, "ceilings": {name: rows[name] for name in newest}}, indent=1) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace(self.path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        except (OSError, DatasetError) as error:
            self.warn(f"the generator's ceiling is not stored: {error}")

    def _rows(self) -> dict[str, dict[str, Any]]:
        """Every entry that is valid and not too old."""
        if self.path is None:
            return {}
        try:
            with self.path.open("rb") as file:
                text = file.read(LARGEST_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.warn(f"the ceilings kept in {self.path} cannot be read ({error.strerror}) and are ignored")
            return {}
        try:
            # An integer of any length becomes a float, possibly an infinite one.
            document = json.loads(text, parse_int=float) if len(text) <= LARGEST_BYTES else None
        except (ValueError, RecursionError):
            document = None
        rows = document.get("ceilings") if isinstance(document, dict) and document.get("schema") == SCHEMA else None
        if not isinstance(rows, dict):
            self.warn(f"the ceilings kept in {self.path} are damaged or of another version, and ignored")
            return {}
        return {key: row for key, row in rows.items() if self._is_sound(row)}

    def _is_sound(self, row: Any) -> bool:
        if not isinstance(row, dict) or not isinstance(row.get("extrapolated"), bool):
            return False
        if not isinstance(row.get("engine"), str | None):
            return False
        per_s, measured_at_s = _number(row.get("per_s")), _number(row.get("measured_at_s"))
        return per_s > 0 and abs(self.now_s() - measured_at_s) <= OLDEST_S


def _number(value: Any) -> float:
    """A finite number, or NaN for anything else, for which no comparison holds."""
    return value if isinstance(value, float) and math.isfinite(value) else math.nan
