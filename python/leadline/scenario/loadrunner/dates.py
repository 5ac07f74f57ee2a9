"""Patterns of dates: those of C's `strftime` as those of the native `date()`. Pure."""

from __future__ import annotations

from leadline.scenario.loadrunner.context import CannotRun


def java_pattern(pattern: str) -> str:
    """The pattern of `date()` for one of `strftime`. Raises CannotRun."""
    found, plain, position = "", "", 0
    while position < len(pattern):
        character = pattern[position]
        if pattern.startswith(".000", position):  # LoadRunner's milliseconds
            found, plain = found + _quote(plain) + ".SSS", ""
            position += 4
            continue
        if character != "%" or position + 1 == len(pattern):
            plain += character
            position += 1
            continue
        code = pattern[position + 1]
        position += 2
        if code == "#" and position < len(pattern):
            code = pattern[position]
            position += 1
        if code == "%":
            plain += "%"
            continue
        if code not in _CODES:
            raise CannotRun(f"%{code} in the format of a date has no native form")
        found, plain = found + _quote(plain) + _CODES[code], ""
    return found + _quote(plain)


def _quote(text: str) -> str:
    if not any(character.isalpha() or character == "'" for character in text):
        return text
    return "'" + text.replace("'", "''") + "'"


_CODES = {
    "Y": "yyyy", "y": "yy", "m": "MM", "d": "dd", "H": "HH", "M": "mm", "S": "ss", "B": "MMMM", "b": "MMM", "A": "EEEE",
    "a": "EEE", "I": "hh", "p": "a", "j": "DDD", "X": "HH:mm:ss", "x": "MM/dd/yy", "c": "MM/dd/yy HH:mm:ss",
}  # fmt: skip
