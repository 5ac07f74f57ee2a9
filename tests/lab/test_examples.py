"""The examples and both topologies, run as their headers say, with shortened durations or with numbers instead: all
that a user would see is there, and every row is measured.

A load that ends by its number is measured even if a process stalls; one that ends by time is long enough that
no process stalls for all of it.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import cli_runs as cli
import polars as pl
import pytest

from report_page import packed_cases

pytestmark = [
    pytest.mark.lab,
    pytest.mark.apart,
    pytest.mark.takes(25),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]

_SBIN = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
EXAMPLES = cli.ROOT / "examples"
GATEWAYS = ("route", "wireguard", *(("openvpn",) if cli.OPENVPN else ()))
CHARON = shutil.which("charon-systemd", path=f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin")
# When the example's fleets come again and renew their keys, after the first arrival.
TURN_MS = 3000
LENGTH = "3000ms"
"""Of loads that end by time: longer than any process stalls."""
# What a row's headline figure is, by kind of test.
HEADLINE = {
    "tcp": ("throughput_bps",),
    "udp": ("throughput_bps", "lost_ratio"),
    "rr": ("transactions_per_s", "latency_p50_us", "latency_p99_us"),
    "packets": ("packets_per_s",),
    "http": ("requests_per_s", "latency_p50_us", "latency_p99_us"),
}


def shortened(**durations: str) -> list[str]:
    """`--set` for tests' durations; names have dashes where keywords have underscores."""
    settings = [f"tests.{name.replace('_', '-')}.duration={duration}" for name, duration in durations.items()]
    return [part for setting in settings for part in ("--set", setting)]


def counted(**numbers: int) -> list[str]:
    """`--set` for tests that end by their numbers, however long that takes."""
    settings = [
        f"tests.{name.replace('_', '-')}.{key}={value}"
        for name, number in numbers.items()
        for key, value in (("number", number), ("duration", "60s"))
    ]
    return [part for setting in settings for part in ("--set", setting)]


def assert_measured(run: cli.Run, tests: dict[str, str], cases: int, repeat: int = 1) -> None:
    """Every trial came to its end, and every row of the table has its figures; no figure is made up of nothing."""
    assert run.code == 0, run.err
    trials = run.report()["trials"]
    assert [trial["status"] for trial in trials] == ["done"] * cases * repeat
    for trial in trials:
        for name, kind in tests.items():
            found = run.figures(name, trial["case"], trial["repeat"])
            missing = [metric for metric in HEADLINE[kind] if found[metric] is None]
            assert not missing, (trial["trial"], name)
            assert (found[HEADLINE[kind][0]] or 0) > 0, (trial["trial"], name)
    summed = {(row["case"], row["test"]) for row in run.rows if row["trial"] is None}
    assert summed == {(f"c{number:02}", name) for number in range(1, cases + 1) for name in tests}


def test_three_gateways_side_by_side(tmp_path: Path) -> None:
    kinds = {"tcp-up": "tcp", "tcp-down": "tcp", "udp": "udp", "rr": "rr", "http-closed": "http", "http-open": "http"}
    warm = [part for name in ("tcp-up", "tcp-down") for part in ("--set", f"tests.{name}.warmup=100ms")]
    # A number may be reached in whatever warm-up there is.
    warm += [part for name in ("rr", "http-closed", "http-open") for part in ("--set", f"tests.{name}.warmup=0ms")]
    lengths = shortened(tcp_up=LENGTH, tcp_down=LENGTH)
    numbers = counted(udp=4000, rr=500, http_closed=1500, http_open=600)
    patience = ("--set", "tests.rr.timeout=60s", "--set", "repeat=1")
    run = cli.run(EXAMPLES / "gateway.yaml", tmp_path, *lengths, *numbers, *warm, *patience, "--verbose")
    assert_measured(run, kinds, cases=len(GATEWAYS))
    assert [trial["sut"] for trial in sorted(run.report()["trials"], key=lambda trial: trial["case"])] == list(GATEWAYS)
    page = (run.folder / "report.html").read_text()
    for gateway in GATEWAYS:
        assert gateway in run.out and gateway in page, gateway
    for test in kinds:
        # Once in the figures, once in each of the seeds' tables, for every gateway.
        assert len(re.findall(rf"(?<!\S){test}(?!\S)", run.out)) >= len(GATEWAYS), test
        assert test in page
    for title in ("Figures", "Client statistics", "Server statistics", "Bring-up of clients"):
        assert title in run.out, title
    assert "share its" in run.out, "hosts share the machine's CPUs, and the result says so"
    assert str(run.folder / "report.html") in run.err


@pytest.mark.parametrize(
    "only",
    [
        pytest.param(
            ("strongswan",), marks=pytest.mark.skipif(CHARON is None, reason="charon-systemd is not installed")
        ),
        pytest.param((), marks=pytest.mark.full_matrix),
    ],
    ids=["strongswan", "all"],
)
def test_four_kinds_of_gateways_side_by_side(tmp_path: Path, only: tuple[str, ...]) -> None:
    kinds = {"up": "tcp", "down": "tcp", "rr": "rr", "paced": "packets"}
    warm = [part for name in ("up", "down", "rr") for part in ("--set", f"tests.{name}.warmup=0ms")]
    picked = [part for system in only for part in ("--only", f"sut={system}")]
    lengths = (*shortened(up="1500ms", down="1500ms", paced="500ms"), *counted(rr=300))
    patience = ("--set", "tests.rr.timeout=60s", "--set", "repeat=1")
    run = cli.run(EXAMPLES / "gateways.yaml", tmp_path, *lengths, *warm, *patience, *picked)
    trials = [trial for trial in run.report()["trials"] if trial["status"] != "skipped"]
    here = {"route", "wireguard", *(("openvpn",) if cli.OPENVPN else ()), *(("strongswan",) if CHARON else ())}
    assert {trial["sut"].partition(" (")[0] for trial in trials} == (set(only) or here)
    # ESP in user space is never shown as strongSwan alone.
    assert all(" (" in trial["sut"] for trial in trials if trial["sut"].startswith("strongswan"))
    for trial in trials:
        for name, kind in kinds.items():
            found = run.figures(name, trial["case"])
            assert (found[HEADLINE[kind][0]] or 0) > 0, (trial["sut"], name)


@pytest.mark.skipif(cli.OPENVPN is None, reason="openvpn is not installed")
def test_second_implementation_of_openvpn_is_named_on_the_command_line(tmp_path: Path) -> None:
    """Here it is OpenVPN's own program once more, by its path."""
    second = f'axes.sut.client=[null, {{command: [{cli.OPENVPN}, --config, "{{{{config}}}}"]}}]'
    narrowed = ("--set", second, "--set", "axes.control=[tls-crypt-v2]", "--set", "repeat=1")
    warm = [part for name in ("up", "down") for part in ("--set", f"tests.{name}.warmup=0ms")]
    run = cli.run(EXAMPLES / "mirage.yaml", tmp_path, *narrowed, *shortened(up="1500ms", down="1500ms"), *warm)
    assert_measured(run, {"up": "tcp", "down": "tcp"}, cases=2)


@pytest.mark.skipif(cli.OPENVPN is None, reason="openvpn is not installed")
def test_twenty_openvpn_clients_and_every_row_measured(tmp_path: Path) -> None:
    """The command in the example's header, with shorter durations, twice."""
    narrowed = {
        "axes.clients": "[20]",
        "axes.sut.ip": "[4]",
        "axes.sut.transport": "[udp]",
        "axes.sut.cipher": "[AES-256-GCM]",
        "axes.packet": "[1400]",
        "axes.rate": "[1mbit]",
        "repeat": "2",
    }
    settings = [part for key, value in narrowed.items() for part in ("--set", f"{key}={value}")]
    lengths = shortened(udp_10s="3000ms", udp_30s="3100ms", udp_60s="3200ms")
    run = cli.run(EXAMPLES / "openvpn-throughput.yaml", tmp_path, *settings, *lengths)
    kinds = dict.fromkeys(("udp-10s", "udp-30s", "udp-60s"), "udp")
    assert_measured(run, kinds, cases=1, repeat=2)
    document = run.report()
    measured = dict[str, set[str]]()
    for trial in document["trials"]:
        clients, bring_up = 20, trial["bring_up"]
        assert (bring_up["connected"], bring_up["partial"], bring_up["failed"]) == (clients, 0, 0), trial["trial"]
        assert 0 < bring_up["time_p50_s"] <= bring_up["time_max_s"]
        assert trial["sut_version"].startswith("OpenVPN")
        for test in trial["tests"]:
            assert test["clients"]["clients"] == clients
            server = test["server"]
            known = {name: value for name, value in server.items() if value is not None}
            measured.setdefault(trial["case"], set()).update(known)
            assert known.get("sut_memory_bytes", 2**30) > 2**20
    # A host that stalls is not read within a test: a figure of it may be unknown there, and not in all tests of a case.
    every_row = set(document["trials"][0]["tests"][0]["server"])
    assert measured == {"c01": every_row}
    for metric in ("throughput_bps", "lost_ratio", "jitter_us"):
        rows = [row for row in run.rows if row["trial"] is None and row["metric"] == metric]
        assert len(rows) == 3
        assert all(row["low"] is not None and row["high"] is not None for row in rows), "two repeats give an interval"


@pytest.mark.skipif(cli.OPENVPN is None, reason="openvpn is not installed")
def test_storms_of_a_fleet_answer_the_connection_tests_questions(tmp_path: Path) -> None:
    """The quick look of the example's header, smaller."""
    narrowed = {"axes.clients": "[6, 24]", "axes.sut.ip": "[4]", "axes.sut.transport": "[udp]"}
    settings = [part for key, value in narrowed.items() for part in ("--set", f"{key}={value}")]
    run = cli.run(EXAMPLES / "openvpn-connections.yaml", tmp_path, *settings)
    assert run.code == 0, run.err
    for case, clients in (("c01", 6), ("c02", 24)):
        for test in ("at-once", "recovery", "harm", "renegotiate", "reconnect"):
            found = run.figures(test, case)
            states = [found[name] for name in ("clients", "configured", "partial", "failed")]
            assert states == [clients, clients, 0, 0], (case, test)
            assert (found["connect_p50_ms"] or 0) > 0
        assert (run.figures("harm", case)["ping_after_p50_ms"] or 0) > 0
        for test, done in (("reconnect", "returned"), ("renegotiate", "renegotiated")):
            found = run.figures(test, case)
            skipped = found["actions_skipped"] or 0
            assert found[done] == clients - skipped, (case, test)
            # Passed over is who has no tunnel when its turn comes.
            assert not skipped or (found["connect_max_ms"] or 0) > TURN_MS, (case, test)
    # Who looks at the gateway may not run for all of a storm that is so short: of one.
    costs = [run.figures("at-once", case)["server_cpu_s"] for case in ("c01", "c02")]
    assert any(costs), costs
    scaling = {one["metric"] for one in run.report()["scaling"]["at-once"]}
    assert scaling >= {"connect_p50_ms", *(("server_cpu_s", "server_memory_bytes") if all(costs) else ())}
    assert "Scaling of at-once" in run.out and "VPN clients" in run.out
    page = (run.folder / "report.html").read_text()
    cases = packed_cases(page)
    assert 'id="scaling"' in page and all("pushed options" in case for case in cases)
    assert len(cases) == 2
    rows = pl.read_parquet(run.folder / "clients.parquet")
    assert rows.filter(pl.col("trial") == "c02/1/at-once")["state"].to_list() == ["configured"] * 24
    assert rows.filter(pl.col("trial") == "c02/1/at-once")["addresses"].n_unique() == 24
    kept = b"".join(path.read_bytes() for path in run.folder.rglob("*") if path.suffix in (".json", ".ndjson", ".html"))
    kept += "".join(cases).encode()
    assert b"PRIVATE KEY" not in kept and b"OpenVPN Static key" not in kept


@pytest.mark.skipif(cli.OPENVPN is None, reason="openvpn is not installed")
def test_a_fleet_takes_the_place_of_client_processes(tmp_path: Path) -> None:
    narrowed = {
        "clients": "{fleet: true}",
        "axes.clients": "[10]",
        "axes.sut.ip": "[4]",
        "axes.sut.transport": "[udp]",
        "axes.sut.cipher": "[AES-256-GCM]",
        "axes.packet": "[512]",
        "axes.rate": "[200kbit]",
    }
    settings = [part for key, value in narrowed.items() for part in ("--set", f"{key}={value}")]
    lengths = shortened(udp_10s="3000ms", udp_30s="3100ms", udp_60s="3200ms")
    run = cli.run(EXAMPLES / "openvpn-throughput.yaml", tmp_path, *settings, *lengths)
    kinds = dict.fromkeys(("udp-10s", "udp-30s", "udp-60s"), "udp")
    assert_measured(run, kinds, cases=1)
    for trial in run.report()["trials"]:
        assert trial["bring_up"] is None
        for test in trial["tests"]:
            assert test["clients"]["clients"] == 10
    assert set(run.samples["host"].unique()) == {"client1", "gateway", "server"}


IPSEC = {
    "ipsec-setup-time": {"axes.clients": "[5]", "axes.sut.ikesa_table_size": "[64]"},
    "ipsec-pipe-not-tunnels": {"axes.clients": "[2]", "axes.rate": "[100kbit]", "tests.pipe.duration": "1s"},
    "ipsec-cost": {
        "axes.sut": "[{kind: route}, {kind: strongswan}]",
        "axes.packet": "[1300]",
        "tests.up.duration": "1s",
    },
}


@pytest.mark.skipif(shutil.which("charon-systemd", path=_SBIN) is None, reason="charon-systemd is not installed")
@pytest.mark.parametrize("example", IPSEC)
def test_experiments_with_ipsec_gateways(example: str, tmp_path: Path) -> None:
    settings = [part for key, value in IPSEC[example].items() for part in ("--set", f"{key}={value}")]
    run = cli.run(EXAMPLES / f"{example}.yaml", tmp_path, *settings)
    assert run.code == 0, run.err
    for trial in run.report()["trials"]:
        assert trial["status"] == "done", trial["error"]
        assert all(test["status"] == "done" for test in trial["tests"])
    if example == "ipsec-setup-time":
        for test in ("storm", "restart", "rekey"):
            assert run.figures(test)["configured"] == 5, test


@pytest.mark.skipif(cli.OPENVPN is None, reason="openvpn is not installed")
def test_implementations_side_by_side_and_one_that_is_missing(tmp_path: Path) -> None:
    lengths = shortened(up=LENGTH, down=LENGTH, datagrams=LENGTH)
    run = cli.run(EXAMPLES / "openvpn-implementations.yaml", tmp_path, "--set", "repeat=1", *lengths)
    assert run.code == 0, run.err
    trials = {trial["case"]: trial for trial in run.report()["trials"]}
    assert [trials[case]["status"] for case in ("c01", "c02")] == ["done", "done"]
    for case in ("c01", "c02"):
        assert all((run.figures(test, case)["throughput_bps"] or 0) > 0 for test in ("up", "down", "datagrams"))
    if shutil.which("miragevpn-client-lwt") is None:
        assert trials["c03"]["status"] == "skipped"
        assert "miragevpn-client-lwt is not installed" in trials["c03"]["error"]


@pytest.mark.skipif(cli.OPENVPN is None, reason="openvpn is not installed")
def test_a_client_is_any_program_that_reads_a_configuration(tmp_path: Path) -> None:
    """OpenVPN's own program, as if it were another one."""
    run = cli.run(
        f"""
        name: foreign
        sut:
          kind: openvpn
          client: {{command: [{cli.OPENVPN}, --config, "{{{{config}}}}", --mute, "7"], without: [verb]}}
        clients: 2
        tests: [{{name: up, kind: udp, rate: 4mbit, packet: 500, number: 200, duration: 60s}}]
        """,
        tmp_path,
    )
    assert_measured(run, {"up": "udp"}, cases=1)
    [trial] = run.report()["trials"]
    assert trial["bring_up"]["connected"] == 2


@pytest.mark.parametrize(
    "gateways", [("wireguard",), pytest.param(GATEWAYS, marks=pytest.mark.full_matrix)], ids="-".join
)
def test_site_to_site_through_gateways(tmp_path: Path, gateways: tuple[str, ...]) -> None:
    kinds = ", ".join(f"{{kind: {gateway}}}" for gateway in gateways)
    # 1200 bytes fit into every tunnel whole. Larger ones meet a gateway whose tunnel is narrower than the client's own
    # link: it drops the first and says so, and the client's kernel sends the others in fragments.
    run = cli.run(
        f"""
        name: site-to-site
        topology: site-to-site
        axes: {{sut: [{kinds}]}}
        tests:
          - {{name: up4, kind: tcp, duration: {LENGTH}}}
          - {{name: down6, kind: tcp, direction: down, ip: 6, duration: {LENGTH}}}
          - {{name: udp6, kind: udp, ip: 6, rate: 1mbit, packet: 1200, number: 60, duration: 60s}}
          - {{name: rr4, kind: rr, number: 100, duration: 60s, timeout: 60s}}
          - {{name: http4, kind: http, number: 100, duration: 60s}}
        """,
        tmp_path,
    )
    tests = {"up4": "tcp", "down6": "tcp", "udp6": "udp", "rr4": "rr", "http4": "http"}
    assert_measured(run, tests, cases=len(gateways))
    for case in range(1, len(gateways) + 1):
        assert run.figures("rr4", f"c{case:02}")["transactions"] == 100
        assert run.figures("http4", f"c{case:02}")["requests"] == 100
        found = run.figures("udp6", f"c{case:02}")
        # This small number fits into any buffer on the path, even if a process stalls.
        assert found["sent"] == found["received"] == 60
    assert set(run.samples["host"].unique()) == {"client1", "gateway-a", "gateway-b", "server"}


BANK = [name for name in ("haproxy", "node", "redis-server") if shutil.which(name, path=_SBIN) is None]


@pytest.mark.skipif(bool(BANK), reason=f"not installed: {', '.join(BANK)}")
@pytest.mark.parametrize(
    ("customers", "cases"),
    [("bank-users.yaml", ["c01", "c03"]), ("bank.jmx", ["c03"]), ("bank-loadrunner/bank.usr", ["c03"])],
)
def test_customers_of_the_bank_pass_its_tiers(customers: str, cases: list[str], tmp_path: Path) -> None:
    """Steps of the example, in each form of its customers, whose requests every tier has seen."""
    file = ("--set", f"tests.users.file={EXAMPLES / customers}")
    short = (
        "--set",
        "tests.users.params={users: 4}",
        "--set",
        "tests.users.duration=2s",
        "--set",
        "tests.users.warmup=0s",
        "--set",
        "repeat=1",
    )
    picked = [part for case in cases for part in ("--only", case)]
    every = ("--set", "sut.tiers.router.log_every=1")
    run = cli.run(EXAMPLES / "bank.yaml", tmp_path, *file, *short, *picked, *every)
    assert run.code == 0, run.err
    assert [trial["case"] for trial in sorted(run.report()["trials"], key=lambda one: one["case"])] == cases
    for trial in run.report()["trials"]:
        [test] = trial["tests"]
        found = run.figures("users", trial["case"])
        assert (found["error_ratio"], found["checks_ratio"]) == (0, 1), test["errors"]
        assert [tier["tier"] for tier in test["tiers"]] == ["router", "app", "store"]
        router = test["tiers"][0]["counters"]
        assert router["requests"] >= (found["requests"] or 0) > 0
        # A login, and each account or amount asks Redis two things.
        assert test["tiers"][2]["counters"]["commands"] >= 2 * (router["requests"] - 4)
        # As far as so few requests tell it, each has its own time of each tier, with a trace that names it.
        assert all(row["trace"].startswith("00-") for row in test["slowest_traced"])
        assert all(row["times_us"]["router"] >= row["times_us"]["app"] for row in test["slowest_traced"])
    assert "Tiers" in run.out and "(Little's law)" in run.out
