"""Which names are those of secrets, and texts without the values of such names: parameters of URLs and forms, header
fields, credentials in URLs.

The one place that decides this; whatever writes a file or prints asks here. What is sent is never masked. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, unquote_plus

HIDDEN = "***"
"""Shown in place of a secret."""


def is_secret_name(name: str, kept: Collection[str] = ()) -> bool:
    """Whether a header field, parameter or variable of this name has a secret, by the words of the name; not for the
    names in `kept`, in upper or lower case."""
    return _is_secret(name) and name.casefold() not in {one.casefold() for one in kept}


def mask_text(text: str, kept: Collection[str] = ()) -> str:
    """A text without credentials in URLs and without the values of secret parameters, as in `?token=x&page=1`."""
    if "://" in text:
        text = _CREDENTIALS.sub(_mask_credentials, text)
    if "=" in text:
        text = _PARAMETER.sub(lambda found: _mask_value(found, kept), text)
    return text


def may_have_secret(line: bytes) -> bool:
    """Whether `mask_line` may change the line: whether it has a `=` or a `://`."""
    # Most lines have no slash at all, and one character is found faster than three.
    return b"=" in line or (b"/" in line and b"://" in line)


def mask_line(line: bytes, kept: Collection[str] = ()) -> bytes:
    """A line of JSON or of a log, masked as `mask_text` masks; JSON stays JSON."""
    if not may_have_secret(line):
        return line
    text = line.decode("utf-8", "surrogateescape")
    masked = mask_text(text, kept)
    return line if masked is text or masked == text else masked.encode("utf-8", "surrogateescape")


def mask_field(text: str, kept: Collection[str] = ()) -> str:
    """A header field `NAME: VALUE`, also after `-H` or `--header=`, without the value of a secret one."""
    found = _FIELD.fullmatch(text)
    if found is None or not is_secret_name(found["name"], kept):
        return text
    return f"{found['head']}{HIDDEN}"


def mask_yaml(text: str, kept: Collection[str] = ()) -> str:
    """The text of a plan without the values of secret keys; references to files and variables stay."""
    return mask_text(_ENTRY.sub(lambda found: _mask_value(found, kept), text), kept)


def mask_document(document: Any, kept: Collection[str] = ()) -> Any:
    """A document of mappings, lists and texts, in which texts are masked, and the values of secret keys."""
    if isinstance(document, str):
        return mask_text(document, kept)
    if isinstance(document, Mapping):
        return {key: _mask_entry(key, value, kept) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [mask_document(value, kept) for value in document]
    return document


def secret_values(texts: Iterable[str], kept: Collection[str] = ()) -> Iterator[str]:
    """The values of the secret parameters in texts, as they stand there and decoded."""
    for text in texts:
        for found in _PARAMETER.finditer(text):
            if is_secret_name(_decoded(found["name"]), kept):
                yield from {found["value"], unquote_plus(found["value"])}


def _mask_entry(key: object, value: Any, kept: Collection[str]) -> Any:
    if isinstance(value, Mapping) or not is_secret_name(str(key), kept):
        return mask_document(value, kept)
    if isinstance(value, list | tuple):
        return [_mask_entry(key, one, kept) for one in value]
    # A plan refers to a secret by the name of a file or variable.
    return value if value is None or isinstance(value, bool) or str(value)[:1] in ("@", "$", "") else HIDDEN


def _mask_credentials(found: re.Match[str]) -> str:
    # A user's name alone is the credential of some web services, but only a name for SSH.
    before = found.string[max(0, found.start() - _SCHEME_LENGTH) : found.start()].lower()
    is_name = ":" not in found["userinfo"] and not before.endswith(_WEB_SCHEMES)
    return found[0] if is_name else f"://{HIDDEN}@"


def _mask_value(found: re.Match[str], kept: Collection[str]) -> str:
    return f"{found['head']}{HIDDEN}" if is_secret_name(_decoded(found["name"]), kept) else found[0]


def _decoded(name: str) -> str:
    return unquote(name) if "%" in name else name


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    if len(name) > _MAX_NAME_LENGTH:
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    joined = "".join(words)
    if _PARTS.search(joined) is not None or _WORDS.intersection(words):
        return True
    # The key of something; a key alone may be that of a table.
    return len(words) > 1 and words[-1] in ("key", "keys")


_MAX_NAME_LENGTH = 200
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PARTS = re.compile(
    r"authorization|authentication|cookie|token|secret|passw|passphrase|passcode|credential|signature|assertion"
    r"|session|sessid|bearer"
    r"|(api|app|auth|access|account|private|shared|signing|encryption|master|license|subscription)key"
)
"""Parts of a name, without what separates its words, of which one suffices."""
_WORDS = frozenset(
    {"auth", "pass", "pwd", "pw", "passwd", "sig", "jwt", "otp", "totp", "pin", "sid", "hmac", "csrf", "xsrf"}
)
"""Whole words of which one suffices."""
_WEB_SCHEMES = ("http", "https", "ws", "wss")
_SCHEME_LENGTH = max(map(len, _WEB_SCHEMES))
# It begins with what is searched for fast: lines of single requests have megabytes.
_CREDENTIALS = re.compile(r"://(?P<userinfo>[^/?#\s\"'<>\\]{1,2000})@")
# A value ends where a text or a JSON string may go on. An escaped character that is no quote and no
# white space belongs to it. A lone `=` is no value: it is the padding of base64, whose last letters may be a name.
_PARAMETER = re.compile(
    r"(?<![\w%.\[-])(?P<head>-{0,2}(?P<name>[A-Za-z_][\w.%\[\]-]{0,199})=)"
    r"(?P<value>(?!=(?:[&\s\"'<>#]|\\[\"nrt]|$))(?:[^&\s\"'<>#\\]+|\\[^\"nrt])+)"
)
_FIELD = re.compile(
    r"(?P<head>(?:--[a-z-]+=|-[A-Za-z0-9]*H)?\s*(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*:\s*)(?P<value>.*\S.*)",
    re.DOTALL,
)
_ENTRY = re.compile(
    r"(?P<head>(?<![\w.-])[\"']?(?P<name>[A-Za-z_][\w.-]{0,199})[\"']?:[ \t]+)"
    r"(?P<value>\"(?![@$])(?:[^\"\\\n]|\\.)+\"|'(?![@$])(?:[^'\n]|'')+'|(?![\"'\[{|>&*@$#])[^\s#,}\]][^\n#,}\]]*)"
)
