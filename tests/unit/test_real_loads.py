"""No test of a real load lets the machine decide: one that reads a verdict, a target's outcome, the end of a search or
a limit is marked with what decides it instead, or runs where the rules about the machine belong.

Reads the tests' code, and runs none of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
REAL_LOADS = ("browser", "dist", "docs", "lab", "oracle")
"""Folders of tests that start real loads; elsewhere those marked `agent` do."""
MARKS = {"decided_by", "machine_rules", "exclusive"}
READ = {"verdict", "validity", "targets", "ending", "limit", "agreement"}
"""What is read of a result, by the name of its key or attribute."""
READERS = {"limit_by"}
"""Functions of other modules that read such things."""
ASKED = re.compile(r"--(target|find-rate|find-max|most-repeats|width)\b|\btargets:|\buntil:|\bfind_rate\b")
"""What is asked of a run so that its figures decide how it goes, or its exit code."""
SORTED = sorted(path for path in TESTS.rglob("test_*.py") if path.relative_to(TESTS).parts[0] in (*REAL_LOADS, "unit"))


@pytest.mark.parametrize("path", SORTED, ids=lambda path: str(path.relative_to(TESTS)))
def test_verdicts_of_real_loads_name_what_decides_them(path: Path) -> None:
    is_real = path.relative_to(TESTS).parts[0] in REAL_LOADS
    offenders = list(unmarked(ast.parse(path.read_text(encoding="utf-8")), is_real=is_real))
    assert offenders == [], (
        f"{path.relative_to(TESTS)}: these tests start a real load and read what the machine may decide: {offenders}. "
        'Assert counts or order, or mark what decides it, @pytest.mark.decided_by("..."); a test about rules of the '
        "machine runs on made data (machine_rules), or alone (exclusive)"
    )


def unmarked(module: ast.Module, *, is_real: bool) -> Iterator[str]:
    """The tests of a module that read or ask such things, in their own code or in what they use of the module, without
    a mark; those of a folder of made data only if they are marked `agent`."""
    of_module = marks_of_module(module)
    parts = {name: node for node in module.body for name in names_of(node)}
    for name, node in parts.items():
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not name.startswith("test_"):
            continue
        marks = of_module | {mark for decorator in node.decorator_list for mark in marks_in(decorator)}
        if not (is_real or "agent" in marks) or marks & MARKS:
            continue
        found = sorted({word for part in used_by(name, parts) for word in read_in(parts[part])})
        if found:
            yield f"{name} ({', '.join(found)})"


def marks_of_module(module: ast.Module) -> set[str]:
    assigned = [node for node in module.body if isinstance(node, ast.Assign) and "pytestmark" in names_of(node)]
    return {mark for node in assigned for mark in marks_in(node.value)}


def marks_in(node: ast.AST) -> set[str]:
    """The names of pytest's marks in an expression; those of single parameters are not the test's."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.parametrize":
        return set()
    return set(re.findall(r"pytest\.mark\.(\w+)", ast.unparse(node)))


def names_of(node: ast.AST) -> list[str]:
    """What a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def used_by(name: str, parts: Mapping[str, ast.AST]) -> set[str]:
    """A part of a module and all that it uses of it: functions and constants that it names, fixtures it asks for."""
    found, left = set[str](), [name]
    while left:
        part = left.pop()
        if part in found:
            continue
        found.add(part)
        nodes = list(ast.walk(parts[part]))
        named = {node.id for node in nodes if isinstance(node, ast.Name)}
        named |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        left += sorted(named & parts.keys())
    return found


def read_in(node: ast.AST) -> Iterator[str]:
    """What a piece of code reads of results, and asks of runs."""
    for one in ast.walk(node):
        match one:
            case ast.Subscript(slice=ast.Constant(value=str(key))) if key in READ:
                yield key
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]) if key in READ:
                yield key
            case ast.Attribute(attr=name) if name in READ - {"targets"}:
                yield name
            case ast.Name(id=name) if name in READERS:
                yield name
            case ast.Constant(value=str(text)) if asked := ASKED.search(text):
                yield asked[0]


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ('def test_a(): assert run()["validity"]["verdict"] == "valid"', True),
        ('def test_a(): assert run().verdict("udp") == "valid"', True),
        ('def test_a(): assert limit_by(run()) == "link"', True),
        ('def ends(found): return found["targets"]\ndef test_a(): assert ends(run())', True),
        ('@pytest.fixture\ndef ran(): return run("--target", "x < 1").code\ndef test_a(ran): assert ran == 0', True),
        ('PLAN = "repeat: {until: 3%}"\ndef test_a(): run(PLAN)', True),
        ('@pytest.mark.decided_by("the interrupt")\ndef test_a(): assert run()["validity"]', False),
        ('pytestmark = [pytest.mark.lab, pytest.mark.machine_rules]\ndef test_a(): assert run()["limit"]', False),
        (
            '@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.machine_rules)])\n'
            'def test_a(a): assert run()["limit"]',
            True,
        ),
        ('def test_a(): assert run()["metrics"]["sent"]["value"] == 400', False),
    ],
)
def test_reads_without_a_mark_are_found(code: str, is_found: bool) -> None:
    assert bool(list(unmarked(ast.parse(code), is_real=True))) == is_found


def test_tests_of_made_data_may_read_verdicts() -> None:
    code = 'def test_a(): assert analyse()["validity"]'
    assert list(unmarked(ast.parse(code), is_real=False)) == []
    assert list(unmarked(ast.parse(f"pytestmark = pytest.mark.agent\n{code}"), is_real=False)) == ["test_a (validity)"]
