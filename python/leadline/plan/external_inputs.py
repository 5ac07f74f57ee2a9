"""External inputs of a plan or a command line: files, and secrets from files or the environment.

They are read once, together with the plan, and carried with the test. When a test is written out (`model_dump`), only
the name of a file or secret appears, never its content. Pure: the validation's context has the reader, for plans that
of `leadline.plan.load`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, InstanceOf, PlainSerializer, ValidationInfo, WithJsonSchema

from leadline.masking import HIDDEN, mask_field, mask_text

MOST_BYTES = 8 * 2**20
"""Maximum size of a file: a load's files go to an agent in one message, which is limited to 16 MiB in base64."""
MOST_SCENARIO_BYTES = 64 * 2**20
"""Maximum size of a scenario's file: HAR files hold whole answers, which are not sent."""


class PlanText(str):
    """Text of a plan, with the folder to which paths in it are relative."""

    folder: Path

    @classmethod
    def at(cls, text: str, folder: Path) -> PlanText:
        """The text, in a file of `folder`."""
        written = cls(text)
        written.folder = folder
        return written

    @classmethod
    def beside(cls, other: str, text: str) -> PlanText:
        """A part of another text, with the same folder."""
        return cls.at(text, _folder_of(other))


@dataclass(frozen=True, slots=True)
class ExternalReader:
    """The functions that read files and variables; both raise ValueError with a message for the user."""

    file: Callable[[Path], bytes]
    variable: Callable[[str], str]
    scenario: Callable[[Path], bytes] | None = None
    """Reads the file of a scenario, which is not sent as it is and may be longer; None: as `file`."""


@dataclass(frozen=True, slots=True)
class FileInput:
    """The content of a file."""

    name: str
    """The name as the user wrote it; only this is shown."""
    content: bytes = field(repr=False)

    def text(self) -> str:
        """The content as UTF-8; raises ValueError with a message for the user."""
        try:
            return self.content.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{self.name} is not text in UTF-8") from None


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that is never shown."""

    shown: str
    """Its source (`@FILE`, `$NAME`) or `HIDDEN`, with the parts around it that are not secret."""
    value: str = field(repr=False)


def read_file_input(value: str, info: ValidationInfo) -> FileInput:
    """The file at a path, read by the reader in the validation's context.

    Raises:
        ValueError: it cannot be read.
    """
    external = _reader(info)
    if external is None:
        raise ValueError("files cannot be read here")
    return FileInput(str(value), external.file(_folder_of(value) / value))


def resolve_secret(value: str, info: ValidationInfo) -> Secret:
    """The secret that `@FILE` or `$NAME` refers to.

    Raises:
        ValueError: it is not a reference, or cannot be read; the message does not repeat the text, which may be the
            secret.
    """
    external = _reader(info)
    if external is None or len(value) < 2 or value[0] not in "@$":
        raise ValueError("a secret must not be in a plan; write '@FILE', or '$NAME' for an environment variable")
    if value[0] == "$":
        return Secret(str(value), one_line(external.variable(value[1:]), value))
    file = read_file_input(PlanText.beside(value, value[1:]), info)
    return Secret(str(value), one_line(file.text(), value))


def one_line(value: str, name: str) -> str:
    """A secret without the line break at its end; raises ValueError if it is then empty or has several lines."""
    line = value.rstrip("\r\n")
    if not line or any(ord(character) < 32 or ord(character) == 127 for character in line):
        raise ValueError(f"{name} must contain one line of text")
    return line


def redacted(argv: Sequence[str], secrets: Iterable[str], kept: Collection[str] = ()) -> list[str]:
    """A command line without the secrets in it, without what names as secret (except those `kept`), and without the
    credentials in any URL."""
    known = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
    # Credentials last: a secret that contains such a URL could not be found without them.
    return [_CREDENTIALS.sub(rf"\1{HIDDEN}@", _masked(_hidden(argument, known), kept)) for argument in argv]


def _masked(argument: str, kept: Collection[str]) -> str:
    """An argument without what names as secret. The values of Leadline's own options are files, or known secrets."""
    option = _OWN_OPTION.match(argument)
    head = "" if option is None else option[0]
    return head + mask_text(mask_field(argument, kept).removeprefix(head), kept)


def _hidden(argument: str, secrets: Sequence[str]) -> str:
    """Hide an argument that ends with a secret: the whole argument, or the part after `--option=`, `-o` or `Name:`.

    Some options strip blanks around their secret, others keep them.
    """
    for secret in secrets:
        for text in (argument, argument.rstrip()):
            head = text.removesuffix(secret)
            if head != text and _BEFORE_A_SECRET.fullmatch(head):
                return head + HIDDEN
    return argument


def from_text(kind: type[object], read: Callable[[str, ValidationInfo], object]) -> BeforeValidator:
    """A field that a plan writes as text, and code as the result of `read`.

    The error about any other type does not repeat the value, which may be a secret.
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
    """The folder of the text's file; the current folder for a command line."""
    return text.folder if isinstance(text, PlanText) else Path()


_OWN_OPTION = re.compile(r"--[a-z][a-z0-9-]*=")
# A password may contain `@`; the last one ends it.
_CREDENTIALS = re.compile(r"(://)[^/]*@")
# A header's name may have blanks around it, of all kinds that `str.strip` removes; a parameter's ends with `=`.
_BEFORE_A_SECRET = re.compile(
    r"(--[a-z-]+=\s*|-[A-Za-z0-9]+\s+|\s*)([!#$%&'*+.^_`|~0-9A-Za-z-]+(\s*:\s*|=))?|-[A-Za-z0-9]+"
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
