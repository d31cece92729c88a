"""What the policy has seen and still sees: the growing list of turns, and the pruned view of it. Knows no wire format.

Observations are lists of blocks, one block a chunk. Pruning hides blocks; rendered text is never parsed again, so a line
inside a chunk that looks like a header stays a line inside that chunk. Every message is counted once, when it enters, and
again only when pruning changes it: exactly where the policy's format can be measured, else as the sum of its parts.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

from hopnode.worker.corpus.records import Chunk
from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.budget import Rules
from hopnode.worker.inference.messages import ToolCall
from hopnode.worker.tokens import count_tokens

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


Measure: TypeAlias = Callable[[Turn], int]
"""The tokens that a visible turn takes in the wire format of a policy."""


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
    """An observation in the context, and what it takes there, in tokens. `costs` has each block, `head` what stands above
    them. `emptied` is what stands in their place once all are hidden, `always` what stays in any case."""

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
    tokens: int = 0


class Context:
    """The state of one run that the policy can see. `used` is the token count of the pruned view, kept as a sum.

    With a `measure` the count is exact at the end of every turn; while a turn's results come in, each adds the tokens of
    its text.
    """

    def __init__(self, question: str, opening_tokens: int, rules: Rules, measure: Measure | None = None) -> None:
        self.question = question
        self._rules = rules
        self._measure = measure
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
        self._recount(self._turns[-1], tokens)

    def observe(self, observation: Observation) -> None:
        """Adds the answer to one call of the present turn."""
        entry, turn = self._entry(observation), self._turns[-1]
        for chunk in observation.chunks:
            self._shown.setdefault(chunk.id, chunk)
            self._found_by.setdefault(chunk.id, {})[observation.found_by] = None
        turn.entries.append(entry)
        if self._measure is None:
            self._charge(turn, entry.tokens)
        elif not observation.error:
            self._charge(turn, count_tokens(self._text(entry, entry.visible)))

    def seal(self) -> tuple[int, str]:
        """Ends the results of this turn with the usage line, which never changes afterwards. Returns the count and the line."""
        turn = self._turns[-1]
        entry = turn.entries[-1]
        self._recount(turn, 0)
        used = self.used
        entry.usage_line = self._rules.say(self._rules.wording.usage_line, used)
        cost = count_tokens(entry.usage_line) + SEPARATOR
        entry.always += cost
        self._recount(turn, cost)
        return used, entry.usage_line

    def note(self, text: str) -> None:
        """Says something to the policy after the present turn; it stays in the conversation."""
        self._turns[-1].note = text
        self._recount(self._turns[-1], MESSAGE_OVERHEAD + count_tokens(text))

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
        for turn in self._turns:
            before = sum(entry.tokens for entry in turn.entries)
            if sum(self._hide_in(entry, given) for entry in turn.entries if entry.observation.kind == kind):
                found = True
                self._recount(turn, sum(entry.tokens for entry in turn.entries) - before)
        return found

    def _hide_in(self, entry: _Entry, given: str) -> bool:
        by_document = entry.observation.kind == "document"
        hidden = {
            at
            for at, chunk in enumerate(entry.observation.chunks)
            if at not in entry.hidden and given == (chunk.document_id if by_document else chunk.id)
        }
        entry.hidden |= hidden
        self._pruned.update(entry.observation.chunks[at].id for at in hidden)
        return bool(hidden)

    def _recount(self, turn: _Turn, estimate: int) -> None:
        """Takes into the count that `turn` has changed: measured anew, or by the estimated difference."""
        exact = self._measure and self._measure(self._visible(turn)) - turn.tokens
        self._charge(turn, estimate if exact is None else exact)

    def _charge(self, turn: _Turn, tokens: int) -> None:
        turn.tokens += tokens
        self.used += tokens
        self.peak = max(self.peak, self.used)

    def _entry(self, observation: Observation) -> _Entry:
        """The observation with what its parts cost where nobody measures."""
        rules = self._rules
        head = observation.text if observation.kind == "text" else ""
        if observation.kind == "document":
            head = document_header(observation.chunks, rules)
        listed = observation.kind == "list"
        return _Entry(
            observation,
            costs=[
                (count_tokens(block_header(chunk, rules)) if listed else 0) + chunk.tokens + SEPARATOR
                for chunk in observation.chunks
            ],
            head=count_tokens(head),
            emptied=count_tokens(rules.wording.emptied),
            always=MESSAGE_OVERHEAD + count_tokens(observation.notice),
        )

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
        if entry.hidden and self._rules.collapse_blank_lines:
            text = _GAP.sub("\n\n", text).strip()
        return "\n\n".join(part for part in (text, entry.usage_line) if part)


_GAP = re.compile(r"\n{3,}")


def block_header(chunk: Chunk, rules: Rules) -> str:
    """The header line of a listed chunk, and under it (where the rules show titles) the title of its document."""
    header = rules.wording.chunk_header.format(id=chunk.id, tokens=chunk.tokens)
    return f"{header}\n{_title(chunk.title, chunk.heading)}" if rules.titles and chunk.title else header


def document_header(chunks: Sequence[Chunk], rules: Rules) -> str:
    """The header line of a document that was read."""
    header = rules.wording.document_header.format(tokens=sum(chunk.tokens for chunk in chunks))
    return f"{header}\n{_title(chunks[0].title)}" if rules.titles and chunks and chunks[0].title else header


def _title(*parts: str) -> str:
    return f"Title: {' '.join(' › '.join(part for part in parts if part).split())[:200]}"


def render(observation: Observation, chunks: Sequence[Chunk], rules: Rules) -> str:
    """The text of an observation that shows `chunks`, a part of its own in the same order."""
    if observation.kind == "text":
        body = observation.text
    elif not chunks:
        body = rules.wording.emptied
    elif observation.kind == "list":
        blocks = "\n\n".join(f"{block_header(chunk, rules)}\n{chunk.text}" for chunk in chunks)
        body = f"{rules.wording.list_lead}{blocks}"
    else:
        body = f"{document_header(chunks, rules)}\n{_joined(chunks)}"
    return f"{body}\n\n{observation.notice}" if observation.notice else body


def _joined(chunks: Sequence[Chunk]) -> str:
    """Neighbours are put together as they stood; a gap becomes a blank line."""
    parts = [chunks[0].text]
    for left, right in pairwise(chunks):
        parts.append(right.text if left.end == right.start else f"\n\n{right.text}")
    return "".join(parts)
