"""How wide an interval at 95 % is: Student's t, for means and for slopes. Spreads are the callers'. Pure."""

from __future__ import annotations

CONFIDENCE = 0.95


def t_quantile(freedom: int) -> float:
    """Student's t that 95 % of the values lie within, on both sides."""
    # scipy takes a second or more to import, which a single measurement need not wait for.
    from scipy.special import stdtrit  # noqa: PLC0415

    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
