"""The policy without a language model: takes the question apart, follows names from passage to passage, prunes, ranks.

It sees what any policy sees, and asks the index for counts and links besides; what it returns it first brings into view
with the same tools and under the same budget as a model. `evidence.py` measures, `weighing.py` weighs, this file acts.
"""

import json
from collections.abc import Sequence

from hopnode.worker.corpus.finding.insight import CorpusInsight
from hopnode.worker.harness.actions import Action, FinalEntry
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.context import ContextView
from hopnode.worker.inference.messages import ToolCall
from hopnode.worker.ranking.evidence import Candidate, Evidence
from hopnode.worker.ranking.one_shot import survey
from hopnode.worker.ranking.reasons import called, reason, surface, telling_words, told_link
from hopnode.worker.ranking.weighing import Placement, rank
from hopnode.worker.tokens import count_tokens

NAMES_ASKED = 3
"""Names of the question that are searched for beside the question itself."""
CALLS_PER_TURN = 6
FETCHING_TURNS = 4
"""Turns spent on bringing into view what ranks high, before the policy settles for what it holds."""
SHORT_DOCUMENT_TOKENS = 1_500
NAME_WORDS = 8
OPENING_CHARACTERS = 120
RANK_AT_LEAST = 5

FETCHED_PLACES, FETCH_TRUST = 5, 0.01
"""The first passages are brought into view in any case: where nothing is sure, the best of it is still the best. Behind them
a passage has to be at least so likely to be needed."""
TELLING_WEIGHT = 6.0
"""Names of the question lighter than this (in summed inverse document frequency) are not searched for by themselves."""


class OfflinePolicy:
    """Decides one run; `keep` is how many passages the caller wants back. `surveyed` is what is known already of the
    question of this run."""

    def __init__(
        self, insight: CorpusInsight, keep: int = 10, rules: Rules | None = None, surveyed: Evidence | None = None
    ) -> None:
        self.rules = rules or Rules()
        self._insight = insight
        self._surveyed = surveyed
        self._keep = max(keep, RANK_AT_LEAST)
        self._evidence: Evidence | None = None
        self._ranking: list[Placement] = []
        self._tried: set[tuple[str, str]] = set()
        self._pruned: set[str] = set()
        self._calls = 0

    @property
    def trust(self) -> dict[int, float]:
        """How likely each candidate is needed for the answer, by row; empty before the second turn."""
        return {one.row: one.trust for one in self._ranking}

    def opening_tokens(self, question: str) -> int:
        """Only the question stands before the first turn."""
        return count_tokens(question)

    def stop(self) -> None:
        """Nothing is in flight that could be broken off."""

    def next_action(self, view: ContextView) -> Action:
        """First the question and its names; then what links lead to; at last the list."""
        if self._evidence is None:
            return self._open(view)
        if not self._ranking:
            self._ranking = rank(self._evidence)
        wanted = self._ranking[: self._keep]
        held = {one.chunk.row for one in view.held}
        likely = [one for place, one in enumerate(wanted) if place < FETCHED_PLACES or one.trust >= FETCH_TRUST]
        missing = [one for one in likely if one.row not in held]
        calls = self._fetches(self._evidence, missing) if len(view.turns) <= FETCHING_TURNS and not view.closing else []
        useless = self._useless(view)
        if calls or (useless and not view.closing):
            return self._act(calls, useless)
        return self._conclude(self._evidence, view)

    # --- turns ----------------------------------------------------------------------------------------------------

    def _open(self, view: ContextView) -> Action:
        self._evidence = self._surveyed or survey(view.question, self._insight, self._keep)
        question = self._evidence.question
        phrases = [phrase for phrase in self._evidence.names if question.weight_of(phrase) >= TELLING_WEIGHT]
        names = [surface(view.question, phrase) for phrase in phrases]
        asked = [view.question, *(name for name in names[:NAMES_ASKED] if name != view.question)]
        calls = [self._call("search_corpus", query=query) for query in dict.fromkeys(asked)]
        told = f"The question names {', '.join(f'“{name}”' for name in names)}." if names else "No name is known yet."
        return Action(reasoning=told, calls=tuple(calls))

    def _fetches(self, evidence: Evidence, missing: Sequence[Placement]) -> list[ToolCall]:
        """Calls that should bring these passages into view, each way of each passage once."""
        calls: list[ToolCall] = []
        for one in missing:
            candidate = evidence.candidates[one.row]
            for name, argument, value in self._ways(evidence, candidate):
                if (name, value) not in self._tried and len(calls) < CALLS_PER_TURN:
                    self._tried.add((name, value))
                    calls.append(self._call(name, **{argument: value}))
                    break
        return calls

    def _ways(self, evidence: Evidence, candidate: Candidate) -> list[tuple[str, str, str]]:
        """A search by its name and by the words it shares with the question; a short document may be read; at last a search
        by how it begins, which finds it among many of one name."""
        chunk = candidate.chunk
        name = " ".join(called(evidence, chunk.row).split()[:NAME_WORDS])
        searches = (name, " ".join([name, *telling_words(evidence, chunk.row)]))
        ways = [("search_corpus", "query", query) for query in searches]
        if chunk.position == 0 and chunk.tokens < SHORT_DOCUMENT_TOKENS:
            ways.append(("read_document", "doc_id", chunk.document_id))
        return [*ways, ("search_corpus", "query", " ".join(chunk.text[:OPENING_CHARACTERS].split()))]

    def _useless(self, view: ContextView) -> list[str]:
        """Ids in view that rank too low to be returned."""
        kept = {one.row for one in self._ranking[: self._keep]}
        ids = [one.chunk.id for one in view.held if one.chunk.row not in kept and one.chunk.id not in self._pruned]
        self._pruned.update(ids)
        return ids

    def _act(self, calls: list[ToolCall], useless: list[str]) -> Action:
        parts: list[str] = []
        if useless:
            calls = [self._call("prune_chunks", chunk_ids=useless), *calls]
            parts.append(f"{len(useless)} passages do not help.")
        if self._evidence and len(calls) > bool(useless):
            parts.append(self._plan(self._evidence))
        return Action(reasoning=" ".join(parts), calls=tuple(calls))

    def _plan(self, evidence: Evidence) -> str:
        """Says which links the search follows now."""
        trusted = [one.row for one in self._ranking[: self._keep]]
        told: list[str] = []
        for row in trusted:
            if way := evidence.way_to(row, [other for other in trusted if other != row]):
                told.append(told_link(evidence, row, *way))
        return " ".join(dict.fromkeys(told))

    def _conclude(self, evidence: Evidence, view: ContextView) -> Action:
        ids = {one.chunk.row: one.chunk.id for one in view.held}
        places = [one for one in self._ranking if one.row in ids][: self.rules.final_documents]
        trusted = [one.row for one in places]
        listed = tuple(FinalEntry(ids[one.row], reason(evidence, one.row, trusted)) for one in places)
        return Action(reasoning="Nothing that ranks high is missing.", final=listed)

    def _call(self, name: str, **arguments: object) -> ToolCall:
        self._calls += 1
        return ToolCall(f"call_{self._calls}", name, json.dumps(arguments, ensure_ascii=False))
