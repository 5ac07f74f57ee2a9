"""The recording proxy: mitmproxy with an addon that writes a journal. A program of its own, started by `session`.

stdin has its configuration as one line of JSON; its end ends the proxy. stdout has events, one line of JSON each:
`listening`, `entry`, `refused` (a client or server does not trust a certificate, or a server is not there), `failed`
(the journal cannot be written), `ended`. It alone imports mitmproxy, and only as it runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from leadline.recording.har_entry import BodyTap, har_entry, read_times
from leadline.recording.journal import append, open_journal
from leadline.recording.pages import is_document, read_row
from leadline.scenario.har_values import is_wanted_host

GRACE_S = 2.0
"""How long exchanges that have begun may go on at the end."""
_CERTIFICATE_HOST = "mitm.it"
"""Where the proxy itself gives its certificate to clients."""


def main() -> None:
    """Run the proxy until stdin ends."""
    os.umask(0o077)
    asyncio.run(_run(json.loads(sys.stdin.readline())))


async def _run(config: dict[str, Any]) -> None:
    from mitmproxy import options
    from mitmproxy.tools.dump import DumpMaster

    opts = options.Options(
        listen_host=config["bind"], listen_port=config["port"], confdir=config["ca_dir"], mode=["regular"]
    )
    master = DumpMaster(opts, with_termlog=False, with_dumper=False)
    opts.update(
        # A browser with a cache would get answers without bodies.
        anticache=True,
        ssl_insecure=config["insecure"],
        ssl_verify_upstream_trusted_ca=config["ca"],
        stream_large_bodies=str(config["max_body"]),
    )
    recorder = Recorder(master, open_journal(Path(config["journal"])), config["max_body"], config["only_hosts"])
    master.addons.add(recorder)
    loop = asyncio.get_running_loop()
    Thread(target=_await_end_of_stdin, args=(loop, recorder), daemon=True).start()
    await master.run()
    emit("ended", outstanding=recorder.outstanding)


def _await_end_of_stdin(loop: asyncio.AbstractEventLoop, recorder: Recorder) -> None:
    while sys.stdin.readline():
        pass
    loop.call_soon_threadsafe(recorder.stop)


def emit(event: str, **fields: Any) -> None:
    """Write an event. A reader that is gone has closed stdin too, which ends the proxy."""
    with suppress(OSError):
        print(json.dumps({"event": event, **fields}), flush=True)


class Recorder:
    """The addon: its methods are mitmproxy's hooks."""

    def __init__(self, master: Any, journal: int, max_body: int, only_hosts: list[str]) -> None:
        self._master = master
        self._journal = journal
        self._max_body = max_body
        self._only_hosts = only_hosts
        self._taps: dict[str, tuple[BodyTap, BodyTap]] = {}
        """The bodies of each exchange that has not ended."""
        self._used: set[str] = set()
        """Server connections that have carried an exchange."""
        self._idle = asyncio.Event()
        """No exchange is outstanding."""
        self._idle.set()
        self._stopping: asyncio.Task[None] | None = None

    @property
    def outstanding(self) -> int:
        """Number of exchanges that have not ended."""
        return len(self._taps)

    def stop(self) -> None:
        """End the proxy as soon as no exchange is outstanding, at most `GRACE_S` later."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), GRACE_S)
        self._master.shutdown()

    def running(self) -> None:
        """The proxy listens."""
        addresses = self._master.addons.get("proxyserver").listen_addrs()
        emit("listening", host=addresses[0][0], port=addresses[0][1])

    def tls_clienthello(self, data: Any) -> None:
        """The begin of TLS: what is not wanted passes without being decrypted."""
        host = data.client_hello.sni or (data.context.server.address or ("",))[0]
        data.ignore_connection = not self._is_wanted(host)

    def requestheaders(self, flow: Any) -> None:
        """The head of a request: its bodies pass as they come from now on."""
        if not self._is_wanted(flow.request.pretty_host):
            return
        taps = self._taps[flow.id] = BodyTap(self._max_body), BodyTap(self._max_body)
        self._idle.clear()
        # Without a stated length, the whole body has to be known first: HTTP/2 may have none, HTTP/1.1 needs one.
        if {"content-length", "transfer-encoding"} & {name.lower() for name in flow.request.headers}:
            flow.request.stream = taps[0]

    def responseheaders(self, flow: Any) -> None:
        """The head of an answer."""
        if flow.id in self._taps:
            flow.response.stream = self._taps[flow.id][1]

    def response(self, flow: Any) -> None:
        """The end of an answer."""
        self._record(flow)

    def error(self, flow: Any) -> None:
        """An exchange that failed."""
        self._record(flow)

    def websocket_message(self, flow: Any) -> None:
        """A message of a WebSocket, which is not recorded."""
        flow.websocket.messages.clear()

    def tcp_message(self, flow: Any) -> None:
        """A part of another protocol's stream, which is not recorded."""
        flow.messages.clear()

    def server_disconnected(self, data: Any) -> None:
        """A connection to a server has ended."""
        self._used.discard(data.server.id)

    def server_connect_error(self, data: Any) -> None:
        """No connection to a server."""
        self._refuse("connect", data.server.address, None, data.server.error)

    def tls_failed_client(self, data: Any) -> None:
        """A client has refused the proxy's certificate."""
        self._refuse("client", data.context.server.address, data.conn.sni, data.conn.error)

    def tls_failed_server(self, data: Any) -> None:
        """A server's certificate is not valid, or it speaks no TLS."""
        self._refuse("server", data.conn.address, data.conn.sni, data.conn.error)

    def _refuse(self, by: str, address: tuple[str, int] | None, name: str | None, why: object) -> None:
        host = name or (address or ("?",))[0]
        if self._is_wanted(host):
            emit("refused", by=by, host=host, why=str(why))

    def _is_wanted(self, host: str) -> bool:
        return host != _CERTIFICATE_HOST and is_wanted_host(host.lower(), self._only_hosts)

    def _record(self, flow: Any) -> None:
        """Write the entry of an exchange that has ended."""
        taps = self._taps.pop(flow.id, None)
        if taps is None:
            return
        try:
            self._write(flow, *taps)
        except OSError as error:
            emit("failed", why=error.strerror or str(error))
            self._master.shutdown()
        finally:
            if not self._taps:
                self._idle.set()

    def _write(self, flow: Any, request: BodyTap, response: BodyTap) -> None:
        for tap, message in ((request, flow.request), (response, flow.response)):
            if message is not None and not tap.size:
                # A long body without a stated length passed unseen.
                tap.size = tap.limit + 1 if message.stream is True else 0
                tap(message.raw_content or b"")
        is_first = flow.server_conn.id not in self._used
        if flow.server_conn.timestamp_tcp_setup:
            self._used.add(flow.server_conn.id)
        times = read_times(flow, is_first=is_first, now_s=time.time())
        entry = har_entry(flow, request, response, times)
        end_s = times.start_s + times.length_s
        append(self._journal, times.start_s, end_s, entry)
        row = read_row(times.start_s, end_s, entry)
        emit("entry", host=flow.request.pretty_host, is_document=is_document(row), title=row.title)


if __name__ == "__main__":
    main()
