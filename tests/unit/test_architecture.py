"""The map in ARCHITECTURE.md, held: floors, no circles, no `unsafe` outside `sys`, files that say what they own."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Set
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from rust_modules import circles, module_graph

from leadline.contract import models, records
from leadline.kinds import NAMES as KIND_NAMES
from leadline.registry import KINDS as REGISTERED
from leadline.sut import NAMES as SYSTEM_NAMES

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "leadline"
CRATES = ROOT / "crates"

PYTHON_FLOORS = {
    "kinds": 7, "cli": 6, "trial": 5, "truths": 5, "sut": 3, "lab": 3, "report": 3, "agents": 2, "analysis": 2,
    "scenario": 2, "recording": 3, "plan": 1, "dataset": 1, "contract": 1, "statistics": 1, "errors": 0, "registry": 0,
    "quantities": 0, "masking": 0, "csv_rows": 0,
}  # fmt: skip
RUST_FLOORS = {
    "agent": 5, "scenario": 4, "replay": 4, "wrk-lua": 4, "testkit": 4, "transport": 3, "http": 3, "tunnel": 3,
    "packet": 3, "sys": 2, "observe": 2, "wire": 1, "stats": 1, "pace": 1, "tls": 1, "ring": 0, "no-schema": 0,
}  # fmt: skip
LONGEST_FILE = 600
LONG_FILES: dict[str, str] = {}
"""The files that are longer, and why."""
LONGEST_FUNCTION = 80
LONG_FUNCTIONS = {
    ("crates/agent/src/load/tunnel/traffic/tests.rs", "run"): "a test's event loop",
    ("crates/scenario/src/executors/tests.rs", "run_threads"): "a test's event loop",
    ("crates/tunnel/src/openvpn/profile/tests.rs", "unsupported_option_is_refused_with_its_line"): "a table of options",
    ("python/leadline/cli/fleet.py", "up"): "its parameters are the options of a command, as typer reads them",
    ("python/leadline/cli/ladder.py", "command"): "its parameters are the options of a command, as typer reads them",
}
"""The functions that are longer, and why."""
SYSTEMS = frozenset(SYSTEM_NAMES)
KINDS = frozenset(KIND_NAMES)
_CONTRACT = {name for name, value in vars(models).items() if isinstance(value, type)}
OF_KINDS = frozenset(
    name
    for kind in KINDS
    for model in [REGISTERED.find(kind).model.__name__]
    for name in (model, *(model.removesuffix("Test") + part for part in ("Workload", "Counts", "Report", "Progress")))
    if name == model or name in _CONTRACT
)
"""The classes of one kind: of its tests in plans, and of its loads, counts and reports in the agent's messages."""
PARTS_OF_KINDS = KINDS & {*records.Outcome.__annotations__, *records.Progress.__annotations__}
"""The parts of an agent's messages that loads of one kind alone have."""

KNOWN_USES = {
    "analysis/test_data.py": {
        *("self.outcome.get('tunnel')", "self.outcome.get('packets')", "self.outcome.get('scenario')"),
        "event.get('scenario')",
    },
    # iperf3's own word in its documents.
    "analysis/iperf3_document.py": {"row['packets']"},
    "analysis/tool_output.py": {"end['sum_sent']['packets']"},
    "dataset/tables.py": {"outcome.get('tunnel')"},
}
"""The uses of a kind outside of `kinds`. `TestData` reads the messages: its `fleet` is of any kind of test that a fleet
carries, and what belongs to a scenario is passed on to its kind. The tables of clients and attempts are files of the
dataset, which knows no kinds, and a journal's fleets fill them whatever test they carry."""


def python_files() -> list[Path]:
    generated = {PACKAGE / "contract" / name for name in ("models.py", "records.py")}
    return sorted(path for path in PACKAGE.rglob("*.py") if path not in generated)


def rust_files() -> list[Path]:
    return sorted(CRATES.rglob("*.rs"))


def test_every_package_has_a_floor() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert packages == set(PYTHON_FLOORS) - {"errors", "registry", "quantities", "masking", "csv_rows"}
    assert {path.parent.name for path in CRATES.glob("*/Cargo.toml")} == set(RUST_FLOORS)


def test_python_imports_go_down() -> None:
    """Of all files in one test, as in the tests below: a test for each file of a thousand is dearer than its work."""
    offenders = []
    for path in python_files():
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for module in _imported(_judged(path)) if own != "__init__" else ():
            top, _, rest = module.partition(".")
            other = rest.partition(".")[0]
            if top == "leadline" and other not in ("", own) and PYTHON_FLOORS[other] >= PYTHON_FLOORS[own]:
                offenders.append(f"{path.relative_to(PACKAGE)} imports {module}")
    assert offenders == []


def test_modules_import_in_no_circle() -> None:
    """Nor by an import inside a function or for types alone: a reader follows those too."""
    files = {_module(path): path for path in PACKAGE.rglob("*.py")}
    imports = {name: _modules(path, files.keys()) - {name} for name, path in files.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"a circle, each imported by the next: {', '.join(error.args[1])}")


@pytest.mark.parametrize("name", sorted(RUST_FLOORS))
def test_rust_modules_use_one_another_in_no_circle(name: str) -> None:
    """Read from `use` statements and paths; test code is left out."""
    assert list(circles(module_graph(CRATES / name / "src"))) == []


def test_a_circle_of_rust_modules_is_found(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\npub use a::A;\n")
    (tmp_path / "a.rs").write_text("use crate::b::{self, B};\npub struct A(B);\n")
    (tmp_path / "b.rs").write_text("pub struct B;\n#[cfg(test)]\nmod tests { use crate::A; }\n")
    assert list(circles(module_graph(tmp_path))) == []
    (tmp_path / "b.rs").write_text("// A re-export is followed to its home.\nfn b() -> crate::A { loop {} }\n")
    assert list(circles(module_graph(tmp_path))) == [["a", "b"]]


def test_code_of_rust_tests_uses_no_module(tmp_path: Path) -> None:
    """Whatever the literals of the code around it contain."""
    (tmp_path / "lib.rs").write_text("mod b;\nuse b::B;\npub struct A(B);\n")
    (tmp_path / "b.rs").write_text(
        'const URL: &str = "http://{";\n'
        "const QUOTE: char = '\"'; // a comment's \"\n"
        "#[cfg(test)]\nmod tests { fn b() -> crate::A { loop {} } }\n"
    )
    assert list(circles(module_graph(tmp_path))) == []


@pytest.mark.parametrize("name", sorted(RUST_FLOORS))
def test_crates_depend_downwards(name: str) -> None:
    manifest = tomllib.loads((CRATES / name / "Cargo.toml").read_text())
    for dependency in manifest.get("dependencies", {}):
        if dependency.startswith("leadline-"):
            other = dependency.removeprefix("leadline-")
            assert RUST_FLOORS[other] < RUST_FLOORS[name], f"{name} depends on {other}"
            assert other != "testkit", "it is a dev-dependency"


def test_unit_tests_use_no_testkit_below_it() -> None:
    """A crate that `testkit` depends on is compiled twice for its unit tests: the types of the copies differ."""
    manifest = tomllib.loads((CRATES / "testkit" / "Cargo.toml").read_text())
    below = {name.removeprefix("leadline-") for name in manifest["dependencies"]}
    files = [path for name in sorted(below) for path in sorted((CRATES / name / "src").rglob("*.rs"))]
    assert [str(path) for path in files if "leadline_testkit" in path.read_text()] == []


def test_unsafe_is_in_sys_alone() -> None:
    offenders = [
        str(path.relative_to(ROOT))
        for path in rust_files()
        if path.relative_to(CRATES).parts[0] != "sys" and re.search(r"\bunsafe\b(?!_)", _code(path.read_text()))
    ]
    assert offenders == []


def test_machines_read_no_clock_and_open_no_socket() -> None:
    forbidden = re.compile(
        r"Instant::now|SystemTime::now|std::net::(Tcp|Udp)|TcpStream::|UdpSocket::|std::fs::|File::open"
    )
    offenders = [
        str(path.relative_to(ROOT))
        for crate in ("transport", "http", "tunnel", "packet", "scenario", "replay", "wrk-lua", "stats", "pace", "wire")
        for path in sorted((CRATES / crate / "src").rglob("*.rs"))
        if forbidden.search(_code(path.read_text()).partition("#[cfg(test)]")[0])
    ]
    assert offenders == []


ALL = frozenset({"*"})
MODULES_WITH_EVENTS = {
    "control.rs": ALL,
    "controller.rs": {"read"},
    "failures.rs": {"count"},
    "links.rs": {"start", "event"},
    "load/iperf3_control.rs": {"open"},
    "load/http.rs": {"prepare_with", "open", "await_opened"},
    "load/scenario.rs": {"prepare", "run"},
    "load/session.rs": {"open"},
    "load/tunnel.rs": {"run"},
    "load/tunnel/effects.rs": {"entered", "failed"},
    "load/tunnel/teardown.rs": {"tear_down"},
    "logging.rs": ALL,
    "process.rs": ALL,
    "profile.rs": ALL,
    "serve/http.rs": {"listen_within"},
    "serve/iperf3.rs": {"run"},
    "serve/iperf3_claims.rs": {"handle"},
    "serve/listener.rs": {"run_once", "make_room", "receive", "open_session", "open_iperf3_test"},
    "serve/mod.rs": {"start"},
    "serve/occupancy.rs": {"tell_displaced"},
    "serve/session.rs": {"run", "log_opened"},
    "soaker.rs": {"start", "fail"},
    "standalone.rs": {"serve"},
    "undo.rs": {"register", "take_back", "run"},
    "wireguard.rs": {"run"},
}
"""The agent's modules with log events, and which of their functions have them. None of these runs once per packet,
request or turn of a measuring loop: `count` logs the first failure of each cause, `entered` and `failed` a VPN client's
changes."""


def test_log_events_are_never_on_the_measured_path() -> None:
    source = CRATES / "agent" / "src"
    found = {str(path.relative_to(source)): _functions_with_events(path) for path in sorted(source.rglob("*.rs"))}
    unlisted = {
        name: functions - MODULES_WITH_EVENTS.get(name, set())
        for name, functions in found.items()
        if MODULES_WITH_EVENTS.get(name) != ALL
    }
    assert {name: functions for name, functions in unlisted.items() if functions} == {}
    assert {name for name, functions in found.items() if functions} == set(MODULES_WITH_EVENTS)


def test_a_filter_of_the_log_can_name_each_module_with_events() -> None:
    text = (CRATES / "agent" / "src" / "logging.rs").read_text()
    (listed,) = re.findall(r"const MODULES: \[&str; \d+\] =\s*\[(.*?)\];", text, re.DOTALL)
    with_events = {name.partition("/")[0].removesuffix(".rs") for name in MODULES_WITH_EVENTS} - {"logging"}
    assert re.findall(r'"(\w+)"', listed) == sorted(with_events)


def test_only_the_agent_logs() -> None:
    manifests = {path.parent.name: tomllib.loads(path.read_text()) for path in CRATES.glob("*/Cargo.toml")}
    sections = ("dependencies", "dev-dependencies", "build-dependencies")
    loggers = {
        name
        for name, manifest in manifests.items()
        for section in sections
        for dependency in manifest.get(section, {})
        if dependency.startswith(("tracing", "log"))
    }
    assert loggers == {"agent"}
    others = [path for path in rust_files() if path.relative_to(CRATES).parts[0] != "agent"]
    assert [path for path in others if re.search(r"\btracing(_\w+)?::", _code(path.read_text()))] == []


@pytest.mark.parametrize(
    ("code", "functions"),
    [
        ("use tracing::info;\nfn a() { info!(1) }\nfn b() {}", {"a"}),
        ("fn a() {}\n    fn b(x: u8) {\n        tracing::debug!(x);\n    }", {"b"}),
        ("use tracing::info as say;", {""}),
        ("use tracing::instrument;", {""}),
        ("fn a() { // tracing::info!\n }", set()),
    ],
)
def test_log_events_are_found(tmp_path: Path, code: str, functions: set[str]) -> None:
    (tmp_path / "a.rs").write_text(code)
    assert _functions_with_events(tmp_path / "a.rs") == functions


def _functions_with_events(path: Path) -> set[str]:
    """Functions of a Rust file that have log events; "" for events, or names of `tracing`, that are in none."""
    code = _code(path.read_text()).partition("#[cfg(test)]\nmod tests {")[0]
    names = r"error|warn|info|debug|trace|event|span"
    # Macros are imported under their own names, so that a search finds each.
    code = re.sub(rf"use tracing::(?:{{(?:(?:{names})(?:, )?)+}}|(?:{names}));", "", code)
    found, function = set(), ""
    for part in re.finditer(rf"\bfn (\w+)|\btracing\w*::|\b(?:{names})!", code):
        if part[1]:
            function = part[1]
        else:
            found.add(function)
    return found


def code_files() -> list[Path]:
    """Every file of Python or Rust that people write: the package, the crates, tests, measurements and scripts."""
    folders = ("bench", "contract", "fuzz", "scripts", "tests")
    others = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return [*python_files(), *rust_files(), *sorted(others), *sorted((ROOT / "fuzz").glob("*/*.rs"))]


def test_files_say_what_they_own_and_stay_small() -> None:
    unopened, long = [], []
    for path in code_files():
        text, name = path.read_text(), str(path.relative_to(ROOT))
        opening = '"""' if path.suffix == ".py" else "//!"
        unopened += [] if text.startswith((opening, "#!")) else [name]
        long += [] if text.count("\n") <= LONGEST_FILE else [name]
    assert unopened == [], "these do not open with what they own"
    assert long == list(LONG_FILES), f"these have more than {LONGEST_FILE} lines"


def test_functions_stay_small() -> None:
    long = {
        (str(path.relative_to(ROOT)), name)
        for path in code_files()
        for name, lines in (_python_functions if path.suffix == ".py" else _rust_functions)(path.read_text())
        if lines > LONGEST_FUNCTION
    }
    assert long == set(LONG_FUNCTIONS)


def test_lines_of_functions_are_counted() -> None:
    code = "class A:\n    def b(self):\n        def c():\n            pass\n        return c\n"
    assert list(_python_functions(code)) == [("b", 4), ("c", 2)]
    rust = "impl A {\n    pub fn b(\n        c: u8,\n    ) -> u8 {\n        c\n    }\n    fn d() {}\n}\nfn e() {\n}\n"
    assert list(_rust_functions(rust)) == [("b", 5), ("d", 1), ("e", 2)]


def _python_functions(code: str) -> Iterator[tuple[str, int]]:
    """Each function's name and number of lines."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def _rust_functions(code: str) -> Iterator[tuple[str, int]]:
    """The same of Rust, as rustfmt lays it out: a function ends at the first `}` that is indented as it is."""
    lines = code.splitlines()
    for begin, line in enumerate(lines):
        head = re.match(r"( *)(?:pub(?:\([^)]*\))? )?(?:(?:const|async|unsafe) )*fn (\w+)", line)
        if head is None:
            continue
        # A signature may have lines of its own; that of a trait's method ends it.
        last = (f"{head[1]}}}", f"{head[1]}) ", f"{head[1]});")
        end = begin
        while not lines[end].endswith((";", "}")):
            end += 1
            while not lines[end].startswith(last):
                end += 1
        yield head[2], end - begin + 1


def test_each_page_that_code_names_exists() -> None:
    """Pages of `docs` by their path, and decisions by their file's name."""
    named = re.compile(r"(?<![\w/.-])(docs/[\w./-]+\.(?:md|json|png))|(?<![\w-])(\d{4}-[a-z0-9-]+\.md)")
    others = [ROOT / "Makefile", ROOT / "pyproject.toml", *sorted((ROOT / "examples").glob("*.yaml"))]
    missing = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in [*code_files(), *others]
        for match in named.finditer(path.read_text())
        if not (ROOT / match[0]).exists() and not (ROOT / "docs" / "decisions" / match[0]).exists()
    ]
    assert missing == []


def test_tests_that_need_a_cpu_of_their_own_are_where_they_are_collected() -> None:
    """`make test-exclusive` collects two folders alone: elsewhere no target would run them."""
    recipe = (ROOT / "Makefile").read_text().partition("\ntest-exclusive:")[2].partition("\n\n")[0]
    assert '-m "exclusive' in recipe and " tests/lab tests/oracle " in recipe
    marked = [path for path in sorted((ROOT / "tests").rglob("*.py")) if "mark.exclusive" in path.read_text()]
    # These two read tests' code.
    readers = {Path(__file__).resolve(), ROOT / "tests" / "unit" / "test_real_loads.py"}
    others = [str(path.relative_to(ROOT)) for path in marked if path not in readers]
    assert [name for name in others if not name.startswith(("tests/lab/", "tests/oracle/"))] == []
    assert others != []


def test_only_kinds_branch_on_the_kind_of_a_test() -> None:
    found: dict[str, set[str]] = {}
    for path in python_files():
        name = str(path.relative_to(PACKAGE))
        for node in _judged(path) if not name.startswith("kinds/") else ():
            if _branches_on_a_kind(node) or _reads_a_kinds_part(node):
                found.setdefault(name, set()).add(ast.unparse(node))
    assert found == KNOWN_USES


def test_systems_under_test_are_found_by_name_alone() -> None:
    """No other package imports a system's module, or compares with its name."""
    modules = tuple(f"leadline.sut.{name}" for name in SYSTEMS)
    others = [path for path in python_files() if path.relative_to(PACKAGE).parts[0] != "sut"]
    importers = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in others
        for name in _imported(_judged(path))
        if name.startswith(modules)
    ]
    assert importers == []
    comparisons = [
        f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for path in others
        for node in _judged(path)
        if _compares_with(node, SYSTEMS)
    ]
    assert comparisons == []


@pytest.mark.parametrize(
    "code",
    [
        "data.spec.kind == 'http'",
        "kind not in ('tcp', 'udp')",
        "isinstance(test, plan.HttpTest)",
        "isinstance(load, UdpWorkload | TcpWorkload)",
        "{'tcp': 1, 'udp': 2}",
        "match kind:\n    case 'rr': pass",
        "match test:\n    case TunnelTest(): pass",
        "isinstance(test, LoadLatencyTest)",
        "isinstance(now.counts, HttpCounts)",
    ],
)
def test_branches_on_the_kind_of_a_test_are_found(code: str) -> None:
    assert any(_branches_on_a_kind(node) for node in ast.walk(ast.parse(code)))


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("outcome.get('tunnel')", True),
        ("(found.outcome.get('tunnel') or {}).get('clients')", True),
        ("event['scenario']", True),
        ("{'scenario': result.scenario}", False),
        ("event['network'].get('udp')", False),
        ("Literal['plan', 'scenario']", False),
    ],
)
def test_reads_of_one_kinds_part_of_a_message_are_found(code: str, is_found: bool) -> None:
    assert any(_reads_a_kinds_part(node) for node in ast.walk(ast.parse(code))) == is_found


@pytest.mark.parametrize(
    "code",
    [
        "transport == 'udp'",
        "need.kind == 'device'",
        "{'http': 80, 'https': 443}",
    ],
)
def test_other_comparisons_are_no_branches_on_a_kind(code: str) -> None:
    assert not any(_branches_on_a_kind(node) for node in ast.walk(ast.parse(code)))


@pytest.mark.parametrize(
    ("code", "is_found"),
    [("trial.sut == 'route'", True), ("sut.kind in ('a', 'given')", True), ("f(kind='openvpn')", False)],
)
def test_comparisons_with_a_systems_name_are_found(code: str, is_found: bool) -> None:
    assert any(_compares_with(node, SYSTEMS) for node in ast.walk(ast.parse(code))) == is_found


def test_pure_packages_do_no_io() -> None:
    forbidden = re.compile(
        r"\bopen\(|\.read_text\(|\.read_bytes\(|\.write_text\(|\bsubprocess\b|\bsocket\b|\btime\.(time|monotonic)"
    )
    allowed = {PACKAGE / "plan" / "regular_files.py", PACKAGE / "plan" / "source.py"}
    offenders = [
        str(path.relative_to(PACKAGE))
        for package in ("plan", "analysis", "statistics", "scenario")
        for path in sorted((PACKAGE / package).rglob("*.py"))
        if path not in allowed and forbidden.search(text := path.read_text()) and forbidden.search(_code_alone(text))
    ]
    assert offenders == []


def _compares_with(node: ast.AST, names: Set[str]) -> bool:
    """Whether code compares something with one of the names, or matches it."""
    match node:
        case ast.Compare(left=left, comparators=others):
            values = [left, *others]
        case ast.MatchValue(value=value):
            values = [value]
        case _:
            return False
    inner = [part for value in values for part in ast.walk(value)]
    return any(isinstance(part, ast.Constant) and part.value in names for part in inner)


def _branches_on_a_kind(node: ast.AST) -> bool:
    """Whether code compares a test's kind, asks for a class of one kind, or has a value by kind."""
    match node:
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
            return any(_name(side) == "kind" for side in sides) and any(_texts(side) & KINDS for side in sides)
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]):
            return any(_name(one) in OF_KINDS for one in ast.walk(classes))
        case ast.Dict(keys=keys):
            return len({text for key in keys if key is not None for text in _texts(key)} & KINDS) > 1
        case ast.MatchClass(cls=cls):
            return _name(cls) in OF_KINDS
        case ast.Match(subject=subject, cases=cases) if _name(subject) == "kind":
            return any(_texts(one) & KINDS for case in cases for one in ast.walk(case.pattern))
        case _:
            return False


def _reads_a_kinds_part(node: ast.AST) -> bool:
    """Whether code reads the part of a message that loads of one kind alone have."""
    match node:
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=part), *_]):
            return part in PARTS_OF_KINDS
        case ast.Subscript(slice=ast.Constant(value=part), ctx=ast.Load()):
            return part in PARTS_OF_KINDS
        case _:
            return False


def _name(node: ast.AST) -> str:
    """What a name or an attribute is called last."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _texts(node: ast.AST) -> set[str]:
    """A text, or those of a display of texts."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _modules(path: Path, known: Set[str]) -> set[str]:
    """The modules that a file imports, wherever in it; a package where what is named is no module of its own."""
    names = _imported(_judged(path))
    return {name if name in known else name.rpartition(".")[0] for name in names} & known


_JUDGED = (
    ast.Subscript | ast.Import | ast.ImportFrom | ast.Compare | ast.Dict | ast.Match | ast.MatchClass | ast.MatchValue
)


@cache
def _judged(path: Path) -> list[ast.AST]:
    """The parts of a file's code that several tests judge: it is read once for all of them."""
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, _JUDGED) or (isinstance(node, ast.Call) and _name(node.func) in ("isinstance", "get"))
    ]


def _imported(nodes: list[ast.AST]) -> set[str]:
    """Whole names of what a file imports, everywhere in it."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found - {"leadline.__version__"}


def _code(text: str) -> str:
    return re.sub(r"//.*", "", text)


def _code_alone(text: str) -> str:
    """Python's code without comments, and with empty texts."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.unparse(tree)
