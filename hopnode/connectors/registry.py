"""The kinds of sources there are, and how a configuration becomes a connector. It opens no connection."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, JsonValue, ValidationError

from hopnode.connectors.base import Connector
from hopnode.connectors.egress import EgressPolicy
from hopnode.connectors.errors import InvalidConfig
from hopnode.connectors.website.connector import WebsiteConfig, WebsiteConnector


@dataclass(frozen=True)
class Kind:
    """One kind of source: the form of its configuration, and what makes a connector of a valid one."""

    config: type[BaseModel]
    connect: Callable[[Mapping[str, JsonValue], EgressPolicy], Connector]


def _website(config: Mapping[str, JsonValue], policy: EgressPolicy) -> Connector:
    return WebsiteConnector(WebsiteConfig.model_validate(config), policy)


CONNECTORS: Mapping[str, Kind] = {"website": Kind(WebsiteConfig, _website)}


def make(kind: str, config: Mapping[str, JsonValue], policy: EgressPolicy) -> Connector:
    """A connector of this kind. Raises InvalidConfig with the fields that are wrong, or when there is no such kind."""
    try:
        return _kind(kind).connect(config, policy)
    except ValidationError as error:
        wrong = (f"{'.'.join(str(part) for part in e['loc']) or 'config'}: {e['msg']}" for e in error.errors())
        raise InvalidConfig(f"The configuration of the {kind} source is not valid. {'; '.join(wrong)}.") from error


def config_schema(kind: str) -> dict[str, JsonValue]:
    """JSON schema of the configuration, with defaults and descriptions. Raises InvalidConfig for an unknown kind."""
    return _kind(kind).config.model_json_schema()


def _kind(kind: str) -> Kind:
    if kind not in CONNECTORS:
        raise InvalidConfig(f"There is no kind of source called {kind!r}; there are: {', '.join(sorted(CONNECTORS))}.")
    return CONNECTORS[kind]
