"""What a status of a process means, also where ssh stands in between."""

from __future__ import annotations

import shutil

import pytest

from leadline.agents.channel import Channel
from leadline.agents.launch import Launch
from leadline.agents.launchers.processes import HERE, Exec
from leadline.agents.launchers.ssh import SshHost, describe_ssh_end

RESET = "client_loop: send disconnect: Broken pipe"


@pytest.mark.parametrize(
    ("status", "is_ssh", "words", "said"),
    [
        (3, False, [], "its process exited with 3"),
        (255, False, [], "its process exited with 255"),
        (-9, False, [], "its process was ended by SIGKILL"),
        (-15, True, [], "its process was ended by SIGTERM"),
        (255, True, ["warning: cold", RESET], f"its ssh connection ended: {RESET}"),
        (255, True, ["me@gw: Permission denied (publickey)."], "its ssh connection ended: me@gw: Permission denied "),
        (255, True, ["Timeout, server gw not responding."], "its ssh connection ended: Timeout, server gw not"),
        (255, True, ["warning: cold"], "without a reason from ssh, as it does when a signal ends the agent"),
        (255, True, [], "without a reason from ssh, as it does when a signal ends the agent"),
        (137, True, [], "it was ended by SIGKILL on its host"),
        (127, True, [], "it exited with 127 on its host"),
        (0, True, [], "it exited with 0 on its host"),
    ],
)
def test_status_is_explained(status: int, is_ssh: bool, words: list[str], said: str) -> None:
    assert said in (describe_ssh_end(status, words) if is_ssh else HERE.describe_end(status, words))


async def test_refused_connection_of_the_real_client_is_quoted() -> None:
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh client here")
    host = SshHost("tester@127.0.0.9", ("-F", "none", "-o", "BatchMode=yes", "-p", "1"))
    channel = await Channel.open(Launch(("true",), launcher=host))
    ended = channel.with_last_words(await channel.ending())
    assert ended.startswith("its ssh connection ended: ssh: connect to host 127.0.0.9 port 1: ")
    assert "last stderr lines" not in ended


def test_status_of_a_carrier_is_its_own() -> None:
    pod = Exec(("kubectl", "exec", "-i", "lead 7", "--"))
    assert pod.describe_end(137, []) == "`kubectl exec -i 'lead 7' --` ended with 137"
    assert pod.describe_end(-9, []) == "`kubectl exec -i 'lead 7' --` was ended by SIGKILL"
