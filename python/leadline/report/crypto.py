"""Draws the cost of a VPN's protocol for a terminal of 80 columns: figures, fits, handshakes and the verdict.

`analysis` has computed the figures and the verdict.
"""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from leadline import quantities
from leadline.analysis.crypto import CryptoFigure, CryptoFit, CryptoResult
from leadline.report.text import add_columns, titled_table, verdict_block


def crypto_renderables(result: CryptoResult) -> list[RenderableType]:
    """Everything in reading order; the verdict comes last, where a reader of a terminal looks first."""
    packets = [figure for figure in result.figures if figure.bytes is not None]
    parts = [
        _figures(packets) if packets else None,
        _fits(result.fits) if result.fits else None,
        _handshakes({figure.what: figure for figure in result.figures if figure.bytes is None}),
        verdict_block(result.validity),
    ]
    return [part for part in parts if part is not None]


def _figures(figures: list[CryptoFigure]) -> RenderableType:
    drawn = titled_table("Packets", "per second of one CPU; MB are 10^6 bytes of payload")
    add_columns(drawn, left=("algorithm", ""), right=("bytes", "MB/s", "packets/s", "ns each"))
    before: tuple[str, str] | None = None
    for figure in figures:
        group = (figure.algorithm, figure.what)
        rate = figure.bytes_per_s
        drawn.add_row(
            Text(figure.algorithm if before is None or before[0] != figure.algorithm else ""),
            Text(_WORDS.get(figure.what, figure.what) if before != group else ""),
            quantities.count(figure.bytes),
            quantities.fixed(rate / 1e6 if rate is not None else None, 1),
            quantities.count(figure.per_s),
            quantities.count(figure.ns_each),
        )
        before = group
    return drawn


def _fits(fits: tuple[CryptoFit, ...]) -> RenderableType:
    drawn = titled_table("Costs", "a line through all sizes; off: the worst one")
    add_columns(drawn, left=("algorithm", ""), right=("ns per packet", "ns per byte", "off"))
    before = ""
    for fit in fits:
        drawn.add_row(
            Text(fit.algorithm if fit.algorithm != before else ""),
            Text(_WORDS.get(fit.what, fit.what)),
            quantities.fixed(fit.ns_per_packet, 0),
            quantities.fixed(fit.ns_per_byte, 3),
            quantities.share(fit.worst),
        )
        before = fit.algorithm
    return drawn


def _handshakes(figures: dict[str, CryptoFigure]) -> RenderableType | None:
    whole = figures.get("handshake")
    if whole is None:
        return None

    def each(what: str) -> str:
        figure = figures.get(what)
        ns = figure.ns_each if figure is not None else None
        return quantities.microseconds(ns / 1e3 if ns is not None else None)

    shares = f"{each('handshake')} each: client {each('handshake_client')}, server {each('handshake_server')}"
    return Text.assemble(
        ("Handshakes", "bold underline"),
        (f"  {whole.algorithm}\n", "dim"),
        (quantities.per_second(whole.per_s), "bold"),
        f" by one CPU for both ends, {shares}",
    )


# The words in the tables for the contract's names.
_WORDS = {"cipher": "bare", "hmac": "hmac"}
