"""Makes an `.ovpn` file self-contained: every file that it refers to becomes an inline block, as OpenVPN allows.

Changes only the lines that name files, and keeps the numbers of all others, so that messages about a line match the
user's file; the blocks follow the last line. The agent interprets the options. Pure: the caller reads the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

FILES = frozenset(
    {"ca", "cert", "key", "extra-certs", "tls-auth", "tls-crypt", "tls-crypt-v2", "auth-user-pass"},
)
"""Options that a fleet supports and whose first argument is a file."""
_REFUSED = {
    "config": "put the other file's lines in its place",
    "pkcs12": "split it: openssl pkcs12 -in FILE -nodes, into ca, cert and key",
}
_MOST_BYTES = 1 << 20


class ProfileProblem(ValueError):
    """A mistake in a profile, with its line; the message is for the user and repeats no file's content."""

    def __init__(self, line: int, text: str, hint: str | None = None) -> None:
        super().__init__(f"line {line}: {text}")
        self.line = line
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Profile:
    """A self-contained profile."""

    text: str = field(repr=False)
    has: frozenset[str]
    """Its options by name, inline blocks included."""
    blocks: dict[str, str] = field(repr=False)
    """The content of its inline blocks, those made from files included."""


def whole(text: str, read: Callable[[str], str], *, of_server: bool = False) -> Profile:
    """Insert every file. `read` returns the text of a file by its name in the profile, and raises ValueError with a
    message for the user. A server's tls-crypt-v2 key is another one than a client's.

    Raises:
        ProfileProblem: a file that cannot be read, a block without an end, or an option that includes other files.
    """
    if len(text) > _MOST_BYTES:
        raise ProfileProblem(1, f"{len(text)} characters are too many for a profile", f"at most {_MOST_BYTES}")
    lines: list[str] = []
    has: set[str] = set()
    blocks: dict[str, str] = {}
    # The last of several with one name counts, even if it is a block after a file.
    from_files: dict[str, str] = {}
    inside: tuple[str, int] | None = None
    held: list[str] = []
    for number, line in enumerate(_lines(text), 1):
        if inside is not None:
            lines.append(line)
            if _closes(line, inside[0]):
                blocks[inside[0]] = "".join(f"{one}\n" for one in held)
                inside = None
            else:
                held.append(line)
            continue
        words = _words(line, number)
        opening = _OPENING.fullmatch(words[0]) if len(words) == 1 else None
        if opening is not None:
            has.add(opening[1])
            from_files.pop(opening[1], None)
            # A `connection` block contains options, none of which names a file.
            inside, held = (opening[1], number), []
            lines.append(line)
            continue
        named = _file_of(words, number, has)
        if named is None:
            lines.append(line)
            continue
        name, file = named
        from_files[name] = blocks[name] = _read(read, file, name, number, of_server=of_server)
        # The syntax by which older versions announce a block; tls-auth may have its direction after it.
        lines.append(" ".join([name, "[inline]", *(words[2:3] if name == "tls-auth" else ())]))
    if inside is not None:
        raise ProfileProblem(inside[1], f"<{inside[0]}> has no end", f"close it with </{inside[0]}>")
    for name, content in from_files.items():
        lines += [f"<{name}>", *_lines(content), f"</{name}>"]
    return Profile("".join(f"{line}\n" for line in lines), frozenset(has), blocks)


def _lines(text: str) -> list[str]:
    """The lines as the agent counts them: split at line feeds only."""
    lines = text.removeprefix("\ufeff").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _closes(line: str, block: str) -> bool:
    return line.lstrip().startswith(f"</{block}>")


def _file_of(words: list[str], number: int, has: set[str]) -> tuple[str, str] | None:
    """The option and its file, if the line is outside of a block and names a file."""
    if not words:
        return None
    name = words[0].removeprefix("--")
    has.add(name)
    if name in _REFUSED:
        raise ProfileProblem(number, f"{name} includes another file", _REFUSED[name])
    if name not in FILES or len(words) < 2 or words[1] == "[inline]":
        return None
    return name, words[1]


def _read(read: Callable[[str], str], file: str, name: str, number: int, *, of_server: bool) -> str:
    try:
        content = read(file)
    except ValueError as error:
        raise ProfileProblem(number, f"{name}: {error}") from None
    if any(_closes(line, name) for line in _lines(content)):
        raise ProfileProblem(number, f"{name}: {file} contains the end of an inline block")
    marker = _PEM.get(name) if name != _V2 or not of_server else _V2_SERVER
    if marker is not None and f"{marker}-----" not in content:
        raise ProfileProblem(number, f"{name}: {file} contains no {marker} in PEM")
    if name == "key" and "ENCRYPTED" in content:
        raise ProfileProblem(
            number, f"{name}: {file} is encrypted with a passphrase", "remove the passphrase: openssl pkey"
        )
    return content


def _words(line: str, number: int) -> list[str]:
    """Split a line as OpenVPN does: quotes count at the start of a word, backslashes everywhere except in single
    quotes, and # or ; at the start of a word begins a comment."""
    words: list[str] = []
    at = 0
    while at < len(line):
        found = _TOKEN.match(line, at)
        if found is None:
            rest = line[at:]
            if rest[0] in "\"'" and not _LOOSELY_QUOTED.match(rest):
                raise ProfileProblem(number, f"a quotation mark ({rest[0]}) is not closed", "close it")
            raise ProfileProblem(number, _BACKSLASH)
        if found.lastgroup == "comment":
            break
        if found.lastgroup == "single":
            words.append(found["single"])
        elif found.lastgroup is not None:
            words.append(_ESCAPED.sub(r"\1", found[found.lastgroup]))
        at = found.end()
    return words


_SPACE = r"[ \t\n\r\x0b\x0c]"
_ESCAPE = r'\\[\\" \t\n\r\x0b\x0c]'
_TOKEN = re.compile(
    rf"\\?{_SPACE}|\\\Z|(?P<comment>\\?[#;])|\"(?P<double>(?:[^\"\\]|{_ESCAPE})*)\"|'(?P<single>[^']*)'"
    rf"|(?P<bare>(?:{_ESCAPE}|(?!['\"\\]|{_SPACE}).)(?:{_ESCAPE}|(?!\\|{_SPACE}).)*)(?={_SPACE}|\Z)",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LOOSELY_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BACKSLASH = "a backslash stands only before a backslash, a double quotation mark or a space"
_V2, _V2_SERVER = "tls-crypt-v2", "OpenVPN tls-crypt-v2 server key"
_PEM = {
    **dict.fromkeys(("ca", "cert", "extra-certs"), "CERTIFICATE"),
    "key": "PRIVATE KEY",
    **dict.fromkeys(("tls-auth", "tls-crypt"), "OpenVPN Static key V1"),
    _V2: "OpenVPN tls-crypt-v2 client key",
}
"""The type of a file's PEM section."""
_OPENING = re.compile(r"<([a-z][a-z0-9-]*)>", re.ASCII)
