"""Replays runs whose every prompt, result and count was written from the reference; see `tests/data/golden/README.md`."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import pytest
from support.harness import golden
from support.harness.context1 import QUESTION, RawRun
from support.harness.harmony import harmony
from support.harness.space import MemorySpace

from hopnode.worker.corpus.records import Chunk, Hit, SearchHits
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.profiles.context1 import CONTEXT_1_RULES
from hopnode.worker.harness.profiles.phrasing import Phrasing

WORDING = Phrasing(
    "Find documents for this query.\n\n<query>\n{query}\n</query>",
    {
        "search_corpus": "Searches.",
        "search_corpus.query": "What to search for.",
        "grep_corpus": "Searches by pattern.",
        "grep_corpus.pattern": "The pattern.",
        "read_document": "Reads.",
        "read_document.doc_id": "What to read.",
        "multi_tool_use": "Calls in parallel.",
        "multi_tool_use.tool_calls": "The calls.",
        "prune_chunks": "Drops chunks.",
    },
)
each_case = pytest.mark.parametrize("name", golden.CASES)


class ListedSpace(MemorySpace):
    """A corpus whose searches find what a file says, in its order."""

    def __init__(self, corpus: dict[str, str], searches: dict[str, list[str]]) -> None:
        documents: dict[str, list[str]] = {}
        for key, text in corpus.items():
            document, position = key.split("_")
            assert len(documents.setdefault(document, [])) == int(position), "chunks stand in order"
            documents[document].append(text)
        super().__init__(documents)
        self.searches = searches

    def search(self, query: str, *, k: int, exclude: frozenset[str], missing_rank: int | None = None) -> SearchHits:
        assert k == 50, "25 dense and 25 lexical candidates"
        assert missing_rank == 20, "what the profile's rules say, and no other default"
        chunks = {chunk.id: chunk for chunks in self.documents.values() for chunk in chunks}
        found = [key for key in self.searches[query] if key not in exclude]
        return SearchHits(tuple(Hit(chunks[key], 1.0) for key in found))


def rules_of(settings: dict[str, str]) -> Rules:
    typed: dict[str, Any] = {
        name: int(value) if value.isdigit() else {"true": True, "false": False}.get(value, value)
        for name, value in settings.items()
    }
    return dataclasses.replace(CONTEXT_1_RULES, **typed)


def replayed(case: golden.Golden) -> RawRun:
    def rerank(query: str, chunks: Sequence[Chunk]) -> list[float]:
        return [case.scores[query][chunk.id] for chunk in chunks]

    return RawRun(
        case.completions,
        ListedSpace(case.corpus, case.searches),
        rules=rules_of(case.settings),
        phrasing=WORDING,
        reranker=rerank if case.scores else None,
    )


@each_case
def test_the_numbers_in_a_file_are_the_counts_of_its_own_text(name: str) -> None:
    """No harness runs here: every usage line is held against the text above it as it was when the line was written, and
    every header against its chunk."""
    case, known = golden.load(name), set[str]()
    for request in case.requests:
        for number, text in golden.usages(request.prompt).items():
            if number not in known:
                assert int(number.replace(",", "")) == len(harmony().encode(text))
                known.add(number)
        for key, number in re.findall(r"# DOCUMENT ID: (\w+) \((\d+) tokens\)", request.prompt):
            assert int(number) == len(harmony().encode(case.corpus[key])), key
    assert known


@each_case
def test_a_golden_trajectory_is_replayed_token_for_token(name: str) -> None:
    case = golden.load(name)
    run = replayed(case)
    outcome = run(QUESTION)
    for sent, expected in zip(run.prompts, case.requests, strict=True):
        assert sent == expected.whole
    for request, expected in zip(run.sampler.requests, case.requests, strict=True):
        assert list(request.prompt) == list(harmony().encode(expected.whole))
        assert expected.cap in (None, request.max_tokens)
    assert [step["shown"] for step in run.data("observation")] == case.shown
    assert outcome.stop_reason == case.reason
    assert [selection.chunk.id for selection in outcome.selections] == case.selections


@each_case
def test_what_is_counted_in_a_golden_trajectory_is_what_is_sent(name: str) -> None:
    case = golden.load(name)
    run = replayed(case)
    run(QUESTION)
    asked = [
        request for request, repeated in zip(case.requests, [None, *case.requests], strict=False) if request != repeated
    ]
    counted = [step["context_tokens"] for step in run.data("action")]
    assert counted == [len(harmony().encode(request.prompt)) for request in asked]


def test_the_files_cover_the_rules() -> None:
    told = "\n".join((golden.FOLDER / f"{name}.txt").read_text(encoding="utf-8") for name in golden.CASES)
    for rule in ("1.2", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11"):
        assert rule in told
    assert len(golden.CASES) >= 12
