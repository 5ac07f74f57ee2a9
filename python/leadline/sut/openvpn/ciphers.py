"""Names of OpenVPN's data ciphers, used to detect a misspelt name. Pure.

The daemon decides whether it has a cipher, since builds and TLS libraries differ. A name that resembles a usual one
but is not one is a typing mistake.
"""

from __future__ import annotations

import difflib

_BLOCK_CIPHERS = (
    *(f"{family}-{bits}" for family in ("AES", "ARIA", "CAMELLIA") for bits in (128, 192, 256)),
    *("SM4", "SEED", "BF", "CAST5", "DES", "DES-EDE", "DES-EDE3", "RC2", "RC2-40", "RC2-64", "DESX", "IDEA"),
)
_MODES = ("GCM", "CBC", "CFB", "CFB1", "CFB8", "CFB128", "CFB64", "OFB", "OFB128", "CCM", "CTR")
KNOWN_CIPHERS = (
    *(f"{cipher}-{mode}" for mode in _MODES for cipher in _BLOCK_CIPHERS),
    *("CHACHA20-POLY1305", "NONE"),
    *(f"ID-AES{bits}-GCM" for bits in (128, 192, 256)),
)
_RESEMBLES = 0.75


def misspelt(name: str) -> str | None:
    """The usual cipher that an unusual name was probably meant to be; OpenVPN ignores case."""
    written = name.upper()
    if written in KNOWN_CIPHERS:
        return None
    return next(iter(difflib.get_close_matches(written, KNOWN_CIPHERS, n=1, cutoff=_RESEMBLES)), None)
