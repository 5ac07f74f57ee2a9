"""The options of `leadline http` as an agent's workload, and every refusal in one line."""

from __future__ import annotations

import io
import sys
from base64 import b64decode, b64encode
from pathlib import Path

import pytest
import typer

from in_process import subcommand
from leadline.cli.single_args import OutputOptions
from leadline.contract.models import HttpWorkload, RateStage
from leadline.errors import InputError
from leadline.kinds.http.command import parse_options
from leadline.kinds.http.model import HttpTest
from leadline.plan.external_inputs import redacted

URL = "http://example.org/a?b"
PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
WRONG_USAGE = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")


def parsed(*arguments: str) -> tuple[HttpTest, HttpWorkload, OutputOptions]:
    with parse_options(subcommand("http").make_context("http", list(arguments)).params).serving() as made:
        return made.test, made.load, made.output


def load(*arguments: str) -> HttpWorkload:
    return parsed(*arguments)[1]


def test_url_alone_has_every_default() -> None:
    made = load(URL)
    [request] = made.requests
    assert (request.url, request.method, request.headers, request.body_base64, request.weight) == (
        URL,
        "GET",
        [],
        None,
        1,
    )
    assert (made.connections, made.threads, made.duration_ms, made.number, made.rate) == (10, 1, 10_000, None, [])
    assert (made.ip_version, made.requests_per_connection, made.redirects, made.tls, made.script) == (
        None,
        None,
        0,
        None,
        None,
    )
    assert (made.timeouts.connect_ms, made.timeouts.response_ms) == (5000, 5000)
    assert made.route.model_dump() == {
        "bind": [],
        "dns": "run",
        "proxy": None,
        "resolve": [],
        "unix_socket": None,
    }
    assert made.socket.model_dump(exclude_none=True) == {"delay": False, "fast_open": False}


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://example.org", "http://example.org/"),
        ("HTTP://example.org:80/#part", "http://example.org:80/"),
        ("http://example.org?q=1", "http://example.org/?q=1"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("https://example.org:8443/", "https://example.org:8443/"),
    ],
)
def test_url_is_normalised(url: str, asked: str) -> None:
    assert load(url).requests[0].url == asked


@pytest.mark.parametrize(
    ("rate", "stages", "duration_ms"),
    [
        ("1000", [(1000, 1000, 10_000)], 10_000),
        ("2.5k/s", [(2500, 2500, 10_000)], 10_000),
        ("0:1000/10s,1000/60s", [(0, 1000, 10_000), (1000, 1000, 60_000)], 70_000),
        ("10:1/500ms", [(10, 1, 500)], 500),
        ("5/1s, 0/1m", [(5, 5, 1000), (0, 0, 60_000)], 61_000),
    ],
)
def test_rate_option_becomes_stages(rate: str, stages: list[tuple[float, float, int]], duration_ms: int) -> None:
    made = load(URL, "--rate", rate)
    assert made.rate == [RateStage(from_per_s=a, to_per_s=b, duration_ms=ms) for a, b, ms in stages]
    assert made.duration_ms == duration_ms


def test_method_headers_and_body_reach_the_request() -> None:
    [request] = load(URL, "-X", "PURGE", "-H", "A: b", "-H", "c:d : e", "--body", "é").requests
    assert request.method == "PURGE"
    assert [(header.name, header.value) for header in request.headers] == [("A", "b"), ("c", "d : e")]
    assert b64decode(request.body_base64 or "") == "é".encode()


def test_body_is_read_from_a_file_or_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "body").write_bytes(b"\x00\xff")
    assert load(URL, "--body-file", str(tmp_path / "body")).requests[0].body_base64 == "AP8="
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped")))
    assert b64decode(load(URL, "--body-file", "-").requests[0].body_base64 or "") == b"piped"


def test_url_file_becomes_weighted_requests(tmp_path: Path) -> None:
    (tmp_path / "login.json").write_text("{}")
    (tmp_path / "urls").write_text(
        "# a mix\n\n/a\nweight=3 /b#no-comment # a comment\n"
        "weight=2 POST http://example.org:80/login @login.json\nhttp://EXAMPLE.org\n"
    )
    made = load("http://example.org", "--urls", str(tmp_path / "urls"), "-X", "HEAD", "-H", "A: b")
    assert [(request.weight, request.method, request.url) for request in made.requests] == [
        (1, "HEAD", "http://example.org/a"),
        (3, "HEAD", "http://example.org/b#no-comment"),
        (2, "POST", "http://example.org/login"),
        (1, "HEAD", "http://example.org/"),
    ]
    assert [request.body_base64 for request in made.requests] == [None, None, b64encode(b"{}").decode(), None]
    assert all([(header.name, header.value) for header in request.headers] == [("A", "b")] for request in made.requests)


def test_credentials_become_authorization_headers(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("Aladdin:open sesame\n")
    expected = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    for basic in ("Aladdin:open sesame", f"@{tmp_path}/secret"):
        [header] = load(URL, "--basic", basic).requests[0].headers
        assert (header.name, header.value) == ("Authorization", expected)
    [header] = load(URL, "--bearer", "mF_9.B5f").requests[0].headers
    assert header.value == "Bearer mF_9.B5f"


def test_route_options_reach_the_workload() -> None:
    made = load(
        *("http://example.org:81/", "--no-keep-alive", "--connect-timeout", "1s", "--timeout", "250ms"),
        *("--redirects", "3", "--bind", "127.0.0.2", "--bind", "::1", "--resolve", "Example.org:81:[fd00::1]"),
        *("--dns", "connection", "-6"),
        *("--cpus", "0,2-3", "-t", "2", "-c", "4"),
    )
    assert (made.requests_per_connection, made.timeouts.connect_ms, made.timeouts.response_ms) == (1, 1000, 250)
    assert (made.redirects, made.route.bind, made.route.dns) == (3, ["127.0.0.2", "::1"], "connection")
    assert [(name.host, name.port, name.address) for name in made.route.resolve] == [("Example.org", 81, "fd00::1")]
    assert (made.ip_version, [cpu.root for cpu in made.cpus]) == ("v6", [0, 2, 3])
    proxied = load(URL, "--proxy", "http://u:p@proxy:3128", "--resolve", "proxy:3128:192.0.2.1").route
    assert (proxied.proxy, proxied.resolve[0].address) == ("http://u:p@proxy:3128", "192.0.2.1")
    assert load(URL, "--requests-per-connection", "7").requests_per_connection == 7
    assert load(URL, "--unix-socket", "/run/x.sock").route.unix_socket == "/run/x.sock"


def test_tcp_options_reach_the_workload() -> None:
    texts = "delay fast-open congestion=bbr send-buffer=64KiB receive-buffer=1MB segment=1000 dscp=46 user-timeout=3s"
    made = load(URL, *(part for text in texts.split() for part in ("--tcp", text)))
    assert made.socket.model_dump() == {
        "delay": True,
        "fast_open": True,
        "congestion": "bbr",
        "send_buffer_bytes": 65536,
        "receive_buffer_bytes": 1_000_000,
        "segment_bytes": 1000,
        "dscp": 46,
        "user_timeout_ms": 3000,
    }


def test_tls_options_reach_the_workload(tmp_path: Path) -> None:
    plain = load("https://example.org/").tls
    assert plain is not None
    assert plain.model_dump(exclude_none=True) == {
        "verify": True,
        "oldest": "1.2",
        "newest": "1.3",
        "cipher_suites": [],
        "alpn": ["http/1.1"],
        "resumption": True,
        "early_data": False,
    }
    pem = tmp_path / "some.pem"
    pem.write_text(PEM)
    made = load(
        *("https://example.org/", "--cert", str(pem), "--key", str(pem), "--ca", str(pem), "--tls", "1.3"),
        *("--ciphers", "TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384", "--alpn", "http/1.0,http/1.1"),
        *("--server-name", "other.example", "--early-data"),
    ).tls
    assert made is not None
    assert made.identity is not None
    assert (made.ca_pem, made.identity.certificate_pem, made.identity.key_pem) == (PEM, PEM, PEM)
    assert (made.oldest, made.newest, made.server_name, made.early_data) == ("1.3", "1.3", "other.example", True)
    assert made.cipher_suites == ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"]
    assert made.alpn == ["http/1.0", "http/1.1"]
    loose = load("https://example.org/", "--insecure", "--no-resume", "--alpn", "").tls
    assert loose is not None
    assert (loose.verify, loose.resumption, loose.alpn) == (False, False, [])


def test_script_takes_arguments_as_wrk_does(tmp_path: Path) -> None:
    script = tmp_path / "some.lua"
    script.write_text("wrk.method = 'POST'")
    made = load("-s", str(script), "-t2", "-c50", "-d5s", URL, "--", "-x", "two words")
    assert made.script is not None
    assert (made.script.source, made.script.args) == ("wrk.method = 'POST'", ["-x", "two words"])
    assert (made.threads, made.connections, made.duration_ms) == (2, 50, 5000)
    assert load("-s", str(script), URL, "plain").script is not None
    assert load("-s", str(script), URL, "--rate", "0:5/1s").rate != []


def test_output_options_have_defaults_and_are_read(tmp_path: Path) -> None:
    output = parsed(URL)[2]
    assert (output.calibrate, output.format, output.hdr, output.stop_on_miss, output.find_rate) == (
        True,
        "text",
        None,
        False,
        None,
    )
    options = ["--no-calibrate", "--format", "wrk", "--hdr", "x.hlog", "--target", "requests > 1", "--stop-on-miss"]
    output = parsed(URL, *options)[2]
    assert (output.calibrate, output.format, output.hdr, output.stop_on_miss) == (False, "wrk", Path("x.hlog"), True)
    assert parsed(URL, "--find-rate", "latency_p99_us < 5")[2].find_rate == "latency_p99_us < 5"


REFUSALS = [
    (["ftp://h/"], "ftp://h/ is not an http:// or https:// URL; write http://HOST[:PORT]/PATH"),
    (["http://u:hunter2@h/"], "http://***@h/ contains credentials; give them with --basic"),
    (["http://h:99999/"], "is not a URL: Port out of range"),
    (["http://bücher.example/"], "is not a host name in ASCII; write it as xn--..."),
    (["http://h/a b"], "'/a b' is not a path"),
    ([URL, "more"], "'more' is an argument for a script, but no script is given; see --script"),
    ([URL, "--rate", "zoo"], "--rate: 'zoo' is not a rate per second; write 1000 or 1000/s"),
    ([URL, "--rate", "0:9/1s,x"], "--rate: 'x' is not a stage; write 0:1000/10s (from 0 to 1000 a second) or 1000/60s"),
    ([URL, "--rate", "0/3s"], "--rate: a rate must be above 0 in some stage"),
    ([URL, "--rate", "1:2/3x"], "--rate: '3x' is not a duration; write 10s, 500ms or 1m"),
    ([URL, "--rate", "1:2/3s", "-d", "3s"], "--duration: the rate's stages last 3 s: the duration must be the same"),
    ([URL, "--rate", "9/1s", "--warmup", "2s"], "--warmup: 2000 ms of warm-up leave no time of 1000 ms"),
    ([URL, "-d", "5x"], "--duration: '5x' is not a duration; write 10s, 500ms or 1m"),
    ([URL, "-t", "3", "-c", "2"], "--threads: 3 threads for 2 connections; use at least one connection per thread"),
    ([URL, "--cpus", "3-1"], "--cpus: '3-1' is not a list of CPUs; write 0,2-3"),
    ([URL, "--cpus", ""], "--cpus: '' is not a list of CPUs"),
    ([URL, "-X", "G T"], "--method: 'G T' is not a request method"),
    ([URL, "-X", "CONNECT"], "--method: CONNECT opens a tunnel"),
    ([URL, "-H", "nonsense"], "--header 'nonsense' is not 'NAME: VALUE'; write 'Name: value'"),
    (
        [URL, "-H", "Transfer-Encoding: chunked"],
        "--header: Transfer-Encoding is set from the body and cannot be given",
    ),
    ([URL, "-H", "A: b\rc: d"], "--header: the value contains a line break"),
    (
        [URL, "-H", "Authorization: x", "--bearer", "y"],
        "--header: an Authorization header and basic or bearer exclude each other",
    ),
    ([URL, "--basic", "x:y", "--bearer", "y"], "--bearer: not possible together with basic; give only one of them"),
    ([URL, "--basic", "hunter2"], "--basic: it has no colon; write USER:PASSWORD"),
    ([URL, "--bearer", "@/none"], "--bearer: /none cannot be read: No such file or directory"),
    ([URL, "--body", "x", "--body-file", "/dev/null"], "--body-file: not possible together with body"),
    ([URL, "--body-file", "/dev/zero"], "--body-file: /dev/zero is too large; at most 8 MiB"),
    ([URL, "--body-file", "/"], "--body-file: / cannot be read: Is a directory"),
    ([URL, "--urls", "/none"], "--urls: /none cannot be read: No such file or directory"),
    (["http://h/", "--urls", "{urls}0"], "urls0 has no requests"),
    ([URL, "--urls", "{urls}"], "--urls beside a URL with a path"),
    (
        ["http://example.org", "--urls", "{urls}", "--body", "x"],
        "--urls: not possible together with body; write '@FILE' at the",
    ),
    (["http://example.org", "--urls", "{urls}", "-s", "{urls}"], "--script: not possible together with urls"),
    (
        [URL, "-s", "{urls}", "--redirects", "1"],
        "--script: not possible together with redirects; redirects of a script's",
    ),
    (["http://h", "--urls", "{urls}"], "urls:2: http://example.org/ is on another server than the URL"),
    (["http://example.org", "--urls", "{urls}2"], "urls2:1: 'weight=0 /' is not '[weight=N] [METHOD] URL [@BODYFILE]'"),
    (["http://example.org", "--urls", "{urls}3"], "none cannot be read: No such file or directory"),
    ([URL, "--no-keep-alive", "--requests-per-connection", "3"], "--requests-per-connection: without keep-alive"),
    ([URL, "-4", "-6"], "--ipv4 and --ipv6 exclude each other"),
    ([URL, "--bind", "eth0"], "--bind: 'eth0' is not an IP address"),
    ([URL, "--resolve", "example.org:80"], "--resolve: 'example.org:80' is not HOST:PORT:ADDRESS"),
    ([URL, "--resolve", "other.org:80:::1"], "the name is not the URL's; write example.org:80:ADDRESS"),
    ([URL, "--resolve", "example.org:80:[::1]", "--proxy", "http://h:1"], "the name is not the proxy's; write h:1:"),
    ([URL, *["--resolve", "example.org:80:[::1]"] * 2], "--resolve: a name has two addresses; give one of them"),
    ([URL, "--resolve", "example.org:80:nine"], "--resolve: 'nine' is not an IP address"),
    (
        [URL, "--unix-socket", "/x", "--bind", "::1"],
        "--unix-socket: not possible together with bind; a Unix socket has no",
    ),
    ([URL, "--unix-socket", "/x", "-4"], "--ipv4 and --unix-socket exclude each other"),
    ([URL, "--unix-socket", "x" * 108], "--unix-socket: the path of a Unix socket must have 1 to 107 bytes"),
    ([URL, "--proxy", "proxy:3128"], "--proxy: this is not the URL of a proxy: http://[USER:PASSWORD@]HOST:PORT"),
    ([URL, "--tcp", "nagle"], "--tcp nagle: unknown socket option; use congestion, delay,"),
    ([URL, "--tcp", "delay=1"], "--tcp delay=1: the syntax is wrong; write --tcp delay"),
    ([URL, "--tcp", "segment"], "--tcp segment: the syntax is wrong; write --tcp segment=VALUE"),
    ([URL, "--tcp", "dscp=EF"], "--tcp dscp=EF: not a DSCP value; write a number from 0 to 63"),
    ([URL, "--tcp", "dscp=64"], "--tcp dscp: 64 is too large; at most 63"),
    ([URL, "--tcp", "send-buffer=64K"], "--tcp send-buffer: '64K' is not a size"),
    ([URL, "--tcp", "delay", "--tcp", "delay"], "--tcp delay: given twice"),
    ([URL, "-s", "{urls}4"], "is not text in UTF-8"),
    ([URL, "--insecure"], "--insecure with an http:// URL; TLS is for https:// URLs"),
    ([URL, "--no-resume"], "--resume with an http:// URL"),
    (
        ["https://h/", "--cert", "{pem}"],
        "--key: key is missing; give both or neither",
    ),
    (["https://h/", "--ca", "{urls}0"], "urls0 is not PEM"),
    (["https://h/", "--ca", "{pem}", "--insecure"], "--ca: there is a CA, but verify is false"),
    (["https://h/", "--tls", "1.2", "--early-data"], "--early-data: early data needs TLS 1.3; offer 1.3 too"),
    (["https://h/", "--no-resume", "--early-data"], "--early-data: early data needs resumed sessions"),
    (["https://h/", "--ciphers", "AES"], "--ciphers: 'AES' is not a cipher suite's IANA name"),
    (["https://h/", "--alpn", "h2"], "--alpn: h2 cannot be offered: the load is HTTP/1.1"),
    ([URL, "--stop-on-miss", "--find-rate", "requests > 1"], "--find-rate and --stop-on-miss exclude each other"),
    ([URL, "--json", "--format", "ab"], "--json and --format ab exclude each other"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSALS, ids=[said[:60] for _, said in REFUSALS])
def test_wrong_option_is_refused_in_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "urls").write_text("/a\nhttp://example.org/\n")
    (tmp_path / "urls0").write_text("")
    (tmp_path / "urls2").write_text("weight=0 /\n")
    (tmp_path / "urls3").write_text("/ @none\n")
    (tmp_path / "urls4").write_bytes(b"\xff")
    (tmp_path / "pem").write_text(PEM)
    filled = [text.format(urls=tmp_path / "urls", pem=tmp_path / "pem") if "{" in text else text for text in arguments]
    with pytest.raises(InputError) as refused:
        parsed(*filled)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("arguments", [["-c", "0"], ["--tls", "1.1"], ["--redirects", "-1"], ["--dns", "never"]])
def test_value_out_of_range_is_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(WRONG_USAGE):
        parsed(URL, *arguments)


def test_load_longer_than_a_message_is_refused(tmp_path: Path) -> None:
    (tmp_path / "urls").write_text("/\n" * 30_000)
    with pytest.raises(InputError, match=r"--urls: the requests take 11\.5 MiB; at most 8 MiB"):
        parsed("http://h", "--urls", str(tmp_path / "urls"))


def test_help_is_grouped_and_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    context = subcommand("http").make_context("http", [URL])
    lines = context.get_help().splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Arguments:", "Load:", "Request:", "Connection:", "TLS:", "Output:", "Options:"]
    assert max(len(line) for line in lines if "leadline http" not in line) <= 80
    assert max(len(line) for line in lines) <= 84


SECRETS = ["hunter2", "mF_9.B5f", "pa55", "c00kie", "b0dy"]
SENT = [*SECRETS, b64encode(b"me:hunter2").decode(), b64encode(b"b0d").decode()]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--basic", "me:hunter2"],
        ["--basic=me:hunter2"],
        ["--bearer", "mF_9.B5f", "--body", "b0dy"],
        ["--proxy", "http://me:pa55@proxy:3128"],
        ["--proxy=http://me:pa55@proxy:3128"],
        ["-H", "Cookie: c00kie"],
        ["-HCookie:c00kie "],
        ["-H", "Authorization : Bearer c00kie"],
        ["-H", " Cookie: c00kie"],
        ["-H Cookie\t:\u00a0c00kie"],
        ["--header= cookie : c00kie "],
        ["-H", "X-Amz-Security-Token: c00kie"],
        ["-H", "X-Vault-Token: c00kie"],
        ["-H", "client_SECRET: c00kie"],
        ["-H", "ApiKey: c00kie"],
        ["-H", "my-api-key: c00kie"],
        ["-H", "X-Password: c00kie"],
        ["-H", "X-Session-Id: c00kie"],
        ["-H", "X-Auth-Key: c00kie"],
        ["-HX-Passwd:c00kie"],
        ["--header=X-Credential: c00kie"],
        ["-H", "X-Amz-Signature: c00kie"],
        ["-H", "Private-Key: c00kie"],
        ["http://example.org/?api_key=c00kie&x=1"],
        ["http://example.org/?X-Amz-Signature=c00kie&X-Amz-Credential=hunter2%2Fx"],
        ["-H", "Set-Cookie2: c00kie"],
        ["--header=cookie:  c00kie"],
        ["-4HAuthorization: mF_9.B5f"],
        ["--proxy", "http://me:p@pa55@proxy:3128"],
        ["--proxy=http://hunter2@me:p@pa55@proxy:3128"],
        ["--proxy", "http://me:pa 55@hunter2@proxy:3128"],
        ["--body=b0dy"],
        ["--body", "b0dy \r\n"],
        ["--body=b0dy\n\n"],
        ["--body", "b0dy http://b0dy:b0dy@b0dy"],
    ],
)
def test_dump_repr_and_command_line_hold_no_secret(arguments: list[str]) -> None:
    arguments = [*([] if arguments[0].startswith("http") else [URL]), *arguments]
    test, made, output = parsed(*arguments)
    command = redacted(["leadline", "http", *arguments], test.secrets)
    kept = f"{test.model_dump()} {test!r} {command} {output.target}"
    assert "***" in kept
    assert not any(secret in kept for secret in SECRETS)
    assert any(sent in made.model_dump_json() for sent in SENT)


def test_kept_header_and_parameter_are_shown() -> None:
    url = "http://example.org/?sig=s1gn&token=t0ken"
    headers = ["-H", "X-Auth-Key: k3y", "-H", "Cookie: c00kie"]
    arguments = [url, *headers, "--keep-header", "x-auth-key", "--keep-header", "sig"]
    test, made, output = parsed(*arguments)
    command = redacted(arguments, test.secrets, test.kept_names)
    for kept in (f"{test.model_dump()}", " ".join(command)):
        assert "sig=s1gn&token=***" in kept and "k3y" in kept and "c00kie" not in kept
    assert output.target == "http://example.org/?sig=s1gn&token=***"
    assert test.model_dump()["headers"][0] == {"name": "X-Auth-Key", "value": "k3y"}
    assert [header.value for header in made.requests[0].headers] == ["k3y", "c00kie"]


def test_secrets_in_urls_of_a_file_are_sent_and_not_kept(tmp_path: Path) -> None:
    (tmp_path / "urls").write_text("/?token=c00kie\nweight=2 POST /?page=1&password=pa55\n")
    test, made, _ = parsed("http://example.org", "--urls", str(tmp_path / "urls"))
    kept = f"{test.model_dump()} {test!r}"
    assert not any(secret in kept for secret in SECRETS) and "page=1&password=***" in kept
    assert set(test.secrets) >= {"c00kie", "pa55"}
    assert [request.url.rpartition("=")[2] for request in made.requests] == ["c00kie", "pa55"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["http://:x/?token=c00kie"],
        ["ftp://h/?token=c00kie"],
        ["http://me:c00kie@h/"],
        [URL, "-H", "X-Auth-Key c00kie"],
    ],
)
def test_refusal_repeats_no_secret(arguments: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parsed(*arguments)
    assert "c00kie" not in str(caught.value)


def test_redaction_removes_only_the_secret() -> None:
    argv = ["leadline", "http", "http://h/x", "-c", "1", "--body", "x", "-d", "1s", "--json"]
    assert redacted(argv, ["x"]) == ["leadline", "http", "http://h/x", "-c", "1", "--body", "***", "-d", "1s", "--json"]


def test_a_proxy_without_credentials_is_kept() -> None:
    test, _, _ = parsed(URL, "--proxy", "http://proxy:3128")
    assert redacted(["--proxy", "http://proxy:3128"], test.secrets) == ["--proxy", "http://proxy:3128"]


def test_a_header_without_a_value_has_no_secret() -> None:
    [request] = load(URL, "-H", "X-Session-Id:").requests
    assert [(header.name, header.value) for header in request.headers] == [("X-Session-Id", "")]
