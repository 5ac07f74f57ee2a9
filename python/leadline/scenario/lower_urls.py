"""Lowers the URLs of requests to the agent's: scheme, host, port and path, each as a template. Pure."""

from __future__ import annotations

import re
from typing import Any

from leadline.scenario.expressions import Call, Expression, Literal, joined, merged, show_template, split_template
from leadline.scenario.functions import template
from leadline.scenario.lower_expressions import Lowered, Names


def lower_url(names: Names, url: str, base: str | None) -> Lowered:
    """A URL, or a path below the base. Parameters are put in first: one may hold a host and a port.

    Raises:
        ValueError: there is no base for a path, or a URL has a user.
    """
    url, base = _with_parameters(names, url), None if base is None else _with_parameters(names, base)
    marked, parts = _marked(url.strip())
    begins_with_value = _PLACE.match(marked) is not None
    if _ABSOLUTE.match(marked) or (base is None and begins_with_value):
        return _parts(names, marked, parts)
    if base is None:
        raise ValueError(f"{url!r} is a path, but there is no base; give base: http://HOST")
    base_marked, base_parts = _marked(base.strip(), len(parts))
    base_marked, parts = base_marked.partition("?")[0].rstrip("/"), parts | base_parts
    if begins_with_value:
        return _below_value(names, marked, base_marked, parts)
    return _parts(names, base_marked + ("" if marked.startswith("/") else "/") + marked, parts)


def _below_value(names: Names, marked: str, base_marked: str, parts: dict[str, str]) -> Lowered:
    """A path that begins with a value: it is below the base, unless the value is a whole URL. The agent looks at the
    value when it sends the request."""
    below = _parts(names, base_marked, parts)
    path = _made(names, marked.partition("#")[0], parts)
    absolute = _ABSOLUTE.match(base_marked)
    base_path = "" if absolute is None else absolute[4]
    if not base_path:
        return below | {"path": path}
    value, folder = (joined(template(_text(one, parts))) for one in (marked[0], base_path))
    is_path = Call("starts_with", (value, Literal("/")))
    above = Call("if", (is_path, folder, Call("concat", (folder, Literal("/")))))
    is_url = Call("contains_match", (value, Literal(r"^\s*(?i:https?)://")))
    return below | {"path": [names.expression(Call("if", (is_url, Literal(""), above))), *path]}


def _with_parameters(names: Names, url: str) -> str:
    return show_template(merged([_with_parameter(names, part) for part in template(url)]))


def _with_parameter(names: Names, part: str | Expression) -> str | Expression:
    """A secret stays an expression, so that its value is in no name of a request."""
    if not isinstance(part, Call) or part.function != "param":
        return part
    name = part.arguments[0]
    is_secret = isinstance(name, Literal) and names.is_secret(str(name.value))
    return part if is_secret else Literal(names.parameter(part))


def _parts(names: Names, marked: str, parts: dict[str, str]) -> Lowered:
    marked = marked.partition("#")[0]
    found = _ABSOLUTE.match(marked)
    if found is None:
        return {"path": _made(names, marked, parts)}
    scheme, host, port, path = found.groups()
    if "@" in host or "@" in (port or ""):
        raise ValueError("a URL has no user and password here; use basic: {user: ..., password: ...}")
    path = path if path.startswith("/") else "/" + path
    texts = {"scheme": scheme.lower(), "host": host, "port": port or "", "path": path}
    return {key: _made(names, text, parts) for key, text in texts.items()}


def _made(names: Names, marked: str, parts: dict[str, str]) -> list[Any]:
    return names.template(template(_text(marked, parts)))


def _text(marked: str, parts: dict[str, str]) -> str:
    return "".join(parts.get(character, character) for character in marked)


def _marked(text: str, first: int = 0) -> tuple[str, dict[str, str]]:
    """The text with one character of Unicode's private area for each placeholder, so that it can be cut."""
    found, parts = "", {}
    text = text.replace("$${", chr(_LITERAL_MARK))
    parts[chr(_LITERAL_MARK)] = "$${"
    for is_placeholder, part in split_template(text):
        if is_placeholder:
            mark = chr(_FIRST_MARK + first + len(parts))
            parts[mark] = "${" + part.replace(chr(_LITERAL_MARK), "$${") + "}"
            found += mark
        else:
            found += part
    return found, parts


_FIRST_MARK = 0xF0000
_LITERAL_MARK = 0xE000
_ABSOLUTE = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*|[\U000F0000-\U000FFFFD])://([^/?#:\[]+|\[[^\]]*\])(?::([^/?#]*))?(.*)", re.S
)
_PLACE = re.compile(r"[\U000F0000-\U000FFFFD]")
