"""`leadline http` against nginx, HAProxy, Apache, Node.js and through tinyproxy: what it counted is what they counted.

Each load goes over io_uring and over epoll. Most ask for a number of requests, so that the counts are known beforehand.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cli_runs as cli
import http_servers as servers
import pytest

from waiting import until

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.takes(40),
]


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Nginx]:
    folder = tmp_path_factory.mktemp("nginx")
    with servers.nginx(folder, servers.certificates(folder)) as running:
        yield running


def check_all_answered(load: cli.Load, number: int) -> None:
    """Every request of this number was answered, without any error."""
    assert (load.code, load.errors) == (0, {}), load.err
    assert (load.count("requests_due"), load.count("requests_sent")) == (number, number)
    assert (load.count("unanswered"), load.count("unsent"), sum(load.statuses.values())) == (0, 0, number)
    assert load.count("latency_samples") == number


def check_bytes(load: cli.Load, lines: list[servers.Line], bodies: int = 0) -> None:
    """Bytes in both directions, heads included, are those that nginx counted, which counts no bodies that it drops."""
    assert load.value("bytes_received") == sum(line.bytes_sent for line in lines)
    assert load.value("bytes_sent") == sum(line.request_length for line in lines) + bodies


# --- Requests and answers ---------------------------------------------------------------------------------------------


def test_closed_loop_with_weights_methods_and_bodies(nginx: servers.Nginx, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "urls").write_text(
        f"weight=5 {nginx.url('/a')}\n# a comment\nweight=2 POST {nginx.url('/b')} @{tmp_path / 'body'}\n"
        f"HEAD {nginx.url('/chunked')}\nweight=2 {nginx.url('/chunked')}\n"
    )
    options = ("-n", "2000", "-c", "8", "-t", "2", "--urls", tmp_path / "urls")
    for load in cli.load_over_both("mix", nginx.url(), *options):
        check_all_answered(load, 2000)
        assert load.statuses == {"2xx": 2000}
        lines = nginx.lines(load.run)
        shares = {("GET", "/a"): 1000, ("POST", "/b"): 400, ("HEAD", "/chunked"): 200, ("GET", "/chunked"): 400}
        assert Counter((line.method, line.uri) for line in lines) == shares
        check_bytes(load, lines, bodies=400 * 10_240)
        bodies = 1400 * len(servers.BODY) + 400 * len(servers.CHUNKED_BODY)
        assert load.count("body_bytes") == bodies, "without what frames the chunks"
        assert len({line.connection for line in lines}) == load.count("connections_opened") == 8


def test_open_loop_sends_what_is_due(nginx: servers.Nginx) -> None:
    for load in cli.load_over_both("open", nginx.url(), "--rate", "400", "-d", "2500ms", "-c", "50", "-t", "2"):
        assert (load.code, load.errors, load.count("requests_due")) == (0, {}, 1000)
        sent, unanswered, unsent = (load.count(name) for name in ("requests_sent", "unanswered", "unsent"))
        assert sum(load.statuses.values()) + unanswered + unsent == 1000
        assert len(nginx.lines(load.run)) == sent == 1000 - unsent


def test_closed_loop_for_a_time(nginx: servers.Nginx) -> None:
    """What is under way when the time is over has been sent, and is counted by both sides."""
    for load in cli.load_over_both("time", nginx.url(), "-d", "1500ms", "-c", "20"):
        assert (load.code, load.errors) == (0, {})
        sent, unanswered = load.count("requests_sent"), load.count("unanswered")
        assert len(nginx.lines(load.run)) == sent == sum(load.statuses.values()) + unanswered > 0


@pytest.mark.parametrize(("options", "each"), [(["--no-keep-alive"], 1), (["--requests-per-connection", "10"], 10)])
def test_connections_without_keep_alive_are_reopened(nginx: servers.Nginx, options: list[str], each: int) -> None:
    for load in cli.load_over_both(f"each-{each}", nginx.url("/chunked"), "-n", "400", "-c", "4", *options):
        check_all_answered(load, 400)
        lines = nginx.lines(load.run)
        check_bytes(load, lines)
        carried = Counter(line.connection for line in lines)
        # As the last requests are taken, the four connections may be anywhere between opened and full.
        assert max(carried.values()) == each and sum(count < each for count in carried.values()) <= 4
        assert len(carried) <= load.count("connections_opened") <= 400 // each + 4


def test_answers_without_a_body(nginx: servers.Nginx, tmp_path: Path) -> None:
    places = ("/same", "/empty", "/moved", "/found", "/nowhere/else")
    (tmp_path / "urls").write_text("".join(f"{nginx.url(place)}\n" for place in places))
    for load in cli.load_over_both("bare", nginx.url(), "-n", "500", "-c", "3", "--urls", tmp_path / "urls"):
        check_all_answered(load, 500)
        assert load.statuses == {"2xx": 200, "3xx": 300}
        assert load.value("redirects") == 0
        lines = nginx.lines(load.run)
        assert len({line.connection for line in lines}) == 3
        check_bytes(load, lines)


def test_redirects_are_followed_within_the_origin(nginx: servers.Nginx, tmp_path: Path) -> None:
    (tmp_path / "body").write_text("body")
    (tmp_path / "urls").write_text(
        "".join(f"POST {nginx.url(place)} @{tmp_path / 'body'}\n" for place in ("/moved", "/found", "/kept"))
        + "".join(f"{nginx.url(place)}\n" for place in ("/loop", "/away"))
    )
    for load in cli.load_over_both("way", nginx.url(), "-n", "100", "--redirects", "3", "--urls", tmp_path / "urls"):
        check_all_answered(load, 100)
        # A loop ends as the redirect that it is after three more; to another server nothing goes.
        assert (load.statuses, load.count("redirects")) == ({"2xx": 60, "3xx": 40}, 60 + 60)
        lines = nginx.lines(load.run)
        asked = Counter((line.method, line.uri) for line in lines)
        assert {key: asked.pop(key) for key in (("GET", "/there"), ("POST", "/there"))} == {
            ("GET", "/there"): 40,
            ("POST", "/there"): 20,
        }
        assert asked == {
            ("POST", "/moved"): 20,
            ("POST", "/found"): 20,
            ("POST", "/kept"): 20,
            ("GET", "/loop"): 80,
            ("GET", "/away"): 20,
        }
        check_bytes(load, lines, bodies=80 * len("body"))


# --- The way there ----------------------------------------------------------------------------------------------------


def test_addresses_names_and_credentials(nginx: servers.Nginx) -> None:
    url = nginx.url("/secret", "shop.test")
    way = ("--bind", "127.0.0.2", "--bind", "127.0.0.3", "--resolve", f"shop.test:{nginx.port}:127.0.0.1")
    for load in cli.load_over_both("named", url, "-n", "400", "-c", "4", "--basic", "ada:love: lace", *way):
        check_all_answered(load, 400)
        assert load.statuses == {"2xx": 400}
        lines = nginx.lines(load.run)
        assert {(line.host, line.remote_user) for line in lines} == {("shop.test", "ada")}
        by_connection = {line.connection: line.remote_addr for line in lines}
        assert sorted(by_connection.values()) == ["127.0.0.2"] * 2 + ["127.0.0.3"] * 2
    wrong = cli.load("wrong", nginx.url("/secret"), "-n", "10", "-c", "1", "--basic", "ada:l")
    assert (wrong.code, wrong.statuses, len(nginx.lines("wrong"))) == (0, {"4xx": 10}, 10)


def test_unix_socket(nginx: servers.Nginx) -> None:
    options = ("-n", "500", "-c", "5", "--unix-socket", nginx.unix_socket)
    for load in cli.load_over_both("unix", "http://shop.test/x", *options):
        check_all_answered(load, 500)
        lines = nginx.lines(load.run)
        assert {(line.remote_addr, line.host) for line in lines} == {("unix:", "shop.test")}
        check_bytes(load, lines)


def test_ipv6_and_connections_as_the_server_counts_them(nginx: servers.Nginx) -> None:
    before = nginx.accepted()
    load = cli.load("six", nginx.url("/", "[::1]"), "-n", "300", "-c", "30")
    check_all_answered(load, 300)
    assert nginx.accepted() - before - 1 == load.count("connections_opened") == 30
    assert {line.remote_addr for line in nginx.lines("six")} == {"::1"}


# --- Other servers ----------------------------------------------------------------------------------------------------


def test_haproxy_before_nginx(nginx: servers.Nginx, tmp_path: Path) -> None:
    with servers.haproxy(tmp_path, nginx.port) as port:
        loads = cli.load_over_both("haproxy", f"http://127.0.0.1:{port}/chunked", "-n", "1000", "-c", "10")
        # To the end of all: what its client had left, HAProxy might pass on or not.
        one_each = ("--rate", "1000", "-n", "300", "-d", "60s", "--no-keep-alive")
        paced = cli.load("haproxy", f"http://127.0.0.1:{port}/", *one_each)
    for load in loads:
        check_all_answered(load, 1000)
        assert load.count("body_bytes") == 1000 * len(servers.CHUNKED_BODY)
        assert len(nginx.lines(load.run)) == 1000
    check_all_answered(paced, 300)
    assert len(nginx.lines("haproxy")) == 300


@pytest.mark.full_matrix  # One more server that counts.
def test_apache_counts_the_same_requests(tmp_path: Path) -> None:
    with servers.apache() as server:
        page = server.url("/page")
        (tmp_path / "urls").write_text(f"weight=3 {page}\nHEAD {page}\n{server.url('/none')}\n")
        loads = cli.load_over_both("apache", server.url("/"), "-n", "500", "--urls", tmp_path / "urls")
        reopened = cli.load("reopened", page, "-n", "100", "--no-keep-alive")
        timed = cli.load("timed", page, "-d", "200ms", "-c", "20", "-X", "OPTIONS")
        # What was under way at the load's end is still read; one that ends would hang up instead.
        until(lambda: len(server.said(timed.run)) >= timed.count("requests_sent"), server.log.read_text)
        server.end()
        lines = server.said()
    for load in loads:
        check_all_answered(load, 500)
        assert load.statuses == {"2xx": 400, "4xx": 100}
    check_all_answered(reopened, 100)
    logged = {run: [line for line in lines if line[0] == run] for run in {line[0] for line in lines}}
    for load in (*loads, reopened, timed):
        own = logged.get(load.run, [])
        assert len(own) == load.count("requests_sent")
        # Its own count of bytes in has those twice that it has looked ahead at.
        assert load is timed or load.value("bytes_received") == sum(int(line[4]) for line in own)
    shares = Counter((line[1], line[2]) for line in logged["apache-epoll"])
    assert shares == {("GET", "/page"): 300, ("HEAD", "/page"): 100, ("GET", "/none"): 100}
    assert Counter(line[5] for line in logged["reopened"]) == {"0": 100}, "each the first of its connection"


@pytest.mark.full_matrix  # One more server that counts.
def test_node_counts_the_same_requests(tmp_path: Path) -> None:
    servers.certificates(tmp_path)
    (tmp_path / "body").write_bytes(b"x" * 5000)
    with servers.node(tmp_path) as (port, tls):
        url = f"http://127.0.0.1:{port}/"
        post = ("-X", "POST", "--body-file", tmp_path / "body")
        for load in cli.load_over_both("node", url, "-n", "500", "-c", "5", *post):
            check_all_answered(load, 500)
            assert load.count("body_bytes") == 500 * len("one two\n")
        with urllib.request.urlopen(f"{url}_counts", timeout=cli.WITHIN_S) as answer:
            # Two loads of five connections, the one that asks, and the one that looked whether it listens.
            assert json.load(answer) == {"requests": 1000, "body": 1000 * 5000, "connections": 12}
        secure = cli.load(
            "tls", f"https://localhost:{tls}/", "--ca", tmp_path / "authority.pem", "-n", "200", "-c", "2"
        )
        check_all_answered(secure, 200)
        assert secure.count("handshakes_full") + secure.count("handshakes_resumed") == 2
        with urllib.request.urlopen(f"{url}_counts", timeout=cli.WITHIN_S) as answer:
            assert json.load(answer)["requests"] == 1200


def test_tinyproxy_logs_the_same_requests(nginx: servers.Nginx, tmp_path: Path) -> None:
    with servers.tinyproxy(tmp_path, nginx.tls) as (port, log):
        proxy = ("--proxy", f"http://127.0.0.1:{port}", "-n", "60", "-c", "3")
        # It takes one request per connection, which it does not say: so we do.
        plain = cli.load_over_both("absolute", nginx.url("/x"), *proxy, "--no-keep-alive")
        trust = ("--ca", nginx.folder / "authority.pem")
        secure = cli.load_over_both("connect", f"https://localhost:{nginx.tls}/x", *proxy, *trust)
        refused = cli.load("refused", f"https://localhost:{nginx.mutual}/x", *proxy, *trust, "-d", "100ms")
        said = log.read_text()
    for load in plain:
        check_all_answered(load, 60)
        assert len(nginx.lines(load.run)) == 60
    for load in secure:
        check_all_answered(load, 60)
        lines = nginx.lines(load.run)
        assert (len(lines), len({line.connection for line in lines})) == (60, 3)
        assert load.count("handshakes_full") + load.count("handshakes_resumed") == 3
    assert said.count(f"GET {nginx.url('/x')} HTTP/1.1") == 120
    assert said.count(f"CONNECT localhost:{nginx.tls} HTTP/1.1") == 6
    assert refused.code == 1 and refused.err.count("\n") == 1
    assert refused.document["error"]["code"] == "proxy_refused", refused.err
    assert "403" in refused.document["error"]["message"]


def test_our_own_responder() -> None:
    """Errors, stalls, and connections that it ends: it counts the same as we do."""
    options = ("--http", "--errors", "0.1", "--close-after", "25", "--stall", "100ms/300ms", "--size", "1000")
    with cli.serve(*options) as server:
        loads = cli.load_over_both("own", server.url("/?chunked=1"), "-n", "1000", "-c", "8", "-t", "2")
        paced = cli.load("paced", server.url(), "--rate", "500", "-d", "1s", "-c", "200")
        sent = sum(load.count("requests_sent") for load in (*loads, paced))
        # It reads and answers what was under way at the end, too.
        stats = server.stats_once(lambda now: now["requests"] >= sent and now["status_2xx"] + now["status_5xx"] >= sent)
    for load in loads:
        check_all_answered(load, 1000)
        assert load.count("body_bytes") >= 900 * 1000
    assert (paced.errors, paced.count("requests_due")) == ({}, 500)
    loads.append(paced)
    assert stats["requests"] == sent
    assert stats["bytes_received"] >= sum(load.count("bytes_sent") for load in loads)
    answered = {name: sum(load.count(f"status_{name}") for load in loads) for name in ("2xx", "5xx")}
    unanswered = paced.count("unanswered")
    assert stats["status_2xx"] + stats["status_5xx"] == sum(answered.values()) + unanswered
    # One in ten, evenly: of what a thread of the server saw, within one.
    assert abs(stats["status_5xx"] - stats["requests"] / 10) <= 16
