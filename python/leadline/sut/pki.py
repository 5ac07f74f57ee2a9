"""A certificate authority for one run: a server certificate, one certificate per client, all with keys of one kind.

ECDSA P-256 by default, so that the gateway under test spends its time on the tunnel: a handshake takes 2 ms of its CPU,
measured.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from leadline.dataset.private_files import private_folder, write_private

# Long in both directions: the hosts' wall clocks may differ by hours, and a run may last days.
_BEFORE = datetime.timedelta(days=2)
_AFTER = datetime.timedelta(days=3650)
_RSA_BITS = 2048

KeyKind = Literal["ecdsa", "rsa"]
_PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Pki:
    """The files of one run's PKI; the authority's own key is never written."""

    authority: Path
    server: Identity
    clients: dict[str, Identity]
    authority_key_pem: str = field(repr=False)
    """Key of the CA, to make more certificates during the run."""


def issue(folder: Path, server: str, clients: Sequence[str], *, now: datetime.datetime, keys: KeyKind = "ecdsa") -> Pki:
    """Make all keys and certificates; common names and DNS names are the host names.

    Raises:
        OSError: the folder cannot be written.
    """
    private_folder(folder)
    authority_key = _generate(keys)
    authority = _authority(authority_key, now)
    authority_file = write_private(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))

    def identity(name: str, usage: x509.ObjectIdentifier) -> Identity:
        key = _generate(keys)
        certificate = _leaf(name, usage, key, authority=authority, authority_key=authority_key, now=now)
        return Identity(
            write_private(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM)),
            write_private(folder / f"{name}.key", _pem(key)),
        )

    return Pki(
        authority_file,
        identity(server, ExtendedKeyUsageOID.SERVER_AUTH),
        {name: identity(name, ExtendedKeyUsageOID.CLIENT_AUTH) for name in clients},
        _pem(authority_key).decode("ascii"),
    )


def _generate(kind: KeyKind) -> _PrivateKey:
    if kind == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    return ec.generate_private_key(ec.SECP256R1())


def _authority(key: _PrivateKey, now: datetime.datetime) -> x509.Certificate:
    name = _name("Leadline run authority")
    return (
        _builder(name, name, key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _leaf(
    name: str,
    usage: x509.ObjectIdentifier,
    key: _PrivateKey,
    *,
    authority: x509.Certificate,
    authority_key: _PrivateKey,
    now: datetime.datetime,
) -> x509.Certificate:
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(_name(name), authority.subject, key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _PrivateKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _AFTER)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: _PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
