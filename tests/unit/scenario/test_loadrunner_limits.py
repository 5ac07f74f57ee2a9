"""Texts of LoadRunner that are wrong, huge or nested end in the module's own refusals, each with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from loadrunner_cases import EMPTY, convert
from test_loadrunner import BY_GROUP, GLOBAL, GROUPS, SHARES, action, read_controller

from leadline.errors import PlanError
from leadline.scenario.conversion import Conversion
from leadline.scenario.files import reader_below
from leadline.scenario.formats import FormatOptions, read_scenario
from leadline.scenario.loadrunner.controller import read_parts
from leadline.scenario.loadrunner.expression_parser import MAX_HEIGHT
from leadline.scenario.loadrunner.ini import read_number
from leadline.scenario.loadrunner.parser import parse
from leadline.scenario.loadrunner.script import ScriptFiles, read_script
from leadline.scenario.loadrunner.settings import MAX_BLOCK_DEPTH, RunLogicError, read_settings
from leadline.scenario.loadrunner.tokens import MAX_TOKENS, CSyntaxError, Preprocessor

USED = 'web_url("page", "URL=http://h.test/", LAST);'
LONG = "9" * 5_000


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("b[0] = -1;", "-1 is the code of no character"),
        ("b[0] = 256;", "256 is the code of no character"),
        ("if (b[0] == -1) x = 1;", "-1 is the code of no character"),
        ('sprintf(b, "%c", -1);', "-1 is the code of no character"),
        ("p = strchr(b, -1);", "-1 is the code of no character"),
        ("p = strrchr(b, 1114112);", "1114112 is the code of no character"),
        ("c = -1;", "-1 is the code of no character"),
        (r"x = '\nab';", "is more than one character"),
        ('x = strncmp(b, "a");', "strncmp needs more arguments"),
        ("x = atof();", "atof needs 1 arguments, not 0"),
        (
            'web_url("a", "URL=http://h.test/", EXTRARES, "Url=http://[x]/", ENDITEM, LAST);',
            "the URL 'http://[x]/' of a resource is none",
        ),
        ("x = 10uf;", "'10uf' is no number"),
        (f"x = {LONG};", f"the number {'9' * 30}... is too large"),
        (f"x = 0{'7' * 5_000};", f"the number 0{'7' * 29}... is too large"),
        ("x = 0x10000000000000000;", "the number 0x10000000000000000 is too large"),
        ("f = 1e999;", "the number 1e999 is too large"),
        (f'sprintf(b, "%{LONG}d", x);', "a number of 5000 digits is too large"),
        (f'web_reg_save_param("n", "LB=a", "RB=b", "Ord={LONG}", LAST);', "a number of 5000 digits is too large"),
        (f'web_reg_save_param("n", "LB=a", "RB=b", "SaveLen={LONG}", LAST);', "a number of 5000 digits is too large"),
        (f"x = {'+'.join(['x'] * 3_000)};", f"the expression has more than {MAX_HEIGHT} operators over each other"),
        (f"x = {'||'.join(['x'] * 3_000)};", f"the expression has more than {MAX_HEIGHT} operators over each other"),
        (f"x = a{'[0]' * 3_000};", f"the expression has more than {MAX_HEIGHT} operators over each other"),
        (f"x = {'- ' * 3_000}x;", "the expression is nested too deeply"),
        (f"x = {'x ? 1 : ' * 3_000}x;", "the expression is nested too deeply"),
    ],
)
def test_statement_that_cannot_run_is_refused_with_its_cause(statement: str, why: str) -> None:
    found = convert(action(f"char b[9]; char *p; char c; int x; float f;\n{USED}\n{statement}"))
    (refusal,) = found.get("refused") or [str(found)]
    assert why in refusal


def test_height_of_an_expression_is_that_of_its_longest_way() -> None:
    wide = " || ".join(f"(x + 1 == {number})" for number in range(MAX_HEIGHT - 10))
    arguments = ", ".join(["-x"] * 1_000)
    found = convert(action(f'int x;\n{USED}\nif ({wide}) lr_output_message("%d", {arguments});'))
    assert "refused" not in found
    # Brackets at the left are read before the operators over them.
    nested = "(" * 50 + "x" + " + x + x + x)" * 50
    (refusal,) = convert(action(f"int x;\n{USED}\nx = {nested};"))["refused"]
    assert "operators over each other" in refusal


def test_products_of_numbers_stay_small() -> None:
    product = " * ".join(["999999999"] * 100)
    assert len(str(convert(action(f"int x;\n{USED}\nx = {product};")))) < 5_000


def test_numbers_of_c() -> None:
    texts = ["10", "010", "08", "0", "0x1F", "10UL", "10u", "1.5f", "1.5L", ".5f", "1.", "1e3", "10f"]
    values = [10, 8, 8, 0, 31, 10, 10, 1.5, 1.5, 0.5, 1.0, 1000.0, 10.0]
    tokens = Preprocessor(lambda name: None).read(f"float a[] = {{{', '.join(texts)}}};", "a.c")
    (declaration,) = parse(tokens, "a.c").globals
    assert [item.value for item in declaration.value.items] == values  # type: ignore[union-attr]


def test_refusal_has_file_and_line(tmp_path: Path) -> None:
    content = b"[Actions]\nAction=Action.c\n"
    (tmp_path / "Action.c").write_bytes(action(f"int x;\n{USED}\nx = 10uf;")["Action.c"])
    with pytest.raises(PlanError) as refused:
        read_scenario(content, "a.usr", FormatOptions(), reader_below(tmp_path))
    assert str(refused.value).startswith("Action.c:5: C: '10uf' is no number")
    assert len(str(refused.value).splitlines()) == 1


def test_functions_and_blocks_in_each_other_are_refused() -> None:
    deep = "if (x) {{ " * 25 + "{}" + " }}" * 25
    functions = [f"void f{number}(int x) {{ {deep.format(f'f{number + 1}(x);')} }}" for number in range(25)]
    text = "\n".join([*functions, "void f25(int x) { lr_think_time(x); }", "Action() { int x; x = rand(); f0(x); }"])
    (refusal,) = convert({"Action.c": text.encode()})["refused"]
    assert refusal == "Action.c:5: own functions and blocks are nested too deeply"


@pytest.mark.parametrize(
    "lines",
    [
        # Each line is replaced when the next one is read.
        ["#define A0 1 1 1 1 1 1 1 1", *(f"#define A{n} {f'A{n - 1} ' * 8}" for n in range(1, 9))],
        # Nothing is replaced before the last line, and in the end nothing is left.
        [*(f"#define A{n} {f'A{n + 1} ' * 8}" for n in range(9)), "#define A9", "A0"],
    ],
)
def test_constants_of_constants_are_limited(lines: list[str]) -> None:
    shared = Preprocessor(lambda name: None)
    with pytest.raises(CSyntaxError, match="constants that stand for more than 400000 tokens are too many") as refused:
        shared.read("\n".join(lines), "globals.h")
    assert refused.value.place.file == "globals.h"
    assert refused.value.place.line <= len(lines)
    assert shared.replaced == MAX_TOKENS + 1


def test_numbers_without_a_meaning_are_the_defaults() -> None:
    assert [read_number(text, 7) for text in ("inf", "-inf", "nan", "1e999", "1e13", LONG)] == [7] * 6
    usp = "[RunLogicRunRoot]\nRunLogicNumOfIterations=inf\nRunLogicActionOrder=Action\n"
    assert read_settings(["Action"], usp, "").run.iterations == 1
    assert read_settings(["Action"], "", "[Iterations]\nNumOfIterations=nan\n").run.iterations == 1


def blocks(count: int, each: str) -> str:
    """A run logic of blocks, of which each one names the next one as in `each`."""
    own = "[RunLogicRunRoot:B{0}]\nRunLogicObjectKind=Block\nRunLogicActionOrder=" + each + "\n"
    return "[RunLogicRunRoot]\nRunLogicActionOrder=B0\n" + "".join(own.format(n, n + 1) for n in range(count))


@pytest.mark.parametrize(
    ("usp", "why", "line"),
    [
        (blocks(1, ",".join(["B{0}"] * 8)), "the run logic's block 'B0' is in itself", 3),
        (blocks(2, "B{1},B0"), "the run logic's block 'B0' is in itself", 3),
        (blocks(9, ",".join(["B{1}"] * 8)), "the run logic has more than 1000 actions", None),
        (blocks(12, "B{1}"), "the run logic has blocks in more than 10 others", 33),
    ],
)
def test_blocks_without_an_end_are_refused(usp: str, why: str, line: int | None) -> None:
    with pytest.raises(RunLogicError, match=why) as refused:
        read_settings(["Action"], usp, "")
    assert refused.value.line == line or line is None


def test_blocks_in_each_other_are_read() -> None:
    block = read_settings(["Action"], blocks(MAX_BLOCK_DEPTH, "B{1},Action"), "").run
    for _ in range(MAX_BLOCK_DEPTH):
        inner = block.actions[0].block
        assert inner is not None
        block = inner
    assert [one.name for one in block.actions] == [f"B{MAX_BLOCK_DEPTH}", "Action"]


def test_run_logic_is_refused_where_it_is_written() -> None:
    usr, usp = b"[Actions]\nAction=Action.c\n", blocks(1, "B{0}")
    files = {"a/a.usr": usr, "a/default.usp": usp.encode(), "a/default.cfg": b"", "a/Action.c": EMPTY["Action"]}
    with pytest.raises(PlanError, match=r"^a/default\.usp:3: the run logic's block 'B0' is in itself"):
        read_script(ScriptFiles("a/a.usr", usr, files.__getitem__, "a"), Conversion("a/a.usr"), skips_scripts=True)
    own = ScriptFiles("a/a.usr", usr, files.__getitem__, "a", usp, "")
    with pytest.raises(PlanError, match=r"^a/a\.usr: the run logic's block 'B0' is in itself"):
        read_script(own, Conversion("a/a.usr"), skips_scripts=True)


@pytest.mark.parametrize(
    ("schedule", "groups", "why"),
    [
        (BY_GROUP.replace(">30<", ">1.2.3<"), GROUPS, r"a group starts after '1\.2\.3', which is no number of seconds"),
        (GLOBAL.replace(">10<", ">inf<"), SHARES, "'inf' is no number for Batch/Interval"),
        (GLOBAL.replace(">11<", ">nan<"), SHARES, "'nan' is no number for TotalVusersNumber"),
        (GLOBAL.replace(">600<", ">1e300<"), SHARES, "'1e300' is no number for RunFor"),
    ],
)
def test_schedule_with_numbers_without_a_meaning_is_refused(
    schedule: str, groups: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=rf"day\.lrs:\d+: {why}") as refused:
        read_controller(tmp_path, schedule, groups)
    assert len(str(refused.value).splitlines()) == 1


def test_parts_may_be_in_many_others() -> None:
    assert sum(1 for _ in read_parts("{a\n" * 3_000).all()) == 3_000
