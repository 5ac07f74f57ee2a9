"""Writes a scenario's tree in the native format: YAML that reads back as the same tree. Pure.

A comment names the line of the original for each step, and a head says what became of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from leadline.plan.source import Node
from leadline.scenario.conversion import Conversion

WIDTH = 100


def write_native(root: Node, conversion: Conversion | None = None) -> str:
    """The YAML text of a scenario."""
    lines = list(_head(conversion)) if conversion is not None else []
    lines += _mapping(root, 0)
    return "\n".join(lines) + "\n"


def _head(conversion: Conversion) -> Iterable[str]:
    """What is not as it was, as comments."""
    counts = conversion.counts()
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    yield f"# Converted from {_line(conversion.file)}: {shown or 'nothing'}."
    for item in conversion.items:
        if item.outcome != "kept":
            place = f"{_line(conversion.place(item))}: " if item.file is not None else ""
            place = f"line {item.line}: " if item.file is None and item.line is not None else place
            yield f"#   {item.outcome}: {place}{_line(item.what)}: {_line(item.why)}"


def _line(text: str) -> str:
    """The text on one line, without characters that a comment cannot have."""
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))[:300]


def _mapping(node: Node, depth: int) -> list[str]:
    lines: list[str] = []
    for key, entry in node.mapping.items():
        lines += _entry(_scalar(key), entry, depth)
    return lines


def _entry(key: str, node: Node, depth: int) -> list[str]:
    pad = "  " * depth
    if isinstance(node.value, dict | list):
        if not node.value:
            return [f"{pad}{key}: {'{}' if isinstance(node.value, dict) else '[]'}"]
        if (flow := _flow(node)) is not None and len(pad) + len(key) + 2 + len(flow) <= WIDTH:
            return [f"{pad}{key}: {flow}"]
        below = _mapping(node, depth + 1) if isinstance(node.value, dict) else _items(node, depth + 1)
        return [f"{pad}{key}:", *below]
    if isinstance(node.value, str) and _is_block(node.value):
        marker = "|" if node.value.endswith("\n") else "|-"
        if node.value.endswith("\n\n"):
            marker = "|+"
        return [
            f"{pad}{key}: {marker}",
            *(f"{pad}  {line}" if line else "" for line in _block_lines(node.value, marker)),
        ]
    return [f"{pad}{key}: {_scalar(node.value)}"]


def _block_lines(text: str, marker: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if marker in ("|", "|+") else lines


def _items(node: Node, depth: int) -> list[str]:
    pad = "  " * depth
    lines: list[str] = []
    for item in node.items:
        if isinstance(item.value, dict) and item.value:
            if (flow := _flow(item)) is not None and len(pad) + 2 + len(flow) <= WIDTH and len(item.value) > 1:
                lines.append(f"{pad}- {flow}")
                continue
            below = _mapping(item, depth + 1)
            below[0] = f"{pad}- {below[0].lstrip()}"
            lines += below
        elif isinstance(item.value, list) and item.value:
            flow = _flow(item)
            lines += [f"{pad}- {flow}"] if flow is not None else [f"{pad}-", *_items(item, depth + 1)]
        else:
            empty = "{}" if isinstance(item.value, dict) else "[]" if isinstance(item.value, list) else None
            lines.append(f"{pad}- {empty or _scalar(item.value)}")
    return lines


def _flow(node: Node) -> str | None:
    """A short list or mapping of scalars on one line; None if it is not one."""
    if isinstance(node.value, list):
        parts = [_scalar(item.value, in_flow=True) for item in node.value if not isinstance(item.value, dict | list)]
        return f"[{', '.join(parts)}]" if len(parts) == len(node.value) else None
    if isinstance(node.value, dict):
        if _STEP_KEYS & node.value.keys() or len(node.value) > 4:
            return None
        found = []
        for key, entry in node.value.items():
            text = _flow(entry) if isinstance(entry.value, dict | list) else _scalar(entry.value, in_flow=True)
            if text is None or (isinstance(entry.value, str) and "\n" in entry.value):
                return None
            found.append(f"{_scalar(key, in_flow=True)}: {text}")
        return f"{{{', '.join(found)}}}"
    return None


def _is_block(text: str) -> bool:
    """Whether a text of several lines can be written as it is."""
    lines = text.split("\n")
    return (
        len(lines) > 2
        and not text.startswith((" ", "\n", "\t"))
        and all(line.isprintable() and line == line.rstrip() for line in lines)
        and all(_is_plain_unicode(line) for line in lines)
    )


def _is_plain_unicode(text: str) -> bool:
    return all(character == "\t" or " " <= character <= "~" or "\xa0" <= character <= "\ud7ff" for character in text)


def _scalar(value: object, *, in_flow: bool = False) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    pattern = _PLAIN_IN_FLOW if in_flow else _PLAIN
    if pattern.fullmatch(text) and not _LOOKS_OTHERWISE.fullmatch(text) and not text.endswith((" ", ":")):
        return text
    if "'" not in text and _is_plain_unicode(text) and "\t" not in text:
        return f"'{text}'"
    return _double_quoted(text)


def _double_quoted(text: str) -> str:
    found = []
    for character in text:
        code = ord(character)
        if character in '"\\':
            found.append("\\" + character)
        elif character in _ESCAPES:
            found.append(_ESCAPES[character])
        elif _is_plain_unicode(character):
            found.append(character)
        else:
            found.append(f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")
    return f'"{"".join(found)}"'


_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CHARACTERS = r"A-Za-z0-9 _./$(){}+=%&;~^@*<>?|,'\"-"
_PLAIN = re.compile(
    rf"[A-Za-z/$_][{_CHARACTERS}]*(?::[{_CHARACTERS.replace(' ', '')}][{_CHARACTERS}]*)*|\d+(?:\.\d+)?(?:ms|s|m|h|/s)"
)
_PLAIN_IN_FLOW = re.compile(r"[A-Za-z/_][A-Za-z0-9 _./()+=%;~^@*<>|-]*|\d+(?:\.\d+)?(?:ms|s|m|h|/s)")
_LOOKS_OTHERWISE = re.compile(
    r"(?i:true|false|yes|no|on|off|null|~|y|n)|[-+.]?[0-9][0-9_.,:eExX+-]*|.*\s#.*|\.(inf|nan)", re.S
)
_STEP_KEYS = frozenset({"steps", "then", "cases", "flow", "_request"})
