"""Which fields of a configuration are secret, told by the JSON schema of its form; knows no kind of source and no cipher.

A form marks a secret by the type `SecretStr`. A configuration that shows the mask in place of each secret may be stored and read.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, cast

from pydantic import JsonValue

from hopnode.connectors.errors import InvalidConfig

MASK = "***"
"""What stands in a configuration where a secret is kept elsewhere."""

_Schema: TypeAlias = Mapping[str, JsonValue]
_OnSecret: TypeAlias = Callable[[str, str], JsonValue]


def hide(schema: _Schema, config: Mapping[str, JsonValue]) -> tuple[dict[str, JsonValue], dict[str, str]]:
    """The configuration with the mask for each secret, and the secrets by path (`/credentials/token`, as in RFC 6901).

    A mask that is there already stays and brings no secret.
    """
    secrets: dict[str, str] = {}

    def mask(path: str, value: str) -> JsonValue:
        if value != MASK:
            secrets[path] = value
        return MASK

    return _walk_root(schema, config, mask), secrets


def reveal(schema: _Schema, masked: Mapping[str, JsonValue], secrets: Mapping[str, str]) -> dict[str, JsonValue]:
    """The whole configuration: each mask is replaced by its secret. Raises InvalidConfig for a mask without a secret."""

    def show(path: str, value: str) -> JsonValue:
        if value != MASK:
            return value
        if path not in secrets:
            raise InvalidConfig(
                f"{path}: {MASK} stands for a secret that is not shown, and none is kept for this field; give the secret itself."
            )
        return secrets[path]

    return _walk_root(schema, masked, show)


def carry(
    schema: _Schema, before: Mapping[str, JsonValue], change: Mapping[str, JsonValue]
) -> tuple[dict[str, JsonValue], bool]:
    """`change` with the mask wherever it leaves out a secret field that `before` has; a null stays and removes the secret.

    Second: whether any mask is left, so that the old secrets are needed to make the configuration whole.
    """
    defs = _definitions(schema)
    carried = _carry(_options([schema], defs), before, change, defs)
    masks: list[str] = []

    def note(path: str, value: str) -> JsonValue:
        if value == MASK:
            masks.append(path)
        return value

    _walk_root(schema, carried, note)
    return carried, bool(masks)


def _carry(
    options: list[_Schema], before: Mapping[str, JsonValue], change: Mapping[str, JsonValue], defs: _Schema
) -> dict[str, JsonValue]:
    carried = dict(change)
    for key, old in before.items():
        below = _options(_properties(options, key), defs)
        if key not in change and old == MASK and _is_secret(below):
            carried[key] = MASK
        elif isinstance(old, dict) and isinstance(new := change.get(key), dict):
            carried[key] = _carry(below, old, new, defs)
    return carried


def _walk_root(schema: _Schema, config: Mapping[str, JsonValue], on_secret: _OnSecret) -> dict[str, JsonValue]:
    defs = _definitions(schema)
    walked = _walk(_options([schema], defs), dict(config), "", defs, on_secret)
    return cast(dict[str, JsonValue], walked)


def _walk(options: list[_Schema], value: JsonValue, path: str, defs: _Schema, on_secret: _OnSecret) -> JsonValue:
    if isinstance(value, str):
        return on_secret(path, value) if _is_secret(options) else value
    if not isinstance(value, dict):
        return value
    walked: dict[str, JsonValue] = {}
    for key, inner in value.items():
        below = _options([*_properties(options, key), *_further(options, key)], defs)
        walked[key] = _walk(below, inner, f"{path}/{key.replace('~', '~0').replace('/', '~1')}", defs, on_secret)
    return walked


def _definitions(schema: _Schema) -> _Schema:
    return _mapping(schema.get("$defs"))


def _options(schemas: Iterable[_Schema], defs: _Schema) -> list[_Schema]:
    """The schemas that a value may have: references followed, alternatives laid side by side."""
    found: list[_Schema] = []
    for schema in schemas:
        if isinstance(reference := schema.get("$ref"), str):
            found += _options([_mapping(defs.get(reference.rpartition("/")[2]))], defs)
        for word in ("anyOf", "oneOf", "allOf"):
            if isinstance(listed := schema.get(word), list):
                found += _options([_mapping(one) for one in listed], defs)
        found.append(schema)
    return found


def _properties(options: list[_Schema], key: str) -> list[_Schema]:
    return [_mapping(found) for option in options if (found := _mapping(option.get("properties")).get(key)) is not None]


def _further(options: list[_Schema], key: str) -> list[_Schema]:
    """What an open map, such as one of HTTP headers, says of keys that it does not name."""
    return [
        _mapping(option.get("additionalProperties"))
        for option in options
        if key not in _mapping(option.get("properties"))
    ]


def _is_secret(options: list[_Schema]) -> bool:
    """pydantic's schema of a `SecretStr`."""
    return any(option.get("writeOnly") is True and option.get("format") == "password" for option in options)


def _mapping(value: JsonValue) -> _Schema:
    return value if isinstance(value, dict) else {}
