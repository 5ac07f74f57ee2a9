"""`leadline crypto`: the CPU cost of a VPN's protocol on this host, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline import __version__
from leadline.cli import options as o
from leadline.cli.output import check_writable, print_all, print_error, print_json, write_option_file
from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.analysis.crypto import CryptoResult
    from leadline.contract.models import CryptoWorkload

NAME = "crypto"
EXAMPLE = "Example: leadline crypto --cipher AES-256-GCM --cipher CHACHA20-POLY1305 --size 64 --size 1400"

_CIPHERS = ("AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305", "AES-256-CBC", "DES-EDE3-CBC")
_DIGESTS = ("SHA1", "SHA256")
_SIZES = ("64", "576", "1400")


def command(
    ciphers: Annotated[
        list[str] | None,
        typer.Option("--cipher", help="Cipher, by OpenVPN's name; may be repeated.", metavar="NAME"),
    ] = None,
    digests: Annotated[
        list[str] | None,
        typer.Option("--digest", help="Digest of the HMACs, also for CBC ciphers; may be repeated.", metavar="NAME"),
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Option("-l", "--size", help="Payload size in bytes; may be repeated.", metavar="SIZE")
    ] = None,
    duration: Annotated[
        str, typer.Option("-d", "--duration", help="Measuring time per figure.", metavar="TIME")
    ] = "250ms",
    spread: Annotated[
        str, typer.Option("--spread", help="Size of the memory that the packets are spread over.", metavar="SIZE")
    ] = "4MiB",
    handshakes: Annotated[
        bool, typer.Option("--handshakes/--no-handshakes", help="Also measure full handshakes.")
    ] = True,
    profile: o.Profile = None,
    json: o.Json = False,
) -> int:
    """Measure the CPU cost of OpenVPN's protocol on this host.

    Packets, bare ciphers, HMACs and full handshakes, in memory.
    """
    from leadline.contract.models import CryptoWorkload, Size

    workload = CryptoWorkload(
        ciphers=list(ciphers or _CIPHERS),
        digests=list(digests or _DIGESTS),
        sizes=[Size(_quantity("size", text)) for text in dict.fromkeys(sizes or _SIZES)],
        duration_ms=_quantity("duration", duration),
        handshakes=handshakes,
        spread_bytes=_quantity("spread", spread),
    )
    return _run(workload, json, profile)


def _quantity(option: str, text: str) -> int:
    from leadline.plan import units

    try:
        value = units.duration_ms(text) if option == "duration" else units.size_bytes(text)
    except units.UnitError as error:
        raise InputError(f"--{option}: {error}") from None
    if value >= 1 << 32:
        raise InputError(f"--{option}: {text} is too large")
    return value


def _run(workload: CryptoWorkload, json: bool, profile: Path | None) -> int:
    import asyncio

    from leadline.agents.flamegraph import flame_graph
    from leadline.analysis.model import Verdict
    from leadline.report.crypto import crypto_renderables

    if profile is not None:
        check_writable("--profile", profile)
    result, folded = asyncio.run(_measured(workload, json, profile is not None))
    if json:
        print_json(document(result, workload))
    else:
        print_all(crypto_renderables(result))
    if profile is not None:
        write_option_file("--profile", profile, flame_graph("leadline crypto", folded or ""))
    if result.validity.verdict is Verdict.INCOMPLETE:
        return 130 if result.figures else print_error("stopped before anything was measured", 130)
    return 0


async def _measured(workload: CryptoWorkload, json: bool, profile: bool) -> tuple[CryptoResult, str | None]:
    from leadline.cli.progress import watched
    from leadline.trial import PhaseBegan, TestBegan
    from leadline.trial.crypto import measure_crypto

    figures = figures_of(workload)
    with watched(json) as (progress, interrupt):
        progress(TestBegan(NAME, NAME, NAME, figures * workload.duration_ms / 1000))

        def done(count: int) -> None:
            progress(PhaseBegan(NAME, f"{count} of {figures} figures"))

        return await measure_crypto(workload, figures, interrupt, done, profile=profile)


def figures_of(workload: CryptoWorkload) -> int:
    """The number of figures: three per cipher (encrypt, decrypt, cipher alone), one per digest, and the
    handshakes."""
    digests = len(workload.digests)
    count = digests
    for cipher in (name.upper() for name in workload.ciphers):
        if cipher.startswith("DES-"):
            count += 1
        else:
            count += 1 + 2 * (digests if cipher.endswith("-CBC") else 1)
    return count * len(workload.sizes) + workload.handshakes


def document(result: CryptoResult, workload: CryptoWorkload) -> dict[str, Any]:
    """The measurement as `leadline.crypto/1`."""
    return {
        "schema": "leadline.crypto/1",
        "version": __version__,
        "build_profile": result.build_profile,
        "duration_ms": workload.duration_ms,
        "spread_bytes": workload.spread_bytes,
        "figures": [
            {
                "what": figure.what,
                "algorithm": figure.algorithm,
                "bytes": figure.bytes,
                "operations": figure.operations,
                "cpu_ns": figure.cpu_ns,
                "wall_ns": figure.wall_ns,
                "ns_each": figure.ns_each,
                "per_s": figure.per_s,
                "bytes_per_s": figure.bytes_per_s,
            }
            for figure in result.figures
        ],
        "fits": result.fits,
        "validity": result.validity,
    }
