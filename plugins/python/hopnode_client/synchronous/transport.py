"""Sends requests to one node: time limits, repeats where they are safe, pages, waiting for jobs. Knows no route."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TypeVar

import httpx

from hopnode_client.address import bearer, node_address
from hopnode_client.errors import WaitTimedOut, succeeded
from hopnode_client.records import Job, Record
from hopnode_client.requests import POLL_SECONDS, Page, Request, checked, nap_before_repeat, no_answer, read, refusal
from hopnode_client.synchronous.pausing import nap

R = TypeVar("R", bound=Record)
J = TypeVar("J", bound=Job)

GRACE_SECONDS = 5.0
"""What a node that does not answer may take beyond the caller's deadline."""
SHORTEST_POLL_SECONDS = 0.5
"""A node that stops answers its waits at once: it is not asked more often than this."""
SILENCE_SECONDS = 45.0
"""A stream has a sign of life every 15 s; three that are missing mean that it is lost."""


class Transport:
    """The connections to one node. `timeout` is the seconds for a request, without what the node waits on purpose."""

    def __init__(self, base_url: str, key: str, timeout: float) -> None:
        self._timeout = timeout
        agent = f"hopnode-client/{version('hopnode-client')}"
        headers = {"Authorization": bearer(key), "User-Agent": agent, "Accept": "application/json"}
        self._http = httpx.Client(base_url=node_address(base_url), headers=headers)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def send(self, request: Request, until: float | None = None) -> httpx.Response:
        """The good answer to a request, which is repeated where that is safe and `until` (monotonic) leaves time for it.

        Raises what `errors` has for the rest.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                outcome = self._attempt(request, until)
            except httpx.RequestError as error:
                outcome = error
            pause = nap_before_repeat(request, attempt, outcome)
            if pause is None or (until is not None and time.monotonic() + pause >= until):
                return checked(request, attempt, outcome)
            nap(pause)

    def fetch(self, kind: type[R], request: Request, until: float | None = None) -> R:
        """The record in the answer to a request."""
        return read(kind, self.send(request, until))

    def items(self, kind: type[R], request: Request) -> Iterator[R]:
        """What a list holds, page after page, each fetched when it is needed."""
        cursor = None
        while True:
            page = self.fetch(Page[kind], request.at(cursor))
            yield from page.items
            if (cursor := page.next_cursor) is None:
                return

    def until_ended(self, job: J, poll: Callable[[float], Request], until: float) -> J:
        """The job once it has ended, or as it is at `until` (monotonic). `poll` asks for it and waits for some seconds."""
        while not job.ended and (left := until - time.monotonic()) > 0:
            asked = time.monotonic()
            job = self.fetch(type(job), poll(min(left, POLL_SECONDS)), until)
            rest = min(asked + SHORTEST_POLL_SECONDS, until) - time.monotonic()
            if not job.ended and rest > 0:
                nap(rest)
        return job

    def success(self, job: J, poll: Callable[[float], Request], seconds: float) -> J:
        """The job once it has succeeded. Raises JobFailed, and WaitTimedOut when it goes on for longer than `seconds`."""
        job = self.until_ended(job, poll, time.monotonic() + seconds)
        if not job.ended:
            raise WaitTimedOut(job, seconds, "It goes on: wait for it again, or cancel it.")
        return succeeded(job)

    @contextmanager
    def stream(self, request: Request) -> Generator[Iterator[bytes]]:
        """The bytes of an answer as they come. Raises NoAnswer when the connection breaks or falls silent."""
        limits = httpx.Timeout(self._timeout, read=SILENCE_SECONDS)
        try:
            with self._http.stream(
                request.method, request.path, params=request.params, headers=request.headers, timeout=limits
            ) as answer:
                if not answer.is_success:
                    answer.read()
                    raise refusal(answer)
                yield answer.iter_bytes()
        except httpx.RequestError as error:
            raise no_answer(error) from error

    def _attempt(self, request: Request, until: float | None) -> httpx.Response:
        limit = self._timeout + request.patience
        if until is not None:
            limit = min(limit, max(until - time.monotonic(), 0) + GRACE_SECONDS)
        return self._http.request(
            request.method,
            request.path,
            params=request.params,
            json=request.json,
            content=request.content,
            headers=request.headers,
            timeout=limit,
        )
