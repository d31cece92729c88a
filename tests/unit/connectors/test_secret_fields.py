"""Which fields of a configuration are secret: found by the form, at any depth, and never lost on the way there and back."""

from typing import Any

import pytest
from pydantic import BaseModel, JsonValue, SecretStr

from hopnode.connectors.errors import InvalidConfig
from hopnode.connectors.registry import CONNECTORS
from hopnode.connectors.secret_fields import MASK, carry, hide, reveal


class _Login(BaseModel):
    user: str
    password: SecretStr


class _Form(BaseModel):
    url: str
    token: SecretStr | None = None
    login: _Login | None = None
    headers: dict[str, SecretStr] = {}


_SCHEMA = _Form.model_json_schema()
_WHOLE: dict[str, JsonValue] = {
    "url": "https://example.com",
    "token": "t-1",
    "login": {"user": "ann", "password": "p-1"},
    "headers": {"X-A/b": "h-1"},
}
_MASKED: dict[str, JsonValue] = {
    "url": "https://example.com",
    "token": MASK,
    "login": {"user": "ann", "password": MASK},
    "headers": {"X-A/b": MASK},
}


def test_secrets_are_found_in_optional_nested_and_open_fields() -> None:
    masked, secrets = hide(_SCHEMA, _WHOLE)
    assert masked == _MASKED
    assert secrets == {"/token": "t-1", "/login/password": "p-1", "/headers/X-A~1b": "h-1"}
    assert reveal(_SCHEMA, masked, secrets) == _WHOLE


def test_a_configuration_without_secrets_stays_as_it_is() -> None:
    plain: dict[str, JsonValue] = {"url": MASK, "token": None, "more": {"password": "of no form"}}
    assert hide(_SCHEMA, plain) == (plain, {})
    assert reveal(_SCHEMA, plain, {}) == plain


def test_a_mask_without_a_secret_is_refused_by_its_path() -> None:
    with pytest.raises(InvalidConfig, match="/login/password"):
        reveal(_SCHEMA, _MASKED, {"/token": "t-1", "/headers/X-A~1b": "h-1"})


@pytest.mark.parametrize(
    ("change", "carried", "needs_old"),
    [
        ({"url": "u"}, {"url": "u", "token": MASK}, True),
        ({"url": "u", "token": MASK}, {"url": "u", "token": MASK}, True),
        ({"url": "u", "token": "t-2"}, {"url": "u", "token": "t-2"}, False),
        ({"url": "u", "token": None}, {"url": "u", "token": None}, False),
        (
            {"token": None, "login": {"user": "bob"}},
            {"token": None, "login": {"user": "bob", "password": MASK}},
            True,
        ),
        ({"token": None, "login": None}, {"token": None, "login": None}, False),
        ({"token": None, "headers": {}}, {"token": None, "headers": {}}, False),
    ],
)
def test_a_change_keeps_the_secret_fields_that_it_leaves_out(
    change: dict[str, Any], carried: dict[str, Any], needs_old: bool
) -> None:
    assert carry(_SCHEMA, _MASKED, change) == (carried, needs_old)


def test_a_secret_that_never_was_is_not_carried() -> None:
    assert carry(_SCHEMA, {"url": "u", "token": None}, {"url": "v"}) == ({"url": "v"}, False)


@pytest.mark.parametrize("kind", sorted(CONNECTORS))
def test_a_secret_field_of_a_kind_has_one_name_only(kind: str) -> None:
    """A second name would let the secret pass unseen: the schema knows the first one only."""
    form = CONNECTORS[kind].config
    secret = [name for name, field in form.model_fields.items() if "SecretStr" in str(field.annotation)]
    assert all(form.model_fields[name].validation_alias is None for name in secret), secret
