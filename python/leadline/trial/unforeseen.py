"""Writes the traceback of an unexpected exception to a log, so that the run can go on and the cause can be found."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from leadline.errors import Unforeseen
from leadline.masking import HIDDEN, mask_text

_LONGEST_SAID = 300
# Shorter secrets occur in every traceback by chance, and protect nothing.
_SHORTEST_SECRET = 4


def unforeseen(
    failure: BaseException,
    log: Path | None,
    *,
    cause: BaseException | None = None,
    secrets: Iterable[str] = (),
    shown: str | None = None,
    echo: TextIO | None = None,
) -> Unforeseen:
    """Name `failure` (for a group, its `cause`) and append its traceback to `log` and to `echo` where given, all
    without secrets. The message calls the file `shown`; by default it is one of a run's logs."""
    written = {form for secret in secrets if len(secret) >= _SHORTEST_SECRET for form in _forms(secret)}
    hidden = sorted(written, key=len, reverse=True)
    text = _without(hidden, "".join(traceback.format_exception(failure)))
    where = _append(text, log, shown) if log is not None else "set TMPDIR to a writable folder to keep its traceback"
    if echo is not None:
        echo.write(text)
    cause = cause or failure
    # Hide secrets first: one may contain white space that the single line does not keep.
    said = " ".join(_without(hidden, str(cause)).split())
    said = f"{said[:_LONGEST_SAID]}..." if len(said) > _LONGEST_SAID else said
    return Unforeseen(
        f"leadline failed unexpectedly: {type(cause).__name__}{f': {said}' if said else ''}",
        hint=f"{where}; this is a defect of leadline: please report it",
    )


def _append(text: str, log: Path, shown: str | None) -> str:
    """Append a traceback to the log; returns where it is, or why it is not there."""
    try:
        with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        return f"its traceback could not be written ({error.strerror or error})"
    return f"its traceback is in {shown or f'logs/{log.name}'}"


def _forms(secret: str) -> set[str]:
    """A secret as it is, and as Python and JSON write it between quotes."""
    # Python escapes single quotes if the text has both kinds, so both are put before it and removed again.
    between_quotes = (repr(secret)[1:-1], repr(f"'\"{secret}")[4:-1], ascii(secret)[1:-1])
    return {secret, *between_quotes, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}


def _without(secrets: Iterable[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return mask_text(text)
