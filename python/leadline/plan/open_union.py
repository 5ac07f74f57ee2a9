"""A union type whose members are the models in a registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union

from pydantic import BaseModel, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema


@dataclass(frozen=True, slots=True)
class OpenUnion:
    """Metadata of a field: its value has one of the models that `models` returns, distinguished by `kind`.

    The union is made with the schema of the model that has the field; `model_rebuild(force=True)` makes it again.
    """

    models: Callable[[], Sequence[type[BaseModel]]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        union: Any = Union[tuple(self.models())]  # noqa: UP007 (the models are known only now)
        return handler.generate_schema(Annotated[union, Field(discriminator="kind")])
