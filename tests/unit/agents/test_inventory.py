"""Inventories of every form, the roles that their hosts take, and what each is refused for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leadline.agents.inventory import read_hosts, read_inventory
from leadline.errors import InputError, MissingBinary

OWN = """
hosts:
  - {name: lead-1, ssh: "admin@198.51.100.7", address: 10.0.0.11}
  - {name: lead-2, ssh: "admin@198.51.100.8:2222", address: [10.0.0.12, "fd00::2"], role: server}
  - ssh://c1
  - {exec: docker exec -i c2}
"""


def given(folder: Path, text: str, name: str = "hosts.yaml", mode: int = 0o644) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def shown(hosts: dict[str, Any]) -> dict[str, Any]:
    """Each host as the name that it has."""
    return {
        role: [entry["name"] for entry in found] if isinstance(found, list) else found["name"]
        for role, found in hosts.items()
    }


def test_own_form_has_names_addresses_and_roles(tmp_path: Path) -> None:
    hosts = read_hosts(given(tmp_path, OWN), "remote-access")
    assert hosts["gateway"] == {"name": "lead-1", "ssh": "admin@198.51.100.7", "address": ["10.0.0.11"]}
    assert hosts["server"]["address"] == ["10.0.0.12", "fd00::2"]
    assert hosts["clients"] == [
        {"name": "c1", "ssh": "ssh://c1"},
        {"name": "docker exec -i c2", "exec": "docker exec -i c2"},
    ]


def test_one_configuration_of_ssh_holds_for_all(tmp_path: Path) -> None:
    text = "ssh_config: /f/config\nhosts: [ssh://gw, {ssh: srv, ssh_config: /f/other}, exec: env]\n"
    hosts = read_hosts(given(tmp_path, text), "remote-access")
    assert (hosts["gateway"]["ssh_config"], hosts["server"]["ssh_config"]) == ("/f/config", "/f/other")
    assert "ssh_config" not in hosts["clients"][0]


def test_a_plans_own_form_is_taken_as_it_is(tmp_path: Path) -> None:
    text = "gateway: ssh://gw\nserver: {ssh: srv, address: 10.0.0.1}\nclients: ray://10.0.0.9:6379?hosts=5\n"
    hosts = read_hosts(given(tmp_path, text), "remote-access")
    assert hosts == {
        "gateway": "ssh://gw",
        "server": {"ssh": "srv", "address": "10.0.0.1"},
        "clients": "ray://10.0.0.9:6379?hosts=5",
    }
    names = [(host.name, host.role) for host in read_inventory(str(tmp_path / "hosts.yaml"))]
    assert names == [("ssh://gw", "gateway"), ("srv", "server"), ("ray://10.0.0.9:6379?hosts=5", None)]


def test_addresses_on_the_command_line_take_roles_in_order() -> None:
    hosts = read_hosts("ssh://gw,ssh://srv,ssh://c1,ssh://c2", "remote-access")
    assert shown(hosts) == {"gateway": "gw", "server": "srv", "clients": ["c1", "c2"]}
    hosts = read_hosts("ssh://a,ssh://b,ssh://srv,ssh://c1", "site-to-site")
    assert shown(hosts) == {"gateway-a": "a", "gateway-b": "b", "server": "srv", "clients": ["c1"]}


def test_a_ray_cluster_has_a_node_for_each_role() -> None:
    assert read_hosts("ray://10.0.0.1:6379?hosts=50", "remote-access") == {
        "gateway": {"ray": "ray://10.0.0.1:6379"},
        "server": {"ray": "ray://10.0.0.1:6379"},
        "clients": [{"ray": "ray://10.0.0.1:6379?hosts=48"}],
    }


PODS = {
    "kind": "List",
    "items": [
        {
            "metadata": {"name": "lead-0", "namespace": "load", "labels": {"leadline-role": "server"}},
            "status": {"phase": "Running", "podIP": "10.1.0.4", "podIPs": [{"ip": "10.1.0.4"}, {"ip": "fd01::4"}]},
        },
        {"metadata": {"name": "lead-1", "namespace": "load"}, "status": {"phase": "Running", "podIP": "10.1.0.5"}},
        {"metadata": {"name": "lead-2", "namespace": "load"}, "status": {"phase": "Pending"}},
        {
            "metadata": {"name": "lead-3", "namespace": "load", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Running", "podIP": "10.1.0.7"},
        },
        {"metadata": {"name": "lead-4", "namespace": "load"}, "status": {"phase": "Running", "podIP": "10.1.0.8"}},
    ],
}


def test_pods_that_run_are_hosts(tmp_path: Path) -> None:
    file = given(tmp_path, json.dumps(PODS), "pods.json")
    hosts = read_hosts(file, "remote-access")
    assert hosts["server"] == {
        "name": "lead-0",
        "exec": "kubectl exec -i -n load lead-0 --",
        "address": ["10.1.0.4", "fd01::4"],
    }
    assert shown(hosts) == {"server": "lead-0", "gateway": "lead-1", "clients": ["lead-4"]}
    out = {host.name: host.left_out for host in read_inventory(file) if host.left_out}
    assert out == {"lead-2": "it is Pending", "lead-3": "it is Terminating"}


ANSIBLE = {
    "_meta": {
        "hostvars": {
            "gw1": {"ansible_host": "198.51.100.1", "ansible_user": "root", "leadline_address": "10.9.0.1"},
            "box": {"ansible_connection": "docker"},
            "c1": {"ansible_port": 2222},
            "here": {"ansible_connection": "local"},
        }
    },
    "all": {"children": ["ungrouped", "gateways", "load"]},
    "gateways": {"hosts": ["gw1"]},
    "load": {"hosts": ["c1", "box", "here"]},
}


@pytest.fixture
def ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in of `ansible-inventory` that prints a document of its own form."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ansible-inventory").write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps(ANSIBLE)}\nE\n")
    (folder / "ansible-inventory").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_ansible_says_who_is_where(tmp_path: Path, ansible: Path) -> None:
    hosts = read_hosts(given(tmp_path, "[gateways]\ngw1\n", "inventory"), "remote-access")
    assert hosts["gateway"] == {"name": "gw1", "ssh": "ssh://root@198.51.100.1", "address": ["10.9.0.1"]}
    assert hosts["server"] == {"name": "c1", "ssh": "ssh://c1:2222"}
    assert hosts["clients"] == [{"name": "box", "exec": "docker exec -i box"}, {"name": "here", "ssh": "local"}]


def test_what_ansible_refuses_is_quoted(tmp_path: Path, ansible: Path) -> None:
    (ansible / "ansible-inventory").write_text("#!/bin/sh\necho 'ERROR! no such group' >&2\nexit 4\n")
    with pytest.raises(InputError, match="ansible-inventory: ERROR! no such group"):
        read_inventory(given(tmp_path, "[a]\nb\n", "inventory"))


def test_without_ansible_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingBinary, match="ansible-inventory is not installed"):
        read_inventory(given(tmp_path, "[a]\nb\n", "inventory.ini"))


CONFIG = """
# of a user
Host gw1 gateway-*
    HostName 198.51.100.1
Host srv
  User root
  HostName srv.example
Host *
    HostName 198.51.100.9
Match host c1
    HostName 198.51.100.8
Host=c1
"""


def test_aliases_of_ssh_config_are_hosts(tmp_path: Path) -> None:
    file = given(tmp_path, CONFIG, "config")
    hosts = read_hosts(file, "remote-access")
    assert shown(hosts) == {"gateway": "gw1", "server": "srv", "clients": ["c1"]}
    assert hosts["gateway"]["address"] == ["198.51.100.1"]
    assert hosts["clients"] == [{"name": "c1", "ssh": "ssh://c1", "ssh_config": file}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: [{ssh: a, port: 3}]", "host 1: unknown key 'port'; it has address, exec"),
        ("hosts: [{ssh: a, role: judge}]", "host 1: 'judge' is not a role; roles are gateway"),
        ("hosts: [3]", "host 1 is neither an address nor a mapping"),
        ("hosts: []", "hosts is not a list of hosts"),
        ("hosts: [ftp://a]", "'ftp://a' is not a host"),
        ("hosts: [ssh://a, ssh://b]", "2 hosts leave none for a client: a remote-access plan has gateway, server"),
        ("hosts: [{ssh: a, role: server}, {ssh: b, role: server}, ssh://c]", "a and b both are the server"),
        ("hosts: [{ssh: a, role: gateway-a}, ssh://b, ssh://c]", "a is a gateway-a, which a remote-access plan"),
        ("hosts: [a\n", "hosts.yaml:"),
        ("hosts: [{ssh: }]", "host 1: ssh is None, and not a text"),
        ("hosts: [{ssh: a, address: 5}]", "host 1: address is 5, and neither an IP address nor a list of them"),
        ("kind: List\nitems: null\n", "it is not what `kubectl get pods -o json` prints"),
        ("kind: List\nitems: [5]\n", "it is not what `kubectl get pods -o json` prints"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_hosts(given(tmp_path, text), "remote-access")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deep_documents_and_roles_that_are_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it is nested too deeply"):
        read_inventory(given(tmp_path, "[" * 100_000, "deep.json"))
    with pytest.raises(InputError, match="5 is neither an address nor a mapping"):
        read_inventory(given(tmp_path, "gateway: 5\nserver: ssh://a\nclients: [ssh://b]\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/no/such", "--hosts /no/such: there is no such file; give an inventory, or an address such as ssh://gw1"),
        ("ray://?hosts=2", "2 nodes are too few: a remote-access plan has gateway, server and clients"),
        ("ray://head?hosts=9", "is not a Ray cluster; write ray://[HEAD:PORT][?hosts=N]"),
        ("ssh://a,ssh://b:99999,ssh://c", "'ssh://b:99999' has an invalid port"),
    ],
)
def test_what_is_no_inventory_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_hosts(text, "remote-access")
    assert said in str(caught.value)
