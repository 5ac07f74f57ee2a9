"""`leadline.findings/1`: encodes a run's analysis as one JSON document, and decodes it without loss.

Text, HTML and JSON are drawn from the result of `decode_findings`, so a run's pages do not need its journal. An
unknown value is null. A document of another version is refused: its figures may have another meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from leadline.analysis.model import RunAnalysis
from leadline.dataset.finite_json import find_infinite, may_be_infinite
from leadline.errors import DatasetError

FINDINGS_SCHEMA: Literal["leadline.findings/1"] = "leadline.findings/1"
"""The document's name and version."""
_HINT = "it can be made again only from the run's journal.ndjson, which is missing"


@dataclass(frozen=True, slots=True)
class FindingsDocument:
    """The findings of one run, and their source."""

    schema: Literal["leadline.findings/1"]
    """Name and version of this document."""
    analysed_by: str
    """The version of Leadline that analysed the run."""
    journal_bytes: int | None
    """Length of the analysed journal, bytes; null if it is unknown."""
    run: RunAnalysis
    """The analysis: everything that a table or a page shows."""


def encode_findings(run: RunAnalysis, analysed_by: str, journal_bytes: int | None) -> bytes:
    """The document as UTF-8 JSON on one line. NaN and infinity, which JSON lacks, become null."""
    return b"".join(encode_findings_in_parts(run, analysed_by, journal_bytes))


def encode_findings_in_parts(run: RunAnalysis, analysed_by: str, journal_bytes: int | None) -> Iterator[bytes]:
    """The document as `encode_findings` has it, in parts of a trial at most: trials are most of it."""
    about = {"schema": FINDINGS_SCHEMA, "analysed_by": analysed_by, "journal_bytes": journal_bytes}
    yield _to_json(about).removesuffix(b"}") + b',"run":'
    separator = b"{"
    for field in fields(run):
        value = getattr(run, field.name)
        yield separator + _to_json(field.name) + b":"
        if field.name == "trials":
            yield b"["
            for number, trial in enumerate(value):
                yield (b"," if number else b"") + _to_json(trial)
            yield b"]"
        else:
            yield _to_json(value)
        separator = b","
    yield b"}}\n"


def _to_json(part: Any) -> bytes:
    return pydantic_core.to_json(part, inf_nan_mode="null")


def decode_findings(content: bytes, name: str) -> FindingsDocument:
    """Decode the document in `content`. Errors call it `name`.

    Raises:

        DatasetError: it is of another version, or not such a document.
    """
    try:
        found = _adapter().validate_json(content)
    except ValidationError as error:
        raise _refusal(content, name, error) from None
    if may_be_infinite(content) and (where := find_infinite(pydantic_core.from_json(content))) is not None:
        raise DatasetError(f"{name} is damaged: {where}", hint=_HINT)
    return found


def findings_json_schema() -> dict[str, Any]:
    """The document's JSON Schema."""
    return _adapter().json_schema(mode="validation")


@cache
def _adapter() -> TypeAdapter[FindingsDocument]:
    return TypeAdapter(FindingsDocument)


def _refusal(content: bytes, name: str, error: ValidationError) -> DatasetError:
    hint = _HINT
    try:
        document = pydantic_core.from_json(content)
    except ValueError:
        return DatasetError(f"{name} is not JSON", hint=hint)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != FINDINGS_SCHEMA:
        said = f"of schema {schema!r}" if isinstance(schema, str) else "no findings"
        return DatasetError(f"{name} is {said}; this version reads {FINDINGS_SCHEMA}", hint=hint)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return DatasetError(f"{name} is damaged at {where}: {first['msg']}", hint=hint)
