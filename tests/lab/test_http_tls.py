"""`leadline http` over TLS against nginx and OpenSSL's own server: what is trusted, what is spoken, what is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cli_runs as cli
import http_servers as servers
import pytest

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.takes(20),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> servers.Certificates:
    return servers.certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def nginx(made: servers.Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Nginx]:
    with servers.nginx(tmp_path_factory.mktemp("nginx"), made) as running:
        yield running


def refused(load: cli.Load, name: str) -> None:
    """No connection came up, for this reason: one line, and exit code 1."""
    assert (load.code, load.document["error"]["code"]) == (1, name)
    assert load.err.startswith("leadline: ") and load.err.count("\n") == 1, load.err
    assert ("--ca FILE" in load.err) == (name == "tls_certificate_unknown_issuer"), load.err


def answered(load: cli.Load, number: int) -> None:
    """All requests were, and nothing went wrong."""
    assert (load.code, load.errors, load.statuses) == (0, {}, {"2xx": number}), load.err


def test_only_trusted_certificates_are_accepted(nginx: servers.Nginx, made: servers.Certificates) -> None:
    own, signed = (f"https://localhost:{port}/" for port in (nginx.self_signed, nginx.tls))
    few = ("-n", "20", "-c", "2")
    for load in cli.load_over_both("unknown", own, *few):
        refused(load, "tls_certificate_unknown_issuer")
        assert nginx.lines(load.run) == []
    refused(cli.load("wrong-authority", own, *few, "--ca", made.authority), "tls_certificate_unknown_issuer")
    answered(cli.load("pinned", own, *few, "--ca", made.self_signed), 20)
    for load in cli.load_over_both("insecure", own, *few, "--insecure"):
        answered(load, 20)
        assert len(nginx.lines(load.run)) == 20
    answered(cli.load("trusted", signed, *few, "--ca", made.authority), 20)


def test_certificate_name_must_match(nginx: servers.Nginx, made: servers.Certificates) -> None:
    way = ("--ca", made.authority, "--resolve", f"shop.test:{nginx.tls}:127.0.0.1", "-n", "20", "-c", "2")
    wrong = cli.load("wrong-name", f"https://shop.test:{nginx.tls}/", *way)
    refused(wrong, "tls_certificate_name_mismatch")
    assert "shop.test" in wrong.err
    answered(cli.load("name", f"https://shop.test:{nginx.tls}/", *way, "--server-name", "localhost"), 20)
    answered(cli.load("address", f"https://127.0.0.1:{nginx.tls}/", "--ca", made.authority, "-n", "20"), 20)


def test_client_certificate(nginx: servers.Nginx, made: servers.Certificates) -> None:
    # nginx tells which certificate it wants by the name that it is asked for, and answers 400 without one.
    url = f"https://mutual:{nginx.mutual}/"
    way = ("--resolve", f"mutual:{nginx.mutual}:127.0.0.1", "--insecure", "-n", "20", "-c", "2")
    without = cli.load("without", url, *way)
    assert (without.code, without.statuses) == (0, {"4xx": 20})
    identity = ("--cert", made.client, "--key", made.client_key)
    for load in cli.load_over_both("with", url, *way, *identity):
        answered(load, 20)
        assert {line.ssl_client_s_dn for line in nginx.lines(load.run)} == {"CN=client"}


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_versions_and_resumption(nginx: servers.Nginx, made: servers.Certificates, version: str) -> None:
    """Of connections of one request each, all but the first of each place resume its session, or none does."""
    url = f"https://localhost:{nginx.tls}/"
    options = ("--ca", made.authority, "--tls", version, "--no-keep-alive", "-n", "100", "-c", "2")
    for load in (
        *cli.load_over_both(f"resumed-{version}", url, *options),
        cli.load(f"full-{version}", url, *options, "--no-resume"),
    ):
        answered(load, 100)
        lines = nginx.lines(load.run)
        assert {line.ssl_protocol for line in lines} == {f"TLSv{version}"}
        full, resumed = load.count("handshakes_full"), load.count("handshakes_resumed")
        # At the end, up to two connections may be on their way up for requests that have all been taken by then.
        assert 0 <= load.count("connections_opened") - full - resumed <= 2
        reused = sum(line.ssl_session_reused == "r" for line in lines)
        assert 0 <= resumed - reused <= 2 and 0 <= full - (100 - reused) <= 2
        # The second connection may find the first one's session, or not yet.
        assert full in (1, 2) if load.run.startswith("resumed") else resumed == 0


def test_versions_that_do_not_meet(nginx: servers.Nginx, made: servers.Certificates) -> None:
    url = f"https://localhost:{nginx.tls12}/"
    few = ("--ca", made.authority, "-n", "20", "-c", "2")
    refused(cli.load("newer", url, *few, "--tls", "1.3"), "tls_alert_protocol_version")
    both = cli.load("both", url, *few)
    answered(both, 20)
    assert {line.ssl_protocol for line in nginx.lines("both")} == {"TLSv1.2"}


def test_plain_http_port_is_tls_malformed(nginx: servers.Nginx) -> None:
    refused(cli.load("plain", f"https://localhost:{nginx.port}/", "-n", "5", "-c", "1", "--insecure"), "tls_malformed")


def test_openssl_server_resumes_sessions_and_requires_client_certificates(
    made: servers.Certificates, tmp_path: Path
) -> None:
    """It says nothing of its answers' length and ends each by closing, so each needs a connection."""
    with servers.openssl_server(tmp_path, made, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256") as port:
        for load in cli.load_over_both(
            "page", f"https://localhost:{port}/", "--ca", made.authority, "-n", "30", "-c", "1"
        ):
            answered(load, 30)
            full, resumed = load.count("handshakes_full"), load.count("handshakes_resumed")
            assert (full, full + resumed) == (1, 30)
    with servers.openssl_server(tmp_path, made, "-Verify", "1", "-CAfile", str(made.authority)) as port:
        url, trust = f"https://localhost:{port}/", ("--ca", made.authority, "-n", "10", "-c", "1")
        answered(cli.load("known", url, *trust, "--cert", made.client, "--key", made.client_key), 10)
        unknown = cli.load("unknown", url, *trust)
        # With TLS 1.3 a client has its handshake done before the server misses the certificate.
        assert set(unknown.errors) == {"tls_alert_certificate_required"}, unknown.errors
        refused(cli.load("older", url, *trust, "--tls", "1.2"), "tls_alert_handshake_failure")
