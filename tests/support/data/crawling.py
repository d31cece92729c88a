"""Runs the website connector over a test site and sorts what it lists."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from hopnode.connectors.base import Complete, Fetched, ItemRef, Partial, Resume, Skip, Wait
from hopnode.connectors.egress import EgressPolicy
from hopnode.connectors.website.connector import WebsiteConfig, WebsiteConnector
from support.servers.website import Site


@dataclass
class Listing:
    """What one crawl listed, by path of the site; `fetched` is what `fetch` gave for each item."""

    items: dict[str, ItemRef] = field(default_factory=dict)
    fetched: dict[str, Fetched] = field(default_factory=dict)
    skips: dict[str, str] = field(default_factory=dict)
    tokens: list[Mapping[str, JsonValue]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    end: Complete | Partial | None = None

    @property
    def complete(self) -> bool:
        return isinstance(self.end, Complete)

    @property
    def reason(self) -> str | None:
        return self.end.reason if isinstance(self.end, Partial) else None

    @property
    def state(self) -> Mapping[str, JsonValue]:
        assert self.end is not None
        return self.end.state


def connector(site: Site, **config: object) -> WebsiteConnector:
    """A connector for the site, without pauses unless the configuration says so."""
    values = {"start_urls": [site.url], "crawl_delay": 0, **config}
    return WebsiteConnector(WebsiteConfig.model_validate(values), EgressPolicy([site.host]))


def crawl(
    site: Site,
    state: Mapping[str, JsonValue] | None = None,
    resume: Mapping[str, JsonValue] | None = None,
    stop_after: int | None = None,
    **config: object,
) -> Listing:
    """Lists the site and fetches each item at once; `stop_after` that many items the listing is abandoned."""
    listing = Listing()
    with connector(site, **config) as crawler:
        for one in crawler.list(state or {}, resume):
            if isinstance(one, ItemRef):
                path = one.item_id.removeprefix(site.url)
                assert path not in listing.items, f"{path} was listed twice"
                listing.items[path] = one
                listing.fetched[path] = crawler.fetch(one, None)
                if len(listing.items) == stop_after:
                    break
            elif isinstance(one, Skip):
                listing.skips[one.item_id.removeprefix(site.url)] = one.reason
            elif isinstance(one, Resume):
                listing.tokens.append(one.token)
            elif isinstance(one, Wait):
                listing.waits.append(one.seconds)
            else:
                listing.end = one
    return listing
