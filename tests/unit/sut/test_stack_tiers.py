"""A stack's tiers: what a plan may say, where they are placed, HAProxy's file, and what the daemons count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sites import site_of

from leadline.errors import EnvironmentLimit
from leadline.plan.field_types import validate_input
from leadline.sut.model import Site
from leadline.sut.stack import SYSTEM
from leadline.sut.stack.counters import choose_rows, read_commands
from leadline.sut.stack.haproxy import HaproxyPaths, LoggedRequest, read_log, read_statistics, write_config
from leadline.sut.stack.parameters import HaproxyTier, StackSut
from leadline.sut.stack.placement import place_tiers, read_cpu_list
from leadline.sut.stack.readiness import listening_ports

BANK: list[dict[str, Any]] = [
    {"name": "router", "kind": "haproxy", "cpus": 1},
    {"name": "app", "kind": "node", "workers": 2, "cpus": 2},
    {"name": "store", "kind": "redis", "cpus": 1},
]
PROXY: dict[str, Any] = {"name": "proxy", "kind": "command", "argv": ["proxy"]}
PATHS = HaproxyPaths("/run/router.sock", "/run/router.pem")


def stack(*tiers: dict[str, Any], **others: Any) -> StackSut:
    return validate_input(StackSut, {"kind": "stack", "tiers": list(tiers or BANK), **others})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_of({}, tmp_path, ["client1"])


def router(**keys: Any) -> HaproxyTier:
    tier = stack({"name": "router", "kind": "haproxy", **keys}, {"name": "app", "kind": "command", "argv": ["app"]})
    assert isinstance(tier.tiers[0], HaproxyTier)
    return tier.tiers[0]


def config(**keys: Any) -> list[str]:
    text = write_config(router(**keys), ["10.81.0.1:9000"], ["10.82.0.2:9100", "10.82.0.2:9101"], PATHS)
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        ([BANK[1]], "the node tier 'app' keeps its data in Redis"),
        (
            [{**BANK[1], "workers": 4}, BANK[2]],
            "the node tier 'app' has 4 workers, but only its first one would be asked",
        ),
        ([PROXY, *BANK[1:]], "the node tier 'app' has 2 workers, but only its first one would be asked"),
        ([BANK[0]], "the haproxy tier 'router' has no tier behind it that speaks HTTP"),
        ([BANK[0], BANK[2]], "the haproxy tier 'router' has no tier behind it that speaks HTTP"),
        ([BANK[2]], "redis does not speak HTTP"),
        ([*BANK, {**BANK[2], "name": "other"}], "the redis tier 'store' asks no other tier"),
        ([*BANK[:2], {**BANK[2], "name": "app"}], "two tiers are called 'app'"),
        ([{**BANK[0], "ciphers": "AES128-SHA"}, *BANK[1:]], "ciphers without TLS"),
        ([{**BANK[0], "tls": "1.3", "ciphers": "AES128-SHA"}, *BANK[1:]], "AES128-SHA is not possible with tls: 1.3"),
        ([{**BANK[0], "ciphers": "A\nbind :1"}, *BANK[1:]], "is not a list of ciphers"),
        ([{"name": "a", "kind": "command", "argv": ["x"], "files": {"../x": ""}}], "'../x' is not a file's name"),
    ],
)
def test_impossible_stacks_are_refused_with_their_cause(tiers: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        stack(*tiers)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "tiers",
    [[{**BANK[1], "workers": 1}, BANK[2]], [PROXY, {**BANK[1], "workers": 1}, BANK[2]], [PROXY, *BANK]],
)
def test_single_workers_need_no_router_and_several_one_right_before_them(tiers: list[dict[str, Any]]) -> None:
    assert len(stack(*tiers).tiers) == len(tiers)


def test_first_tier_is_on_the_gateway_and_the_others_are_on_the_server(site: Site) -> None:
    placed = place_tiers(stack(), site, {"gateway": range(8), "server": range(8)})
    assert [one.host for one in placed] == ["gateway", "server", "server"]
    assert [one.endpoints for one in placed] == [
        ("10.81.0.1:9000",),
        ("10.82.0.2:9100", "10.82.0.2:9101"),
        ("10.82.0.2:9200",),
    ]
    assert [one.processes for one in placed] == [("router",), ("app-1", "app-2"), ("store",)]
    # Clients reach the first tier over every IP version that HAProxy can bind to.
    assert placed[0].addresses == {4: "10.81.0.1", 6: "fd81::1"}


def test_only_tier_is_on_the_server(site: Site) -> None:
    [one] = place_tiers(stack({"name": "app", "kind": "command", "argv": ["x"], "port": 80}), site, {"server": [0]})
    assert (one.host, one.ports, one.cpus) == ("server", (80,), ())


def test_tiers_have_different_cpus_as_far_as_there_are_enough(site: Site) -> None:
    enough = place_tiers(stack(), site, {"gateway": range(4), "server": range(4)})
    assert [one.cpus for one in enough] == [(3,), (1, 2), (0,)]
    too_few = place_tiers(stack(), site, {"gateway": range(2), "server": range(2)})
    assert [one.cpus for one in too_few] == [(1,), (0, 1), (0,)]


def test_tier_cannot_have_more_cpus_than_its_host(site: Site) -> None:
    with pytest.raises(
        EnvironmentLimit, match=r"2 CPUs for the tier 'app': the host server has 1; lower sut\.tiers\.app"
    ):
        place_tiers(stack(), site, {"gateway": [0], "server": [1]})


def test_cpus_of_a_process_are_read_from_its_status() -> None:
    assert read_cpu_list("Name:\tcat\nCpus_allowed:\tff\nCpus_allowed_list:\t0-2,5,7-8\n") == (0, 1, 2, 5, 7, 8)
    assert read_cpu_list("Name:\tcat\n") == ()


def test_router_passes_requests_on_to_every_worker() -> None:
    found = config(cpus=3, keep_alive="http-server-close", reuse="always")
    assert {"nbthread 3", "option http-server-close", "http-reuse always", "bind 10.81.0.1:9000"} <= set(found)
    assert {"server worker1 10.82.0.2:9100", "server worker2 10.82.0.2:9101"} <= set(found)
    assert "log stdout format raw sample 1:50 local0" in found
    assert not [line for line in config(log_every=0) if line.startswith(("log", "capture"))]
    assert not [line for line in config() if line.startswith("nbthread")], "HAProxy's own choice"


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        ({"tls": 1.2}, "ssl-min-ver TLSv1.2 ssl-max-ver TLSv1.2"),
        ({"tls": "1.3"}, "ssl-min-ver TLSv1.3 ssl-max-ver TLSv1.3"),
        (
            {"tls": "1.2-1.3", "ciphers": "AES128-SHA:TLS_AES_128_GCM_SHA256"},
            "ssl-min-ver TLSv1.2 ssl-max-ver TLSv1.3 ciphers AES128-SHA ciphersuites TLS_AES_128_GCM_SHA256",
        ),
    ],
)
def test_router_binds_with_the_asked_tls(keys: dict[str, Any], options: str) -> None:
    assert f"bind 10.81.0.1:9000 ssl crt /run/router.pem alpn http/1.1 {options}" in config(**keys)


LINE = (
    "10.81.1.1:48262 [29/Nov/2026:14:31:45.114] router~ next/worker1 0/0/0/2/2 200 190 - - ---- 8/8/7/3/0 0/0 "
    '{00-0123456789abcdef0123456789abcdef-0123456789abcdef-01} {app;dur=1.532, redis;dur=1.525} "GET / HTTP/1.1" 5377'
)


def test_logged_request_has_the_times_of_all_tiers() -> None:
    [found] = read_log(["[NOTICE] haproxy version is 2.6.12", LINE, LINE[:80]])
    assert (found.whole_us, found.status) == (5377.0, 200)
    assert found.parts_us == {"app": 1532.0, "redis": 1525.0}
    assert found.trace == "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


def test_request_without_captured_fields_has_only_the_routers_time() -> None:
    bare = LINE.replace(
        "{00-0123456789abcdef0123456789abcdef-0123456789abcdef-01} {app;dur=1.532, redis;dur=1.525}", "{} {}"
    )
    [found] = read_log([bare])
    assert (found.whole_us, dict(found.parts_us), found.trace) == (5377.0, {}, None)


def test_statistics_are_of_clients_and_of_connections_to_the_next_tier() -> None:
    text = (
        "# pxname,svname,req_tot,conn_tot,connect,reuse,wretr,eresp,econ,\n"
        "router,FRONTEND,16231,9,,,,,,\nnext,worker1,,,9,8100,0,0,0,\nnext,BACKEND,,,17,16214,1,2,,\n"
    )
    assert read_statistics(text) == {
        "requests": 16231, "connections": 9, "opened": 17, "reused": 16214, "retried": 1, "failed": 2,
    }  # fmt: skip
    assert read_statistics("") == {}


def test_redis_commands_are_counted_without_leadlines_own() -> None:
    text = (
        "# Commandstats\r\ncmdstat_get:calls=30,usec=60,usec_per_call=2.00,rejected_calls=0,failed_calls=0\r\n"
        "cmdstat_info:calls=3,usec=900,usec_per_call=300\r\ncmdstat_hgetall:calls=10,usec=40,usec_per_call=4\r\n"
    )
    assert read_commands(text) == {"commands": 40, "execution_us": 100}
    assert read_commands("Could not connect to Redis") == {}, "unknown is not 0"


def test_many_logged_requests_are_thinned_out_and_the_slowest_kept() -> None:
    made = (LoggedRequest(float(number % 997), {}, 200, None) for number in range(10_000))
    chosen = choose_rows(made, limit=100)
    assert chosen.count == 10_000
    assert 50 <= len(chosen.even) <= 100
    assert [one.whole_us for one in chosen.slowest] == [996.0 - number // 10 for number in range(20)]


def test_listening_ports_are_read_from_the_kernels_table() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue\n   0: 0252520A:2328 00000000:0000 0A 00000000:00000000\n"
        "   1: 0252520A:238C 0152520A:C350 01 00000000:00000000\n"
    )
    assert listening_ports(table) == {9000}


def test_programs_of_all_tiers_are_needed() -> None:
    needs = {need.name: need for need in SYSTEM.needs(stack(), fleet=False)}
    assert list(needs) == ["haproxy", "node", "redis-server", "redis-cli"]
    assert needs["redis-server"].install == "apt-get install redis-server"
    given = replace(needs["haproxy"])
    assert given.why == "the tier 'router' runs it"
