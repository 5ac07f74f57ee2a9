"""Where an AWS account's credentials and region come from: the environment and the files of AWS's own tools. Nothing is
kept, and nothing of it is ever printed.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from leadline.errors import InputError

_ELSEWHERE = ("sso_session", "sso_start_url", "role_arn", "credential_process", "web_identity_token_file")
"""Keys of a profile whose credentials have to be fetched first."""


@dataclass(frozen=True, slots=True)
class AwsAccount:
    """What connects to EC2."""

    key: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(repr=False)
    region: str
    endpoint: tuple[bool, str, int] | None
    """Whether by TLS, the host and the port of an endpoint that is not the region's own; None for that."""
    ca_file: str | None


def read_aws_account(region: str | None, variables: Mapping[str, str] = os.environ) -> AwsAccount:
    """Read the account from AWS_* variables, then from the profile AWS_PROFILE in ~/.aws/credentials and ~/.aws/config.

    Raises:
        InputError: there are no credentials, or there is no region.
    """
    profile = variables.get("AWS_PROFILE") or variables.get("AWS_DEFAULT_PROFILE") or "default"
    settings = _read_profile(profile, variables)
    if variables.get("AWS_ACCESS_KEY_ID") and variables.get("AWS_SECRET_ACCESS_KEY"):
        key, secret = variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
        token = variables.get("AWS_SESSION_TOKEN")
    else:
        key, secret = settings.get("aws_access_key_id", ""), settings.get("aws_secret_access_key", "")
        token = settings.get("aws_session_token")
    if not key or not secret:
        raise _missing(profile, settings, variables)
    found = region or variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION") or settings.get("region")
    if not found:
        raise InputError("aws: no region is set", hint="name it with --region or AWS_REGION, as in eu-central-1")
    url = variables.get("AWS_ENDPOINT_URL_EC2") or variables.get("AWS_ENDPOINT_URL") or settings.get("endpoint_url")
    ca_file = variables.get("AWS_CA_BUNDLE") or settings.get("ca_bundle")
    return AwsAccount(key, secret, token or None, found, _parse_endpoint(url) if url else None, ca_file)


def _read_profile(profile: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The keys of a profile in both files; those of the file of credentials win.

    Raises:
        InputError: a file cannot be read, or the profile that a variable names is in neither.
    """
    home = Path(variables.get("HOME") or Path.home())
    files = (
        (variables.get("AWS_CONFIG_FILE") or home / ".aws/config", (f"profile {profile}", profile)),
        (variables.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws/credentials", (profile,)),
    )
    found: dict[str, str] = {}
    is_known = False
    for path, sections in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise InputError(f"aws: {path} cannot be read") from None
        except configparser.Error as error:
            # Its message has the line, which may have a secret.
            where = getattr(error, "lineno", None)
            raise InputError(f"aws: {path}{f':{where}' if where else ''} is no INI file") from None
        for section in sections:
            if parser.has_section(section):
                is_known = True
                found.update(parser.items(section))
                break
    named = variables.get("AWS_PROFILE") or variables.get("AWS_DEFAULT_PROFILE")
    if named and not is_known:
        raise InputError(f"aws: there is no profile {named}", hint="name one of ~/.aws/config in AWS_PROFILE")
    return found


def _missing(profile: str, settings: Mapping[str, str], variables: Mapping[str, str]) -> InputError:
    elsewhere = next((key for key in _ELSEWHERE if key in settings), None)
    if elsewhere or variables.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        how = f'eval "$(aws configure export-credentials --profile {profile} --format env)"'
        what = elsewhere or "AWS_WEB_IDENTITY_TOKEN_FILE"
        return InputError(f"aws: the credentials of {profile} have to be fetched first ({what})", hint=how)
    return InputError(
        "aws: there are no credentials",
        hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for one of ~/.aws/credentials",
    )


def _parse_endpoint(url: str) -> tuple[bool, str, int]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.path not in ("", "/"):
        raise InputError(
            f"aws: {url} cannot be an endpoint", hint="AWS_ENDPOINT_URL_EC2 is as https://ec2.example.test:8443"
        )
    is_secure = parts.scheme == "https"
    return is_secure, parts.hostname, port or (443 if is_secure else 80)
