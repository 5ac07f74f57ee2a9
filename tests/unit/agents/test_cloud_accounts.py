"""Credentials come from the providers' usual places alone, and no message or representation shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leadline.agents.launchers.cloud.aws_account import read_aws_account
from leadline.agents.launchers.cloud.openstack_account import read_openstack_account
from leadline.errors import InputError

SECRET = "geheim-4711"
PASSWORD = {
    "OS_AUTH_URL": "https://keystone.test:5000/v3/",
    "OS_USERNAME": "ada",
    "OS_PASSWORD": SECRET,
    "OS_PROJECT_NAME": "lab",
}


def aws_files(home: Path, credentials: str, config: str = "") -> dict[str, str]:
    (home / ".aws").mkdir()
    (home / ".aws/credentials").write_text(credentials)
    (home / ".aws/config").write_text(config)
    return {"HOME": str(home)}


def test_aws_variables_win_over_files(tmp_path: Path) -> None:
    variables = aws_files(tmp_path, "[default]\naws_access_key_id = A\naws_secret_access_key = B\n")
    variables |= {"AWS_ACCESS_KEY_ID": "C", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": "T"}
    account = read_aws_account("eu-west-1", variables)
    assert (account.key, account.secret, account.token, account.region) == ("C", SECRET, "T", "eu-west-1")
    assert SECRET not in repr(account) and "'C'" not in repr(account)


def test_aws_profile_is_read_from_both_files(tmp_path: Path) -> None:
    variables = aws_files(
        tmp_path,
        f"[work]\naws_access_key_id = A\naws_secret_access_key = {SECRET}\n",
        "[profile work]\nregion = eu-central-1\nendpoint_url = http://ec2.test:8080\ns3 =\n  max_queue_size = 10\n",
    )
    account = read_aws_account(None, {**variables, "AWS_PROFILE": "work"})
    assert (account.key, account.secret, account.region) == ("A", SECRET, "eu-central-1")
    assert account.endpoint == (False, "ec2.test", 8080)


@pytest.mark.parametrize(
    ("credentials", "config", "variables", "message"),
    [
        ("", "", {}, "aws: there are no credentials; set AWS_ACCESS_KEY_ID"),
        ("", "", {"AWS_PROFILE": "work"}, "aws: there is no profile work"),
        (
            "",
            "[default]\nsso_session = x\n",
            {},
            "credentials of default have to be fetched first (sso_session); "
            'eval "$(aws configure export-credentials --profile default --format env)"',
        ),
        (f"[default]\naws_secret_access_key\n{SECRET}", "", {}, "/.aws/credentials"),
        ("[default]\naws_access_key_id=A\naws_secret_access_key=B", "", {}, "aws: no region is set; name it with"),
    ],
)
def test_aws_says_in_a_line_what_is_missing(
    credentials: str, config: str, variables: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_aws_account(None, {**aws_files(tmp_path, credentials, config), **variables})
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["ec2.test", "ftp://ec2.test", "http://ec2.test/path", "http://ec2.test:none"])
def test_aws_endpoint_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    own = {"HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B", "AWS_ENDPOINT_URL": url}
    with pytest.raises(InputError, match="cannot be an endpoint"):
        read_aws_account("eu-west-1", own)


def test_openstack_variables_are_read() -> None:
    account = read_openstack_account(None, {**PASSWORD, "OS_REGION_NAME": "RegionOne", "OS_CACERT": "/ca.pem"})
    assert (account.user, account.secret, account.is_application) == ("ada", SECRET, False)
    assert account.auth_url == "https://keystone.test:5000", "libcloud adds the version"
    assert (account.project_domain, account.user_domain, account.region) == ("default", "Default", "RegionOne")
    assert account.ca_file == "/ca.pem" and SECRET not in repr(account)


def test_openstack_cloud_is_read_with_its_secrets(tmp_path: Path) -> None:
    (tmp_path / "clouds.yaml").write_text(
        "clouds:\n  lab:\n    region_name: one\n    auth:\n      auth_url: http://keystone.test/identity/v3\n"
        "      application_credential_id: app\n"
    )
    (tmp_path / "secure.yaml").write_text(f"clouds:\n  lab:\n    auth: {{application_credential_secret: {SECRET}}}\n")
    variables = {"OS_CLOUD": "lab", "OS_CLIENT_CONFIG_FILE": str(tmp_path / "clouds.yaml"), **PASSWORD}
    account = read_openstack_account("two", variables)
    assert (account.user, account.secret, account.is_application) == ("app", SECRET, True)
    assert (account.auth_url, account.region) == ("http://keystone.test/identity", "two")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"OS_AUTH_URL": ""}, "openstack: there are no credentials: OS_* variables have no auth_url; set OS_CLOUD"),
        ({"OS_PASSWORD": "", "OS_PROJECT_NAME": ""}, "OS_* variables have no password and no project_name"),
        ({"OS_PROJECT_DOMAIN_NAME": "acme"}, "the domain acme of the project is a name; set project_domain_id"),
        ({"OS_USER_DOMAIN_ID": "4f2e"}, "user_domain_id is an identifier; set user_domain_name"),
        ({"OS_APPLICATION_CREDENTIAL_ID": "a"}, "OS_* variables have no application_credential_secret"),
    ],
)
def test_openstack_says_in_a_line_what_is_missing(change: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_openstack_account(None, {**PASSWORD, **change})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "OS_CLOUD is lab, and there is no clouds.yaml"),
        ("clouds: {other: {}}", "has no cloud lab; it has other"),
        (f"clouds:\n  lab: [{SECRET}", ":2 is no YAML"),
        ("- a\n", "has no clouds"),
        ("clouds: {lab: 1}", "has no clouds"),
    ],
)
def test_clouds_file_that_cannot_be_used_is_refused(
    text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "clouds.yaml").write_text(text)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_openstack_account(None, {"OS_CLOUD": "lab", "HOME": str(tmp_path)})
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)
