"""How often a key and a workspace may ask: token buckets in this process. Knows no route, and asks nobody else.

A bucket holds the requests of one minute and fills evenly. A caller may use its minute at once, and then goes on as it fills.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from hopnode.worker.errors import TooManyRequests

WINDOW_SECONDS = 60.0
MOST_BUCKETS = 10_000
"""The bucket that was used longest ago is forgotten first; as it has been filling meanwhile, little is lost by that."""


@dataclass
class _Bucket:
    tokens: float
    at: float


@dataclass(frozen=True)
class Allowance:
    """What a bucket says of one request: how many more may follow at once, and in how many seconds it is full again."""

    policy: str
    quota: int
    remaining: int
    reset_seconds: int


class TokenBuckets:
    """One bucket for each name, `per_minute` requests wide; safe to share between threads."""

    def __init__(
        self, policy: str, per_minute: int, *, most: int = MOST_BUCKETS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._policy = policy
        self._quota = per_minute
        self._rate = per_minute / WINDOW_SECONDS
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str) -> Allowance:
        """Takes one request out of the bucket; raises `TooManyRequests` where there is none left."""
        with self._lock:
            bucket = self._filled(name)
            if bucket.tokens < 1:
                seconds = math.ceil((1 - bucket.tokens) / self._rate)
                raise TooManyRequests(
                    f"This {self._policy} may send {self._quota:,} requests a minute; go on in {seconds} s.",
                    retry_after=seconds,
                    allowance=self._allowance(bucket),
                )
            bucket.tokens -= 1
            return self._allowance(bucket)

    def _filled(self, name: str) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.pop(name, None) or _Bucket(self._quota, now)
        bucket.tokens = min(self._quota, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        self._buckets[name] = bucket
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return bucket

    def _allowance(self, bucket: _Bucket) -> Allowance:
        reset = math.ceil((self._quota - bucket.tokens) / self._rate)
        return Allowance(self._policy, self._quota, int(bucket.tokens), reset)


@dataclass
class RateLimits:
    """The limits of a node, those of keys before those of workspaces; 0 requests a minute means no limit."""

    key_per_minute: int
    workspace_per_minute: int
    _buckets: dict[str, TokenBuckets] = field(init=False)

    def __post_init__(self) -> None:
        limits = {"key": self.key_per_minute, "workspace": self.workspace_per_minute}
        self._buckets = {policy: TokenBuckets(policy, limit) for policy, limit in limits.items() if limit}

    def admit(self, key_id: str, workspace_id: str) -> list[Allowance]:
        """Counts one request of the key; raises `TooManyRequests`."""
        names = {"key": key_id, "workspace": workspace_id}
        return [buckets.take(names[policy]) for policy, buckets in self._buckets.items()]


def headers_of(allowances: list[Allowance]) -> dict[str, str]:
    """`RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-10 writes them."""
    if not allowances:
        return {}
    policies = [f'"{one.policy}";q={one.quota};w={WINDOW_SECONDS:.0f}' for one in allowances]
    states = [f'"{one.policy}";r={one.remaining};t={one.reset_seconds}' for one in allowances]
    return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(states)}
