"""Processes that end with the block that started them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def killed_at_end(process: subprocess.Popen[Any]) -> Iterator[Any]:
    """A process that is killed when the block ends, if it has not ended."""
    with process:
        try:
            yield process
        finally:
            process.kill()
