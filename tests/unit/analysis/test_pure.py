"""The package's invariant: it opens nothing, asks no clock, starts nothing; and it imports only what lies below it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import leadline.analysis

SOURCES = sorted(Path(leadline.analysis.__file__).parent.glob("*.py"))
FORBIDDEN = {
    "os",
    "io",
    "pathlib",
    "time",
    "random",
    "socket",
    "subprocess",
    "asyncio",
    "tempfile",
    "shutil",
}
LOWER = {"analysis", "dataset", "plan", "contract", "statistics", "errors", "quantities", "registry"}


@cache
def nodes(source: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source.read_text())))


def imported(source: Path) -> set[str]:
    names: set[str] = set()
    for node in nodes(source):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "leadline":
                names |= {f"leadline.{alias.name}" for alias in node.names}
    return names


def test_no_input_no_output_no_clock() -> None:
    for source in SOURCES:
        assert not {name.partition(".")[0] for name in imported(source)} & FORBIDDEN, source.name
        calls = {node.id for node in nodes(source) if isinstance(node, ast.Name)}
        assert not calls & {"open", "print", "input"}, source.name
        # Of datetime, texts may be read, and no clock.
        asked = {node.attr for node in nodes(source) if isinstance(node, ast.Attribute)}
        assert not asked & {"now", "utcnow", "today"}, source.name


def test_only_lower_floors() -> None:
    assert len(SOURCES) > 10
    for source in SOURCES:
        ours = {name.split(".")[1] for name in imported(source) if name.startswith("leadline.")}
        assert ours <= LOWER, source.name
