from pathlib import Path

import pytest
from pydantic import ValidationError

from hopnode.connectors.base import Content, Gone
from hopnode.connectors.egress import EgressPolicy
from hopnode.connectors.errors import InvalidConfig
from hopnode.connectors.registry import CONNECTORS, config_schema, make
from hopnode.connectors.website.connector import WebsiteConfig, WebsiteConnector
from hopnode.connectors.website.spool import Spool


def test_a_kind_and_a_configuration_make_a_connector() -> None:
    connector = make("website", {"start_urls": ["https://Example.test"], "max_pages": 5}, EgressPolicy())
    assert isinstance(connector, WebsiteConnector)
    assert connector.deletes_after_missed == 2
    connector.close()


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "start_urls"),
        ({"start_urls": []}, "start_urls"),
        ({"start_urls": ["ftp://x.test/"]}, "start_urls"),
        ({"start_urls": ["http://user:pw@x.test/"]}, "start_urls"),
        ({"start_urls": ["http://x.test"], "max_pages": 0}, "max_pages"),
        ({"start_urls": ["http://x.test"], "allowed_hosts": ["http://y.test/"]}, "allowed_hosts"),
        ({"start_urls": ["http://x.test"], "contact": "a\r\nX-Evil: 1"}, "contact"),
        ({"start_urls": ["http://x.test"], "maxpages": 3}, "maxpages"),
    ],
)
def test_a_wrong_configuration_is_refused_with_the_field_that_is_wrong(config: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidConfig, match=field):
        make("website", config, EgressPolicy())  # type: ignore[arg-type]


def test_an_unknown_kind_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidConfig, match="website"):
        make("gopher", {}, EgressPolicy())


@pytest.mark.parametrize("kind", CONNECTORS)
def test_every_option_of_every_kind_is_described(kind: str) -> None:
    for name, schema in config_schema(kind)["properties"].items():  # type: ignore[union-attr]
        assert len(schema["description"]) > 10, name  # type: ignore[index, call-overload]


def test_one_start_url_may_be_given_as_such() -> None:
    assert WebsiteConfig.model_validate({"start_url": "http://X.test"}).start_urls == ["http://x.test/"]
    assert WebsiteConfig(start_urls=["http://x.test", "http://x.test/#a"]).start_urls == ["http://x.test/"]
    with pytest.raises(ValidationError):
        WebsiteConfig.model_validate({"start_url": 7})


def content(size: int) -> Content:
    return Content(bytes(size), "text/html")


def test_a_spool_hands_over_once_and_forgets_the_oldest_when_it_is_full() -> None:
    spool = Spool(most_bytes=100)
    spool.put("a", content(40))
    spool.put("b", content(40))
    spool.put("b", content(50))
    spool.put("gone", Gone("not-found"))
    assert spool.take("b") == content(50)
    assert spool.take("b") is None
    spool.put("c", content(90))
    assert spool.take("a") is None
    assert spool.take("c") == content(90)
    spool.put("huge", content(101))
    assert spool.take("huge") is None
    spool.put("d", content(100))
    assert spool.take("d") == content(100)


@pytest.mark.parametrize("kind", CONNECTORS)
def test_every_option_and_its_default_is_on_the_page_about_sources(kind: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "sources.md").read_text()
    section = page.partition(f"## `{kind}`")[2]
    for name in config_schema(kind)["properties"]:  # type: ignore[union-attr]
        assert f"`{name}`" in section, name
    for name, field in CONNECTORS[kind].config.model_fields.items():
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            row = next(line for line in section.splitlines() if line.startswith(f"| `{name}`"))
            assert f"{field.default:,}" in row or f"{field.default}" in row, name
