"""The tools of the agent, one row each: what the model is told, and the function behind it. Knows no model and no loop.

A tool works in two steps. `fetch` is slow, changes nothing and may run beside other calls; `show` is quick, runs in call
order, and decides what is displayed. What was fetched early is used only where a later fetch would have given the same.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias, cast

from pydantic import JsonValue

from hopnode.worker import tracing
from hopnode.worker.corpus.records import Chunk, SearchHits
from hopnode.worker.errors import InvalidRequest, ModelRefused, ModelUnavailable, NodeError, NotFound, ToolError
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.context import Context, Observation
from hopnode.worker.inference.messages import ToolCall, ToolSpec
from hopnode.worker.logs import get_logger
from hopnode.worker.ranking.overlap import by_overlap

log = get_logger(__name__)


class SearchSpace(Protocol):
    """What the tools need of the indexed text: the collections of one search, already filtered."""

    def search(self, query: str, *, k: int, exclude: frozenset[str], missing_rank: int | None) -> SearchHits:
        """At most `k` chunks, best first, without the excluded ids; `missing_rank` counts where a leg did not find one."""
        ...

    def grep(self, pattern: str, *, limit: int) -> list[Chunk]:
        """The first chunks that match. Raises InvalidRequest for a bad pattern."""
        ...

    def read(self, document_id: str) -> list[Chunk]:
        """All chunks of a document in document order; NotFound."""
        ...


Reranker: TypeAlias = Callable[[str, Sequence[Chunk]], Sequence[float]]
"""Scores chunks against a query, higher is better; ModelUnavailable or ModelRefused when it cannot."""

PRUNE = "prune_chunks"
"""The tool that takes effect before the others of its turn, and that no budget refuses."""

Arguments: TypeAlias = tuple[str, ...]
"""The strings of a call's only argument: one, or a list of ids."""

Found: TypeAlias = SearchHits | list[Chunk] | None


@dataclass(frozen=True)
class Fetched:
    """What `fetch` brought, or the error it ended with, and which ids were left out."""

    found: Found
    exclude: frozenset[str]
    error: ToolError | None = None
    failed: bool = False


@dataclass(frozen=True)
class Tool:
    """A row of the tool table. `aliases` are argument names that models write instead of the right one."""

    spec: ToolSpec
    argument: str
    fetch: Callable[["Toolbox", str, frozenset[str]], Found]
    show: Callable[["Toolbox", ToolCall, Arguments, Fetched], Observation]
    aliases: tuple[str, ...] = ()
    many: bool = False


@dataclass
class Toolbox:
    """Runs tool calls over one search space for one context; holds what must be remembered between calls.

    `seen` are the ids that searches displayed, `surfaced` the query that first displayed a document.
    """

    space: SearchSpace
    context: Context
    rules: Rules
    reranker: Reranker | None = None
    seen: set[str] = field(default_factory=set[str])
    surfaced: dict[str, str] = field(default_factory=dict[str, str])
    degraded: dict[str, None] = field(default_factory=dict[str, None])
    index_version: int = 0
    vector_lag: int = 0
    rerank_seconds: float = 0.0
    _made: dict[tuple[str, Arguments], int] = field(default_factory=dict[tuple[str, Arguments], int])
    _scores: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])

    def call(self, call: ToolCall, fetched: Fetched | None = None) -> Observation:
        """Answers one call. Whatever the model did wrong becomes an observation that says so; NodeErrors that fail the
        job are raised. `fetched` is what `prefetch` brought for this very call."""
        try:
            tool, arguments = self._understand(call)
            if tool.spec.name != PRUNE and self.rules.rejects(self.context.used):
                raise ToolError(self.rules.say(self.rules.wording.rejected, self.context.used))
            times = self._count(tool, arguments)
            fetched = fetched or self.prefetch(call, frozenset(self.seen))
            if fetched.failed:
                self.degraded["tool-failed"] = None
            if fetched.error:
                raise fetched.error
            observation = tool.show(self, call, arguments, fetched)
        except ToolError as error:
            return Observation(call, text=str(error), error=True)
        notice = self.rules.wording.repeated if times else ""
        return replace(observation, notice=notice) if notice else observation

    def prefetch(self, call: ToolCall, exclude: frozenset[str]) -> Fetched:
        """The slow half of a call; changes nothing here, so it may run on any thread beside other calls."""
        try:
            tool, arguments = self._understand(call)
            with tracing.span(f"tool {tool.spec.name}"):
                return Fetched(tool.fetch(self, arguments[0], exclude), exclude)
        except ToolError as error:
            return Fetched(None, exclude, error)
        except (InvalidRequest, NotFound) as error:
            return Fetched(None, exclude, ToolError(str(error)))
        except NodeError:
            raise
        except Exception:  # boundary "tool call": a defect in one tool must not lose the whole search
            log.exception("tool_failed", tool=call.name)
            return Fetched(None, exclude, ToolError(self.rules.wording.tool_failed.format(name=call.name)), failed=True)

    def refused(self, call: ToolCall) -> Observation:
        """The answer to a call over the limit of tool calls."""
        return Observation(call, text=self.rules.wording.too_many_calls, error=True)

    def _understand(self, call: ToolCall) -> tuple[Tool, Arguments]:
        tool = TOOLS.get(call.name)
        if tool is None and call.name == self.rules.carrier:
            raise ToolError(self.rules.wording.bad_carrier.format(name=call.name))
        if tool is None:
            names = ", ".join(TOOLS)
            raise ToolError(self.rules.wording.unknown_tool.format(name=call.name[:64], tools=names))
        try:
            return tool, read_arguments(tool, call.arguments)
        except ValueError as error:
            expected = json.dumps({tool.argument: ["<string>"] if tool.many else "<string>"})
            text = self.rules.wording.bad_arguments
            raise ToolError(text.format(name=call.name, problem=error, expected=expected)) from error

    def _count(self, tool: Tool, arguments: Arguments) -> int:
        """How often this very call was made before; from the third time on it is refused."""
        if tool.spec.name == PRUNE:
            return 0
        key = (tool.spec.name, arguments)
        times = self._made.get(key, 0)
        self._made[key] = times + 1
        if times >= 2:
            raise ToolError(self.rules.wording.withdrawn.format(count=times))
        return times

    def ranked(self, query: str, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Chunks by the reranker, best first, each pair scored once in a run; unchanged when there is no reranker."""
        if self.reranker is None or not chunks:
            return list(chunks)
        new = [chunk for chunk in chunks if (query, chunk.id) not in self._scores]
        started = time.monotonic()
        try:
            scores = self.reranker(query, new) if new else ()
        except (ModelUnavailable, ModelRefused):
            self.degraded["reranker-unavailable"] = None
            return list(chunks)
        finally:
            self.rerank_seconds += time.monotonic() - started
        self._scores.update({(query, chunk.id): score for chunk, score in zip(new, scores, strict=True)})
        return sorted(chunks, key=lambda chunk: -self._scores[query, chunk.id])


def read_arguments(tool: Tool, raw: str) -> Arguments:
    """The strings of a call's argument; ValueError says what is wrong in words for the model.

    Tolerated: an alias of the name, a single id where a list is wanted, numbers for ids, further arguments.
    """
    try:
        parsed = cast(object, json.loads(raw or "{}"))
    except ValueError:
        raise ValueError("they are not valid JSON") from None
    if not isinstance(parsed, dict):
        raise ValueError("they are not a JSON object")
    values = cast(dict[str, object], parsed)
    value = next((values[name] for name in (tool.argument, *tool.aliases) if name in values), None)
    if value is None:
        raise ValueError(f"'{tool.argument}' is missing")
    items = cast(list[object], value) if isinstance(value, list) else [value]
    if len(items) > 1 and not tool.many:
        raise ValueError(f"'{tool.argument}' must be one string")
    if any(isinstance(item, bool) or not isinstance(item, str | int) for item in items):
        raise ValueError(f"'{tool.argument}' must be {'a list of strings' if tool.many else 'a string'}")
    texts = tuple(text for item in items if (text := str(item).strip()))
    if not texts:
        raise ValueError(f"'{tool.argument}' is empty")
    return texts


def _search(box: Toolbox, query: str, exclude: frozenset[str]) -> SearchHits:
    rules = box.rules
    hits = box.space.search(query, k=rules.candidates, exclude=exclude, missing_rank=rules.missing_rank)
    box.ranked(query, [hit.chunk for hit in hits.hits])  # fills the score cache while other calls are fetched
    return hits


def _show_search(box: Toolbox, call: ToolCall, arguments: Arguments, fetched: Fetched) -> Observation:
    query = arguments[0]
    hits = cast(SearchHits, fetched.found)
    newly_seen = box.seen - fetched.exclude
    if any(hit.chunk.id in newly_seen for hit in hits.hits):
        # An earlier call of this turn displayed some of these candidates. Dropping them here would not do: without them
        # the legs' ranks shift, and other chunks come up. So ask again, as a sequential run would have asked.
        hits = _search(box, query, frozenset(box.seen))
    box.degraded.update(dict.fromkeys(hits.degraded))
    box.index_version, box.vector_lag = hits.index_version, hits.vector_lag
    ranked = box.ranked(query, [hit.chunk for hit in hits.hits if hit.chunk.id not in box.seen])
    shown = fitting(ranked, box.rules.result_allowance(box.context.used), box.rules.result_chunks)
    for chunk in shown:
        box.seen.add(chunk.id)
        box.surfaced.setdefault(chunk.document_id, query)
    if not shown:
        return Observation(call, text=box.rules.wording.nothing_fits if ranked else box.rules.wording.no_results)
    return Observation(call, "list", tuple(shown), found_by=query)


def _grep(box: Toolbox, pattern: str, exclude: frozenset[str]) -> list[Chunk]:  # noqa: ARG001 - a row's signature
    return box.space.grep(pattern, limit=box.rules.grep_chunks)


def _show_grep(box: Toolbox, call: ToolCall, arguments: Arguments, fetched: Fetched) -> Observation:
    shown = tuple(cast(list[Chunk], fetched.found)[: box.rules.grep_chunks])
    if not shown:
        return Observation(call, text=box.rules.wording.no_results)
    return Observation(call, "list", shown, found_by=f"grep: {arguments[0]}")


def _read(box: Toolbox, document_id: str, exclude: frozenset[str]) -> list[Chunk]:  # noqa: ARG001 - a row's signature
    # Document ids hold no underscore, so a chunk id given by mistake is cut down to its document's.
    return box.space.read(document_id.split("_", 1)[0])[: box.rules.document_chunks]


def _show_read(box: Toolbox, call: ToolCall, arguments: Arguments, fetched: Fetched) -> Observation:  # noqa: ARG001
    chunks = cast(list[Chunk], fetched.found)
    if not chunks:
        return Observation(call, text=box.rules.wording.no_results)
    allowance = box.rules.result_allowance(box.context.used)
    if sum(chunk.tokens for chunk in chunks) > allowance:
        best = fitting(_by_surfacing_query(box, chunks), allowance, len(chunks))
        chunks = sorted(best, key=lambda chunk: chunk.position)
    if not chunks:
        return Observation(call, text=box.rules.wording.nothing_fits)
    return Observation(call, "document", tuple(chunks), found_by=f"read: {chunks[0].document_id}")


def _by_surfacing_query(box: Toolbox, chunks: list[Chunk]) -> list[Chunk]:
    """Best first for the query that first displayed the document; in document order when no search displayed it."""
    query = box.surfaced.get(chunks[0].document_id)
    if query is None:
        return chunks
    if box.reranker is not None:
        return box.ranked(query, chunks)
    scores = by_overlap(query, chunks)
    return [chunks[at] for at in sorted(range(len(chunks)), key=lambda at: -scores[at])]


def _nothing(box: Toolbox, argument: str, exclude: frozenset[str]) -> None:  # noqa: ARG001 - a row's signature
    return None


def _prune(box: Toolbox, call: ToolCall, arguments: Arguments, fetched: Fetched) -> Observation:  # noqa: ARG001
    return Observation(call, text=box.rules.wording.pruned, pruned=box.context.prune(arguments))


def fitting(chunks: Sequence[Chunk], allowance: int, limit: int) -> list[Chunk]:
    """The first chunks, in order, within `limit` pieces and `allowance` tokens; ends at the first that does not fit."""
    taken: list[Chunk] = []
    tokens = 0
    for chunk in chunks[:limit]:
        tokens += chunk.tokens
        if tokens > allowance:
            break
        taken.append(chunk)
    return taken


def _schema(argument: str, described: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {
        "type": "object",
        "properties": {argument: dict(described)},
        "required": [argument],
        "additionalProperties": False,
    }


_ROWS: tuple[Tool, ...] = (
    Tool(
        ToolSpec(
            "search_corpus",
            "Finds passages by meaning and by words. Passages that earlier searches returned are left out.",
            _schema("query", {"type": "string", "description": "What to look for, in plain words."}),
        ),
        argument="query",
        fetch=_search,
        show=_show_search,
    ),
    Tool(
        ToolSpec(
            "grep_corpus",
            "Finds the first passages whose text matches a regular expression (RE2 syntax, (?i) for any case).",
            _schema("pattern", {"type": "string", "description": "The regular expression."}),
        ),
        argument="pattern",
        fetch=_grep,
        show=_show_grep,
    ),
    Tool(
        ToolSpec(
            "read_document",
            "Reads a document; of a long one, the parts that fit the query which found it.",
            _schema("doc_id", {"type": "string", "description": "The id before the underscore of a passage id."}),
        ),
        argument="doc_id",
        fetch=_read,
        show=_show_read,
        aliases=("id", "document_id"),
    ),
    Tool(
        ToolSpec(
            PRUNE,
            "Drops passages that do not help from your context, which frees tokens. Prune many at once.",
            _schema("chunk_ids", {"type": "array", "items": {"type": "string"}}),
        ),
        argument="chunk_ids",
        fetch=_nothing,
        show=_prune,
        aliases=("ids", "chunk_id"),
        many=True,
    ),
)

TOOLS: Mapping[str, Tool] = {tool.spec.name: tool for tool in _ROWS}
"""The four tools by name, in the order in which a model is told of them."""
