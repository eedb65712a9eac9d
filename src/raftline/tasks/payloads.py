"""Arguments of a task as JSON, and back into what its function expects.

A payload that is a JSON object is the keyword arguments (and by name those that the function takes
by position only); any other is the only argument. Values become what the annotations say where that
is possible (dates, enums, structs), else they stay as JSON has them.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_type_hints

import msgspec

from raftline.model.errors import InvalidArgument

Function = Callable[..., Any]
Named = dict[str, Any]


class Signature:
    """How a function is called."""

    __slots__ = ("_hints", "_name", "_signature")

    def __init__(self, name: str, function: Function, reserved: Sequence[str]) -> None:
        self._name = name
        self._signature = inspect.signature(function)
        taken = [word for word in reserved if word in self._signature.parameters]
        if taken:
            raise InvalidArgument(
                f"task {name!r} has a parameter {taken[0]!r}, which enqueue takes itself",
                "give the parameter another name",
            )
        try:
            self._hints = get_type_hints(function)
        except (NameError, TypeError):
            self._hints = {}

    def encode(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> bytes:
        """Return the payload of a call. Raises InvalidArgument if it cannot be called so."""
        try:
            bound = self._signature.bind(*arguments, **named)
        except TypeError as error:
            raise InvalidArgument(
                f"task {self._name!r}: {error}", f"it takes {self._signature}"
            ) from error
        payload: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                raise InvalidArgument(
                    f"task {self._name!r} takes *{name}", "name its parameters, or take a list"
                )
            if kind is inspect.Parameter.VAR_KEYWORD:
                payload.update(value)
            else:
                payload[name] = value
        try:
            return msgspec.json.encode(payload)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(
                f"task {self._name!r}: {error}", "arguments travel as JSON"
            ) from error

    def decode(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments in a payload. Raises InvalidArgument."""
        try:
            found: Any = msgspec.json.decode(payload or b"null")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArgument(f"the payload is no JSON: {error}") from error
        if found is None and not self._signature.parameters:
            return [], {}
        if not isinstance(found, dict):
            first = next(iter(self._signature.parameters), "")
            return [self._typed(first, found)], {}
        named = {name: self._typed(name, value) for name, value in cast("Named", found).items()}
        return self._placed(named), named

    def _placed(self, named: Named) -> list[Any]:
        """Take out what can only be given by position, up to the first that is not there."""
        placed: list[Any] = []
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY or name not in named:
                break
            placed.append(named.pop(name))
        return placed

    def _typed(self, name: str, value: Any) -> Any:
        hint = self._hints.get(name)
        if hint is None:
            return value
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            raise InvalidArgument(f"{name}: {error}") from error
        except TypeError:
            return value  # an annotation that JSON knows nothing of
