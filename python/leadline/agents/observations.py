"""Recognises observations by their lines, at a third of the price of reading them into models.

A line is in the contract if it is JSON and another line was in the contract that differs in digits only: an agent's
observations have the same keys, names and signs again and again, and the contract limits no number of an observation
but by its sign. What is left unseen is a digit inside a key, which `UnreadObservation.read` refuses.
"""

from __future__ import annotations

from collections import deque

from pydantic_core import SchemaValidator, ValidationError, core_schema

from leadline.masking import may_have_secret

_BEGINNING = b'{"type":"observation",'
_DIGITS = b"0123456789"
_EMPTY_LIST = b"[]"
_MAX_SHAPES = 8
"""Of one agent: a shape has a kilobyte or more, and changes with processes, interfaces and the trial's name."""
_JSON_OBJECT = SchemaValidator(core_schema.typed_dict_schema({}, extra_behavior="ignore"))


class ObservationShapes:
    """The observations of one agent that were read so far, without their digits."""

    def __init__(self) -> None:
        # A few texts are compared faster than one of them is hashed.
        self._shapes: deque[bytes] = deque(maxlen=_MAX_SHAPES)
        self._with_empty_lists: deque[bytes] = deque(maxlen=_MAX_SHAPES)

    def match(self, line: bytes) -> bool:
        """Whether the line is known to be an observation in the contract in which nothing has to be masked."""
        if not line.startswith(_BEGINNING):
            return False
        shape = line.translate(None, _DIGITS)
        if shape not in self._shapes:
            # A list of one number has the shape of an empty one.
            is_known = shape in self._with_empty_lists and shape.count(_EMPTY_LIST) == line.count(_EMPTY_LIST)
            if not is_known:
                return False
        try:
            _JSON_OBJECT.validate_json(line)
        except ValidationError:
            return False
        return True

    def add(self, line: bytes) -> None:
        """Remember a line that was read as an observation, unless it may have a secret."""
        # What tells that is made of other characters than digits: it is the same for all lines of a shape.
        if line.startswith(_BEGINNING) and not may_have_secret(line):
            shape = line.translate(None, _DIGITS)
            (self._with_empty_lists if _EMPTY_LIST in shape else self._shapes).appendleft(shape)
