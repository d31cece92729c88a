"""What a connector is: `check`, `list`, `fetch`. It reports what exists outside; the sync engine decides what to do with it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from pydantic import JsonValue


@dataclass(frozen=True)
class CheckResult:
    """Outcome of a cheap look at a source: `ok`, and a sentence a user can act on."""

    ok: bool
    message: str


@dataclass(frozen=True)
class ItemRef:
    """One thing that can be fetched. Equal `version` means unchanged; None means: fetch and compare bytes."""

    item_id: str
    version: str | None = None
    size: int | None = None
    media_type: str | None = None
    url: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True)
class Resume:
    """A token from which listing can go on after a crash; everything listed before it need not be listed again."""

    token: Mapping[str, JsonValue]


@dataclass(frozen=True)
class Skip:
    """An item that exists and is left out on purpose; `reason` is a slug."""

    item_id: str
    reason: str


@dataclass(frozen=True)
class Complete:
    """The listing reached its end; only after this may absent items be forgotten. `state` is kept for the next sync."""

    state: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True)
class Partial:
    """The listing stopped before its end: nothing absent may be forgotten. `reason` is a slug; `state` is kept all the same."""

    reason: str
    state: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True)
class Wait:
    """The source asks for `seconds` of patience (0: none) before it is asked again; the consumer waits, or ends the listing.

    Each page that a listing fetches is announced by one, so that a listing can be ended before any of them.
    """

    seconds: float


@dataclass(frozen=True)
class Content:
    """The bytes of an item, within the size limit; `version` as found with the bytes."""

    data: bytes
    media_type: str | None
    version: str | None = None
    title: str | None = None
    url: str | None = None
    filename: str | None = None


@dataclass(frozen=True)
class Unchanged:
    """The remote side says that the known version is current."""


@dataclass(frozen=True)
class Gone:
    """The item does not exist any more (404, 410, noindex): forget it at once."""

    reason: str


@dataclass(frozen=True)
class Failure:
    """The item could not be fetched now; it is kept as it was. `retryable` says whether the next sync may succeed."""

    reason: str
    message: str
    retryable: bool = True


Listed: TypeAlias = ItemRef | Resume | Skip | Wait | Complete | Partial
Fetched: TypeAlias = Content | Unchanged | Gone | Failure


class Connector(Protocol):
    """One kind of source, bound to its configuration."""

    deletes_after_missed: int
    """Complete listings in a row that must miss an item before it is forgotten (1, or 2 for crawled sites)."""

    def check(self) -> CheckResult: ...

    def list(self, state: Mapping[str, JsonValue], resume: Mapping[str, JsonValue] | None) -> Iterator[Listed]: ...

    def fetch(self, ref: ItemRef, known_version: str | None) -> Fetched: ...

    def close(self) -> None: ...
