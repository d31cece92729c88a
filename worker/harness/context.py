"""What the policy has seen and still sees: the growing list of turns, and the pruned view of it. Knows no wire format.

Observations are lists of blocks, one block a chunk. Pruning hides blocks; rendered text is never parsed again, so a line
inside a chunk that looks like a header stays a line inside that chunk. Every message is counted once, when it enters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from worker.corpus.records import Chunk
from worker.harness.actions import Action
from worker.harness.budget import Rules
from worker.inference.messages import ToolCall
from worker.tokens import count_tokens

MESSAGE_OVERHEAD = 5
"""Tokens that a chat format adds around one message: role, delimiters, channel."""
CALL_OVERHEAD = 8
"""Tokens that a chat format adds around one tool call: recipient, content type, delimiters."""
SEPARATOR = 1
"""Tokens of the blank line between two blocks."""


@dataclass(frozen=True)
class Pruned:
    """What one prune call did: chunk ids hidden, ids of read documents hidden, ids that were nowhere in view."""

    chunk_ids: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    freed_tokens: int = 0


@dataclass(frozen=True)
class Observation:
    """The answer to one tool call. `kind` says how `chunks` are shown: each under its own header, as one document,
    or not at all (then `text` is the whole answer). `found_by` is what goes to `Selection.found_by`."""

    call: ToolCall
    kind: Literal["list", "document", "text"] = "text"
    chunks: tuple[Chunk, ...] = ()
    text: str = ""
    notice: str = ""
    found_by: str = ""
    error: bool = False
    pruned: Pruned | None = None


@dataclass(frozen=True)
class Result:
    """One tool result as it is visible now: the chunks that were not pruned, and the text that a model reads."""

    call: ToolCall
    chunks: tuple[Chunk, ...]
    text: str


@dataclass(frozen=True)
class Turn:
    """One past turn as it is visible now; `note` is what the harness said to the policy after it."""

    action: Action
    results: tuple[Result, ...]
    note: str


@dataclass(frozen=True)
class Held:
    """A visible chunk; `weight` is the sum of reciprocal ranks over the results that show it, `found_by` those results."""

    chunk: Chunk
    weight: float
    found_by: tuple[str, ...]


@dataclass(frozen=True)
class ContextView:
    """All that a policy may look at. `transient` is said last and only this once; `closing` forbids further calls."""

    question: str
    turns: tuple[Turn, ...]
    held: tuple[Held, ...]
    used: int
    reply_tokens: int
    transient: str = ""
    closing: bool = False


@dataclass
class _Entry:
    """An observation in the context: the tokens of each block, of the head above them, of what stands in their place
    once all are hidden, and of everything that always stays."""

    observation: Observation
    costs: list[int]
    head: int
    emptied: int
    always: int
    usage_line: str = ""
    hidden: set[int] = field(default_factory=set[int])

    @property
    def tokens(self) -> int:
        seen = [cost for at, cost in enumerate(self.costs) if at not in self.hidden]
        if seen or not self.costs:
            return self.always + self.head + sum(seen)
        return self.always + self.emptied

    @property
    def visible(self) -> tuple[Chunk, ...]:
        return tuple(chunk for at, chunk in enumerate(self.observation.chunks) if at not in self.hidden)


@dataclass
class _Turn:
    action: Action
    entries: list[_Entry] = field(default_factory=list[_Entry])
    note: str = ""


class Context:
    """The state of one run that the policy can see. `used` is the token count of the pruned view, kept as a sum."""

    def __init__(self, question: str, opening_tokens: int, rules: Rules) -> None:
        self.question = question
        self._rules = rules
        self._turns: list[_Turn] = []
        self._shown: dict[str, Chunk] = {}
        self._found_by: dict[str, dict[str, None]] = {}
        self._pruned: set[str] = set()
        self.used = opening_tokens
        self.peak = opening_tokens

    @property
    def pruned_chunks(self) -> int:
        """Number of different chunks that were pruned at least once."""
        return len(self._pruned)

    def act(self, action: Action) -> None:
        """Begins a turn with what the policy decided."""
        self._turns.append(_Turn(action))
        tokens = MESSAGE_OVERHEAD + count_tokens(action.reasoning) + count_tokens(action.text)
        for call in action.calls:
            tokens += CALL_OVERHEAD + count_tokens(call.name) + count_tokens(call.arguments)
        self._charge(tokens)

    def observe(self, observation: Observation) -> None:
        """Adds the answer to one call of the present turn."""
        titles = self._rules.titles
        head = observation.text if observation.kind == "text" else ""
        if observation.kind == "document":
            head = document_header(observation.chunks, titles)
        entry = _Entry(
            observation,
            costs=[],
            head=count_tokens(head),
            emptied=count_tokens(self._rules.wording.emptied),
            always=MESSAGE_OVERHEAD + count_tokens(observation.notice),
        )
        for chunk in observation.chunks:
            self._shown.setdefault(chunk.id, chunk)
            self._found_by.setdefault(chunk.id, {})[observation.found_by] = None
            header = count_tokens(block_header(chunk, titles)) if observation.kind == "list" else 0
            entry.costs.append(header + chunk.tokens + SEPARATOR)
        self._turns[-1].entries.append(entry)
        self._charge(entry.tokens)

    def seal(self) -> str:
        """Ends the present turn's results with the usage line, which stays as it is from now on, and returns it."""
        entry = self._turns[-1].entries[-1]
        entry.usage_line = self._rules.say(self._rules.wording.usage_line, self.used)
        cost = count_tokens(entry.usage_line) + SEPARATOR
        entry.always += cost
        self._charge(cost)
        return entry.usage_line

    def note(self, text: str) -> None:
        """Says something to the policy after the present turn; it stays in the conversation."""
        self._turns[-1].note = text
        self._charge(MESSAGE_OVERHEAD + count_tokens(text))

    def prune(self, ids: Iterable[str]) -> Pruned:
        """Hides what was shown so far under these chunk ids, and reads of these document ids where the rules allow it."""
        before = self.used
        chunk_ids: list[str] = []
        document_ids: list[str] = []
        unknown: list[str] = []
        for given in dict.fromkeys(ids):
            if self._hide("list", given):
                chunk_ids.append(given)
            elif self._rules.prune_documents and self._hide("document", given):
                document_ids.append(given)
            else:
                unknown.append(given)
        return Pruned(tuple(chunk_ids), tuple(document_ids), tuple(unknown), before - self.used)

    def _hide(self, kind: str, given: str) -> bool:
        found = False
        for entry in (entry for turn in self._turns for entry in turn.entries if entry.observation.kind == kind):
            before = entry.tokens
            for at, chunk in enumerate(entry.observation.chunks):
                if at not in entry.hidden and given == (chunk.id if kind == "list" else chunk.document_id):
                    entry.hidden.add(at)
                    self._pruned.add(chunk.id)
                    found = True
            self.used += entry.tokens - before
        return found

    def _charge(self, tokens: int) -> None:
        self.used += tokens
        self.peak = max(self.peak, self.used)

    def shown(self) -> dict[str, Chunk]:
        """Every chunk that was ever displayed, pruned or not, in the order of first display."""
        return dict(self._shown)

    def found_by(self, chunk_id: str) -> tuple[str, ...]:
        """How a displayed chunk was found, oldest first."""
        return tuple(self._found_by.get(chunk_id, {}))

    def held(self) -> tuple[Held, ...]:
        """Chunks in view, in the order of first display."""
        weights: dict[str, float] = {}
        for entry in (entry for turn in self._turns for entry in turn.entries):
            for rank, chunk in enumerate(entry.visible, start=1):
                weights[chunk.id] = weights.get(chunk.id, 0.0) + 1 / (60 + rank)
        return tuple(Held(self._shown[key], weight, self.found_by(key)) for key, weight in weights.items())

    def view(self, *, closing: bool = False) -> ContextView:
        """The pruned view for the next inference, with what is only said this once."""
        rules, transient = self._rules, ""
        if closing:
            transient = rules.wording.closing
        elif rules.soft_message and rules.over_soft(self.used):
            transient = rules.say(rules.wording.over_budget, self.used)
        prompt = self.used + (MESSAGE_OVERHEAD + count_tokens(transient) if transient else 0)
        return ContextView(
            question=self.question,
            turns=tuple(self._visible(turn) for turn in self._turns),
            held=self.held(),
            used=self.used,
            reply_tokens=rules.reply_cap(self.used, prompt),
            transient=transient,
            closing=closing,
        )

    def _visible(self, turn: _Turn) -> Turn:
        results = (
            Result(entry.observation.call, entry.visible, self._text(entry, entry.visible)) for entry in turn.entries
        )
        return Turn(turn.action, tuple(results), turn.note)

    def _text(self, entry: _Entry, chunks: Sequence[Chunk]) -> str:
        text = render(entry.observation, chunks, self._rules)
        return f"{text}\n\n{entry.usage_line}" if entry.usage_line else text


def block_header(chunk: Chunk, titles: bool) -> str:
    """The header line of a listed chunk, and under it (where the rules show titles) the title of its document."""
    header = f"# DOCUMENT ID: {chunk.id} ({chunk.tokens} tokens)"
    return f"{header}\n{_title(chunk.title, chunk.heading)}" if titles and chunk.title else header


def document_header(chunks: Sequence[Chunk], titles: bool) -> str:
    """The header line of a document that was read."""
    header = f"# Document ({sum(chunk.tokens for chunk in chunks)} tokens)"
    return f"{header}\n{_title(chunks[0].title)}" if titles and chunks and chunks[0].title else header


def _title(*parts: str) -> str:
    return f"Title: {' '.join(' › '.join(part for part in parts if part).split())[:200]}"


def render(observation: Observation, chunks: Sequence[Chunk], rules: Rules) -> str:
    """The text of an observation that shows `chunks`, a part of its own in the same order."""
    if observation.kind == "text":
        body = observation.text
    elif not chunks:
        body = rules.wording.emptied
    elif observation.kind == "list":
        body = "\n\n".join(f"{block_header(chunk, rules.titles)}\n{chunk.text}" for chunk in chunks)
    else:
        body = f"{document_header(chunks, rules.titles)}\n{_joined(chunks)}"
    return f"{body}\n\n{observation.notice}" if observation.notice else body


def _joined(chunks: Sequence[Chunk]) -> str:
    """Neighbours are put together as they stood; a gap becomes a blank line."""
    parts = [chunks[0].text]
    for left, right in pairwise(chunks):
        parts.append(right.text if left.end == right.start else f"\n\n{right.text}")
    return "".join(parts)
