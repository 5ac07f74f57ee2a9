"""Paths of the files that a scenario names, for a scenario that is written into another folder. Pure."""

from __future__ import annotations

from leadline.plan.source import Node


def move_files(node: Node, folder: str) -> Node:
    """The tree with a folder before the paths of its files; absolute paths, and those that begin with a value, stay."""
    if isinstance(node.value, dict):
        entries = {
            key: _moved(one, folder) if _is_path(node, key) else move_files(one, folder)
            for key, one in node.value.items()
        }
        return Node(entries, node.mark)
    if isinstance(node.value, list):
        return Node([move_files(one, folder) for one in node.value], node.mark)
    return node


def has_files(node: Node) -> bool:
    """Whether a tree names files."""
    if isinstance(node.value, dict):
        return any(_is_path(node, key) or has_files(one) for key, one in node.value.items())
    return isinstance(node.value, list) and any(map(has_files, node.value))


def _is_path(node: Node, key: str) -> bool:
    """Whether an entry is the path of a file: of data, of a body or of a part."""
    assert isinstance(node.value, dict), "an entry is in a mapping"
    is_named = key == "body_file" or (key == "file" and bool(node.value.keys() & {"name", "columns", "advance"}))
    return is_named and isinstance(node.value[key].value, str)


def _moved(node: Node, folder: str) -> Node:
    path = str(node.value)
    return node if path.startswith(("/", "${")) or path[1:2] == ":" else Node(f"{folder}/{path}", node.mark)
