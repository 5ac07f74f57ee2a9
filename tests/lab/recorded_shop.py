"""A shop over HTTP and HTTPS for the tests of `leadline record`: it answers only those who send back what it gave.

A page has a token in a hidden field, which its form sends once; the log-in redirects and sets a cookie; an answer in
JSON has a token for the orders. It keeps what each request was and whether it was allowed, without the tokens.
"""

from __future__ import annotations

import datetime
import gzip
import hashlib
import ipaddress
import json
import secrets
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import parse_qs

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PICTURE = bytes(range(256)) * 8
CYRILLIC = "<html><head><title>Корзина</title></head><body>Пусто</body></html>"
LONG = 200_000
"""Bytes of an answer that is longer than the tests keep."""


class RecordedShop(ThreadingHTTPServer):
    """The shop at a free port of loopback, with what it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[str] = []
        """Method, path, a sum of the body without tokens, and status of each request."""
        self.open_tokens: set[str] = set()
        self.sessions: set[str] = set()
        self.api_tokens: set[str] = set()
        self.lock = Lock()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer is one segment, for which no acknowledgement is waited for
    server: RecordedShop

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/":
                token = self._issue(self.server.open_tokens)
                page = f"<html><head><title>Log in</title></head><body>{_FORM}</body></html>"
                self._answer(200, page.replace("TOKEN", token).encode(), "text/html; charset=utf-8", is_zipped=True)
            case "/home":
                self._answer(200 if self._has_session() else 403, _HOME.encode(), "text/html")
            case "/api/token":
                token = self._issue(self.server.api_tokens)
                content = json.dumps({"token": token}).encode() if self._has_session() else b"{}"
                self._answer(200 if self._has_session() else 403, content, "application/json", is_zipped=True)
            case "/picture.png":
                self._answer(200, PICTURE, "image/png")
            case "/cart":
                self._answer(200, CYRILLIC.encode("cp1251"), "text/html; charset=windows-1251")
            case "/long":
                self._answer(200, b"x" * LONG, "text/plain")
            case _:
                self._answer(404, b"", "text/plain")

    def do_POST(self) -> None:
        body = self._read()
        if self.path == "/login":
            fields = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            is_right = fields.get("csrf", "") in self.server.open_tokens and fields.get("password") == "geheim &=+"
            self.server.open_tokens.discard(fields.get("csrf", ""))
            session = self._issue(self.server.sessions) if is_right else ""
            extra = {"Location": "/home", "Set-Cookie": f"session={session}; Path=/; HttpOnly"} if is_right else {}
            self._answer(302 if is_right else 403, b"", "text/plain", fields={"user": fields.get("user")}, extra=extra)
        else:
            self._order(body)

    def do_PUT(self) -> None:
        self._order(self._read())

    def do_DELETE(self) -> None:
        self._order(self._read())

    def _order(self, body: bytes) -> None:
        is_known = self.headers.get("Authorization", "").removeprefix("Bearer ") in self.server.api_tokens
        self._answer(200 if is_known else 403, b"{}", "application/json", fields=hashlib.sha256(body).hexdigest()[:8])

    def _read(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _issue(self, tokens: set[str]) -> str:
        token = secrets.token_hex(16)
        with self.server.lock:
            tokens.add(token)
        return token

    def _has_session(self) -> bool:
        cookies = self.headers.get("Cookie", "").split("; ")
        return any(one.removeprefix("session=") in self.server.sessions for one in cookies)

    def _answer(
        self,
        status: int,
        content: bytes,
        media_type: str,
        *,
        is_zipped: bool = False,
        fields: object = "",
        extra: dict[str, str] | None = None,
    ) -> None:
        is_zipped = is_zipped and "gzip" in self.headers.get("Accept-Encoding", "")
        content = gzip.compress(content) if is_zipped else content
        with self.server.lock:
            self.server.requests.append(f"{self.command} {self.path} {json.dumps(fields)} {status}")
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        for name, value in {**({"Content-Encoding": "gzip"} if is_zipped else {}), **(extra or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


_FORM = (
    '<form action="/login" method="post"><input type="hidden" name="csrf" value="TOKEN"><input name="user" value="ada">'
    '<input name="password" value="geheim &amp;=+"></form><script>'
    "if (location.hash == '#go') setTimeout(() => document.forms[0].submit(), 50);</script>"
)
_HOME = (
    '<html><head><title>Home</title></head><body><img src="/picture.png"><script>'
    "fetch('/api/token').then(r => r.json()).then(d => fetch('/api/cart', {method: 'POST', body: '{\"item\":1}', "
    "headers: {Authorization: 'Bearer ' + d.token, 'Content-Type': 'application/json'}}))"
    ".then(() => { document.title = 'done'; });</script></body></html>"
)


@contextmanager
def recorded_shop(certificate: Path | None = None) -> Iterator[RecordedShop]:
    """A running shop; with a certificate and its key in a file, over TLS."""
    shop = RecordedShop()
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        shop.socket = context.wrap_socket(shop.socket, server_side=True)
    Thread(target=shop.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield shop
    finally:
        shop.shutdown()
        shop.server_close()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A file with a certificate for 127.0.0.1 and its key, and one with the authority that signed it."""
    now = datetime.datetime.now(datetime.UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("test authority", "127.0.0.1")]
    made = []
    for index, is_authority in enumerate((True, False)):
        builder = (
            x509.CertificateBuilder()
            .subject_name(names[index])
            .issuer_name(names[0])
            .public_key(keys[index].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            names_of_host = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
            builder = builder.add_extension(x509.SubjectAlternativeName(names_of_host), critical=False)
        made.append(builder.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    key = keys[1].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    server, authority = folder / "server.pem", folder / "authority.pem"
    server.write_bytes(made[1] + key)
    authority.write_bytes(made[0])
    return server, authority
