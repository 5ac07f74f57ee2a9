"""Reads the text files of VPN clients, bounded: profiles, certificates, keys, connections."""

from __future__ import annotations

from pathlib import Path

from leadline.errors import InputError
from leadline.plan.regular_files import NotRegular, read_bounded


def read_text(file: Path, max_bytes: int) -> str:
    """The text of a file, with lines that end in LF.

    Raises:
        ValueError: it cannot be read, is too long, or is no text; the message is for the user.
    """
    try:
        # Only a regular file has a known size; a device may be endless.
        text = read_bounded(file, max_bytes).decode("utf-8")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except NotRegular:
        size = f"{max_bytes >> 20} MiB" if max_bytes >= 1 << 20 else f"{max_bytes >> 10} KiB"
        raise ValueError(f"{file} is longer than {size}") from None
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{file} is not UTF-8 text: see line {line}") from None


def read_named_text(file: Path, max_bytes: int, *, hint: str, what: str | None = None) -> str:
    """The text of a file that the user named.

    Raises:
        InputError: it cannot be read, is too long, or is no text; after `what`, which says what it was named for.
    """
    try:
        return read_text(file, max_bytes)
    except ValueError as error:
        raise InputError(str(error) if what is None else f"{what}: {error}", hint=hint) from None
