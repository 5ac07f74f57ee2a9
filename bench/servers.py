"""What is measured against, each on loopback and on the servers' CPU."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from programs import free_port, program, server

from leadline.sut.pki import issue


@contextmanager
def null_responder() -> Iterator[str]:
    """Our responder, `leadline serve --http`: 200 at once, with a body of 12 bytes; gives its URL."""
    port = free_port()
    with server(["leadline-agent", "serve", "--http", "--bind", "127.0.0.1", "--http-port", str(port)], port):
        yield f"http://127.0.0.1:{port}/"


@contextmanager
def nginx(*, tls: bool = False) -> Iterator[str]:
    """One worker that answers 200 with a body of 12 bytes, to `/login` with a key besides, to `/session` as JSON with a
    token, and to `/status` with its count of requests; gives its URL.

    Over TLS every handshake is full, because not every peer has an option for resumption.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "nginx.conf"
        config.write_text(_nginx_config(Path(folder), port, tls=tls))
        with server([program("nginx"), "-c", str(config)], port):
            yield f"{'https' if tls else 'http'}://127.0.0.1:{port}/"


def _nginx_config(folder: Path, port: int, *, tls: bool) -> str:
    listen = f"listen 127.0.0.1:{port} backlog=4096{' ssl' if tls else ''};"
    if tls:
        own = issue(folder / "pki", "localhost", [], now=datetime.datetime.now(datetime.UTC)).server
        listen += (
            f" ssl_certificate {own.certificate}; ssl_certificate_key {own.key};"
            " ssl_session_cache off; ssl_session_tickets off;"
        )
    return (
        f"daemon off; worker_processes 1; worker_rlimit_nofile 16000; pid {folder}/pid; error_log {folder}/log;\n"
        "events { worker_connections 15000; }\n"
        "http { access_log off; keepalive_requests 100000000; client_body_temp_path /tmp;\n"
        f"server {{ {listen}\n"
        "location / { return 200 'hello world\\n'; }\n"
        "location /session { default_type application/json; add_header Set-Cookie 'sid=0123456789abcdef; Path=/';\n"
        """ return 200 '{"user": 7, "token": "0123456789abcdef"}'; }\n"""
        "location = /status { stub_status; }\n"
        "location /login { add_header X-Key 0123456789abcdef; return 200 'hello world\\n'; } } }\n"
    )
