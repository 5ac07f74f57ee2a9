"""What a plan or a command line takes from outside itself: files, and secrets from files or the environment.

Read once, where the plan is read, and carried with the test. Whatever is written down of a test (`model_dump`) shows
the name that a thing was asked for by, never its content. Pure: the reader is part of the validation's
context, `leadline.plan.load` for plans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, InstanceOf, PlainSerializer, ValidationInfo, WithJsonSchema

HIDDEN = "***"
"""Stands where a secret was given itself instead of where it is."""
MOST_BYTES = 8 * 2**20
"""The longest file: whatever a load needs goes to an agent in one message, whose limit is 16 MiB in base64."""


class PlanText(str):
    """Text of a plan that knows the folder which a path in it is relative to."""

    folder: Path

    @classmethod
    def at(cls, text: str, folder: Path) -> PlanText:
        """The text, as it stands in a file of `folder`."""
        written = cls(text)
        written.folder = folder
        return written

    @classmethod
    def beside(cls, other: str, text: str) -> PlanText:
        """A part of another text, from the same folder."""
        return cls.at(text, _folder_of(other))


@dataclass(frozen=True, slots=True)
class ExternalReader:
    """How files and variables are read; both raise ValueError with a line for the user."""

    file: Callable[[Path], bytes]
    variable: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class FileInput:
    """A file's content."""

    name: str
    """As the user wrote it; this is all that is shown."""
    content: bytes = field(repr=False)

    def text(self) -> str:
        """The content as UTF-8; raises ValueError with a line for the user."""
        try:
            return self.content.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{self.name} is not text in UTF-8") from None


@dataclass(frozen=True, slots=True)
class Secret:
    """Text that nothing shows."""

    shown: str
    """Where it is from (`@FILE`, `$NAME`), or `HIDDEN`, with what is no secret around it."""
    value: str = field(repr=False)


def read_file_input(value: str, info: ValidationInfo) -> FileInput:
    """The file at a path, read by the reader in the validation's context.

    Raises:
        ValueError: it cannot be read.
    """
    external = _reader(info)
    if external is None:
        raise ValueError("no file can be read here")
    return FileInput(str(value), external.file(_folder_of(value) / value))


def resolve_secret(value: str, info: ValidationInfo) -> Secret:
    """The secret that `@FILE` or `$NAME` refers to.

    Raises:
        ValueError: it is no reference, or cannot be read; the text itself is not repeated, as it may be the secret.
    """
    external = _reader(info)
    if external is None or len(value) < 2 or value[0] not in "@$":
        raise ValueError("a secret stands in no plan; write '@FILE', or '$NAME' for a variable of the environment")
    if value[0] == "$":
        return Secret(str(value), one_line(external.variable(value[1:]), value))
    file = read_file_input(PlanText.beside(value, value[1:]), info)
    return Secret(str(value), one_line(file.text(), value))


def one_line(value: str, name: str) -> str:
    """A secret without the line break at its end; raises ValueError where that leaves nothing or several lines."""
    line = value.rstrip("\r\n")
    if not line or any(ord(character) < 32 or ord(character) == 127 for character in line):
        raise ValueError(f"{name} has to hold one line of text")
    return line


def redacted(argv: Sequence[str], secrets: Iterable[str]) -> list[str]:
    """A command line without the secrets that were given on it, nor the credentials in any URL."""
    known = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
    # Credentials last: a secret that holds such a URL is not found any more once its credentials are gone.
    return [_CREDENTIALS.sub(rf"\1{HIDDEN}@", _hidden(argument, known)) for argument in argv]


def _hidden(argument: str, secrets: Sequence[str]) -> str:
    """An argument whose end is a secret: all of it, what follows `--option=`, `-o` or `Name:`.

    Some secrets are taken without the blanks around them, others with them.
    """
    for secret in secrets:
        for text in (argument, argument.rstrip()):
            head = text.removesuffix(secret)
            if head != text and _BEFORE_A_SECRET.fullmatch(head):
                return head + HIDDEN
    return argument


def from_text(kind: type[object], read: Callable[[str, ValidationInfo], object]) -> BeforeValidator:
    """A field that a plan writes as text, and code as what `read` makes of it.

    The error about anything else does not repeat it, as it may be a secret.
    """

    def parsed(value: object, info: ValidationInfo) -> object:
        if isinstance(value, str):
            return read(value, info)
        if not isinstance(value, kind):
            raise ValueError("this is not text")
        return value

    return BeforeValidator(parsed)


def _is_text(file: FileInput) -> FileInput:
    file.text()
    return file


def _reader(info: ValidationInfo) -> ExternalReader | None:
    context: Mapping[str, Any] = info.context or {}
    return context.get("external")


def _folder_of(text: str) -> Path:
    """The file's that says so; the current one on a command line."""
    return text.folder if isinstance(text, PlanText) else Path()


# A password may have an `@`: the last one ends it.
_CREDENTIALS = re.compile(r"(://)[^/]*@")
# A header's name may have blanks around it, of all kinds that `str.strip` takes away.
_BEFORE_A_SECRET = re.compile(
    r"(--[a-z-]+=\s*|-[A-Za-z0-9]+\s+|\s*)([!#$%&'*+.^_`|~0-9A-Za-z-]+\s*:\s*)?|-[A-Za-z0-9]+"
)

FileContent = Annotated[
    InstanceOf[FileInput],
    from_text(FileInput, read_file_input),
    PlainSerializer(lambda file: file.name, return_type=str),
    WithJsonSchema({"type": "string"}),
]
FileText = Annotated[FileContent, AfterValidator(_is_text)]
SecretText = Annotated[
    InstanceOf[Secret],
    from_text(Secret, resolve_secret),
    PlainSerializer(lambda secret: secret.shown, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^[@$].+"}),
]
