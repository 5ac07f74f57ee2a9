"""Calls of libcloud, whose errors become one line each. Owns which of them are the user's mistakes.

No address of a request is in a message: its query has a session's token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from leadline.agents.launchers.cloud.model import INSTALL_COMMAND, CloudFailed, Refused
from leadline.errors import InputError

TIMEOUT_S = 60
"""How long a provider may take to answer one request."""
_MAX_MESSAGE = 300
_CODE = re.compile(r"([A-Z][A-Za-z]+(?:\.[A-Z]\w+)*): ")
_BAD_INPUT = re.compile(r"(?!.*InUse)(?:Invalid|Malformed|Unsupported|MissingParameter|VPCIdNotSpecified)")
"""Beginnings of EC2's codes for requests that are wrong: InvalidSubnetID.NotFound."""
_BAD_CREDENTIALS = frozenset({
    "AuthFailure", "InvalidClientTokenId", "SignatureDoesNotMatch", "OptInRequired", "ExpiredToken", "Blocked",
    "RequestExpired", "UnauthorizedOperation", "UnrecognizedClientException", "MissingAuthenticationToken",
})  # fmt: skip


def check_installed() -> None:
    """Check that libcloud is there. Raises InputError with what installs it."""
    if find_spec("libcloud") is None:
        raise InputError(f"leadline fleet needs the extra: {INSTALL_COMMAND}")


@contextmanager
def provider_call(where: str, what: str) -> Iterator[None]:
    """Turn the errors of libcloud in the block into ours. `where` names the provider and region, `what` the purpose of
    the call, as in "create the machines".

    Raises:
        InputError: the provider says that the request or the credentials are wrong.
        Refused: it refused the request for another reason.
        CloudFailed: it does not answer, or not as libcloud expects.
    """
    import requests
    from libcloud.common.exceptions import BaseHTTPError
    from libcloud.common.types import InvalidCredsError, LibcloudError
    from libcloud.compute.types import KeyPairDoesNotExistError

    try:
        yield
    except InvalidCredsError as error:
        raise InputError(
            f"{where} refuses the credentials: {_shorten(_text_of(error))}", hint="check where they come from"
        ) from None
    except BaseHTTPError as error:
        raise _refusal(where, what, int(error.code or 0), _shorten(str(error))) from None
    except KeyPairDoesNotExistError as error:
        raise BadRequest(f"{where} refused to {what}: {_shorten(str(error))}", "InvalidKeyPair.NotFound") from None
    except requests.exceptions.RequestException as error:
        raise CloudFailed(f"{where} cannot be reached to {what}: {_reason(error)}") from None
    except LibcloudError as error:
        raise CloudFailed(f"{where} did not {what}: {_shorten(_text_of(error))}") from None


def _refusal(where: str, what: str, status: int, message: str) -> Exception:
    """The error for an answer that is no success."""
    found = _CODE.match(message)
    reason = found[1] if found else str(status)
    line = f"{where} refused to {what}: {message}"
    if reason in _BAD_CREDENTIALS or status == 401:
        return InputError(line, hint="check the credentials and what they may do")
    if (found and _BAD_INPUT.match(reason)) or (found is None and status in (400, 404)):
        return BadRequest(line, reason)
    return Refused(line, reason)


class BadRequest(InputError):
    """A provider says that a request is wrong. `reason` is its own code for it, or the status of its answer."""

    code = "cloud_bad_request"

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def _text_of(error: Exception) -> str:
    value = getattr(error, "value", None)
    return str(value if value else error)


def _reason(error: Exception) -> str:
    """What a failure of the connection is, without the address of the request."""
    text = str(error)
    for pattern in (r"\[Errno -?\d+\] ([^'\")]+)", r"(timed out)", r"(CERTIFICATE_VERIFY_FAILED[^'\")]*)"):
        found = re.search(pattern, text)
        if found:
            return found[1].strip()
    return type(error).__name__


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE else f"{line[:_MAX_MESSAGE]}..."
