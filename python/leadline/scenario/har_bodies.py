"""The bodies of a HAR file's requests: texts, forms, parts, and bytes that are no text. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

from leadline.scenario.conversion import Conversion, Made
from leadline.scenario.har_flow import Entry
from leadline.scenario.har_values import literal, mapping_of, one_line


def add_body(entry: Entry, made: Made, conversion: Conversion) -> None:
    """Give a request the body that was sent."""
    data = mapping_of(entry.request.get("postData"))
    mime = data.get("mimeType") if isinstance(data.get("mimeType"), str) else ""
    kind = str(mime).partition(";")[0].strip().lower()
    given = data.get("params")
    params = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    content = _content(entry, data, conversion)
    if kind == "multipart/form-data":
        parts = _parts_of_text(content, str(mime)) or [_part_of_param(entry, one, conversion) for one in params]
        if parts:
            _add_parts(made, parts)
            return
    if not content:
        if params:
            _add_form(made, params)
        elif _body_size(entry) > 0:
            conversion.changed(entry.what, None, "its body is missing in the file")
        return
    _add_content(made, kind, str(mime), content)


def _content(entry: Entry, data: dict[str, Any], conversion: Conversion) -> bytes:
    """The bytes of a body, as far as the file has them."""
    text = data.get("text")
    if not isinstance(text, str):
        return b""
    if data.get("encoding") == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            conversion.changed(entry.what, None, "its body is not base64, as the file says: it is sent as it stands")
    if "\ufffd" in text:
        conversion.changed(entry.what, None, "its body is binary and the file has lost bytes of it")
    return text.encode("utf-8", "replace")


def _add_content(made: Made, kind: str, mime: str, content: bytes) -> None:
    text = _text(content)
    if text is not None and kind == "application/x-www-form-urlencoded" and (pairs := _pairs_of_form(text)) is not None:
        made["form"] = pairs
        return
    if text is None:
        made["body_base64"] = base64.b64encode(content).decode()
    else:
        made["body"] = literal(text)
    if mime and "content-type" not in {name.lower() for name in made.get("headers", {})}:
        made.setdefault("headers", {})["Content-Type"] = literal(one_line(mime))


def _text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _body_size(entry: Entry) -> int:
    size = entry.request.get("bodySize")
    return size if isinstance(size, int) else 0


def _pairs_of_form(text: str) -> dict[str, str] | None:
    """The fields of a form; None for a text that differs after it was taken apart and put together."""
    if not all("=" in part for part in text.split("&")):
        return None
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        return None
    if len(pairs) != len(text.split("&")) or len({name for name, _ in pairs}) != len(pairs):
        return None
    return {literal(name): literal(value) for name, value in pairs}


def _add_form(made: Made, params: list[dict[str, Any]]) -> None:
    """A form whose fields alone are in the file. Browsers give them percent-encoded or not."""
    rows = [(str(one.get("name", "")), str(one.get("value") or "")) for one in params]
    texts = [text for row in rows for text in row]
    if all(_ENCODED.fullmatch(text) for text in texts) and any("%" in text for text in texts):
        rows = [(unquote_plus(name), unquote_plus(value)) for name, value in rows]
    if len({name for name, _ in rows}) == len(rows):
        made["form"] = {literal(name): literal(value) for name, value in rows}
    else:
        made["form"] = [{"name": literal(name), "value": literal(value)} for name, value in rows]


def _add_parts(made: Made, parts: list[dict[str, Any]]) -> None:
    made["multipart"] = parts
    # The boundary of each body is another one.
    headers = {name: value for name, value in made.get("headers", {}).items() if name.lower() != "content-type"}
    made.pop("headers", None)
    if headers:
        made["headers"] = headers


def _parts_of_text(content: bytes, mime: str) -> list[dict[str, Any]]:
    """The parts of a body between its boundaries; none if it is not made of named parts."""
    found: list[dict[str, Any]] = []
    named = re.search(r"boundary=(?:\"([^\"]+)\"|([^;\s]+))", mime, re.IGNORECASE)
    if named is None:
        return found
    boundary = re.escape((named[1] or named[2]).encode())
    pieces = re.split(rb"(?:^|\r?\n)--" + boundary + rb"(?:--)?[ \t]*(?:\r?\n|$)", content)
    for piece in pieces:
        if not piece.strip():
            continue
        head, blank, body = re.match(rb"(.*?)(\r?\n\r?\n|$)(.*)", piece, re.S).groups()  # type: ignore[union-attr]
        fields = dict(re.findall(r"(?im)^([\w-]+):[ \t]*(.*?)\r?$", head.decode("utf-8", "replace")))
        fields = {name.lower(): value for name, value in fields.items()}
        name = re.search(r"\bname=\"([^\"]*)\"", fields.get("content-disposition", ""))
        if name is None or not blank:
            return []
        part: dict[str, Any] = {"name": literal(name[1])}
        text = _text(body)
        part |= {"value": literal(text)} if text is not None else {"base64": base64.b64encode(body).decode()}
        file_name = re.search(r"\bfilename=\"([^\"]*)\"", fields["content-disposition"])
        if file_name is not None:
            part["file_name"] = literal(file_name[1])
        if "content-type" in fields:
            part["type"] = literal(fields["content-type"])
        found.append(part)
    return found


def _part_of_param(entry: Entry, one: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    part = {"name": literal(str(one.get("name", ""))), "value": literal(str(one.get("value") or ""))}
    if one.get("fileName"):
        part["file_name"] = literal(str(one["fileName"]))
        words = "is as in the HAR file" if part["value"] else "is not in the HAR file: an empty one is sent"
        conversion.changed(entry.what, None, f"the content of the file {one['fileName']} {words}")
    if one.get("contentType"):
        part["type"] = literal(str(one["contentType"]))
    return part


_ENCODED = re.compile(r"(?:[A-Za-z0-9*._~'()!+-]|%[0-9A-Fa-f]{2})*")
"""A text of a form as it is sent."""
