"""Real HTTP servers and proxies on loopback, each with a configuration of its own; for test_http_*.py.

Owns starting them, what they serve, and reading what they counted. Says nothing about what is right: that is the
tests'.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import cli_runs as cli
import pytest
from counting_server import Account

from waiting import free_port, until


def program(name: str, package: str) -> str:
    """A server's path; the test is skipped where it is not installed."""
    path = shutil.which(name, path=f"{os.environ['PATH']}:{cli.SYSTEM_FOLDERS}")
    if path is None:
        pytest.skip(f"{name} is not installed (package {package})")
    return path


@contextmanager
def running(command: list[str | Path], log: Path, *ports: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server in the foreground, from when it listens everywhere to the end of the block; what it says is in `log`."""
    with (
        log.open("wb") as said,
        subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            for port in ports:
                _await_listener(process, log, port)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(cli.WITHIN_S)
            finally:
                process.kill()


def _await_listener(process: subprocess.Popen[bytes], log: Path, port: int) -> None:
    """One connection, as soon as it comes up."""

    def listens() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=cli.WITHIN_S).close()
        except ConnectionRefusedError:
            return False
        return True

    until(listens, lambda: log.read_text(errors="replace"))


# --- Certificates -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: an authority, what it signed for a server called localhost and for a client, and one of its own."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    self_signed: Path
    self_signed_key: Path


def certificates(folder: Path) -> Certificates:
    """Makes a new certificate that is valid for a day."""
    openssl = program("openssl", "openssl")

    def make(name: str, *options: str) -> tuple[Path, Path]:
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
        command: list[str | Path] = [
            openssl,
            *new,
            "-keyout",
            key,
            "-out",
            certificate,
            "-subj",
            f"/CN={name}",
            *options,
        ]
        subprocess.run(command, check=True, capture_output=True)
        return certificate, key

    names = ("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1")
    authority, authority_key = make("authority")
    leaf = ("-CA", str(authority), "-CAkey", str(authority_key), "-addext", "basicConstraints=critical,CA:FALSE")
    server, client = make("server", *leaf, *names), make("client", *leaf)
    own = make("self-signed", *names, "-addext", "basicConstraints=critical,CA:FALSE")
    return Certificates(authority, *server, *client, *own)


# --- nginx ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One request as nginx logged it."""

    run: str
    """The request's field X-Run, which distinguishes the runs of a test."""
    method: str
    uri: str
    status: int
    bytes_sent: int
    body_bytes_sent: int
    request_length: int
    connection: int
    connection_requests: int
    remote_addr: str
    ssl_protocol: str
    ssl_session_reused: str
    remote_user: str
    host: str
    ssl_client_s_dn: str

    @classmethod
    def parse(cls, text: str) -> Line:
        kinds = {"str": str, "int": int}
        pairs = zip(fields(cls), text.split("|"), strict=True)
        return cls(**{field.name: kinds[str(field.type)](value) for field, value in pairs})


LOG_FORMAT = "|".join(
    "$" + {"run": "http_x_run", "method": "request_method", "uri": "request_uri"}.get(field.name, field.name)
    for field in fields(Line)
)
BODY = "hello, world\n"
CHUNKED_BODY = "<p>" + "a chunk, " * 1000 + "</p>\n"


@dataclass(frozen=True, slots=True)
class Nginx:
    """One process, so that it counts in order: plain and TLS ports, one that wants clients' certificates, a socket."""

    folder: Path
    port: int
    tls: int
    tls12: int
    mutual: int
    self_signed: int

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    @property
    def unix_socket(self) -> Path:
        return self.folder / "nginx.sock"

    def lines(self, run: str) -> list[Line]:
        """What it logged of a run: all, since it answers a request of our own after all those before."""
        with urllib.request.urlopen(self.url("/last"), timeout=cli.WITHIN_S) as answer:
            answer.read()
        # Where requests go on meanwhile, the last line may be half there.
        whole = (self.folder / "access.log").read_text().split("\n")[:-1]
        return [line for line in map(Line.parse, whole) if line.run == run]

    def accepted(self) -> int:
        """Connections so far, this question's own among them."""
        with urllib.request.urlopen(self.url("/status"), timeout=cli.WITHIN_S) as answer:
            numbers = answer.read().decode().split("\n")[2].split()
        return int(numbers[0])


_NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
  log_format line '{format}';
  access_log {folder}/access.log line;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  keepalive_requests 1000000; default_type text/html; server_tokens off; etag off;
  ssl_certificate {certificates.server}; ssl_certificate_key {certificates.server_key};
  ssl_protocols TLSv1.2 TLSv1.3; ssl_client_certificate {certificates.authority}; ssl_session_cache shared:s:1m;
  server {{
    listen 127.0.0.1:{port} backlog=4096; listen [::1]:{port}; listen unix:{folder}/nginx.sock;
    listen 127.0.0.1:{tls} ssl; listen 127.0.0.1:{mutual} ssl;
    include {folder}/places;
  }}
  server {{ listen 127.0.0.1:{tls12} ssl; ssl_protocols TLSv1.2; include {folder}/places; }}
  server {{ listen 127.0.0.1:{mutual} ssl; server_name mutual; ssl_verify_client on; include {folder}/places; }}
  server {{
    listen 127.0.0.1:{self_signed} ssl;
    ssl_certificate {certificates.self_signed}; ssl_certificate_key {certificates.self_signed_key};
    include {folder}/places;
  }}
}}
"""
_PLACES = r"""
location / {{ return 200 "hello, world\n"; }}
location = /last {{ return 200 "x"; }}
location = /status {{ stub_status; access_log off; }}
location = /chunked {{ alias {folder}/chunked.html; ssi on; }}
location = /moved {{ return 301 /there; }}
location = /found {{ return 302 /there; }}
location = /kept {{ return 307 /there; }}
location = /loop {{ return 302 /loop; }}
location = /away {{ return 302 http://other.test/; }}
location = /same {{ return 304; }}
location = /empty {{ return 204; }}
location = /secret {{ auth_basic "it"; auth_basic_user_file {folder}/users; alias {folder}/chunked.html; }}
"""


@contextmanager
def nginx(folder: Path, made: Certificates) -> Iterator[Nginx]:
    """nginx until the block ends."""
    path = program("nginx", "nginx-light")
    ports = {name: free_port() for name in ("port", "tls", "tls12", "mutual", "self_signed")}
    server = Nginx(folder, **ports)
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, format=LOG_FORMAT, certificates=made, **ports))
    (folder / "places").write_text(_PLACES.format(folder=folder))
    (folder / "chunked.html").write_text(CHUNKED_BODY)
    (folder / "users").write_text(f"ada:{{SHA}}{base64.b64encode(hashlib.sha1(b'love: lace').digest()).decode()}\n")
    with running([path, "-p", folder, "-c", folder / "nginx.conf"], folder / "nginx.out", *ports.values()):
        yield server


@dataclass(frozen=True, slots=True)
class FrontNginx:
    """nginx in front of a server, as most shops have it, with kept connections on both sides: plain and TLS ports."""

    port: int
    tls: int
    log: Path

    def answers(self) -> Counter[str]:
        """Its answers so far by method, first part of the path, and status."""
        return Counter(self.log.read_text().splitlines())


_FRONT = """
daemon off; master_process off; pid {folder}/front.pid; error_log {folder}/front.error;
events {{ worker_connections 1024; }}
http {{
  map $request_uri $place {{ ~^/(?<first>[^/?]*) /$first; }}
  log_format line '$request_method $place $status';
  access_log {folder}/front.log line;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  ssl_certificate {certificates.server}; ssl_certificate_key {certificates.server_key};
  upstream behind {{ server 127.0.0.1:{behind}; keepalive 16; }}
  server {{
    listen 127.0.0.1:{port}; listen 127.0.0.1:{tls} ssl;
    location / {{ proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""


@contextmanager
def front_nginx(folder: Path, behind: int, made: Certificates) -> Iterator[FrontNginx]:
    """nginx in front of the server at this port, until the block ends."""
    path, port, tls = program("nginx", "nginx-light"), free_port(), free_port()
    text = _FRONT.format(folder=folder, behind=behind, port=port, tls=tls, certificates=made)
    (folder / "front.conf").write_text(text)
    with running([path, "-p", folder, "-c", folder / "front.conf"], folder / "front.out", port, tls):
        yield FrontNginx(port, tls, folder / "front.log")


# --- Others -----------------------------------------------------------------------------------------------------------


@contextmanager
def haproxy(folder: Path, behind: int) -> Iterator[int]:
    """HAProxy in front of a server; its port."""
    path, port = program("haproxy", "haproxy"), free_port()
    (folder / "haproxy.cfg").write_text(
        "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n"
        f"frontend f\n bind 127.0.0.1:{port}\n default_backend b\n"
        f"backend b\n server s 127.0.0.1:{behind}\n"
    )
    with running([path, "-db", "-f", folder / "haproxy.cfg"], folder / "haproxy.out", port):
        yield port


_APACHE = """
ServerRoot {folder}
ServerName localhost
PidFile {folder}/pid
DefaultRuntimeDir {folder}
Listen 127.0.0.1:{port}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule mime_module {modules}/mod_mime.so
StartServers 1
ServerLimit 1
ThreadsPerChild 64
MaxRequestWorkers 64
MaxKeepAliveRequests 0
KeepAliveTimeout 60
TypesConfig /dev/null
{user}
DocumentRoot {folder}/pages
ErrorLog {folder}/error.log
LogFormat "%{{X-Run}}i %m %U %>s %O %k" line
CustomLog {folder}/access.log line
"""


@dataclass(frozen=True, slots=True)
class Apache:
    """One process with threads, so that its log is whole only once it has ended."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    """Of each request: run, method, path, status, bytes out, requests before it on its connection."""

    def said(self, run: str = "") -> list[list[str]]:
        """The whole lines of its log so far, of one run or of all, each in its parts."""
        lines = [line.split() for line in self.log.read_text().split("\n")[:-1]]
        return [line for line in lines if not run or line[0] == run]

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def end(self) -> None:
        """Once all requests have been answered and logged."""
        self.process.send_signal(signal.SIGWINCH)
        self.process.wait(cli.WITHIN_S)


@contextmanager
def apache() -> Iterator[Apache]:
    """Apache until the block ends."""
    path, port = program("apache2", "apache2-bin"), free_port()
    # Started by root it serves as another user, who may not read pytest's folders.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "pages").mkdir()
        (folder / "pages" / "page").write_text(BODY)
        user = "User nobody\nGroup nogroup" if os.geteuid() == 0 else ""
        text = _APACHE.format(folder=folder, port=port, modules="/usr/lib/apache2/modules", user=user)
        (folder / "apache.conf").write_text(text)
        command: list[str | Path] = [path, "-D", "FOREGROUND", "-f", folder / "apache.conf"]
        with running(command, folder / "out", port) as process:
            yield Apache(process, port, folder / "access.log")


_NODE = """
const counts = { requests: 0, body: 0, connections: 0 };
const answer = (request, response) => {
  if (request.url === "/_counts") return response.end(JSON.stringify(counts));
  counts.requests += 1;
  request.on("data", (piece) => { counts.body += piece.length; });
  request.on("end", () => { response.write("one "); response.end("two\\n"); });
};
const [folder, port, tls] = process.argv.slice(2);
const fs = require("fs");
const pem = (name) => fs.readFileSync(`${folder}/${name}`);
const patient = { keepAliveTimeout: 60000 };
const sealed = { ...patient, key: pem("server.key"), cert: pem("server.pem") };
require("https").createServer(sealed, answer).listen(+tls, "127.0.0.1",
  () => require("http").createServer(patient, answer).on("connection", () => { counts.connections += 1; })
    .listen(+port, "127.0.0.1"));
"""


@contextmanager
def node(folder: Path) -> Iterator[tuple[int, int]]:
    """Node.js with the certificates of this folder: plain and TLS ports. Answers in chunks; counts at /_counts."""
    path, port, tls = program("node", "nodejs"), free_port(), free_port()
    (folder / "server.cjs").write_text(_NODE)
    with running([path, folder / "server.cjs", folder, str(port), str(tls)], folder / "node.out", port):
        yield port, tls


@contextmanager
def tinyproxy(folder: Path, connect_port: int) -> Iterator[tuple[int, Path]]:
    """A proxy that lets through to one port by CONNECT; its port and log."""
    path, port = program("tinyproxy", "tinyproxy"), free_port()
    log = folder / "tinyproxy.log"
    (folder / "tinyproxy.conf").write_text(
        f"Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 100\nAllow 127.0.0.1\nConnectPort {connect_port}\n"
        f'LogFile "{log}"\nLogLevel Connect\nDisableViaHeader Yes\n'
    )
    with running([path, "-d", "-c", folder / "tinyproxy.conf"], folder / "tinyproxy.out", port):
        yield port, log


@contextmanager
def openssl_server(folder: Path, made: Certificates, *options: str) -> Iterator[int]:
    """`openssl s_server`, one connection at a time, each answered with a page about itself; its port."""
    path, port = program("openssl", "openssl"), free_port()
    identity = ("-cert", made.server, "-key", made.server_key)
    command: list[str | Path] = [
        path,
        "s_server",
        "-accept",
        f"127.0.0.1:{port}",
        "-www",
        "-quiet",
        *identity,
        *options,
    ]
    with running(command, folder / "openssl.out", port):
        yield port


# --- Our own ----------------------------------------------------------------------------------------------------------


class Counting:
    """`counting_server.py`; its account is there once the block has ended."""

    def __init__(self, process: subprocess.Popen[str], file: Path) -> None:
        assert process.stdout is not None
        self.port = int(process.stdout.readline())
        self._file = file

    def url(self, what: str = "ok") -> str:
        return f"http://127.0.0.1:{self.port}/{what}"

    @functools.cached_property
    def account(self) -> Account:
        found = json.loads(self._file.read_text())
        return Account(**{**found, "requests": Counter(found["requests"])})


@contextmanager
def counting(folder: Path, *options: str) -> Iterator[Counting]:
    """A server that behaves as it is asked to, until the block ends."""
    script, file = Path(__file__).with_name("counting_server.py"), folder / "account.json"
    command: list[str | Path] = [sys.executable, script, file, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Counting(process, file)
        finally:
            process.terminate()
            process.wait(cli.WITHIN_S)
