"""robots.txt of a host, read by RFC 9309: what may be fetched, how often, and where the sitemaps are."""

from urllib.parse import urljoin

import httpx
from protego import Protego

from hopnode.connectors.errors import (
    BodyTooLarge,
    BodyUnreadable,
    EgressBlocked,
    RobotsUnavailable,
    SourceUnreachable,
    TooManyRedirects,
)
from hopnode.connectors.http import get
from hopnode.connectors.website.pages import ROBOT
from hopnode.connectors.website.urls import normalize

_MAX_BYTES = 512 * 1024
_LONGEST_DELAY = 60.0


class Robots:
    """The rules of one host for our robot; without a text everything is allowed."""

    def __init__(self, text: str, home: str) -> None:
        self._rules = Protego.parse(text)
        self.sitemaps = [url for line in self._rules.sitemaps if (url := normalize(urljoin(home, line)))]

    def allows(self, url: str) -> bool:
        """Whether our robot may fetch the URL."""
        return self._rules.can_fetch(url, ROBOT)

    @property
    def delay(self) -> float:
        """Seconds between requests that the host asks for, at most a minute; 0 when it does not say."""
        rate = self._rules.request_rate(ROBOT)
        by_rate = rate.seconds / rate.requests if rate and rate.requests else 0.0
        return min(max(self._rules.crawl_delay(ROBOT) or 0.0, by_rate), _LONGEST_DELAY)


def read_robots(client: httpx.Client, home: str) -> Robots:
    """Fetches `<home>/robots.txt`. Any 4xx but 429 means that there are no rules.

    Raises RobotsUnavailable for 429, 5xx and silence, EgressBlocked when the guard refuses the host.
    """
    try:
        reply = get(client, f"{home}/robots.txt", max_bytes=_MAX_BYTES, seconds=15)
    except EgressBlocked:
        raise
    except (BodyTooLarge, TooManyRedirects):
        return Robots("", home)
    except (SourceUnreachable, BodyUnreadable) as error:
        raise RobotsUnavailable(f"{home}/robots.txt cannot be read, so nothing is fetched there: {error}") from error
    if reply.status == 429 or reply.status >= 500:
        raise RobotsUnavailable(
            f"{home}/robots.txt answers {reply.status}, so nothing is fetched there until it is back."
        )
    return Robots(reply.body.decode("utf-8-sig", "replace") if reply.status < 300 else "", home)
