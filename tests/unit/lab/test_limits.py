"""The advice on a refusal to make namespaces: the command that would allow it."""

from __future__ import annotations

import errno

import pytest

from leadline.lab.limits import MachineFacts, Refusal, Step, explain

USER = {"root": False, "unprivileged_userns_clone": None, "apparmor_restrict_userns": None}
PLENTY = {"user": 96000, "mnt": 96000, "net": 96000, "pid": 96000}
HEAD = "hosts cannot be created on this machine: this is not root, and "


@pytest.mark.parametrize(
    ("refusal", "facts", "said"),
    [
        (
            Refusal(Step.USER, errno.EPERM),
            {"unprivileged_userns_clone": 0},
            "kernel.unprivileged_userns_clone is 0; allow it with "
            "`sudo sysctl -w kernel.unprivileged_userns_clone=1`, or run leadline as root",
        ),
        (
            Refusal(Step.USER, errno.ENOSPC),
            {"max_namespaces": {**PLENTY, "user": 0}},
            "user.max_user_namespaces is 0; allow it with "
            "`sudo sysctl -w user.max_user_namespaces=15000`, or run leadline as root",
        ),
        (
            Refusal(Step.USER_MAP, errno.EPERM),
            {"apparmor_restrict_userns": 1},
            "kernel.apparmor_restrict_unprivileged_userns is 1; allow it with "
            "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or run leadline as root",
        ),
        (
            Refusal(Step.NET, errno.EACCES),
            {"apparmor_restrict_userns": 1},
            "kernel.apparmor_restrict_unprivileged_userns is 1; allow it with "
            "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or run leadline as root",
        ),
        (
            Refusal(Step.NET, errno.ENOSPC),
            {"max_namespaces": {**PLENTY, "net": 3}},
            "user.max_net_namespaces is 3; allow it with "
            "`sudo sysctl -w user.max_net_namespaces=15000`, or run leadline as root",
        ),
        (
            Refusal(Step.USER, errno.EINVAL),
            {},
            "the kernel is built without user namespaces; run leadline as root (`sudo leadline ...`); "
            "in a container, start it with `--privileged`",
        ),
        (
            Refusal(Step.USER, errno.EPERM),
            {},
            "the system refused to make a user namespace (Operation not permitted); run leadline as root "
            "(`sudo leadline ...`); in a container, start it with `--privileged`",
        ),
    ],
)
def test_the_command_that_would_allow_it_is_named(refusal: Refusal, facts: dict[str, object], said: str) -> None:
    known = MachineFacts(**{**USER, "max_namespaces": PLENTY, **facts})  # type: ignore[arg-type]
    error = explain(refusal, known, rootless=True)
    assert str(error) == HEAD + said
    assert (error.exit_code, "\n" in str(error)) == (2, False)


def test_root_in_a_container_gets_advice_about_the_container() -> None:
    facts = MachineFacts(True, None, None, PLENTY)
    error = explain(Refusal(Step.USER, errno.EPERM), facts, rootless=True)
    assert str(error) == (
        "hosts cannot be created on this machine: root here lacks CAP_SYS_ADMIN or CAP_NET_ADMIN, and the system "
        "refused to make a user namespace (Operation not permitted); in a container, start it with `--privileged`"
    )


def test_the_error_for_root_does_not_claim_missing_rights() -> None:
    error = explain(Refusal(Step.NET, errno.ENOSPC), MachineFacts(True, 0, 1, {**PLENTY, "net": 0}), rootless=False)
    assert str(error) == (
        "hosts cannot be created on this machine: user.max_net_namespaces is 0; allow it with "
        "`sudo sysctl -w user.max_net_namespaces=15000`, or, in a container, start it with `--privileged`"
    )


def test_facts_are_read_from_this_machine() -> None:
    assert set(MachineFacts.read().max_namespaces) <= {"user", "mnt", "net", "pid"}
