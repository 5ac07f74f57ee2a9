"""Where an OpenStack account's credentials come from: OS_* variables, or a cloud of clouds.yaml, as for OpenStack's own
tools. Nothing is kept, and nothing of it is ever printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from leadline.errors import InputError

_AUTH_KEYS = (
    "auth_url", "username", "password", "project_name", "project_domain_id", "project_domain_name", "user_domain_name",
    "user_domain_id", "application_credential_id", "application_credential_secret",
)  # fmt: skip
_OTHER_KEYS = ("region_name", "cacert")


@dataclass(frozen=True, slots=True)
class OpenStackAccount:
    """What connects to Keystone."""

    auth_url: str
    """Without its version: libcloud adds that."""
    user: str = field(repr=False)
    """Name of a user, or the identifier of an application credential."""
    secret: str = field(repr=False)
    is_application: bool
    project: str | None
    project_domain: str
    """Identifier of the project's domain."""
    user_domain: str
    """Name of the user's domain."""
    region: str | None
    ca_file: str | None


def read_openstack_account(region: str | None, variables: Mapping[str, str] = os.environ) -> OpenStackAccount:
    """Read the account from the cloud OS_CLOUD of clouds.yaml, or, without that variable, from OS_* variables.

    Raises:
        InputError: something is missing or unreadable.
    """
    cloud = variables.get("OS_CLOUD")
    if cloud:
        settings = _read_cloud(cloud, variables)
    else:
        names = {key: f"OS_{key.upper()}" for key in (*_AUTH_KEYS, *_OTHER_KEYS)}
        settings = {key: variables[name] for key, name in names.items() if variables.get(name)}
    where = f"the cloud {cloud} of clouds.yaml" if cloud else "OS_* variables"
    if not settings.get("auth_url"):
        hint = "set OS_CLOUD to a cloud of clouds.yaml, or read the project's openrc.sh into the shell"
        raise InputError(f"openstack: there are no credentials: {where} have no auth_url", hint=hint)
    is_application = bool(settings.get("application_credential_id"))
    needed = ("application_credential_secret",) if is_application else ("username", "password", "project_name")
    missing = [key for key in needed if not settings.get(key)]
    if missing:
        raise InputError(f"openstack: {where} have no {' and no '.join(missing)}")
    return OpenStackAccount(
        auth_url=settings["auth_url"].rstrip("/").removesuffix("/v3"),
        user=settings["application_credential_id" if is_application else "username"],
        secret=settings["application_credential_secret" if is_application else "password"],
        is_application=is_application,
        project=settings.get("project_name"),
        project_domain=settings.get("project_domain_id") or _domain_id(settings.get("project_domain_name")),
        user_domain=settings.get("user_domain_name") or _domain_name(settings.get("user_domain_id")),
        region=region or settings.get("region_name"),
        ca_file=settings.get("cacert"),
    )


def _domain_id(name: str | None) -> str:
    """libcloud knows the domain of a project by its identifier alone."""
    if name is None or name.lower() == "default":
        return "default"
    raise InputError(f"openstack: the domain {name} of the project is a name", hint="set project_domain_id as well")


def _domain_name(identifier: str | None) -> str:
    """libcloud knows the domain of a user by its name alone."""
    if identifier is None or identifier == "default":
        return "Default"
    raise InputError("openstack: user_domain_id is an identifier", hint="set user_domain_name as well")


def _read_cloud(cloud: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The settings of a cloud in clouds.yaml, with those of secure.yaml."""
    home = Path(variables.get("HOME") or Path.home())
    folders = (Path(), home / ".config/openstack", Path("/etc/openstack"))
    named = variables.get("OS_CLIENT_CONFIG_FILE")
    files = [*([Path(named)] if named else []), *(folder / "clouds.yaml" for folder in folders)]
    file = next((one for one in files if one.is_file()), None)
    if file is None:
        raise InputError(
            f"openstack: OS_CLOUD is {cloud}, and there is no clouds.yaml",
            hint=f"it may be in {home}/.config/openstack",
        )
    found = _read_clouds(file)
    if cloud not in found:
        raise InputError(f"openstack: {file} has no cloud {cloud}", hint=f"it has {', '.join(found) or 'none'}")
    secure = next(
        (
            one
            for one in (file.with_name("secure.yaml"), *(folder / "secure.yaml" for folder in folders))
            if one.is_file()
        ),
        None,
    )
    secret = _read_clouds(secure).get(cloud, {}) if secure else {}
    settings: dict[str, str] = {}
    for part in (found[cloud], secret):
        values = {**{key: part.get(key) for key in _OTHER_KEYS}, **(part.get("auth") or {})}
        settings.update({key: str(value) for key, value in values.items() if value})
    return settings


def _read_clouds(file: Path) -> dict[str, dict[str, Any]]:
    try:
        document = YAML(typ="safe").load(file)
    except OSError as error:
        raise InputError(f"openstack: {file}: {error.strerror or error}") from None
    except (YAMLError, UnicodeDecodeError) as error:
        # The message of an error may have a line with a secret.
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise InputError(f"openstack: {file}{'' if line is None else f':{line + 1}'} is no YAML") from None
    clouds = document.get("clouds") if isinstance(document, dict) else None
    if not isinstance(clouds, dict) or not all(isinstance(one, dict) for one in clouds.values()):
        raise InputError(f"openstack: {file} has no clouds", hint="clouds: {NAME: {auth: {auth_url: ...}}}")
    return clouds
