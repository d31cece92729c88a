"""The command line's side of the HTTP contract: one client for a node, errors turned into sentences, the event stream.

Knows addresses, keys and status codes; refuses to know how a node is found or how results look.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, TypeAlias
from urllib.parse import quote, urlsplit

import httpx

from hopnode.node_service.commands.terminal.exits import DOCTOR, CommandError, ExitCode

JsonObject: TypeAlias = dict[str, Any]
RECONNECTS = 5
UPLOAD_SECONDS = 3600.0
"""A large document is parsed and embedded before the node answers."""
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})
_MENDS = {
    401: "Set HOPNODE_API_KEY to a key of this node, or unset it to use the one in the data folder.",
    403: "Use a key with that scope: `hopnode keys create NAME --scope …` with an admin key.",
    404: "`hopnode collections list` and `hopnode sync --list` show what exists.",
    409: "Wait until the other operation is done, or choose another name.",
    413: "Split the document, or raise HOPNODE_MAX_DOCUMENT_BYTES on the node.",
}
_REFUSED = frozenset({401, 403, 404})


class NodeRefused(CommandError):
    """The node answered with a problem; `reason` is its slug."""

    def __init__(self, status: int, reason: str, detail: str) -> None:
        code = ExitCode.REFUSED if status in _REFUSED else ExitCode.FAILED
        code = ExitCode.USAGE if reason == "invalid-request" else code
        mend = "Correct that value; `--help` of the command says what it takes." if code == ExitCode.USAGE else DOCTOR
        super().__init__(detail, _MENDS.get(status, mend), code)
        self.http_status = status
        self.reason = reason


@dataclass(frozen=True)
class NodeEvent:
    """One event of a search's stream; `number` is the step's number, 0 where the event is none."""

    number: int
    kind: str
    data: JsonObject


class NodeUnreachable(CommandError):
    """Nobody answered, or the connection broke off."""


class NodeClient:
    """Speaks to one node with one key. Thread-safe; close it after use."""

    def __init__(
        self, url: str, key: str | None, *, timeout_seconds: float = 300, reconnect_seconds: float = 0.5
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.url = url.rstrip("/")
        self._reconnect_seconds = reconnect_seconds
        # For a node on this machine a proxy from the environment would be in the way.
        trust_env = not is_on_this_machine(self.url)
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_seconds, trust_env=trust_env)

    def __enter__(self) -> "NodeClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def get(self, path: str, **params: str | int | float) -> JsonObject:
        """GET, the JSON body of the answer. Raises NodeRefused, or CommandError when nobody answers."""
        return self._json("GET", path, params=params)

    def pages(self, path: str, **params: str | int | float) -> Iterator[JsonObject]:
        """Every item of a list route, page by page; raises as `get`."""
        cursor: dict[str, str] = {}
        while True:
            page = self.get(path, **params, **cursor)
            yield from page["items"]
            if not page.get("next_cursor"):
                return
            cursor = {"cursor": page["next_cursor"]}

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> JsonObject:
        """POST of a JSON body, the JSON body of the answer; raises as `get`."""
        return self._json("POST", path, json=body)

    def delete(self, path: str) -> None:
        """DELETE; raises as `get`."""
        self._json("DELETE", path)

    def upload(self, collection: str, key: str, content: bytes | IO[bytes], media_type: str) -> JsonObject:
        """PUT of the raw bytes of one document; the node's outcome. Raises as `get`."""
        path = f"/v1/collections/{quote(collection, safe='')}/documents/{quote(key)}"
        headers = {"Content-Type": media_type}
        return self._json(
            "PUT", path, content=content, headers=headers, timeout=httpx.Timeout(UPLOAD_SECONDS, connect=10)
        )

    def follow(self, search_id: str) -> Iterator[NodeEvent]:
        """The steps of a search until it ends; goes on where it stopped when the connection breaks off."""
        last, failures = 0, 0
        while failures < RECONNECTS:
            try:
                with self._http.stream("GET", f"/v1/searches/{search_id}/events", params={"after": last}) as answer:
                    _raise_for(answer)
                    for event in read_events(answer.iter_lines()):
                        if event.kind == "end" and not event.number:  # a step of that kind has a number
                            return
                        last, failures = event.number, 0
                        yield NodeEvent(event.number, event.kind, event.data["data"])
            except httpx.TransportError:
                pass  # asked again below, from the last step on
            failures += 1
            time.sleep(self._reconnect_seconds)
        raise CommandError(
            f"The event stream of search {search_id} broke off {RECONNECTS} times in a row.",
            f"If the node still runs, the search goes on: GET {self.url}/v1/searches/{search_id} has its result.",
        )

    def _json(self, method: str, path: str, **options: Any) -> JsonObject:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        _raise_for(answer)
        try:
            return answer.json() if answer.content else {}
        except ValueError as error:
            raise CommandError(
                f"What answers at {self.url} is not a Hopnode node.", "Correct HOPNODE_URL; it has no path."
            ) from error

    def _unreachable(self, error: Exception) -> NodeUnreachable:
        return NodeUnreachable(
            f"No node answers at {self.url} ({type(error).__name__}).",
            "Start one with `hopnode serve`, or correct HOPNODE_URL (unset: the node of the data folder).",
        )


def is_on_this_machine(url: str) -> bool:
    """Whether the URL names a loopback address."""
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def _raise_for(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    answer.read()
    try:
        problem = answer.json()
        detail = str(problem.get("detail") or problem.get("title"))
        reason = str(problem.get("reason") or problem.get("code") or str(problem.get("type", "")).rpartition("/")[2])
    except (ValueError, AttributeError):
        detail, reason = f"The node answered {answer.status_code} without saying why.", str(answer.status_code)
    raise NodeRefused(answer.status_code, reason, detail)


def read_events(lines: Iterable[str]) -> Iterator[NodeEvent]:
    """Parses a Server-Sent Events stream (WHATWG HTML, section 9.2.6); comments and empty events are left out."""
    number, kind, data = 0, "message", list[str]()
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line == "":
            if data:
                yield NodeEvent(number, kind, json.loads("\n".join(data)))
            number, kind, data = 0, "message", []
        elif name == "id" and value.isdigit():
            number = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
