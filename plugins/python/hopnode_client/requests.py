"""Requests as values, and what an answer to one means; sends nothing and knows no particular route."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from hopnode_client.errors import HopnodeError, Misuse, NoAnswer, UnexpectedAnswer, error_of
from hopnode_client.records import Record

R = TypeVar("R", bound=Record)

POLL_SECONDS = 30.0
"""The longest wait asked of the node at once: proxies cut connections that are silent for a minute or more."""
ATTEMPTS = 4
POLL_ATTEMPTS = 10
"""A poll outlives a restart of the node: its naps are half a minute in all."""
FIRST_NAP_SECONDS, LONGEST_NAP_SECONDS = 0.25, 5.0
LONGEST_RETRY_AFTER_SECONDS = 60.0
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_GONE, _BUSY, _PASSING = 404, 429, frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path` is percent-encoded; `patience` is how long the node may wait on purpose, in seconds.

    `repeatable`: sending it twice does no more than sending it once.
    """

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    repeatable: bool = True
    attempts: int = ATTEMPTS
    patience: float = 0

    def at(self, cursor: str | None) -> Self:
        """The same for the page at `cursor`."""
        return replace(self, params={**self.params, "cursor": cursor}) if cursor else self

    def preferring(self, seconds: float) -> Self:
        """The same, with the node asked to answer when the job ends, after `seconds` at most."""
        return replace(self, headers={**self.headers, "Prefer": f"wait={seconds:.3f}"}, patience=seconds)


class Page(Record, Generic[R]):
    """One page of a list; `next_cursor` is None at the end."""

    items: tuple[R, ...]
    next_cursor: str | None = None


def poll(path: str, seconds: float) -> Request:
    """Asks for a job and lets the node answer when it ends, after `seconds` at most."""
    return Request("GET", path, {"wait": f"{seconds:.3f}"}, attempts=POLL_ATTEMPTS, patience=seconds)


def path_of(root: str, name: str, rest: str = "", *, slashes: bool = False) -> str:
    """`/v1/{root}/{name}{rest}` with the name percent-encoded. Raises Misuse for an empty name, which is another route."""
    if not name:
        raise Misuse(f"The name or id under {root} is empty.", "Give the one that the node told, or that you chose.")
    return f"/v1/{root}/{quote(name, safe='/' if slashes else '')}{rest}"


def given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: what is left out takes the node's default."""
    return {name: value for name, value in fields.items() if value is not None}


def idempotency(key: str | None) -> dict[str, str]:
    """The header by which the node knows a repeated request; a fresh key where the caller gives none."""
    return {"Idempotency-Key": key or uuid.uuid4().hex}


def nap_before_repeat(request: Request, attempt: int, outcome: httpx.Response | httpx.RequestError) -> float | None:
    """Seconds until the request may be sent again after the attempt of this number, from 1; None when it may not.

    A request that may not be repeated is sent again only where it surely was not carried out: it never left, or the
    node turned it away with 429. Naps double, and are never shorter than `Retry-After`.
    """
    if attempt >= request.attempts:
        return None
    asked = 0.0
    if isinstance(outcome, httpx.Response):
        if outcome.status_code != _BUSY and not (request.repeatable and outcome.status_code in _PASSING):
            return None
        asked = _retry_after(outcome)
    elif not request.repeatable and not isinstance(outcome, _NEVER_SENT):
        return None
    if asked > LONGEST_RETRY_AFTER_SECONDS:
        return None
    return max(asked, min(FIRST_NAP_SECONDS * 2 ** (attempt - 1), LONGEST_NAP_SECONDS))


def _retry_after(answer: httpx.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def checked(request: Request, attempt: int, outcome: httpx.Response | httpx.RequestError) -> httpx.Response:
    """The answer when it is a good one. A repeated delete that finds nothing is: an earlier attempt has done it.

    Raises what `errors` has for everything else.
    """
    if isinstance(outcome, httpx.RequestError):
        raise no_answer(outcome) from outcome
    gone = request.method == "DELETE" and outcome.status_code == _GONE
    if outcome.is_success or (gone and attempt > 1):
        return outcome
    raise refusal(outcome)


def no_answer(error: httpx.RequestError) -> NoAnswer:
    """What a broken connection means to the caller."""
    what = str(error) or type(error).__name__
    return NoAnswer(f"{error.request.method} {error.request.url} was not answered: {what}.")


def refusal(answer: httpx.Response) -> HopnodeError:
    """The error that an answer without success means."""
    if answer.is_redirect:
        there = answer.headers.get("Location", "")
        return UnexpectedAnswer(f"The address leads on to {there}.", answer.status_code, "Give that address instead.")
    return error_of(answer.status_code, answer.content, _media_type(answer))


def read(kind: type[R], answer: httpx.Response) -> R:
    """The record in an answer. Raises UnexpectedAnswer where it is another one, or none."""
    if _media_type(answer) != "application/json":
        said = _media_type(answer) or "of no type"
        raise UnexpectedAnswer(f"The answer is {said}, not JSON.", answer.status_code)
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        detail = f"The answer is no {kind.__name__} as this client knows it: {where}: {first['msg']}."
        raise UnexpectedAnswer(detail, answer.status_code, "Is the client older than the node? Update it.") from error


def _media_type(answer: httpx.Response) -> str:
    return answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
