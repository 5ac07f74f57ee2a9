"""An `.ovpn` file made whole: every file that it refers to becomes an inline block, as OpenVPN itself allows.

Reads what it needs to find those files and leaves every other line as it is; what the options mean is the agent's to
judge. Pure: whoever calls reads the files.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

FILES = frozenset({"ca", "cert", "key", "extra-certs", "tls-auth", "tls-crypt", "tls-crypt-v2", "crl-verify"})
"""Options whose first argument is a file."""
_REFUSED = {
    "config": "put the other file's lines in its place",
    "pkcs12": "split it: openssl pkcs12 -in FILE -nodes, into ca, cert and key",
}
_MOST_BYTES = 1 << 20


class ProfileProblem(ValueError):
    """What is wrong with a profile, with its line; the text is for the user and repeats no file's content."""

    def __init__(self, line: int, text: str, hint: str | None = None) -> None:
        super().__init__(f"line {line}: {text}")
        self.line = line
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile in one piece."""

    text: str = field(repr=False)
    has: frozenset[str]
    """Its options by name, inline blocks included."""
    blocks: dict[str, str] = field(repr=False)
    """The content of its inline blocks, those made from files included."""


def whole(text: str, read: Callable[[str], str]) -> Profile:
    """Put every file in its place. `read` gives the text of a file by the name that stands in the profile, and raises
    ValueError with a line for the user.

    Raises:
        ProfileProblem: a file that cannot be read, a block without its end, or an option that brings in others.
    """
    if len(text) > _MOST_BYTES:
        raise ProfileProblem(1, f"{len(text)} characters are too many for a profile", f"at most {_MOST_BYTES}")
    lines: list[str] = []
    has: set[str] = set()
    blocks: dict[str, str] = {}
    inside: tuple[str, int] | None = None
    held: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if inside is not None:
            lines.append(line)
            if line.strip() == f"</{inside[0]}>":
                blocks[inside[0]] = "\n".join(held) + "\n"
                inside = None
            else:
                held.append(line)
            continue
        opening = _OPENING.fullmatch(line.strip())
        if opening is not None:
            has.add(opening[1])
            # A `connection` block holds options, none of which names a file.
            inside, held = (opening[1], number), []
            lines.append(line)
            continue
        lines += _line(line, number, read, has, blocks)
    if inside is not None:
        raise ProfileProblem(inside[1], f"<{inside[0]}> has no end", f"close it with </{inside[0]}>")
    return Profile("\n".join(lines) + "\n", frozenset(has), blocks)


def _line(line: str, number: int, read: Callable[[str], str], has: set[str], blocks: dict[str, str]) -> list[str]:
    """The lines that stand for one line outside of a block."""
    words = _words(line, number)
    if not words:
        return [line]
    name = words[0].removeprefix("--")
    has.add(name)
    if name in _REFUSED:
        raise ProfileProblem(number, f"{name} brings in another file", _REFUSED[name])
    if name == "auth-user-pass" and len(words) > 1:
        return _block(name, _read(read, words[1], name, number), [], blocks)
    if name not in FILES or len(words) < 2 or words[1] == "[inline]":
        return [line]
    # tls-auth may name its direction beside the file, for which there is an option of its own.
    direction = [f"key-direction {words[2]}"] if name == "tls-auth" and len(words) > 2 else []
    return _block(name, _read(read, words[1], name, number), direction, blocks)


def _block(name: str, content: str, before: list[str], blocks: dict[str, str]) -> list[str]:
    blocks[name] = content
    return [*before, f"<{name}>", *content.splitlines(), f"</{name}>"]


def _read(read: Callable[[str], str], file: str, name: str, number: int) -> str:
    try:
        content = read(file)
    except ValueError as error:
        raise ProfileProblem(number, f"{name}: {error}") from None
    if any(line.strip() == f"</{name}>" for line in content.splitlines()):
        raise ProfileProblem(number, f"{name}: {file} holds the end of an inline block")
    return content


def _words(line: str, number: int) -> list[str]:
    """A line as OpenVPN splits it: words, quotes, and comments from # or ; on."""
    stripped = line.strip()
    if not stripped or stripped[0] in "#;":
        return []
    lexer = shlex.shlex(stripped, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = "#;"
    try:
        return list(lexer)
    except ValueError as error:
        raise ProfileProblem(number, f"cannot be read: {str(error).lower()}", "close the quotes") from None


_OPENING = re.compile(r"<([a-z][a-z0-9-]*)>", re.ASCII)
