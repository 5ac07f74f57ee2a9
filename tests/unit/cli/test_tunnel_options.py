"""The options of `leadline tunnel` as an agent's workload, and every refusal in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from in_process import subcommand
from leadline.cli.single_args import OutputOptions
from leadline.contract.models import ProfileIdentity, TunnelWorkload
from leadline.errors import InputError
from leadline.kinds.tunnel import args, options
from leadline.kinds.tunnel.command import parse_options
from leadline.kinds.tunnel.model import TunnelTest

CA = "-----BEGIN CERTIFICATE-----\nAUTHORITY\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nSECRETKEY\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_text(CA)
    (tmp_path / "ca.key").write_text(KEY)
    file = tmp_path / "client.ovpn"
    file.write_text("client\ndev tun\nremote 192.0.2.7 1194 udp\nca ca.crt\nauth-user-pass\n")
    return file


def parsed(*arguments: str | Path) -> tuple[TunnelTest, TunnelWorkload, OutputOptions]:
    context = subcommand("tunnel").make_context("tunnel", [str(argument) for argument in arguments])
    [(test, made)], output = parse_options(context.params)
    return test, made, output


def load(*arguments: str | Path) -> TunnelWorkload:
    return parsed(*arguments)[1]


def refused(*arguments: str | Path) -> str:
    with pytest.raises(InputError) as caught:
        parsed(*arguments)
    return str(caught.value)


def test_profile_alone_is_one_client(profile: Path) -> None:
    test, made, output = parsed(profile)
    assert (made.clients, made.threads, made.arrivals, made.settled, made.retries) == (1, 1, [], 0, 0)
    assert (made.attempt_ms, made.first_data_ms, made.ping_ms, made.actions, made.traffic) == (
        *(60_000, 5_000, None, [], None),
    )
    assert isinstance(made.identities, ProfileIdentity)
    assert "<ca>\n-----BEGIN CERTIFICATE-----\nAUTHORITY" in made.profile
    assert (made.users, made.bind, output.target) == ([], [], str(profile))
    assert made.duration_ms == test.stay_ms


def test_arrival_and_later_event_options_reach_the_workload(profile: Path) -> None:
    made = load(
        *(profile, "-n", "1000", "--rate", "200/s", "--settled", "50", "--retries", "5", "--attempt-timeout", "10s"),
        *("--reconnect-at", "20s/5s", "--renegotiate-at", "10s", "-t", "2"),
    )
    assert (made.clients, made.settled, made.retries, made.attempt_ms, made.threads) == (1000, 50, 5, 10_000, 2)
    [stage] = made.arrivals
    assert (stage.from_per_s, stage.to_per_s) == (200, 200)
    assert made.ping_ms == 100
    assert [(action.at_ms, action.what, action.over_ms) for action in made.actions] == [
        (10_000, "renegotiate", 0),
        (20_000, "reconnect", 5_000),
    ]


def test_several_numbers_are_several_fleets(profile: Path) -> None:
    context = subcommand("tunnel").make_context("tunnel", [str(profile), "-n", "50,100,400", "--server-pid", "7"])
    fleets, output = parse_options(context.params)
    assert [(test.number, made.clients) for test, made in fleets] == [(50, 50), (100, 100), (400, 400)]
    assert output.server_pid == 7


def test_until_choke_has_a_default_condition_and_shorter_attempts(profile: Path) -> None:
    _, made, output = parsed(profile, "-n", "100", "--until-choke")
    assert output.find_rate == "connect_p99_ms < 2000 and unconfigured_ratio < 1%"
    assert made.attempt_ms == 10_000
    assert parsed(profile, "-n", "100", "--until-choke", "--json")[2].json
    _, made, output = parsed(profile, "-n", "100", "--until-choke", "--attempt-timeout=5s", "--ping=1s")
    assert (output.find_rate, made.attempt_ms) == (options.CONDITION, 5_000), "an option is no condition"
    _, made, output = parsed(profile, "--until-choke", "connect_p99_ms < 500", "-n", "100", "--attempt-timeout", "3s")
    assert (output.find_rate, made.attempt_ms) == ("connect_p99_ms < 500", 3_000)


def test_expectations_and_addresses_reach_the_workload(profile: Path) -> None:
    made = load(
        *(profile, "-n", "9", "--expect-pool", "10.8.0.0/24", "--expect-route", "10.20.0.0/16"),
        *("--expect-dns", "10.8.0.1", "--expect-option", "block-outside-dns", "--echo", "10.8.0.1"),
        *("--bind", "127.0.0.1", "--bind", "127.0.1.0/30"),
    )
    assert made.expect.model_dump() == {
        "pools": ["10.8.0.0/24"],
        "routes": ["10.20.0.0/16"],
        "dns": ["10.8.0.1"],
        "options": ["block-outside-dns"],
        "echo": "10.8.0.1",
    }
    assert made.bind == ["127.0.0.1", "127.0.1.1", "127.0.1.2"]


def test_certificates_are_made_from_the_profiles_authority(profile: Path) -> None:
    made = load(profile, "-n", "3", "--ca-key", profile.with_name("ca.key"), "--name-prefix", "vpn-")
    issued: Any = made.identities
    assert (issued.authority_pem, issued.authority_key_pem, issued.name_prefix) == (CA, KEY, "vpn-")
    other = profile.with_name("other.crt")
    other.write_text(CA.replace("AUTHORITY", "OTHER"))
    issued = load(profile, "--ca-key", profile.with_name("ca.key"), "--ca", other).identities
    assert "OTHER" in issued.authority_pem


def test_identities_and_users_come_from_files(profile: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pairs"
    folder.mkdir()
    for name in ("b", "a"):
        (folder / f"{name}.crt").write_text(f"CERT {name}\n")
        (folder / f"{name}.key").write_text(f"KEY {name}\n")
    users = tmp_path / "users"
    users.write_text("one:first:word\n\ntwo:#2\n")
    made = load(profile, "--identities", folder, "--users", users)
    pairs: Any = made.identities
    assert [pair.certificate_pem for pair in pairs.identities] == ["CERT a\n", "CERT b\n"]
    assert [(user.user, user.password) for user in made.users] == [("one", "first:word"), ("two", "#2")]


@pytest.mark.parametrize(
    ("options", "traffic"),
    [
        (["echo", "--traffic-rate", "10/s"], {"kind": "echo", "to": None, "rate_pps": 10.0, "packet_bytes": 100}),
        (
            ["udp", "--to", "10.8.0.1", "--traffic-rate", "1mbit", "-l", "1000", "-R"],
            {"kind": "udp", "host": "10.8.0.1", "port": 5201, "rate_pps": 125.0, "direction": "down"},
        ),
        (["tcp", "--to", "[fd00::1]:5301", "--bidir"], {"kind": "tcp", "host": "fd00::1", "port": 5301}),
        (["http", "--to", "http://10.8.0.1/a?b=1", "--traffic-rate", "5/s"], {"kind": "http", "rate_per_s": 5.0}),
    ],
)
def test_traffic_options_reach_the_workload(profile: Path, options: list[str], traffic: dict[str, Any]) -> None:
    made = load(profile, "-n", "2", "--traffic", *options, "--traffic-duration", "3s").traffic
    assert made is not None
    found = made.model_dump()
    assert found["duration_ms"] == 3_000
    assert {key: found[key] for key in traffic} == traffic
    if traffic["kind"] == "http":
        assert found["request"]["url"] == "http://10.8.0.1:80/a?b=1", "as everywhere where a URL names no port"


@pytest.mark.parametrize(
    ("to", "url"),
    [
        ("10.8.0.1", "http://10.8.0.1:8080/"),
        ("10.8.0.1:90/x", "http://10.8.0.1:90/x"),
        ("http://[fd00::1]/x", "http://[fd00::1]:80/x"),
        ("http://10.8.0.1:8080", "http://10.8.0.1:8080/"),
    ],
)
def test_traffic_destination_is_parsed(profile: Path, to: str, url: str) -> None:
    made: Any = load(profile, "--traffic", "http", "--to", to).traffic
    assert (made.request.url, made.duration_ms) == (url, 10_000)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-n", "many"], "--number: 'many' is not a number of clients"),
        (["-n", "0"], "--number: 0 clients; from 1 to 100000"),
        (["-n", "5,5"], "--number: a number is repeated"),
        (["-n", "9" * 5000], "--number: 99999999999999999999... clients; from 1 to 100000"),
        (["-n", "x" * 5000], "--number: 'xxxxxxxxxxxxxxxxxxxx...' is not a number of clients"),
        (["--bind", "127.0.0.1", "--bind", "192.0.2.1"], "--source: 192.0.2.1 is not an address of this host"),
        (["--reconnect-at", "9999999999999h"], "--reconnect-at: 35999999999996400000 ms is too large; at most"),
        (
            ["--traffic", "udp", "--to", "10.8.0.1", "--traffic-rate", "2mbit", "-l", "0"],
            "--size: 0 bytes is too small",
        ),
        (
            ["--traffic", "http", "--to", "10.8.0.1", "--traffic-rate", "2mbit"],
            "--traffic-rate: requests have no fixed size",
        ),
        (["--traffic", "http", "--to", "10.8.0.1", "-l", "100"], "--size: HTTP requests have no packet size"),
        (["--traffic-duration", "5s"], "--traffic-duration without --traffic"),
        (["--name-prefix", "x-"], "--name-prefix without --ca-key"),
        (["--at-once", "--rate", "5/s"], "--at-once and --rate exclude each other"),
        (["--rate", "5/s", "--until-choke"], "--rate and --until-choke exclude each other"),
        (["-n", "50,100", "--until-choke"], "--until-choke needs a single number of clients"),
        (["--rate", "fast"], "--rate: 'fast' is not a rate per second"),
        (["-n", "5", "--settled", "5"], "--settled: 5 settled clients of 5 leave no client to arrive"),
        (["--expect-pool", "10.8.0.1/8"], "--expect-pool: '10.8.0.1/8' is not a network"),
        (["--bind", "nowhere"], "--source: 'nowhere' is not an address"),
        (["--traffic", "udp"], "--traffic udp needs --to"),
        (["--traffic", "echo"], "--traffic-rate: echo requests need a rate"),
        (
            ["--traffic", "tcp", "--to", "10.8.0.1", "--traffic-rate", "1mbit"],
            "--traffic-rate: TCP chooses its own rate",
        ),
        (["--traffic", "udp", "--to", "http://10.8.0.1/"], "a URL is for --traffic http"),
        (["--traffic", "echo", "--traffic-rate", "1/s", "--to", "10.8.0.1:7"], "echo requests have no port"),
        (["--traffic-rate", "5/s"], "--traffic-rate without --traffic"),
        (["--reverse"], "--reverse and --bidir need --traffic"),
        (["--ca", "ca.crt"], "--ca without --ca-key"),
        (["--users", "missing"], "--users: missing: No such file or directory"),
        (["--identities", "missing"], "--identities missing: No such file or directory"),
        (["--ca-key", "missing"], "--ca-key: missing: No such file or directory"),
        (["--attempt-timeout", "5x"], "--attempt-timeout: '5x' is not a duration; write 10s, 500ms or 1m"),
    ],
)
def test_wrong_option_is_refused_in_one_line(profile: Path, options: list[str], said: str) -> None:
    text = refused(profile, *options)
    assert said in text
    assert len(text.splitlines()) == 1


def test_wrong_file_is_refused_in_one_line(profile: Path, tmp_path: Path) -> None:
    assert "missing.ovpn: No such file or directory" in refused(tmp_path / "missing.ovpn")
    (tmp_path / "old.ovpn").write_bytes("client\n# Büro\n".encode("latin-1"))
    assert "old.ovpn is not UTF-8 text: see line 2" in refused(tmp_path / "old.ovpn")
    assert "is not an unencrypted private key in PEM" in refused(profile, "--ca-key", profile.with_name("ca.crt"))
    users = tmp_path / "users"
    users.write_text("one:word\nSECRETWORD\n")
    said = refused(profile, "--users", users)
    assert "line 2 is not user:password" in said and "SECRETWORD" not in said
    users.write_text("one:word\n")
    profile.write_text("client\nremote 192.0.2.7\n")
    assert "has no auth-user-pass" in refused(profile, "--users", users)
    assert "has no ca" in refused(profile, "--ca-key", tmp_path / "ca.key")
    profile.write_text("client\nca gone.crt\n")
    said = refused(profile)
    assert f"{profile}: line 2: ca: {tmp_path / 'gone.crt'}: No such file or directory" in said


def test_dumped_test_shows_no_key(profile: Path) -> None:
    test, made, _ = parsed(profile, "-n", "3", "--ca-key", profile.with_name("ca.key"))
    assert "SECRETKEY" not in test.model_dump_json() and "AUTHORITY" not in test.model_dump_json()
    assert "SECRETKEY" in made.model_dump_json(), "the agent gets it on its stdin"


def test_a_file_without_end_is_read_up_to_the_limit() -> None:
    with pytest.raises(InputError, match=r"the profile: /dev/zero is longer than 4 MiB"):
        args.read_access({"file": Path("/dev/zero"), "peers": None, "write_peers": None, "connection": None})
