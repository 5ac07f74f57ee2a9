"""The tree of a script's C, each node with its place. Records only."""

from __future__ import annotations

from dataclasses import dataclass

from leadline.scenario.loadrunner.tokens import SourceLine


@dataclass(frozen=True, slots=True)
class Number:
    """A number."""

    value: int | float
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Text:
    """A string; neighbouring ones are joined."""

    value: str
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Character:
    """A character."""

    value: str
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a variable, a constant of LoadRunner or a function."""

    name: str
    place: SourceLine


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call."""

    name: str
    arguments: tuple[Expression, ...]
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Unary:
    """One of `- + ! ~ * &`."""

    operator: str
    operand: Expression
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator with two operands."""

    operator: str
    left: Expression
    right: Expression
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Assignment:
    """`target = value`; of `+=` and the like the value is the whole sum."""

    target: Expression
    value: Expression
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Step:
    """`++` or `--`."""

    target: Expression
    amount: int
    is_prefix: bool
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Conditional:
    """`a ? b : c`."""

    condition: Expression
    then: Expression
    otherwise: Expression
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Item:
    """`base[index]`."""

    base: Expression
    index: Expression
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Cast:
    """`(type) value`."""

    kind: str
    operand: Expression
    place: SourceLine


@dataclass(frozen=True, slots=True)
class ItemList:
    """`{a, b}`."""

    items: tuple[Expression, ...]
    place: SourceLine


Expression = (
    Number | Text | Character | Name | FunctionCall | Unary | Binary | Assignment | Step | Conditional | Item | Cast
    | ItemList
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Declaration:
    """A variable; `kind` is int, float, char, text (a pointer to characters or a buffer) or another type's name."""

    kind: str
    name: str
    is_array: bool
    """Whether it is an array, beside a buffer of characters."""
    value: Expression | None
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An expression as a statement."""

    value: Expression
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Block:
    """Statements in braces, or several declarations of one statement."""

    statements: tuple[Statement, ...]
    place: SourceLine


@dataclass(frozen=True, slots=True)
class If:
    """`if`."""

    condition: Expression
    then: Statement
    otherwise: Statement | None
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Loop:
    """`while`, `do` and `for`; without a condition it goes on for ever."""

    condition: Expression | None
    body: Statement
    next: Expression | None
    """What `for` does after each pass."""
    is_tested_last: bool
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Switch:
    """`switch`; a case without values is the default."""

    value: Expression
    cases: tuple[tuple[tuple[Expression, ...], tuple[Statement, ...]], ...]
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Jump:
    """`break`, `continue` or `return`."""

    kind: str
    value: Expression | None
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Unread:
    """A statement that is not understood; it is refused where it would be executed."""

    why: str
    place: SourceLine


Statement = Declaration | Evaluation | Block | If | Loop | Switch | Jump | Unread


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the script; parameters have kinds as declarations."""

    kind: str
    name: str
    parameters: tuple[tuple[str, str], ...]
    body: Block
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Unit:
    """What a file declares."""

    functions: tuple[Function, ...]
    globals: tuple[Statement, ...]
