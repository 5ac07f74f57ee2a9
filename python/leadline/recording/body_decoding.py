"""Decodes bodies of HTTP: the codings of `Content-Encoding`, each with a bounded result, and charsets.

Owns no protocol. brotli and zstandard are installed with mitmproxy; without them such a body is kept as it was sent.
"""

from __future__ import annotations

import re
import zlib
from importlib import import_module
from typing import Any

_BROTLI_STEP = 64
"""Bytes that are given to brotli at once: it has no limit of its own for what they become."""
_TEXT_TYPES = re.compile(
    r"text/.*|application/(?:(?:.*\+)?(?:json|xml)|(?:x-|ecma|java)?javascript|x-www-form-urlencoded|graphql|x-ndjson)"
    r"|image/svg\+xml|multipart/.*|",
    re.IGNORECASE,
)
"""Media types whose bodies are texts, if they can be decoded; one that is not stated may be a text."""
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)


def decode_body(content: bytes, codings: str, limit: int) -> bytes | None:
    """The body without its codings (`gzip, br`); None if it cannot be decoded, or is longer than the limit."""
    for name in reversed([part.strip().lower() for part in codings.split(",")]):
        if name in ("", "identity"):
            continue
        try:
            decoded = _decode(content, name, limit)
        except Exception:  # of three libraries, each with its own
            return None
        if decoded is None or len(decoded) > limit:
            return None
        content = decoded
    return content


def _decode(content: bytes, name: str, limit: int) -> bytes | None:
    if name in ("gzip", "x-gzip"):
        return _inflate(content, 31, limit)
    if name == "deflate":
        # RFC 9110 says zlib's format; some servers send the bare one.
        try:
            return _inflate(content, 15, limit)
        except zlib.error:
            return _inflate(content, -15, limit)
    if name == "br":
        return _decode_brotli(content, limit)
    if name == "zstd":
        reader = import_module("zstandard").ZstdDecompressor().stream_reader(content, read_across_frames=True)
        return bytes(reader.read(limit + 1))
    return None


def _inflate(content: bytes, window_bits: int, limit: int) -> bytes:
    """All members of a compressed body. Raises zlib.error."""
    found = bytearray()
    while content and len(found) <= limit:
        stream = zlib.decompressobj(window_bits)
        found += stream.decompress(content, limit + 1 - len(found))
        if not stream.eof and len(found) <= limit:
            raise zlib.error("the body ends early")
        content = stream.unused_data
    return bytes(found)


def _decode_brotli(content: bytes, limit: int) -> bytes | None:
    stream: Any = import_module("brotli").Decompressor()
    found = bytearray()
    for start in range(0, len(content), _BROTLI_STEP):
        found += stream.process(content[start : start + _BROTLI_STEP])
        if len(found) > limit:
            break
    return bytes(found) if stream.is_finished() or len(found) > limit else None


def text_of(content: bytes, media_type: str) -> str | None:
    """The text of a decoded body; None if it is no text, or its charset is not known."""
    kind, _, parameters = media_type.partition(";")
    if not _TEXT_TYPES.fullmatch(kind.strip()):
        return None
    named = re.search(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", parameters, re.IGNORECASE)
    charset = named[1] if named else None
    if charset is None and "html" in kind.lower() and (meta := _META_CHARSET.search(content[:4096])):
        charset = meta[1].decode("ascii")
    for name in (charset, "utf-8"):
        try:
            if name is not None:
                return content.decode(name)
        except (LookupError, ValueError):
            continue
    return None
