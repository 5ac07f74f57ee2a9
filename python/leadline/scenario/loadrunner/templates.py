"""Texts with parameters: `{name}` in a text of a web function or of `lr_eval_string` is the parameter's value. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leadline.scenario.expressions import Call, Expression, Literal, Template, Variable, merged, show_template
from leadline.scenario.loadrunner.context import Script

Parts = Sequence[str | Expression]
MAX_NAME = 100


def parts_of(tree: Expression) -> list[str | Expression]:
    """The texts and expressions that a text consists of."""
    if isinstance(tree, Call) and tree.function == "concat":
        return [part for one in tree.arguments for part in parts_of(one)]
    return list(merged([tree]))


def native(parts: Parts) -> str:
    """The parts as a native template."""
    return show_template(merged(list(parts)))


def native_value(tree: Expression) -> str:
    """A value as a native template."""
    return native(parts_of(tree))


def fill_in(script: Script, parts: Parts, read: Callable[[str], None]) -> Template:
    """The parts with parameters in place of their names in braces; `read` is given the name of each.

    A name may be made of values: `{p_` and a number and `}`.
    """
    opening, closing = script.braces
    found: list[str | Expression] = []
    pieces = _pieces(parts, opening, closing)
    position = 0
    while position < len(pieces):
        piece = pieces[position]
        end = _find_closing(pieces, position, closing) if piece == opening else None
        named = None if end is None else _parameter(script, pieces[position + 1 : end], read)
        if named is None or end is None:
            found.append(piece)
            position += 1
        else:
            found.append(named)
            position = end + 1
    return merged(found)


def _pieces(parts: Parts, opening: str, closing: str) -> list[str | Expression]:
    """The parts with each brace as a part of its own."""
    found: list[str | Expression] = []
    for part in parts:
        if not isinstance(part, str):
            found.append(part)
            continue
        plain = ""
        for character in part:
            if character in (opening, closing):
                found += [plain] if plain else []
                found.append(character)
                plain = ""
            else:
                plain += character
        found += [plain] if plain else []
    return found


def _find_closing(pieces: list[str | Expression], start: int, closing: str) -> int | None:
    for place in range(start + 1, min(start + 6, len(pieces))):
        if pieces[place] == closing:
            return place
        if isinstance(pieces[place], str) and len(str(pieces[place])) > MAX_NAME:
            return None
    return None


def _parameter(script: Script, inner: Sequence[str | Expression], read: Callable[[str], None]) -> Expression | None:
    if all(isinstance(one, str) for one in inner):
        name = "".join(str(one) for one in inner)
        if not script.is_parameter(name):
            return None
        read(name)
        return Variable(script.variable(name))
    first = inner[0] if inner else ""
    known = script.lists | script.saved | set(script.parameters)
    if isinstance(first, str) and not any(one.startswith(first) or first.startswith(f"{one}_") for one in known):
        return None
    return Call("var", (Call("concat", tuple(Literal(one) if isinstance(one, str) else one for one in inner)),))
