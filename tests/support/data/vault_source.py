"""A third kind of source, with secrets in its form: it lets in whoever knows its password, and holds nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, JsonValue, SecretStr

from hopnode.connectors.base import CheckResult, Complete, Content, Fetched, ItemRef, Listed
from hopnode.connectors.egress import EgressPolicy
from hopnode.connectors.registry import CONNECTORS, Kind

KIND = "test-vault"


class _Login(BaseModel):
    user: str
    password: SecretStr


class VaultForm(BaseModel):
    """What a source of this kind is configured with."""

    model_config = ConfigDict(extra="forbid")

    place: str
    token: SecretStr | None = None
    login: _Login | None = None


class VaultConnector:
    """Refuses a token that ends in `wrong`; `seen` remembers what configurations came through, secrets included."""

    deletes_after_missed = 1
    seen: list[dict[str, Any]] = []  # noqa: RUF012 - one list for all, so that a test finds it

    def __init__(self, config: Mapping[str, JsonValue], _: EgressPolicy) -> None:
        self.form = VaultForm.model_validate(config)
        self.seen.append(dict(config))

    def check(self) -> CheckResult:
        token = self.form.token.get_secret_value() if self.form.token else ""
        return CheckResult(not token.endswith("wrong"), "The vault does not know this token.")

    def list(self, state: Mapping[str, JsonValue], resume: Mapping[str, JsonValue] | None) -> Iterator[Listed]:
        yield ItemRef("note", "v1")
        yield Complete({})

    def fetch(self, ref: ItemRef, known_version: str | None) -> Fetched:
        return Content(b"The vault lies under the mill.", "text/plain")

    def close(self) -> None:
        pass


@contextmanager
def registered() -> Iterator[type[VaultConnector]]:
    """The kind is known to the node within the block."""
    kinds = cast(dict[str, Kind], CONNECTORS)
    kinds[KIND] = Kind(VaultForm, VaultConnector)
    VaultConnector.seen.clear()
    try:
        yield VaultConnector
    finally:
        del kinds[KIND]
