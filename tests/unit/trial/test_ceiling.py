"""What a calibration asks for, what its figures mean, and what is kept of it; the real agents are asked in the last."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leadline.agents import agent_binary
from leadline.analysis import model
from leadline.analysis.model import Ceiling, Generator, Metric, Validity, Verdict
from leadline.contract.models import Header, HttpScript, HttpWorkload, RateStage, TlsIdentity, TlsSpec
from leadline.errors import MissingBinary
from leadline.kinds.http.model import HttpTest
from leadline.plan.field_types import validate_input
from leadline.trial import ceiling as calibration
from leadline.trial.ceiling import aimed_at, ceiling_for, ceiling_of, host_fingerprint, key_of, shape_of
from leadline.trial.ceiling_cache import MOST_ENTRIES, OLDEST_S, CeilingCache
from leadline.trial.interrupt import Interrupt
from leadline.trial.workloads import Server, workload

NOW_S = 1_800_000_000.0


def load(url: str = "http://localhost:81/some/path?size=100&delay=5", **changes: Any) -> HttpWorkload:
    test = validate_input(HttpTest, {"name": "http", "duration": "9s", "connections": 20, "threads": 2})
    made = workload(test, Server("server.example"))
    assert isinstance(made, HttpWorkload)
    made.requests[0].url = url
    return made.model_copy(update=changes)


def secure() -> TlsSpec:
    return TlsSpec(
        verify=True,
        ca_pem="authority",
        identity=TlsIdentity(certificate_pem="certificate", key_pem="key"),
        oldest="1.2",
        newest="1.3",
        cipher_suites=[],
        alpn=["http/1.1"],
        server_name="server.example",
        resumption=True,
        early_data=False,
    )


# --- The shape ------------------------------------------------------------------------------------------------------


def test_only_the_null_responder_gets_the_same_bytes() -> None:
    given = load(
        rate=[RateStage(from_per_s=5, to_per_s=5, duration_ms=9000)], number=7, warmup_ms=1000, ip_version="v6"
    )
    given.route.bind, given.route.unix_socket, given.route.proxy = ["192.0.2.1"], "/run/socket", "http://proxy:3128"
    aimed = aimed_at(given, 4711, secure=False)
    assert aimed.requests[0].url == "http://127.0.0.1:4711/" + "x" * (len("/some/path?size=100&delay=5") - 1)
    assert (aimed.rate, aimed.number, aimed.warmup_ms, aimed.duration_ms, aimed.ip_version) == ([], None, 0, 1000, None)
    assert (aimed.route.bind, aimed.route.unix_socket, aimed.route.proxy) == ([], None, None)
    assert (aimed.connections, aimed.threads) == (20, 2)
    assert given.requests[0].url.startswith("http://localhost:81/"), "the load itself is as it was"


def test_the_null_responder_is_trusted_and_gets_no_credentials() -> None:
    aimed = aimed_at(load("https://server.example/", tls=secure()), 4711, secure=True)
    assert aimed.requests[0].url == "https://127.0.0.1:4711/"
    assert aimed.tls is not None
    assert (aimed.tls.verify, aimed.tls.ca_pem, aimed.tls.identity, aimed.tls.server_name) == (False, None, None, None)
    assert (aimed.tls.oldest, aimed.tls.alpn, aimed.tls.resumption) == ("1.2", ["http/1.1"], True)


@pytest.mark.parametrize(
    "changes",
    [
        {"connections": 21},
        {"threads": 1},
        {"requests_per_connection": 1},
        {"cpus": [1]},
        {"tls": secure()},
        {"script": HttpScript(name="a", source="x", args=[])},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_shape_is_another_key(changes: dict[str, Any]) -> None:
    assert key_of({}, shape_of(load())) != key_of({}, shape_of(load(**changes)))


def test_what_costs_nothing_is_the_same_key() -> None:
    same = load("http://other.example:8080/some/PATH?size=100&delay=9", duration_ms=50, number=5, warmup_ms=1)
    assert key_of({}, shape_of(load())) == key_of({}, shape_of(same))
    assert key_of({"cpu": "a"}, shape_of(same)) != key_of({"cpu": "b"}, shape_of(same))


@pytest.mark.parametrize(
    ("url", "octets"),
    [
        ("http://a/?size=100", 100),
        ("http://a/", 12),
        ("http://a/?size=-1", 12),
        ("http://a/?size=many", 12),
        ("http://a/?size=²", 12),
        ("http://a/?size=99999999999", 1 << 20),
    ],
)
def test_the_size_of_an_answer_as_far_as_it_is_known(url: str, octets: int) -> None:
    assert shape_of(load(url))["answer_bytes"] == octets


def mix(*entries: tuple[str, int]) -> HttpWorkload:
    made = load()
    [first] = made.requests
    made.requests = [first.model_copy(update={"url": url, "weight": weight}) for url, weight in entries]
    return made


@pytest.mark.parametrize(
    ("entries", "octets"),
    [
        ([("http://a/?size=100", 1), ("http://a/?size=300", 1)], 200),
        ([("http://a/?size=100", 3), ("http://a/?size=300", 1)], 150),
        ([("http://a/", 7), ("http://a/?size=4000", 2)], 898),  # 898.2
        ([("http://a/?size=0", 1), ("http://a/?size=3", 1)], 2),
        ([("http://a/?size=99999999999", 1), ("http://a/?size=0", 1)], 1 << 19),
    ],
)
def test_answers_of_several_sizes_are_as_long_on_average(entries: list[tuple[str, int]], octets: int) -> None:
    assert shape_of(mix(*entries))["answer_bytes"] == octets


def test_another_mix_of_one_average_is_another_key() -> None:
    keys = {
        key_of({}, shape_of(mix(("http://a/?size=100", 1), ("http://a/?size=300", 1)))),
        key_of({}, shape_of(mix(("http://a/?size=150", 1), ("http://a/?size=250", 1)))),
        key_of({}, shape_of(mix(("http://a/?size=100", 2), ("http://a/?size=300", 2)))),
    }
    assert len(keys) == 3


def test_a_shape_has_no_secrets() -> None:
    given = load("http://server.example/?key=secret", tls=secure())
    given.requests[0].headers = [Header(name="Authorization", value="Bearer secret")]
    given.requests[0].body_base64 = "c2VjcmV0"
    given.script = HttpScript(name="a", source="secret", args=["secret"])
    written = json.dumps(shape_of(given), default=str)
    assert not any(word in written for word in ("secret", "c2VjcmV0", "certificate", "server.example"))


# --- What the figures mean ------------------------------------------------------------------------------------------


def result(per_s: float | None, cpu_s: float | None, wall_s: float = 1.0, status: str = "done") -> model.TestResult:
    return model.TestResult(
        case="c01",
        repeat=1,
        test="http",
        kind="http",
        parameters={},
        status=status,
        error=None,
        metrics={"requests_per_s": Metric(per_s, "1/s")},
        validity=Validity(Verdict.VALID),
        window=None,
        generator=Generator(cpu_s, wall_s, None, None, None),
        errors={},
    )


def test_a_generator_that_was_busy_has_shown_its_ceiling() -> None:
    assert ceiling_of(result(100_000.0, 0.97), threads=1, cpus=2) == Ceiling(100_000.0, extrapolated=False)


def test_a_ceiling_says_which_engine_it_is_of() -> None:
    made = result(100_000.0, 0.97)
    assert made.generator is not None
    for cpu_s in (0.97, 0.5):
        engine = replace(made.generator, cpu_s=cpu_s, engine="epoll")
        found = ceiling_of(replace(made, generator=engine), threads=1, cpus=2)
        assert found is not None and found.engine == "epoll"


@pytest.mark.parametrize(
    ("cpu_s", "threads", "cpus", "wanted"),
    [
        (0.5, 1, 2, 200_000.0),  # the responder was the limit
        (1.0, 2, 2, 200_000.0),  # two threads and the responder shared two CPUs
        (0.5, 4, 1, 200_000.0),  # of four threads one can run
        (0.8, 4, 4, 500_000.0),
    ],
)
def test_one_that_was_not_is_raised_by_its_share(cpu_s: float, threads: int, cpus: int, wanted: float) -> None:
    found = ceiling_of(result(100_000.0, cpu_s), threads, cpus)
    assert found is not None and found.extrapolated
    assert found.per_s == pytest.approx(wanted)


@pytest.mark.parametrize(
    "made",
    [
        result(100_000.0, 0.1),
        result(None, 0.9),
        result(0.0, 0.9),
        result(100_000.0, None),
        result(100_000.0, 0.9, wall_s=0.0),
        result(100_000.0, 0.9, status="interrupted"),
    ],
)
def test_what_says_too_little_is_no_ceiling(made: model.TestResult) -> None:
    assert ceiling_of(made, threads=1, cpus=2) is None


# --- The cache ------------------------------------------------------------------------------------------------------


def cache(path: Path | None, said: list[str], now_s: float = NOW_S) -> CeilingCache:
    return CeilingCache(path, said.append, lambda: now_s)


@pytest.mark.parametrize(
    "kept",
    [
        Ceiling(123_456.5, extrapolated=True),
        Ceiling(7.0, extrapolated=False),
        Ceiling(7.0, extrapolated=False, engine="epoll"),
    ],
)
def test_what_is_kept_is_found_until_it_is_old(tmp_path: Path, kept: Ceiling) -> None:
    path, said = tmp_path / "deep" / "leadline" / "ceilings.json", list[str]()
    cache(path, said).keep("one", kept)
    assert cache(path, said).find("one") == kept
    assert cache(path, said).find("other") is None
    assert cache(path, said, NOW_S + OLDEST_S).find("one") == kept
    assert cache(path, said, NOW_S + OLDEST_S + 1).find("one") is None
    assert cache(path, said, NOW_S - OLDEST_S - 1).find("one") is None, "from a clock that was wrong"
    assert said == []
    assert [found.name for found in path.parent.iterdir()] == ["ceilings.json"]


def test_full_ceiling_cache_drops_its_oldest_entries(tmp_path: Path) -> None:
    path = tmp_path / "ceilings.json"
    for number in range(MOST_ENTRIES + 3):
        cache(path, [], NOW_S + number).keep(str(number), Ceiling(1.0 + number, extrapolated=False))
    last = cache(path, [], NOW_S + MOST_ENTRIES)
    assert [last.find(str(number)) is None for number in range(4)] == [True, True, True, False]
    assert last.find(str(MOST_ENTRIES + 2)) == Ceiling(MOST_ENTRIES + 3.0, extrapolated=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": "leadline.ceilings/2", "ceilings": {}}',
        '{"schema": "leadline.ceilings/1"}',
        '{"schema": "leadline.ceilings/1", "ceilings": [1]}',
        "[" * 200_000,
        " " * 2_000_000,
        "\x00\xff",
    ],
    ids=range(10),
)
def test_a_damaged_file_is_reported_ignored_and_replaced(tmp_path: Path, text: str) -> None:
    path, said = tmp_path / "ceilings.json", list[str]()
    path.write_text(text, encoding="latin-1")
    assert cache(path, said).find("one") is None
    assert len(said) == 1 and "damaged" in said[0] and str(path) in said[0]
    cache(path, []).keep("one", Ceiling(5.0, extrapolated=False))
    assert cache(path, said).find("one") == Ceiling(5.0, extrapolated=False)
    assert len(said) == 1


@pytest.mark.parametrize(
    "row",
    [
        None,
        [],
        {},
        {"per_s": "5", "extrapolated": True, "measured_at_s": NOW_S},
        {"per_s": True, "extrapolated": True, "measured_at_s": NOW_S},
        {"per_s": 0, "extrapolated": True, "measured_at_s": NOW_S},
        {"per_s": -1, "extrapolated": True, "measured_at_s": NOW_S},
        {"per_s": float("inf"), "extrapolated": True, "measured_at_s": NOW_S},
        {"per_s": float("nan"), "extrapolated": True, "measured_at_s": NOW_S},
        {"per_s": 5, "extrapolated": 1, "measured_at_s": NOW_S},
        {"per_s": 5, "extrapolated": True, "measured_at_s": None},
        {"per_s": 10**400, "extrapolated": True, "measured_at_s": NOW_S},
        {"per_s": 5, "extrapolated": True, "measured_at_s": NOW_S, "engine": 1},
    ],
    ids=range(13),
)
def test_a_damaged_entry_is_as_none(tmp_path: Path, row: Any) -> None:
    path = tmp_path / "ceilings.json"
    path.write_text(json.dumps({"schema": "leadline.ceilings/1", "ceilings": {"one": row}}))
    assert cache(path, []).find("one") is None


def test_an_unusable_cache_is_reported_and_not_used(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").write_text("")
    under_a_file = cache(tmp_path / "file" / "ceilings.json", said)
    under_a_file.keep("one", Ceiling(5.0, extrapolated=False))
    assert under_a_file.find("one") is None
    assert said and all("\n" not in line for line in said)
    cache(None, said).keep("one", Ceiling(5.0, extrapolated=False))
    assert cache(None, said).find("one") is None


@pytest.mark.parametrize(
    ("named", "where"),
    [("/var/cache/mine", "/var/cache/mine"), ("relative", "/home/me/.cache"), ("", "/home/me/.cache")],
)
def test_ceiling_cache_lies_in_the_xdg_cache_folder(named: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert CeilingCache.here(print).path == Path(where) / "leadline" / "ceilings.json"


# --- Really ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[HttpWorkload], Any]:
    """Asks for a ceiling with a cache of its own; gives it with how often it was measured and what was said."""
    try:
        agent_binary()
    except MissingBinary as error:
        pytest.skip(str(error))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # On a busy machine the agents may get next to nothing: how little is no matter of this test.
    monkeypatch.setattr(calibration, "LEAST_BUSY", 0.0)

    async def ask(given: HttpWorkload) -> tuple[Ceiling | None, int, list[str]]:
        began: list[bool] = []
        said: list[str] = []
        found = await ceiling_for(given, Interrupt(), lambda: began.append(True), said.append)
        return found, len(began), said

    return ask


@pytest.mark.agent
async def test_a_ceiling_is_measured_once(asked: Callable[[HttpWorkload], Any], tmp_path: Path) -> None:
    found, times, said = await asked(load())
    assert found is not None and found.per_s > 0 and times == 1 and said == []
    assert await asked(load("http://elsewhere.example/some/PATH?size=100&delay=7")) == (found, 0, [])
    mode = (tmp_path / "leadline" / "ceilings.json").stat().st_mode
    assert not mode & stat.S_IXUSR


@pytest.mark.parametrize(
    "source",
    [
        "function setup(thread) thread.addr = other end",
        "function setup(thread) thread['addr'] = other end",
        "local socket = require 'socket'",
        "dofile('other.lua')",
        "loadfile('other.lua')()",
        "loadstring('x')()",
        "local file = io.open('tokens', 'w')",
        "io.popen('date')",
        "os.remove('/tmp/x')",
        "wrk.lookup('other', 80)",
        "wrk.connect(other)",
    ],
)
async def test_a_script_that_does_more_than_requests_is_not_run(
    source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = load(script=HttpScript(name="a", source=source, args=[]))
    assert await ceiling_for(given, Interrupt(), lambda: pytest.fail("it began"), pytest.fail) is None


@pytest.mark.agent
@pytest.mark.parametrize(
    "way",
    [{"unix_socket": "/run/socket"}, {"proxy": "http://proxy:3128"}, {"dns": "connection"}],
    ids=lambda way: next(iter(way)),
)
async def test_ways_that_no_calibration_goes_have_no_ceiling(
    way: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = load()
    # The plain load's ceiling is known, and is not this one's.
    key = key_of(host_fingerprint(), shape_of(given))
    CeilingCache.here(pytest.fail).keep(key, Ceiling(5.0, extrapolated=False))
    assert await ceiling_for(given, Interrupt(), lambda: pytest.fail("it began"), pytest.fail) is not None
    given.route = given.route.model_copy(update=way)
    assert await ceiling_for(given, Interrupt(), lambda: pytest.fail("it began"), pytest.fail) is None


@pytest.mark.agent
async def test_a_failed_calibration_is_reported_and_the_ceiling_unknown(asked: Callable[[HttpWorkload], Any]) -> None:
    broken = load()
    broken.requests[0].method = "NOT A METHOD"
    found, times, said = await asked(broken)
    assert (found, times) == (None, 1)
    assert len(said) == 1 and "ceiling is unknown" in said[0]


@pytest.mark.agent
async def test_a_host_that_has_no_address_is_not_calibrated_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = load("http://nowhere.invalid/")
    assert await ceiling_for(given, Interrupt(), lambda: pytest.fail("it began"), pytest.fail) is None


@pytest.mark.agent
async def test_an_interrupt_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    interrupt = Interrupt()
    interrupt.asked.set()
    assert await ceiling_for(load(), interrupt, lambda: pytest.fail("it began"), pytest.fail) is None


@pytest.mark.agent
def test_the_fingerprint_has_the_properties_that_make_a_host_fast() -> None:
    found = host_fingerprint()
    assert found["cpus"] == len(os.sched_getaffinity(0))
    assert all(found.values())


@pytest.mark.agent
def test_a_host_that_forbids_io_uring_is_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    setting, keys = tmp_path / "io_uring_disabled", []
    monkeypatch.setattr(calibration, "IO_URING_SETTING", setting)
    assert host_fingerprint()["io_uring_disabled"] == "absent"
    for value in ("0\n", "2\n"):
        setting.write_text(value)
        keys.append(key_of(host_fingerprint(), shape_of(load())))
        assert host_fingerprint()["io_uring_disabled"] == value.strip()
    assert keys[0] != keys[1]
