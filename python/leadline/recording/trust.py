"""The recorder's certificate authority, and how clients are made to use the proxy and to trust it.

The authority is mitmproxy's, in a folder that only its user may enter: with its key, all that a client sends that
trusts it can be read. It is made once and kept, so that a client has to be made to trust it once.
"""

from __future__ import annotations

import base64
import hashlib
import os
import ssl
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from leadline.errors import InputError

CERTIFICATE = "mitmproxy-ca-cert.pem"
_BUNDLE = "ca-bundle.pem"
_WANTED = "name a file of certificates in PEM"
_CHROMIUMS = ("chromium", "google-chrome", "chrome", "microsoft-edge", "brave", "vivaldi")
_QUIET_OPTIONS = (
    "--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip
_PROXY_VARIABLES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_BYPASS_VARIABLES = ("NO_PROXY", "no_proxy")
_BUNDLE_VARIABLES = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")


def data_folder() -> Path:
    """The folder of recordings: `$XDG_DATA_HOME/leadline/record`."""
    named = os.environ.get("XDG_DATA_HOME", "")
    base = Path(named) if named.startswith("/") else Path.home() / ".local" / "share"
    return base / "leadline" / "record"


def prepare_private_folder(option: str, path: Path) -> None:
    """Make a folder that only its user may enter, or check that it is one.

    Raises:
        InputError: it cannot be made, is another user's, or others may read it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror or error}", hint="name a folder that can be made") from None
    if status.st_uid != os.geteuid():
        raise InputError(f"{option} {path}: the folder is another user's", hint="name a folder of your own")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise InputError(f"{option} {path}: others may enter this folder, which has a key", hint=f"chmod 700 {path}")


def certificate_of(folder: Path) -> Path:
    """The authority's certificate, to be imported where it is to be trusted."""
    return folder / CERTIFICATE


def check_authority(folder: Path) -> None:
    """Check that the proxy has an authority to sign with. Raises InputError."""
    try:
        public_key_sum(folder)
    except (OSError, ValueError) as error:
        hint = "remove the folder's files, so that a new authority is made"
        raise InputError(f"{folder}: its authority cannot be used: {error}", hint=hint) from None


def check_certificates(option: str, path: Path) -> None:
    """Check that a file has certificates. Raises InputError."""
    try:
        x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror or error}", hint=_WANTED) from None
    except ValueError:
        raise InputError(f"{option} {path}: it has no certificates", hint=_WANTED) from None


def public_key_sum(folder: Path) -> str:
    """The sum of the authority's key as Chromium takes it, in base64."""
    certificate = x509.load_pem_x509_certificate(certificate_of(folder).read_bytes())
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


def write_bundle(folder: Path, more: Path | None) -> Path:
    """A file with the recorder's authority, those of this machine and those of `--ca`. Returns its path."""
    places = [certificate_of(folder), *([more] if more else [])]
    if (system := ssl.get_default_verify_paths().cafile) is not None:
        places.append(Path(system))
    parts = [place.read_bytes() for place in places if place.is_file()]
    bundle = folder / _BUNDLE
    bundle.write_bytes(b"\n".join(parts))
    return bundle


def command_environment(environment: Mapping[str, str], proxy: str, bundle: Path) -> dict[str, str]:
    """The variables by which a command uses the proxy, for addresses of this machine too, and trusts it."""
    return {
        **environment,
        **dict.fromkeys(_PROXY_VARIABLES, proxy),
        **dict.fromkeys(_BYPASS_VARIABLES, ""),
        **dict.fromkeys(_BUNDLE_VARIABLES, str(bundle)),
    }


def command_line(argv: Sequence[str], proxy: str, key_sum: str, profile: Path) -> list[str]:
    """The command, with the options by which a Chromium does what others do by variables.

    Without a profile of its own it would open a window of a browser that runs already, and end. What a browser sends of
    its own accord is switched off, as far as it has options for that.
    """
    program = Path(argv[0]).name
    if not program.startswith(_CHROMIUMS):
        return list(argv)
    given = {word.partition("=")[0] for word in argv}
    options = {
        "--proxy-server": proxy,
        "--proxy-bypass-list": "<-loopback>",
        "--ignore-certificate-errors-spki-list": key_sum,
        "--user-data-dir": str(profile),
    }
    added = [f"{name}={value}" for name, value in options.items() if name not in given]
    return [argv[0], *added, *_QUIET_OPTIONS, *argv[1:]]
