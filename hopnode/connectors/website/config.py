"""The configuration of a website source: what to crawl, how far, and how politely."""

import hashlib
import json
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator

from hopnode.connectors.website.urls import normalize


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Glob = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class WebsiteConfig(BaseModel):
    """A site to crawl. Only the start URLs are required; the budgets end a crawl early, and then nothing is deleted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start_urls: Annotated[list[str], BeforeValidator(_one_or_many)] = Field(
        min_length=1,
        max_length=100,
        validation_alias=AliasChoices("start_urls", "start_url"),
        description="Pages to begin with; a single URL may be given as `start_url`. Their hosts are what is crawled.",
    )
    allowed_hosts: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="Further hosts (`host` or `host:port`) whose pages belong to the source.",
    )
    include: list[Glob] = Field(
        default_factory=list,
        max_length=100,
        description="Globs over path and query (`/docs/*`), or over the whole URL when they contain `://`. Empty: all pages. "
        "Start pages outside of them are followed and not stored.",
    )
    exclude: list[Glob] = Field(default_factory=list, max_length=100, description="Globs of pages to leave alone.")
    max_pages: int = Field(default=1000, ge=1, le=20_000, description="Most pages to ask for in one crawl.")
    max_depth: int = Field(default=10, ge=0, le=100, description="Most links away from a start page.")
    max_similar_urls: int = Field(
        default=500,
        ge=1,
        le=20_000,
        description="Most URLs that differ in numbers or query values only, such as the days of a calendar; "
        "URLs in sitemaps are exempt.",
    )
    max_bytes_per_page: int = Field(
        default=10_000_000, ge=1000, le=200_000_000, description="Larger pages and files are skipped."
    )
    max_minutes: float = Field(default=60, gt=0, le=180, description="Longest crawl.")
    respect_robots: bool = Field(default=True, description="Obey robots.txt. Turn off for sites of your own only.")
    use_sitemaps: bool = Field(default=True, description="Read the sitemaps that robots.txt names, or /sitemap.xml.")
    crawl_delay: float = Field(
        default=0.5, ge=0, le=60, description="Least seconds between two requests; robots.txt may ask for more."
    )
    contact: Annotated[str, StringConstraints(max_length=200, pattern=r"^[\x20-\x7e]*$")] = Field(
        default="", description="URL or mail address that site owners can turn to; sent in the User-Agent header."
    )

    @field_validator("start_urls")
    @classmethod
    def _plain(cls, urls: list[str]) -> list[str]:
        plain: list[str] = []
        for url in urls:
            if (one := normalize(url)) is None or not urlsplit(one).hostname:
                raise ValueError(f"{url[:200]!r} is not an http(s) URL without user name and password")
            plain.append(one)
        return list(dict.fromkeys(plain))

    @field_validator("allowed_hosts")
    @classmethod
    def _bare(cls, hosts: list[str]) -> list[str]:
        for host in hosts:
            if (url := normalize(f"http://{host}")) is None or urlsplit(url).path != "/" or urlsplit(url).query:
                raise ValueError(f"{host[:200]!r} is not a host name")
        return hosts

    @property
    def user_agent(self) -> str:
        """How the crawler introduces itself."""
        return f"hopnode-bot/1 (+{self.contact})" if self.contact else "hopnode-bot/1"

    @property
    def scope_id(self) -> str:
        """Differs when other pages belong to the source."""
        scope = [self.start_urls, self.allowed_hosts, self.include, self.exclude]
        return hashlib.sha256(json.dumps(scope).encode()).hexdigest()[:16]
