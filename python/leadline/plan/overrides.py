"""`--set KEY=VALUE`: changes a plan's tree from the command line.

KEY is a dotted path; items of a list are addressed by their `name` (`tests.throughput.duration`). Names of axes may
contain dots, so the longest existing key is used, and below `axes` the rest is one name. VALUE is YAML. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from leadline.plan.problems import Problems
from leadline.plan.source import Mark, Node, did_you_mean, name_of, parse_value


def apply_overrides(root: Node, overrides: Sequence[str], problems: Problems) -> Node:
    """The tree with every override applied, in order; the values have the argument as their origin.

    Overrides that cannot be applied become problems that name the argument: no `=`, no such list item, a path through
    a scalar, a value that is not YAML.
    """
    for argument in overrides:
        with problems.caught():
            root = _applied(root, argument)
    return root


def _applied(root: Node, argument: str) -> Node:
    mark = Mark(f"--set {argument}", None)
    path, separator, text = argument.partition("=")
    parts = path.strip().split(".")
    if not separator or not all(parts):
        raise mark.error("not a KEY=VALUE", hint="write it as in --set repeat=2 or --set 'axes.clients=[5, 20]'")
    return _put(root, parts, parse_value(text, mark), mark, above="")


def _put(node: Node, parts: list[str], value: Node, mark: Mark, above: str) -> Node:
    if not parts:
        return value
    if isinstance(node.value, list):
        return _put_item(node, parts, value, mark, above)
    if not isinstance(node.value, dict) and node.value is not None:
        raise mark.error(f"{above} is a single value without a key '{parts[0]}'")
    taken = _longest_key(node, parts, whole=above == "axes")
    key = ".".join(parts[:taken])
    entry = node.mapping.get(key, Node({} if taken < len(parts) else None, mark))
    changed = _put(entry, parts[taken:], value, mark, f"{above}.{key}" if above else key)
    return Node(node.mapping, node.mark).with_entry(key, changed)


def _put_item(node: Node, parts: list[str], value: Node, mark: Mark, above: str) -> Node:
    names = [name for item in node.items if (name := name_of(item)) is not None]
    item = node.child(parts[0])
    if item is None:
        hint = did_you_mean(parts[0], names) if names else f"set the whole list: --set '{above}=[...]'"
        raise mark.error(f"{above} has no item called '{parts[0]}'", hint=hint)
    return node.with_entry(parts[0], _put(item, parts[1:], value, mark, f"{above}.{parts[0]}"))


def _longest_key(node: Node, parts: list[str], *, whole: bool) -> int:
    """The number of parts that form the key: those of the longest existing key, else all (below `axes`) or one."""
    for taken in range(len(parts), 0, -1):
        if ".".join(parts[:taken]) in node.mapping:
            return taken
    return len(parts) if whole else 1
