"""The nodes of Ray clusters among given hosts."""

from __future__ import annotations

from leadline.plan.host_address import HostAddress
from leadline.plan.hosts import each_node, numbered_nodes


def test_nodes_of_one_cluster_are_numbered_whatever_names_them() -> None:
    given = {"lab": "ray://h:1?hosts=2", "more": "ray://h:1", "other": "ray://?hosts=1", "here": "local"}
    found = numbered_nodes(each_node({name: HostAddress.parse(text) for name, text in given.items()}))
    assert {name: (host.text, host.number, host.hosts) for name, host in found.items()} == {
        "lab-1": ("ray://h:1", 0, 3),
        "lab-2": ("ray://h:1", 1, 3),
        "more": ("ray://h:1", 2, 3),
        "other": ("ray://", 0, 1),
        "here": ("local", 0, 1),
    }
