"""The statements of scripts, with their blocks, conditions and arguments, as texts. Pure."""

from __future__ import annotations

import re

from leadline.scenario.jmx.texts import CannotRun


def read_statements(text: str) -> list[str]:
    """The statements of a text, without comments; a block in braces belongs to its statement."""
    found, current, depth, position, quote = [], "", 0, 0, ""
    text = text.replace("\r\n", "\n")
    while position < len(text):
        character = text[position]
        if quote:
            current += character
            if character == "\\":
                current += text[position + 1 : position + 2]
                position += 1
            elif character == quote:
                quote = ""
        elif text.startswith("//", position):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        elif text.startswith("/*", position):
            end = text.find("*/", position)
            position = len(text) if end < 0 else end + 2
            continue
        elif character in "\"'":
            quote, current = character, current + character
        elif character in ";\n" and depth == 0 and not (character == "\n" and _goes_on(current, text, position)):
            found.append(current.strip())
            current = ""
        else:
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
            current += character
        position += 1
    return [one for one in (*found, current.strip()) if one]


def _goes_on(current: str, text: str, position: int) -> bool:
    """Whether a statement continues in the line after a position. Its cost grows with the text, not with its square."""
    before = current.strip()
    if not before or (before.endswith(_OPEN_ENDS) and not before.endswith(("++", "--"))):
        return True
    if (after := _CONTINUED.match(text, position)) is not None:
        return after[1] != "{" or _BEGINS_BRANCH.match(before) is not None or _ELSE.search(before[-5:]) is not None
    return before.endswith(")") and _IF.match(before) is not None


def read_branch(statement: str) -> tuple[str, str, str | None] | None:
    """Condition, block and other block of `if (...) ... else ...`; None for another statement."""
    match = re.match(r"if\s*\(", statement)
    if match is None:
        return None
    end = _closed(statement, match.end() - 1)
    condition, rest = statement[match.end() : end], statement[end + 1 :].strip()
    then, rest = _one_block(rest)
    match = re.match(r"\s*;?\s*else\b", rest)
    if match is None:
        if rest.strip(" ;\n"):
            raise CannotRun(f"the statement '{shorten(rest)}' has no native form")
        return condition, then, None
    return condition, then, _one_block(rest[match.end() :].strip(), whole=True)[0]


def _one_block(text: str, *, whole: bool = False) -> tuple[str, str]:
    """The inside of a block in braces or a single statement, and what follows it."""
    if text.startswith("{"):
        end = _closed(text, 0)
        return text[1:end], text[end + 1 :]
    if whole:
        return text, ""
    head, separator, rest = text.partition("else") if re.search(r"\belse\b", text) else (text, "", "")
    return head, separator + rest


def _closed(text: str, start: int) -> int:
    """The position of the bracket that closes the one at `start`. Raises CannotRun."""
    depth, quote, position = 0, "", start
    while position < len(text):
        character = text[position]
        if quote:
            position += character == "\\"
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
            if depth == 0:
                return position
        position += 1
    raise CannotRun("a bracket is not closed")


def read_arguments(text: str) -> list[str]:
    """The arguments of a call that begins with its bracket; the statement must end with it. Raises CannotRun."""
    end = _closed(text, 0)
    if text[end + 1 :].strip(" ;\n"):
        raise CannotRun(f"'{shorten(text)}' has no native form")
    found, current, depth, quote = [], "", 0, ""
    inner = text[1:end]
    for position, character in enumerate(inner):
        if quote:
            quote = "" if character == quote and inner[position - 1 : position] != "\\" else quote
        elif character in "\"'":
            quote = character
        else:
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0 and not quote:
            found.append(current)
            current = ""
        else:
            current += character
    return [*found, current]


def shorten(text: str) -> str:
    """A text in one line, for a message."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."


_OPEN_ENDS = ("&&", "||", *"-+*/=,?:<>(")
_CONTINUED = re.compile(r"\s*(else\b|\.|\?|:|&&|\|\||[{])")
_BEGINS_BRANCH = re.compile(r"(?:if|else)\b")
_ELSE = re.compile(r"\belse$")
_IF = re.compile(r"(?:\}\s*)?(?:else\s+)?if\s*\(")
