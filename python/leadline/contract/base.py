"""The base class of the generated models: `repr` and errors show no key, no password and no content of a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pydantic

from leadline.masking import HIDDEN

SECRET_FIELDS = frozenset(
    {
        *(
            "key",
            "key_pem",
            "authority_key_pem",
            "password",
            "users",
            "iperf3_users",
            "iperf3_login",
            "identities",
            "profile",
        ),
        *("proxy", "headers", "value", "body_base64", "content_base64", "rows", "script", "basic_credentials"),
    }
)
"""Fields that are or may contain a secret, in any model."""


class BaseModel(pydantic.BaseModel):
    """A model without other fields than its own, whose secrets are written only into a command to an agent."""

    # A model is built when it is first used: a process uses few of them.
    model_config = pydantic.ConfigDict(extra="forbid", hide_input_in_errors=True, defer_build=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """The fields with their values, those of secrets hidden."""
        for name, value in super().__repr_args__():
            yield name, HIDDEN if name in SECRET_FIELDS and value else value
