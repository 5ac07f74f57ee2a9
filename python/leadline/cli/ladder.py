"""`leadline ladder`: measures each layer to a server from the bottom up, each as a share of the one below."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from leadline.cli import options as o
from leadline.cli.no_host import own_server, refuse_without_host
from leadline.cli.output import check_folder
from leadline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.analysis.model import RunAnalysis
    from leadline.dataset import RunFolder
    from leadline.errors import LeadlineError
    from leadline.plan import BaseTest
    from leadline.trial.ladder import Climb, Side
    from leadline.trial.workloads import Server

NAME = "ladder"
_PORTS = {"port": 5201, "http_port": 8080, "https_port": 8443}
EXAMPLE = """\
Example: leadline ladder

    leadline ladder 192.0.2.7 -d 5s
    leadline ladder 10.8.0.1 --outside 192.0.2.7 --repeat 5
    leadline ladder 192.0.2.7 --layers udp,tcp --rate 200mbit

HOST runs `leadline serve --bind ADDR --https-port 8443`.
"""


def command(
    host: Annotated[
        str | None,
        typer.Argument(
            help="Name or address of the host that runs `leadline serve`. Default: this machine's loopback, with a "
            "server of its own.",
            metavar="HOST",
        ),
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option(
            "--outside",
            help="The same server's address outside of the tunnel: the ladder is measured there too, in turn.",
            metavar="HOST",
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option("--layers", help="Layers to measure: udp,tcp,rr,http,https. Default: all.", metavar="LIST"),
    ] = None,
    duration: Annotated[
        str, typer.Option("-d", "--duration", help="Length of each test, warm-up included.", metavar="TIME")
    ] = "5s",
    warmup: Annotated[
        str | None,
        typer.Option(
            "--warmup",
            help="Time at the start of each test that is not counted. Default: a tenth of it.",
            metavar="TIME",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            help="Rate that datagrams are offered at: 200mbit; or search: the highest that loses less than 0.1 %. "
            "Default: as fast as possible.",
            metavar="RATE|search",
        ),
    ] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, max=1000, help="Times that the ladder is measured.", metavar="N")
    ] = 1,
    ipv4: Annotated[bool, typer.Option("-4", "--ipv4", help="Use IPv4 only.")] = False,
    ipv6: Annotated[bool, typer.Option("-6", "--ipv6", help="Use IPv6 only.")] = False,
    bind: Annotated[str | None, typer.Option("--bind", help="Local address to send from.", metavar="ADDR")] = None,
    port: Annotated[
        int, typer.Option("-p", "--port", min=1, max=65535, help="The server's port for udp, tcp and rr.")
    ] = _PORTS["port"],
    http_port: Annotated[
        int, typer.Option("--http-port", min=1, max=65535, help="The server's port for HTTP.")
    ] = _PORTS["http_port"],
    https_port: Annotated[
        int, typer.Option("--https-port", min=1, max=65535, help="The server's port for HTTPS.")
    ] = _PORTS["https_port"],
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", help="File with the key of the server, if it requires one.", metavar="FILE"),
    ] = None,
    json: o.Json = False,
    verbose: o.Verbose = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Keep all samples in a new run folder below DIR.", metavar="DIR"),
    ] = None,
) -> int:
    """Measure each layer to a server as a share of the one below.

    UDP, TCP, request and response, HTTP and HTTPS are measured in turn. A layer that the server does not offer is
    named, and the others go on. Intervals need --repeat 3 or more.

    Exit code: 0 measured, 1 no layer could be reached or it failed, 2 invalid input, 130 interrupted.
    """
    from leadline.cli import single_args

    mistakes = single_args.Mistakes()
    with mistakes:
        asked = {"duration": duration, "warmup": warmup, "rate": rate, "layers": _listed(layers)}
        tests = _tests({key: value for key, value in asked.items() if value is not None})
    ports = {"port": port, "http_port": http_port, "https_port": https_port}
    hosts = [one for one in (host, outside) if one is not None]
    for one in hosts:
        with mistakes:
            single_args.host(one)
    if host is None:
        with mistakes:
            given = {f"--{name.replace('_', '-')}": ports[name] != usual for name, usual in _PORTS.items()}
            refuse_without_host({"--outside": outside, "--bind": bind, "--key-file": key_file, **given})
    with mistakes:
        family = single_args.family(ipv4, ipv6)
    mistakes.raise_all()
    check_folder("--out", out)
    if host is not None:
        sides = _sides(hosts, ports, family, bind, key_file)
        return _run(tests, sides, repeat, json=json, verbose=verbose, out=out)
    with own_server(ipv6=family == "v6", https=True, is_document=json) as server:
        sides = [_side(server, family, "--outside names no address")]
        return _run(tests, sides, repeat, json=json, verbose=verbose, out=out)


def _listed(layers: str | None) -> list[str] | None:
    if layers is None:
        return None
    names = [name.strip() for name in layers.split(",") if name.strip()]
    if not names:
        raise InputError(f"--layers {layers!r}: it names no layer", hint="as in --layers udp,tcp")
    return names


def _tests(asked: dict[str, Any]) -> list[BaseTest]:
    """The tests of a ladder with these options. Raises InputError."""
    from leadline.cli import single_args
    from leadline.plan.field_types import validate_input
    from leadline.plan.ladder import Ladder
    from leadline.registry import KINDS

    ladder = single_args.parse(Ladder, asked, {})
    raw = next((rung.layer for _, rung in ladder.rungs if rung.is_on_request), None)
    if raw is not None:
        raise InputError(
            f"--layers {raw}: `leadline serve` counts no raw packets",
            hint="a plan has an agent at both ends: ladder: {layers: [packets, udp]}",
        )
    return [validate_input(KINDS.get(kind).model, ladder.test(kind, rung)) for kind, rung in ladder.rungs]


def _sides(
    hosts: Sequence[str],
    ports: dict[str, int],
    family: Literal["v4", "v6"] | None,
    bind: str | None,
    key_file: Path | None,
) -> list[Side]:
    """The address, and the one outside of the tunnel if it is given."""
    from leadline.cli.key_file import read_key
    from leadline.trial.workloads import Server

    if len(set(hosts)) < len(hosts):
        raise InputError(f"--outside {hosts[0]}: this is HOST itself", hint="give the address outside of the tunnel")
    key = None if key_file is None else read_key(key_file)
    found = []
    for number, host in enumerate(hosts, 1):
        server = Server(
            host,
            ports["port"],
            key,
            bind,
            family or "any",
            http_port=ports["http_port"],
            https_port=ports["https_port"],
        )
        is_tunnel = len(hosts) > 1 and number == 1
        why_alone = None if is_tunnel else "--outside names no address" if len(hosts) == 1 else "it is outside itself"
        found.append(_side(server, family, why_alone, number))
    return found


def _side(server: Server, family: Literal["v4", "v6"] | None, why_alone: str | None, number: int = 1) -> Side:
    """The address of a server; without a reason why it stands alone, it is a tunnel's."""
    from leadline.trial.ladder import Side, path_mtu

    ip, mtu_bytes = path_mtu(server.host, server.port, family) or (4, None)
    # The headers of a tunnel that Leadline did not bring up are not known.
    return Side(f"c{number:02}", server, ip, mtu_bytes, None if why_alone is None else 0, why_alone)


def _run(
    tests: Sequence[BaseTest], sides: Sequence[Side], repeats: int, *, json: bool, verbose: bool, out: Path | None
) -> int:
    import asyncio

    from leadline.cli.output import note_folder, print_all, print_error, print_json
    from leadline.report.ladder_summary import ladder_summary
    from leadline.trial.ladder import Climb

    climb = Climb(tests, sides, repeats, ["leadline", *sys.argv[1:]])
    analysis, folder, failure = asyncio.run(_measured(climb, json=json, out=out))
    measured = any(layer.figure.value is not None for ladder in analysis.ladders for layer in ladder.layers)
    if failure is not None and not measured:
        raise failure
    if json:
        print_json(document(analysis, [side.server.host for side in sides]))
    elif measured:
        print_all(ladder_summary(analysis, verbose=verbose))
    kept = note_folder(folder, 0)
    if failure is not None:
        return print_error(str(failure), 1)
    if analysis.status == "interrupted":
        return 130
    if not measured:
        why = next((layer.error for ladder in analysis.ladders for layer in ladder.layers if layer.error), "")
        return print_error(f"no layer of {sides[0].server.host} could be measured: {why}", 1)
    return kept


def document(analysis: RunAnalysis, targets: Sequence[str]) -> dict[str, Any]:
    """The document `leadline.ladder/1`."""
    return {
        "schema": "leadline.ladder/1",
        "target": targets[0],
        "outside": targets[1] if len(targets) > 1 else None,
        "status": analysis.status,
        "validity": analysis.validity,
        "ladders": analysis.ladders,
        "summaries": analysis.summaries,
    }


async def _measured(
    climb: Climb, *, json: bool, out: Path | None
) -> tuple[RunAnalysis, RunFolder | None, LeadlineError | None]:
    from dataclasses import replace

    from leadline.cli.output import finish_folder
    from leadline.cli.progress import watched
    from leadline.dataset import Journal, RunFolder
    from leadline.trial import TestBegan
    from leadline.trial.ladder import climb as measure

    entries: list[dict[str, Any]] = []
    whole = len(climb.tests) * len(climb.sides) * climb.repeats
    begun: list[str] = []
    with watched(json) as (progress, interrupt):

        def tell(notification: object) -> None:
            if isinstance(notification, TestBegan):
                begun.append(notification.test)
                if not progress.quiet:
                    progress.note(f"[{len(begun)}/{whole}] {notification.test.removeprefix('ladder-')}")

        observers = (progress, tell)
        if out is None:
            analysis, failure = await measure(climb, entries, None, interrupt, observers)
            return analysis, None, failure
        folder = RunFolder.begin(out, NAME, climb.manifest)
        climb = replace(climb, logs=folder.logs_path)
        with Journal(folder.journal_path) as journal:
            analysis, failure = await measure(climb, entries, journal, interrupt, observers)
    finish_folder(folder)
    return analysis, folder, failure
