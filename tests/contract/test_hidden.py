"""Models show no secret, neither as text nor in the error about a wrong command."""

from __future__ import annotations

import re

import pydantic
import pytest

from leadline.contract import models
from leadline.contract.base import SECRET_FIELDS, BaseModel

SECRET = "s3cr3t-of-the-user"
NAMED_LIKE_SECRETS = re.compile(r"(^|_)(key|secret|password|token|passphrase|auth)(_|$)|key_pem")
NO_SECRETS = {("TunnelCounts", "auth_pending")}
"""Counters."""


def all_models() -> list[type[pydantic.BaseModel]]:
    found = (getattr(models, name) for name in dir(models))
    return [one for one in found if isinstance(one, type) and issubclass(one, BaseModel) and one is not BaseModel]


def test_key_of_a_session_is_hidden_in_text_and_kept_in_the_command() -> None:
    target = models.Target(host="192.0.2.7", port=5201, key=SECRET)
    assert SECRET not in repr(target) and SECRET not in str(target) and "key='***'" in repr(target)
    assert SECRET in target.model_dump_json()
    assert "key=None" in repr(models.Target(host="192.0.2.7", port=5201))


@pytest.mark.parametrize("model", all_models(), ids=lambda model: model.__name__)
def test_fields_that_are_named_like_secrets_are_hidden(model: type[pydantic.BaseModel]) -> None:
    named = {name for name in model.model_fields if NAMED_LIKE_SECRETS.search(name)}
    assert {name for name in named if (model.__name__, name) not in NO_SECRETS} <= SECRET_FIELDS
    shown = repr(model.model_construct(None, **dict.fromkeys(model.model_fields, SECRET)))
    assert f"'{SECRET}'" not in "".join(re.findall(rf"(?<!\w)(?:{'|'.join(SECRET_FIELDS)})='[^']*'", shown))


def test_error_about_a_wrong_command_does_not_repeat_it() -> None:
    with pytest.raises(pydantic.ValidationError) as failure:
        models.Target(host="192.0.2.7", port=70_000, key=SECRET, more=SECRET)  # type: ignore[call-arg]
    assert SECRET not in str(failure.value)
