"""The keys and certificates of real OpenVPN servers and their clients, newly made; for openvpn_servers.py.

Owns making them by the daemon's own means and as files. Says nothing about what is right: that is the tests'.
"""

from __future__ import annotations

import datetime
import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import cli_runs as cli
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

WRAPS = ("none", "tls-auth", "tls-crypt", "tls-crypt-v2")
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
_CLIENT_DIRECTION, _SERVER_DIRECTION = 1, 0


def openvpn() -> str:
    """The daemon's path; the test is skipped where it is not installed."""
    path = shutil.which("openvpn", path=f"{os.environ['PATH']}:{cli.SYSTEM_FOLDERS}")
    if path is None:
        pytest.skip("openvpn is not installed (package openvpn)")
    return path


@dataclass(frozen=True, slots=True)
class Authority:
    """Certificates of ECDSA P-256, good for a day unless asked otherwise, as PEM files in a folder."""

    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path, name: str = "authority") -> Authority:
        """A new one; NAME.crt and NAME.key."""
        key = ec.generate_private_key(ec.SECP256R1())
        # Each is another one by its name, too.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} {secrets.token_hex(4)}")])
        builder = _builder(subject, subject, key, _now())
        certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
            key, hashes.SHA256()
        )
        _write(folder / name, certificate, key)
        return cls(folder, certificate, key)

    def issue(self, name: str, *, server: bool = False, expired: bool = False) -> Path:
        """NAME.crt and NAME.key; the path of the former."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        # A year ago, it was good for the two days around.
        when = _now() - datetime.timedelta(days=365 if expired else 0)
        builder = _builder(subject, self.certificate.subject, key, when)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        # OpenVPN's `remote-cert-tls` insists on there being one.
        signs = dict.fromkeys(_USAGES, False) | {"digital_signature": True}
        builder = builder.add_extension(x509.KeyUsage(**signs), critical=True)
        return _write(self.folder / name, builder.sign(self.key, hashes.SHA256()), key)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)


def _write(path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Path:
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.with_suffix(".key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    path.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path.with_suffix(".crt")


@dataclass(frozen=True, slots=True)
class Keys:
    """What all servers of a module share; made once."""

    folder: Path
    authority: Authority
    server: Path
    client: Path

    @classmethod
    def make(cls, folder: Path) -> Keys:
        """Certificates, and keys for each kind of wrapping."""
        authority = Authority.make(folder)
        _genkey("secret", folder / "static.key")
        _genkey("tls-crypt-v2-server", folder / "v2-server.key")
        _genkey("tls-crypt-v2-client", folder / "v2-client.key", "--tls-crypt-v2", folder / "v2-server.key")
        return cls(folder, authority, authority.issue("server", server=True), authority.issue("client"))

    def wrap(self, kind: str, *, server: bool) -> list[str]:
        """The line of a configuration for one end."""
        match kind:
            case "none":
                return []
            case "tls-auth":
                return [f"tls-auth {self.folder}/static.key {_SERVER_DIRECTION if server else _CLIENT_DIRECTION}"]
            case "tls-crypt":
                return [f"tls-crypt {self.folder}/static.key"]
            case _:
                return [f"tls-crypt-v2 {self.folder}/v2-{'server' if server else 'client'}.key"]


def _genkey(kind: str, path: Path, *more: str | Path) -> None:
    command = [openvpn(), *map(str, more), "--genkey", kind, str(path)]
    subprocess.run(command, check=True, capture_output=True)
