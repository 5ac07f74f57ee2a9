"""What a user can do about a certificate that was refused: the options of `leadline http` and `leadline scenario`,
and the keys of a plan."""

from __future__ import annotations

_TRUST = (
    "trust its authority with --ca FILE, or accept any certificate with --insecure "
    "(in a plan tls: {ca: FILE} or {verify: false})"
)
_OWN = "give the client's certificate with --cert FILE and --key FILE (in a plan tls: {cert: FILE, key: FILE})"
_OF_FAILURES = {
    "tls_certificate_unknown_issuer": _TRUST,
    "tls_certificate_is_authority": _TRUST,
    "tls_alert_certificate_required": _OWN,
}


def certificate_advice(code: str) -> str | None:
    """The advice on a failure of this name; None if there is none."""
    return _OF_FAILURES.get(code)
