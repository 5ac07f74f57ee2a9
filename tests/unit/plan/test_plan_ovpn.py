"""A profile in one piece: which lines become blocks, which stay as they are, and what is refused with its line."""

from __future__ import annotations

import pytest

from leadline.plan.ovpn import Profile, ProfileProblem, whole

FILES = {
    "ca.crt": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "ta.key": "static\n",
    "login": "user\npassword\n",
    "my key.pem": "KEY\n",
    "evil": "</ca>\nremote 192.0.2.9\n",
}


def read(name: str) -> str:
    if name not in FILES:
        raise ValueError(f"{name}: No such file or directory")
    return FILES[name]


def made(text: str) -> Profile:
    return whole(text, read)


def test_files_become_blocks_and_other_lines_stay() -> None:
    profile = made("client\n# ca old.crt\nremote 192.0.2.7 1194\nca ca.crt\n  cipher AES-256-GCM ; fine\n")
    assert profile.text.splitlines() == [
        *("client", "# ca old.crt", "remote 192.0.2.7 1194", "<ca>", *FILES["ca.crt"].splitlines(), "</ca>"),
        "  cipher AES-256-GCM ; fine",
    ]
    assert profile.has == {"client", "remote", "ca", "cipher"}
    assert profile.blocks == {"ca": FILES["ca.crt"]}


def test_the_direction_beside_a_key_keeps_its_meaning() -> None:
    assert made("tls-auth ta.key 1").text.splitlines() == [
        "key-direction 1", "<tls-auth>", "static", "</tls-auth>"
    ]  # fmt: skip
    assert made("tls-crypt ta.key").text.splitlines() == ["<tls-crypt>", "static", "</tls-crypt>"]


def test_users_come_from_their_file_or_stay_asked_for() -> None:
    assert made("auth-user-pass login").text.splitlines() == [
        "<auth-user-pass>", "user", "password", "</auth-user-pass>"
    ]  # fmt: skip
    assert made("auth-user-pass").text == "auth-user-pass\n"


def test_quoted_names_and_blocks_that_are_there_already() -> None:
    assert "KEY" in made('key "my key.pem"').text
    text = "<ca>\nca ca.crt\n</ca>\ncert [inline]\n<connection>\nremote 192.0.2.7\n</connection>\n"
    profile = made(text)
    assert profile.text == text, "what stands in a block is no option"
    assert profile.blocks["ca"] == "ca ca.crt\n"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("client\nca none.crt\n", 2, "ca: none.crt: No such file or directory"),
        ("<ca>\nAAAA\n", 1, "<ca> has no end"),
        ("client\n\nca evil\n", 3, "holds the end of an inline block"),
        ("config other.ovpn", 1, "config brings in another file"),
        ("pkcs12 all.p12", 1, "pkcs12 brings in another file"),
        ('ca "ca.crt', 1, "cannot be read: no closing quotation"),
    ],
)
def test_what_cannot_be_made_whole_is_refused_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(ProfileProblem) as caught:
        made(text)
    assert caught.value.line == line
    assert what in str(caught.value)


def test_nothing_shows_what_a_profile_holds() -> None:
    profile = made("auth-user-pass login\nca ca.crt")
    assert "password" not in repr(profile) and "AAAA" not in repr(profile)
