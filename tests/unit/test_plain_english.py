"""Holds the plain English that CONTRIBUTING.md asks for: words and metaphors that no text and no name may contain.

Owns the list of banned words. Reads every tracked text file (Markdown, Rust, Python, templates, plans) as one text, so
that a phrase is found across line ends, and every identifier and file name apart. Standard terms stay allowed:
`session`, or `link` of an interface.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".md", ".rs", ".py", ".html", ".js", ".css", ".lua", ".yaml", ".toml", ".sh", ".c", ".ini", ""}

PHRASES = {
    "whoever": "name the subject",
    "whom": "name the person or the part",
    "nobody|nobody's": "no client, no process, none",
    "somebody|somebody's": "name the subject",
    "anew": "again",
    "be it": "whether, even if",
    "so many": "this many, N",
    "so long": "this long, as long as",
    "(?:is|are|was|were|be|been|being) told": "receives, is reported",
    "(?:is|are|was|were|be|been) had": "exists, is available",
    "what is what": "name the difference",
    "the least that": "the minimum",
    "doorman": "rate limiter",
    "house|houses|house's": "name the object",
    "crews?|newcomers?|carriage|deeds?": "name the object",
    r"(?:'s|s'|their|its|whose) doing": "name the cause",
    r"is (?:the )?\w+'s to": "the subject does it",
    "lest": "so that it does not",
    "had no more": "had none left",
    "everybody|everybody's": "every client, every process",
}
"""A regular expression of words that no text may contain, and what to write instead."""

NAMES = {
    "acting", "anew", "carriage", "came_up", "complaints", "conduct", "crew", "deed", "deeds", "departing",
    "doorman", "entrance", "every_test", "hear", "house", "lacking", "ledger", "newcomer", "nobody", "rehearsal",
    "rejoin", "ringed", "rising", "so_long", "so_many", "somebody", "surroundings", "told", "unhurried",
    "watched_work", "whoever", "whom",
}  # fmt: skip
"""Words that no identifier and no file name may contain, in snake case."""

DEFINED = {
    # Types.
    "Course", "Desk", "Duty", "Member", "Person", "Place", "Question", "Seat", "Sheet", "Told", "Wanted",
    # Functions.
    "at_first", "came_up", "hear", "lacking", "look", "notices", "say", "told", "took",
    # Modules.
    "choke", "course", "duty", "gathering", "grouped", "measuring", "member", "polled", "quick", "searching", "seat",
    "sheet", "through", "wiring",
}  # fmt: skip
"""Words that are no name of a type, a function or a module as a whole. In longer names, and as names of values, they
have their usual meaning."""

ALLOWED = {
    ("crates/agent/src/wireguard.rs", "nobody"): "the user",
    ("tests/lab/http_servers.py", "nobody"): "the user",
    ("tests/lab/lab_scripts.py", "nobody"): "the user",
    ("tests/lab/openvpn_servers.py", "nobody"): "the user",
    ("tests/lab/real_runs.py", "nobody"): "the user",
    ("tests/lab/test_hosts_given.py", "nobody"): "the user",
    ("tests/lab/test_lab_hosts.py", "nobody"): "the user",
    ("tests/lab/test_lab_jail.py", "nobody"): "the user",
}
"""Words that are a standard term in their file."""

NOT_CLEAN_YET: tuple[str, ...] = ()
"""Folders and files whose text is still to be rewritten. The list only ever gets shorter."""

NAMES_NOT_CLEAN_YET: tuple[str, ...] = ()
"""Folders and files whose names are still to be rewritten. The list only ever gets shorter."""

_PHRASE = re.compile(
    r"\b(?:" + "|".join(f"(?:{phrase})" for phrase in PHRASES).replace(" ", r"\s+") + r")\b", re.IGNORECASE
)
_COMMENT_MARK = re.compile(r"^[ \t]*(?:///|//!|//|#:|#|\*|--)[ \t]?", re.MULTILINE)
_PROSE = re.compile(
    r'"""(?s:.*?)"""' r"|//[^\n]*" r"|(?<!')#(?![\[!])[^\n]*" r'|"(?:\\.|[^"\\])*"' r"|'(?:\\.|[^'\\\n]){2,}'",
    re.MULTILINE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME = re.compile(r"(?:^|_)(" + "|".join(sorted(NAMES, key=len, reverse=True)) + r")(?:_|$)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_DEFINITION = re.compile(r"\b(?:def|class|fn|struct|enum|trait|type|mod|union) +(?:r#)?(\w+)")


def test_no_text_contains_a_banned_word() -> None:
    found = [finding for path, text in _texts(NOT_CLEAN_YET) for finding in _phrases(path, text)]
    assert found == [], "\n" + "\n".join(found)


def test_no_name_contains_a_banned_word() -> None:
    found = [finding for path, text in _texts(NAMES_NOT_CLEAN_YET) for finding in _names(path, text)]
    assert found == [], "\n" + "\n".join(found)


def test_banned_phrases_are_found() -> None:
    for text in (
        "late by the\n/// machine's doing",
        "that is the server's to decide",
        "lest it waits",
        "it had no more",
    ):
        assert len(list(_phrases("a.rs", text))) == 1, text
    assert list(_phrases("a.md", "the user's token is sent to the server; its donor; more than it had")) == []


def test_banned_definitions_are_found_and_other_uses_are_not() -> None:
    assert list(_names("a/choke.rs", "struct Place(u32);\nfn say() {}")) == [
        "a/choke.rs: 'Place' is defined",
        "a/choke.rs: 'choke' is defined",
        "a/choke.rs: 'say' is defined",
    ]
    assert list(_names("a.py", "class SourcePlace:\n    def took_s(self): look = through")) == []


def test_the_list_of_unclean_files_names_only_what_is_there() -> None:
    assert [entry for entry in (*NOT_CLEAN_YET, *NAMES_NOT_CLEAN_YET) if not (ROOT / entry).exists()] == []


def _phrases(path: str, text: str) -> Iterator[str]:
    """Each banned phrase of a file, with its line and what to write instead."""
    unmarked = _COMMENT_MARK.sub("", text)
    for match in _PHRASE.finditer(unmarked):
        if (path, match.group().lower()) not in ALLOWED:
            line = unmarked.count("\n", 0, match.start()) + 1
            instead = next(
                hint
                for phrase, hint in PHRASES.items()
                if re.fullmatch(phrase, " ".join(match.group().lower().split()))
            )
            yield f"{path}:{line}: {' '.join(match.group().split())!r} ({instead})"


def _names(path: str, text: str) -> Iterator[str]:
    """Each banned word in the identifiers of a program, and in a file's name."""
    names = {Path(path).stem}
    if path.endswith((".rs", ".py")):
        code = _PROSE.sub(" ", text)
        names.update(_IDENTIFIER.findall(code))
        for name in sorted(DEFINED & {*_DEFINITION.findall(code), Path(path).stem.removeprefix("test_")}):
            yield f"{path}: {name!r} is defined"
    for name in sorted(names):
        match = _NAME.search(_CAMEL.sub("_", name).lower())
        if match and (path, match.group(1)) not in ALLOWED:
            yield f"{path}: {name!r}"


def _texts(except_for: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Every tracked text file that people write and read, except for some."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in listed.splitlines():
        file = ROOT / path
        if file.suffix not in SUFFIXES or "/vendor/" in path or path.startswith(except_for):
            continue
        if file == Path(__file__) or not file.is_file() or path.startswith(("fuzz/corpus/", "LICENSE")):
            continue
        try:
            yield path, file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
