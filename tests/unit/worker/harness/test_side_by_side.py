"""The calls of one turn, run by the agent on its threads, against the same calls made one after the other."""

import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness.agent import Run, tool_call
from support.harness.space import MemorySpace

from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.context import Context, Observation
from hopnode.worker.harness.profiles.generic import GenericProfile
from hopnode.worker.harness.tools import PRUNE, Toolbox
from hopnode.worker.inference.scripted import say, use

QUESTION = "Where was the director of Moonrise born?"
WORDS = ["film", "Anna", "Oslo", "moon", "fjord", "train", "north", "river"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
CORPORA = st.dictionaries(
    st.sampled_from([f"d{n}" for n in range(12)]), st.lists(TEXTS, min_size=1, max_size=4), min_size=1
)
IDS = st.builds("d{}_{}".format, st.integers(0, 12), st.integers(0, 4))
CALLS = st.one_of(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(lambda ws: ("search_corpus", {"query": " ".join(ws)})),
    st.sampled_from([*WORDS, "("]).map(lambda pattern: ("grep_corpus", {"pattern": pattern})),
    st.integers(0, 12).map(lambda n: ("read_document", {"doc_id": f"d{n}"})),
    st.lists(IDS, min_size=1, max_size=4).map(lambda ids: ("prune_chunks", {"chunk_ids": ids})),
)
TURNS = st.lists(st.lists(CALLS, min_size=1, max_size=6), min_size=1, max_size=3)
RULES = Rules(result_tokens=40, result_tokens_floor=10, result_chunks=4)


def one_by_one(documents: dict[str, list[str]], turns: list[list[tuple[str, dict[str, object]]]]) -> list[Observation]:
    """What each call brings when it waits for the one before it; prunes make room for their whole turn, so they go first."""
    context = Context(QUESTION, GenericProfile().opening_tokens(QUESTION), RULES)
    box = Toolbox(MemorySpace(documents, leg=3), context, RULES)
    observed: list[Observation] = []
    for turn in turns:
        calls = tuple(tool_call(name, at, **arguments) for at, (name, arguments) in enumerate(turn))  # type: ignore[arg-type]
        context.act(Action(calls=calls))
        pruned = {call.id: box.call(call) for call in calls if call.name == PRUNE}
        for call in calls:
            observed.append(pruned.get(call.id) or box.call(call))
            context.observe(observed[-1])
        context.seal()
    return observed


@settings(max_examples=40, deadline=None)
@given(documents=CORPORA, turns=TURNS, seed=st.integers(0, 99))
def test_a_run_on_threads_shows_what_calls_one_after_the_other_would_have_shown(
    documents: dict[str, list[str]], turns: list[list[tuple[str, dict[str, object]]]], seed: int
) -> None:
    draw = random.Random(seed)
    space = MemorySpace(documents, leg=3, before=lambda _: time.sleep(draw.choice((0, 0.001))))  # mixes up who is first
    run = Run([*(use(*turn) for turn in turns), say("<NoDocuments/>")], space, rules=RULES)  # type: ignore[arg-type]
    run(QUESTION)
    shown = [(data["tool"], data["shown"], data["error"]) for data in run.data("observation")]
    expected = one_by_one(documents, turns)
    assert shown == [(one.call.name, [chunk.id for chunk in one.chunks], one.error) for one in expected]
    freed = [(data["chunk_ids"], data["document_ids"], data["freed_tokens"]) for data in run.data("prune")]
    prunes = [one.pruned for one in expected if one.pruned]
    assert freed == [(list(one.chunk_ids), list(one.document_ids), one.freed_tokens) for one in prunes]
