"""The error that a model server puts into its answer, in whatever shape it has. Knows no status and no retry."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue, TypeAdapter, ValidationError


@dataclass(frozen=True)
class RemoteError:
    """The error object of an endpoint; empty strings where it says nothing."""

    message: str = ""
    type: str = ""
    code: str = ""
    param: str = ""


_JSON_OBJECT: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


def error_of(content: bytes) -> RemoteError:
    """The error in an answer's body, in any of the shapes seen: an object under `error`, a string there, or flat."""
    try:
        body = _JSON_OBJECT.validate_json(content)
    except ValidationError:
        return RemoteError(content[:300].decode("utf-8", "replace"))
    error = body.get("error", body)
    if isinstance(error, str):
        return RemoteError(error)
    if not isinstance(error, dict):
        return RemoteError()
    return RemoteError(*(_word(error, name) for name in ("message", "type", "code", "param")))


def _word(error: Mapping[str, JsonValue], name: str) -> str:
    value = error.get(name)
    return "" if value is None else str(value)
