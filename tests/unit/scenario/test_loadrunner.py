"""The files of LoadRunner: encodings, settings, scripts in folders, the Controller's scenarios; and hostile texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loadrunner_cases import EMPTY, convert

from leadline.errors import PlanError
from leadline.plan.source import plain
from leadline.scenario.files import find_scenario, reader_below
from leadline.scenario.formats import FormatOptions, read_scenario
from leadline.scenario.loadrunner import translator
from leadline.scenario.loadrunner.dates import java_pattern
from leadline.scenario.loadrunner.encodings import decode
from leadline.scenario.loadrunner.ini import read_ini, read_number
from leadline.scenario.loadrunner.parser import MAX_DEPTH, parse
from leadline.scenario.loadrunner.schedule import read_schedules
from leadline.scenario.loadrunner.settings import Pace, ThinkTime, read_settings
from leadline.scenario.loadrunner.tokens import Preprocessor
from leadline.scenario.lowering import lower

URL = 'web_url("page", "URL=http://h.test/", "Mode=HTTP", LAST);'


def action(body: str) -> dict[str, bytes]:
    """A script with one action."""
    return {"Action.c": f"Action()\n{{\n{body}\nreturn 0;\n}}\n".encode()}


@pytest.mark.parametrize(
    ("text", "encoding", "locale"),
    [("Вход в систему", "cp1251", ""), ("登录系统", "gbk", ""), ("登录", "utf-8", ""), ("Вход", "cp1251", "ru-RU")],
)
def test_names_keep_their_letters_in_each_encoding(text: str, encoding: str, locale: str) -> None:
    assert decode(f'"{text}"'.encode(encoding), locale) == f'"{text}"'


def test_numbers_may_have_a_comma() -> None:
    assert [read_number(text) for text in ("60.000", "60,500", '"7"', "x")] == [60, 60.5, 7, 0]
    assert read_ini('[a]\nB="x=y"\n')["a"].text("b") == "x=y"


def test_settings_of_a_script() -> None:
    usp = '[RunLogicRunRoot]\nRunLogicPaceType="Random"\nRunLogicRandomPaceMin="5,5"\nRunLogicRandomPaceMax="7"\n'
    cfg = "[ThinkTime]\nOptions=RANDOM\nThinkTimeRandomLow=50\nThinkTimeRandomHigh=150\nLimitFlag=1\nLimit=9\n"
    found = read_settings(["Action"], usp, cfg + "[WEB]\nResetContext=False\n[General]\nContinueOnError=1\n")
    assert found.pace == Pace("interval", 5.5, 7)
    assert found.think_time == ThinkTime("random", 1, 50, 150, 9)
    assert (found.keeps_user, found.continues_on_error) == (True, True)
    assert read_settings(["Action"], "", "[Iterations]\nIterationPace=IterationAfterEnd\nStartEvery=3\n").pace == Pace(
        "delay", 3
    )


def test_dates_have_the_patterns_of_the_native_form() -> None:
    assert java_pattern("%d.%m.%Y at %H") == "dd.MM.yyyy' at 'HH"
    with pytest.raises(ValueError, match="%Q"):
        java_pattern("%Q")


def test_users_and_times_are_parameters() -> None:
    assert convert(action(URL))["load"] == {"users": "${param('users')}", "iterations": 1}
    found = convert(action(URL), {"users": "5", "duration": "1m", "ramp": "10s"})
    assert found["load"] == {"users": "${param('users')}", "duration": "60000000us", "ramp": "10s"}


def test_folder_is_its_script(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"a folder without a script of LoadRunner \(\.usr\)"):
        find_scenario(tmp_path)
    (tmp_path / "one.usr").touch()
    assert find_scenario(tmp_path) == tmp_path / "one.usr"
    (tmp_path / "two.usr").touch()
    with pytest.raises(PlanError, match="has 2 scripts"):
        find_scenario(tmp_path)


def test_capitals_of_names_are_those_of_windows(tmp_path: Path) -> None:
    (tmp_path / "Data").mkdir()
    (tmp_path / "Data" / "Users.dat").write_bytes(b"x")
    assert reader_below(tmp_path)("data\\USERS.dat") == b"x"
    for name in ("data/none.dat", "x" * 5000, "Data/../../x"):
        with pytest.raises(ValueError, match=r"cannot be read|outside of"):
            reader_below(tmp_path)(name)


def test_script_in_another_language_is_refused() -> None:
    with pytest.raises(PlanError, match="the script is in Java, not C"):
        read_scenario(b"[General]\nType=Java\n[Actions]\nActions=Actions.java\n", "a.usr", FormatOptions())


def test_skipped_statements_are_listed_and_the_others_run(tmp_path: Path) -> None:
    files = {"a.usr": b"[Actions]\nAction=Action.c\n"} | action(f"fopen(1);\n{URL}")
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    usr = str(tmp_path / "a.usr")
    options = FormatOptions(skips_scripts=True)
    read, conversion = read_scenario(files["a.usr"], usr, options, reader_below(tmp_path))
    assert [step["name"] for step in plain(read.root)["groups"][0]["flow"]] == ["page"]
    assert conversion is not None
    (item,) = [item for item in conversion.items if item.what == "fopen"]
    assert (item.outcome, item.line, item.file) == ("dropped", 3, str(tmp_path / "Action.c"))


CONTROLLER = """{ScenarioGeneralConfig
ScenarioType=2
}
{TestChief

{buy
UiName=Buy
Path=C:\\Load\\Scripts\\Buy\\Buy.usr
Config=[ThinkTime]\\r\\nOptions=NOTHINK\\r\\n
ConfigUsp=[RunLogicRunRoot]\\r\\nRunLogicActionOrder="Action"\\r\\nRunLogicPaceType="Const"\\r\\nRunLogicPaceConstTime="9"\\r\\n
}

{look
UiName=Look
Path=C:\\Load\\Scripts\\Look\\Look.usr
Config=[ThinkTime]\\r\\nOptions=FACTOR\\r\\nFactor=2\\r\\n
ConfigUsp=
}
}
{ScenarioSchedulerConfig
<?xml version="1.0" encoding="utf-16"?>
<LoadTest><Schedulers><CurrentSchedulerId>1</CurrentSchedulerId><Scheduler ID="1"><Manual>
SCHEDULE
</Manual></Scheduler></Schedulers></LoadTest>
}
{ScenarioGroupsData
PERCENT
}
"""
GLOBAL = """<SchedulerType>Global</SchedulerType><Global><Scheduling><DynamicScheduling>
<RampUp><Batch><Count>1</Count><Interval>10</Interval></Batch><TotalVusersNumber>11</TotalVusersNumber></RampUp>
<Duration><RunFor>600</RunFor></Duration><StopAll /></DynamicScheduling></Scheduling></Global>"""
BY_GROUP = """<SchedulerType>Groups</SchedulerType><Groups><GroupScheduler><GroupName>g1</GroupName>
<StartupMode><StartAfterDelay>30</StartAfterDelay></StartupMode><Scheduling><DynamicScheduling>
<RampUp><Batch><Count>2</Count><Interval>5</Interval></Batch><TotalVusersNumber>4</TotalVusersNumber></RampUp>
<Duration><RunFor>60</RunFor></Duration>
<RampDownAll><Batch><Count>1</Count><Interval>3</Interval></Batch></RampDownAll>
</DynamicScheduling></Scheduling></GroupScheduler></Groups>"""
SHARES = """{SCHED_GROUP_DATA
SCHED_GROUP_NAME=buy
TEST_PERCENT_DISTRIBUTION=30,00
}
{SCHED_GROUP_DATA
SCHED_GROUP_NAME=look
TEST_PERCENT_DISTRIBUTION=70.00
}"""
GROUPS = """}
{GroupChief
{g1
{1
5=look
}
{2
5=look
}
{ChiefSettings
5=look
Enabled=1
}
}
{off
{ChiefSettings
5=buy
Enabled=0
}
}"""


def read_controller(folder: Path, schedule: str, groups: str) -> tuple[dict[str, Any], list[str]]:
    """A Controller's scenario beside its scripts, and the parts that are not kept."""
    for name in ("Buy", "Look"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"{name}.usr").write_text(
            "[General]\nParameterFile=p.prm\n[Actions]\nvuser_init=i.c\nAction=Action.c\n"
        )
        (folder / name / "i.c").write_bytes(EMPTY["vuser_init"])
        (folder / name / "p.prm").write_text(
            '[parameter:id]\nType="Table"\nTable="id.dat"\nSelectNextRow="Random"\nGenerateNewVal="EachIteration"\n'
        )
        (folder / name / "id.dat").write_text("id\n1\n")
        body = 'lr_think_time(4);\nweb_url("page", "URL=http://h.test/{id}", "Mode=HTTP", LAST);'
        (folder / name / "Action.c").write_bytes(action(body)["Action.c"])
    text = CONTROLLER.replace("SCHEDULE", schedule).replace("PERCENT", groups)
    file = folder / "day.lrs"
    read_file = reader_below(folder)
    read, conversion = read_scenario(text.encode(), str(file), FormatOptions(), read_file)
    lower(read.scenario, read.root, read_file)
    assert conversion is not None
    return plain(read.root), [f"{one.what}: {one.why}" for one in conversion.items if one.outcome != "kept"]


def test_controller_shares_its_users_and_has_its_own_settings(tmp_path: Path) -> None:
    found, differing = read_controller(tmp_path, GLOBAL, SHARES)
    buy, look = found["groups"]
    # 11 users, one each 10 s, the last one after 100 s; then 600 s.
    assert buy["load"] == {"users": 3, "ramp": "110s", "duration": "700s"}
    assert look["load"] == {"users": 8, "ramp": "110s", "duration": "700s"}
    page = {"name": "page", "get": "/${id}"}
    assert buy["flow"] == [{"next": "buy: id"}, page, {"pace": "9s"}]
    assert look["flow"] == [{"next": "look: id"}, {"wait": "8s"}, page]
    assert [one["file"] for one in found["data"]] == ["Buy/id.dat", "Look/id.dat"]
    assert differing == []


def test_controller_with_groups_of_their_own_schedules(tmp_path: Path) -> None:
    found, differing = read_controller(tmp_path, BY_GROUP, GROUPS)
    (group,) = found["groups"]
    stages = [{"to": 4, "over": "10s"}, {"to": 4, "over": "60s"}, {"to": 0, "over": "12s"}]
    assert (group["name"], group["load"]) == ("g1", {"stages": stages, "delay": "30s"})
    assert differing == [
        "group off: it is disabled",
        "group g1: users start and end evenly; the Controller starts and ends several at once",
    ]


@pytest.mark.parametrize(
    ("start", "delay_s", "after"),
    [
        ("<StartAfterDelay>30</StartAfterDelay>", 30, []),
        ("<StartAfterDelay>1,5</StartAfterDelay>", 1.5, []),
        ("<StartAfterGroup>g2</StartAfterGroup>", 0, ["g2"]),
        ("<StartAfterGroup>30</StartAfterGroup>", 0, ["30"]),
        ("<StartAtBeginning>yes</StartAtBeginning>", 0, []),
    ],
)
def test_group_starts_after_a_time_or_another_group(start: str, delay_s: float, after: list[str]) -> None:
    manual = BY_GROUP.replace("<StartAfterDelay>30</StartAfterDelay>", start)
    text = f"<LoadTest><Schedulers><Scheduler ID='1'><Manual>{manual}</Manual></Scheduler></Schedulers></LoadTest>"
    _, groups = read_schedules(text, "day.lrs", 1)
    assert (groups["g1"].delay_s, groups["g1"].after) == (delay_s, after)


@pytest.mark.parametrize("key", ["LB/BIN", "RB/BIN", "LB/IC/BIN"])
def test_boundaries_of_bytes_are_refused(key: str) -> None:
    boundaries = {"LB": "a", "RB": "b"} | {key[:2]: "c"}
    given = ", ".join(f'"{key if key[:2] == own else own}={text}"' for own, text in boundaries.items())
    (refusal,) = convert(action(f'web_reg_save_param("one", {given}, LAST);\n{URL}'))["refused"]
    assert "BIN" in refusal
    assert refusal.endswith("have no native form")


def test_controller_without_its_scripts_names_them(tmp_path: Path) -> None:
    text = CONTROLLER.replace("SCHEDULE", GLOBAL).replace("PERCENT", SHARES)
    with pytest.raises(PlanError, match=r"day\.lrs:6: the script Buy/Buy\.usr is not there"):
        read_scenario(text.encode(), str(tmp_path / "day.lrs"), FormatOptions(), reader_below(tmp_path))


def test_calls_that_double_end_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator, "MAX_STATEMENTS", 500)
    calls = "".join(f"void f{i}() {{ f{i + 1}(); f{i + 1}(); }}\n" for i in range(28))
    text = f"{calls}void f28() {{ int x; x = 1; }}\nAction() {{ while (1) {{ f0(); }} }}"
    (refusal,) = convert({"Action.c": text.encode()})["refused"]
    assert refusal.endswith("own functions repeat more than 500 statements")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("#ifdef X\nA\n#elif 0\nB\n#else\nC\n#endif\nD", "A D"),
        ("#ifdef X\nA\n#elif 1\nB\n#elif 1\nC\n#else\nE\n#endif\nD", "A D"),
        ("#ifndef X\nA\n#elif 0\nB\n#elif 1\nC\n#else\nE\n#endif\nD", "C D"),
        ("#ifndef X\nA\n#elif 0\nB\n#else\nC\n#endif\nD", "C D"),
        ("#if 0\n#ifdef X\nA\n#elif 0\nB\n#else\nC\n#endif\n#else\nE\n#endif\nD", "E D"),
    ],
)
def test_one_part_of_a_condition_is_read(text: str, read: str) -> None:
    tokens = Preprocessor(lambda name: None).read(f"#define X 1\n{text}\n", "Action.c")
    assert " ".join(one.text for one in tokens) == read


HOSTILE = [
    "Action() { " + "{" * 500 + "}" * 500 + " }",
    "Action() { x = " + "(" * 500 + "1" + ")" * 500 + "; }",
    'Action() { web_url("a" "b',
    "Action() { /* ",
    "Action(",
    "Action() { if (",
    "#define A A A\nAction() { A(1); }",
    '#include "Action.c"\nAction() { }',
    "Action() { switch (1) { case",
    "\0\xff{}()[];,",
    "int a[",
    "int a(=) {",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_ends_in_messages(text: str) -> None:
    shared = Preprocessor(lambda name: text)
    unit = parse(shared.read(text, "Action.c"), "Action.c")
    assert len(unit.functions) + len(unit.globals) >= 0
    found = convert({"Action.c": text.encode("utf-8", "replace")})
    assert "refused" in found or "flow" in found
    assert MAX_DEPTH < 100
