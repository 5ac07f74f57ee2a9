"""The run's certificates: who may do what, for how long, and who may read them."""

from __future__ import annotations

import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from leadline.sut.pki import Pki, issue

NOW = datetime.datetime(2026, 11, 21, 20, 0, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return issue(tmp_path_factory.mktemp("run") / "pki", "gateway", ["client1", "client2"], now=NOW)


def test_keys_may_be_rsa(tmp_path: Path) -> None:
    issued = issue(tmp_path / "pki", "gateway", ["client1"], now=NOW, keys="rsa")
    PolicyBuilder().store(Store([load(issued.authority)])).time(NOW).build_server_verifier(
        x509.DNSName("gateway")
    ).verify(load(issued.server.certificate), [])
    key = serialization.load_pem_private_key(issued.clients["client1"].key.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey) and key.key_size == 2048


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_chains_verify_for_a_server_and_for_clients_and_not_the_other_way(pki: Pki) -> None:
    policy = PolicyBuilder().store(Store([load(pki.authority)])).time(NOW)
    policy.build_server_verifier(x509.DNSName("gateway")).verify(load(pki.server.certificate), [])
    client = load(pki.clients["client2"].certificate)
    policy.build_client_verifier().verify(client, [])
    with pytest.raises(VerificationError):
        policy.build_client_verifier().verify(load(pki.server.certificate), [])
    with pytest.raises(VerificationError):
        policy.build_server_verifier(x509.DNSName("client2")).verify(client, [])


def test_certificates_carry_their_host_names(pki: Pki) -> None:
    for name, identity in {"gateway": pki.server, **pki.clients}.items():
        certificate = load(identity.certificate)
        assert [attribute.value for attribute in certificate.subject] == [name]
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [name]


def test_validity_is_generous_both_ways(pki: Pki) -> None:
    for identity in (pki.server, *pki.clients.values()):
        certificate = load(identity.certificate)
        assert certificate.not_valid_before_utc <= NOW - datetime.timedelta(days=1)
        assert certificate.not_valid_after_utc >= NOW + datetime.timedelta(days=365)


def test_keys_are_p256_fit_their_certificates_and_differ(pki: Pki) -> None:
    seen = set()
    for identity in (pki.server, *pki.clients.values()):
        key = serialization.load_pem_private_key(identity.key.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.curve.name == "secp256r1"
        assert key.public_key() == load(identity.certificate).public_key()
        seen.add(key.private_numbers().private_value)
    assert len(seen) == 3


def test_only_the_owner_may_read_and_the_authoritys_key_is_nowhere(pki: Pki) -> None:
    folder = pki.authority.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert sorted(file.name for file in folder.glob("*.key")) == ["client1.key", "client2.key", "gateway.key"]
