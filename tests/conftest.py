"""For all tests: what the commands keep for later (ceilings of the generator) is kept apart from the user's own, no
example of a property has to be quick, and a journal that Leadline wrote has no line that Leadline cannot read.

Owns which tests judge the machine that they run on: none that starts real loads, but those marked `machine_rules` or
`exclusive`.

Owns how tests are dealt out to the workers of `make test`: in which order, and which of them stay together; and the
server of the command that all workers share.

Collecting makes a million objects that stay: the garbage collector, which would walk through them again and again,
rests meanwhile, and leaves them alone afterwards. That is a third of the time of collecting.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from _pytest.nodeid import NodeId
from hypothesis import settings

from command_server import command_server
from leadline.dataset.journal import STRICT_VARIABLE
from leadline.dataset.machine_rules import MACHINE_RULES_VARIABLE, OFF
from quiet_machine import why_disturbed, why_not_quiet

gc.disable()

# A shell without job control starts its background jobs with SIGINT and SIGQUIT ignored, and nohup ignores SIGHUP.
# Children inherit that, but the commands under test must receive them wherever the tests were started.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# The machine decides how long an example takes; no test fails by it.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

# For the commands that tests start as for what they call; `damaged_journals` takes it back.
os.environ[STRICT_VARIABLE] = "1"

# What else the machine does fails no test: figures of real loads are judged without the rules about it.
os.environ[MACHINE_RULES_VARIABLE] = OFF
MADE_DATA = {"unit", "contract"}
"""Folders whose tests judge made data, but those marked `agent`."""
TESTS = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Switch the rules about the machine on around a test that is about them, and the fixtures that it begins."""
    if has_machine_rules(item):
        del os.environ[MACHINE_RULES_VARIABLE]
    try:
        return (yield)
    finally:
        os.environ[MACHINE_RULES_VARIABLE] = OFF


def has_machine_rules(item: pytest.Item) -> bool:
    """Whether the rules about the machine hold in a test."""
    if item.get_closest_marker("exclusive") or item.get_closest_marker("machine_rules"):
        return True
    folder = item.path.relative_to(TESTS).parts[0]
    return folder in MADE_DATA and not item.get_closest_marker("agent")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a CPU to itself where it would have none."""
    if item.get_closest_marker("exclusive") and (why := why_not_quiet()):
        pytest.skip(why)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip such a test, too, if it failed on a machine that is no longer quiet."""
    try:
        return (yield)
    except Exception as error:
        if item.get_closest_marker("exclusive") and (why := why_disturbed()):
            pytest.skip(f"{why}, and it failed: {error}")
        raise


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a file's tests on one worker, which then makes the file's fixtures once; those marked `apart` go to any
    worker. The longest begin first: a long test that begins last keeps one worker busy while the others have ended.
    """
    if not hasattr(config, "workerinput"):
        return
    longest_s: dict[str, float] = {}
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        takes = item.get_closest_marker("takes")
        longest_s[group] = max(longest_s.get(group, 0.0), takes.args[0] if takes else 0.0)
    items.sort(key=lambda item: -longest_s[groups[item]])
    for item, group in groups.items():
        if group != item.nodeid:
            # What xdist does for its own mark, which it writes into an attribute that this pytest no longer reads.
            item._id = NodeId.parse(f"{item.nodeid}@{group}")


def pytest_collection_finish() -> None:
    """The collector works again, on what tests make, though more rarely: most of it stays until its test ends."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def _group(item: pytest.Item) -> str:
    """The tests that one worker runs."""
    return item.nodeid if item.get_closest_marker("apart") else item.location[0]


@pytest.fixture
def damaged_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test damages a journal itself: lines that cannot be read are counted, as they are for users."""
    monkeypatch.delenv(STRICT_VARIABLE)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[None]:
    """One cache for a whole session and all of its workers, so that each shape of a load is calibrated once."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if hasattr(request.config, "workerinput") else base) / "cache"
    cache.mkdir(exist_ok=True)
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(cache)
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """One server of the command for all workers, which ends after them. This process leaves collecting to them."""
    gc.enable()
    config: pytest.Config = node.config
    if _COMMAND not in config.stash:
        opened = ExitStack()
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="leadline-command-")))
        config.stash[_COMMAND] = opened.enter_context(command_server(folder))
        config.add_cleanup(opened.close)
    node.workerinput["quick_command"] = str(config.stash[_COMMAND])


_COMMAND: pytest.StashKey[Path] = pytest.StashKey()


@pytest.fixture(scope="session")
def quick_command(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A program that does what `leadline` does, without its start."""
    if hasattr(request.config, "workerinput"):
        yield Path(request.config.workerinput["quick_command"])
        return
    with command_server(tmp_path_factory.mktemp("command")) as stand_in:
        yield stand_in
