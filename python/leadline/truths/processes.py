"""Processes that end with the block that started them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leadline.errors import LeadlineError

_WITHIN_S = 20.0


@contextmanager
def killed_at_end(process: subprocess.Popen[Any]) -> Iterator[Any]:
    """A process that is killed when the block ends, if it has not ended."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_account(process: subprocess.Popen[str], what: str) -> str:
    """Close a process's stdin, and read the account that it prints then.

    Raises:
        LeadlineError: there is none.
    """
    try:
        said, _ = process.communicate(timeout=_WITHIN_S)
    except subprocess.TimeoutExpired:
        raise LeadlineError(f"{what} did not end") from None
    if not said:
        raise LeadlineError(f"{what} ended before the load")
    return said
