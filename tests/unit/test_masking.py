"""Which names are those of secrets, and what is left of texts that have their values."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.masking import (
    HIDDEN,
    is_secret_name,
    mask_document,
    mask_field,
    mask_line,
    mask_text,
    mask_yaml,
    secret_values,
)
from leadline.plan import plan_schema

SECRET_NAMES = [
    "Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Auth-Key", "X-Auth-Token", "X-Passwd",
    "X-Credential", "X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "Private-Key", "private_key",
    "password", "passwd", "PASSWORD", "user.password", "access_token", "accessToken", "api_key", "apikey",
    "ApiKey", "APIKey", "x-api-key", "sig", "signature", "secret", "token", "client_secret", "client_SECRET",
    "id_token", "JSESSIONID", "PHPSESSID", "X-Session-Id", "jwt", "X-CSRF-Token", "csrfmiddlewaretoken", "hmac",
    "sid", "pwd", "auth", "Ocp-Apim-Subscription-Key", "api%5Fkey", "passphrase",
]  # fmt: skip
PLAIN_NAMES = [
    "Accept", "Content-Type", "Content-Length", "Host", "User-Agent", "size", "delay", "page", "key", "id", "q",
    "monkey", "passenger", "compass", "bypass", "design", "signal", "assign", "author", "keyboard", "passive",
    "port", "threads", "max_age", "tokyo", "Keep-Alive",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_name_of_a_secret_is_known(name: str) -> None:
    assert mask_text(f"/x?a=1&{name}=v4lue&b=2") == f"/x?a=1&{name}={HIDDEN}&b=2"


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_name_of_no_secret_stays(name: str) -> None:
    assert not is_secret_name(name)
    assert mask_text(f"/x?{name}=v4lue") == f"/x?{name}=v4lue"


def test_kept_name_is_shown_in_upper_or_lower_case() -> None:
    assert mask_text("?Token=a&sig=b", ["token"]) == f"?Token=a&sig={HIDDEN}"
    assert mask_field("X-Auth-Key: a", ["x-auth-key"]) == "X-Auth-Key: a"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://me:pa55@h:1/x", "http://***@h:1/x"),
        ("http://t0ken@h/ and ssh://me@h and ssh://me:pa55@h", "http://***@h/ and ssh://me@h and ssh://***@h"),
        ("http://h/?email=a@b", "http://h/?email=a@b"),
        ("GET '/x?token=a%20b#part' failed", "GET '/x?token=***#part' failed"),
        ("password=a b", "password=*** b"),
        ("-J password=a", "-J password=***"),
        ("user[password]=a&x=1", "user[password]=***&x=1"),
        ("a=b=token=c", "a=b=token=c"),
        ("no value: token=", "no value: token="),
    ],
)
def test_text_keeps_all_but_the_values(text: str, masked: str) -> None:
    assert mask_text(text) == masked


def test_line_of_json_stays_json() -> None:
    line = json.dumps({"url": "http://h/?sig=a\\b\u00e9", "detail": 'said "?token=x" and\n?api_key=y', "n": 1}).encode()
    found = json.loads(mask_line(line))
    assert found == {"url": "http://h/?sig=***", "detail": 'said "?token=***" and\n?api_key=***', "n": 1}
    plain = b'{"hdr":"AAAB////==", "n":1}'
    assert mask_line(plain) is plain
    assert mask_line(b"\xff ?token=x") == b"\xff ?token=***"


@pytest.mark.parametrize("around", ['{"hdr_v2":"%s"}', '{"line":"said \\"%s\\"\\n"}', "%s", "%s&page=1"])
def test_padding_of_base64_is_no_value(around: str) -> None:
    for letters in ("xxVe49sKFPwB7tkvyA", "Pw", "/sid", "a+token", "Sig"):
        line = (around % f"AAAB+{letters}==").encode()
        assert mask_line(line) == line
    assert mask_line((around % "?token==x").encode()) == (around % f"?token={HIDDEN}").encode()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_no_base64_is_masked(content: bytes) -> None:
    encoded = b64encode(content)
    assert mask_line(b'{"hdr_v2":"' + encoded + b'"}') == b'{"hdr_v2":"' + encoded + b'"}'


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("-HX-Passwd: x", "-HX-Passwd: ***"),
        ("--header=X-Auth-Key:x", "--header=X-Auth-Key:***"),
        ("X-Auth-Key:", "X-Auth-Key:"),
        ("Accept: x", "Accept: x"),
    ],
)
def test_header_field_is_masked_by_its_name(text: str, masked: str) -> None:
    assert mask_field(text) == masked


def test_plan_keeps_references_and_its_own_keys() -> None:
    text = """\
tests:
  - {name: a, bearer: "@file", headers: [{name: X-Api-Key, secret: $KEY}], tls: {key: client.pem}}
  - path: /x?token=abc # told
    params: {password: hunter2, "api_key": "x y", page: 1}
    'token': 'it''s'
"""
    masked = mask_yaml(text)
    assert masked.splitlines()[:2] == text.splitlines()[:2]
    assert masked.splitlines()[2:] == [
        "  - path: /x?token=*** # told",
        '    params: {password: ***, "api_key": ***, page: 1}',
        "    'token': ***",
    ]


def test_document_is_masked_by_its_keys_and_in_its_texts() -> None:
    given = {"params": {"pin": 1234, "n": 1, "token": "$T"}, "axes": {"token": ["a", "b"]}, "paths": ["/?sig=x"]}
    masked = {"params": {"pin": "***", "n": 1, "token": "$T"}, "axes": {"token": ["***"] * 2}, "paths": ["/?sig=***"]}
    assert mask_document(given) == masked


def test_values_are_found_as_written_and_decoded() -> None:
    assert set(secret_values(["/?token=a%2Bb&n=1", "/"])) == {"a%2Bb", "a+b"}
    assert list(secret_values(["/?token=a"], ["token"])) == []


def test_no_key_of_a_plan_is_hidden_but_those_of_secrets() -> None:
    """Masking a plan takes nothing from it that its analysis needs."""
    assert {key for key in _keys(plan_schema()) if is_secret_name(key)} == {"bearer", "secret"}


def _keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for below in schema.values():
            yield from _keys(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from _keys(below)
