"""A profile in one piece: which lines become blocks, which stay as they are, and what is refused with its line."""

from __future__ import annotations

import pytest

from leadline.plan.ovpn import Profile, ProfileProblem, whole

FILES = {
    "ca.crt": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "ta.key": "-----BEGIN OpenVPN Static key V1-----\nstatic\n-----END OpenVPN Static key V1-----\n",
    "login": "user\npassword\n",
    "my key.pem": "-----BEGIN PRIVATE KEY-----\nKEY\n-----END PRIVATE KEY-----\n",
    "locked.key": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nKEY\n-----END ENCRYPTED PRIVATE KEY-----\n",
    "evil": "  </ca> # as the agent reads it\nremote 192.0.2.9\n",
}


def read(name: str) -> str:
    if name not in FILES:
        raise ValueError(f"{name}: No such file or directory")
    return FILES[name]


def made(text: str) -> Profile:
    return whole(text, read)


def test_files_become_blocks_at_the_end_and_every_line_stays_where_it_is() -> None:
    text = "client\n# ca old.crt\nremote 192.0.2.7 1194\nca ca.crt\n  cipher AES-256-GCM ; fine\n"
    profile = made(text)
    assert profile.text.splitlines() == [
        *("client", "# ca old.crt", "remote 192.0.2.7 1194", "ca [inline]", "  cipher AES-256-GCM ; fine"),
        *("<ca>", *FILES["ca.crt"].splitlines(), "</ca>"),
    ]
    assert profile.has == {"client", "remote", "ca", "cipher"}
    assert profile.blocks == {"ca": FILES["ca.crt"]}


def test_of_several_of_one_name_the_last_counts() -> None:
    later = made("ca ca.crt\n<ca>\nother\n</ca>\n")
    assert later.text == "ca [inline]\n<ca>\nother\n</ca>\n" and later.blocks == {"ca": "other\n"}
    assert made("<ca>\nother\n</ca>\nca ca.crt\n").text.endswith(f"ca [inline]\n<ca>\n{FILES['ca.crt']}</ca>\n")


def test_the_direction_beside_a_key_keeps_its_meaning() -> None:
    key = FILES["ta.key"]
    assert made("tls-auth ta.key 1").text == f"tls-auth [inline] 1\n<tls-auth>\n{key}</tls-auth>\n"
    assert made("tls-crypt ta.key").text == f"tls-crypt [inline]\n<tls-crypt>\n{key}</tls-crypt>\n"


def test_users_come_from_their_file_or_stay_asked_for() -> None:
    assert made("auth-user-pass login").text.splitlines() == [
        "auth-user-pass [inline]", "<auth-user-pass>", "user", "password", "</auth-user-pass>"
    ]  # fmt: skip
    assert made("auth-user-pass").text == "auth-user-pass\n"


def test_tokens_are_split_as_openvpn_splits_them() -> None:
    """A quote inside of a word is a letter, and so is a comment's mark."""
    text = "setenv FRIENDLY_NAME Bob's\nsetenv UV_X \"it's\"\nremote-cert-tls server#x\nverb 3 # it's quiet\n"
    assert made(text).text == text
    assert "KEY" in made("key my\\ key.pem").text
    assert made('verb 3 \\# a comment all the same "\nverb 3 \\').text.startswith("verb 3")
    assert made('setenv UV_X a\\"b ""\n').has == {"setenv"}
    assert "KEY" in made("\"key\" 'my key.pem' # mine").text
    assert made("\ufeffclient\r\n<ca> # one\r\nx\r\n</ca>\r\n").text == "client\n<ca> # one\nx\n</ca>\n"
    separators = "setenv UV_X a\u2028b\x0cc\nca none"
    with pytest.raises(ProfileProblem, match="line 2: ca: none"):
        made(separators)


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
        ("client\n\nca evil\n", 3, "contains the end of an inline block"),
        ("config other.ovpn", 1, "config includes another file"),
        ("pkcs12 all.p12", 1, "pkcs12 includes another file"),
        ('ca "ca.crt', 1, 'a quotation mark (") is not closed'),
        ("ca 'ca.crt", 1, "a quotation mark (') is not closed"),
        ("ca C:\\ca.crt", 1, "a backslash stands only before"),
        ('ca "C:\\ca.crt"', 1, "a backslash stands only before"),
        ("verb 3\\", 1, "a backslash stands only before"),
        ("verb 3\\#", 1, "a backslash stands only before"),
        ("client\nca login", 2, "ca: login contains no CERTIFICATE in PEM"),
        ("key locked.key", 1, "key: locked.key is encrypted with a passphrase"),
        ("tls-crypt ca.crt", 1, "tls-crypt: ca.crt contains no OpenVPN Static key V1"),
    ],
)
def test_profile_with_a_missing_file_is_refused_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(ProfileProblem) as caught:
        made(text)
    assert caught.value.line == line
    assert what in str(caught.value)


def test_repr_of_a_profile_hides_its_content() -> None:
    profile = made("auth-user-pass login\nca ca.crt")
    assert "password" not in repr(profile) and "AAAA" not in repr(profile)
