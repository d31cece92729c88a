import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness.agent import FILMS, observe, tool_call, toolbox
from support.harness.space import MemorySpace

from hopnode.worker.corpus.records import Chunk
from hopnode.worker.errors import ModelUnavailable, StoreUnavailable
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.tools import TOOLS, Toolbox, fitting
from hopnode.worker.inference.messages import ToolCall

LONG = "word " * 499 + "needle"


def shown(box: Toolbox, name: str, **arguments: object) -> list[str]:
    return [chunk.id for chunk in observe(box, tool_call(name, **arguments)).chunks]


def test_the_model_is_told_of_four_tools_in_order_with_closed_schemas() -> None:
    assert list(TOOLS) == ["search_corpus", "grep_corpus", "read_document", "prune_chunks"]
    for tool in TOOLS.values():
        assert tool.spec.parameters["additionalProperties"] is False
        assert tool.spec.parameters["required"] == [tool.argument]
        json.dumps(tool.spec.parameters)


def test_a_search_never_repeats_what_a_search_has_displayed() -> None:
    box = toolbox(FILMS)
    first = shown(box, "search_corpus", query="film Moonrise")
    second = shown(box, "search_corpus", query="film Moonrise Oslo")
    assert first
    assert second
    assert not set(first) & set(second)


def test_a_pruned_chunk_does_not_come_back_through_search_but_through_grep() -> None:
    box = toolbox(FILMS)
    assert "d3_0" in shown(box, "search_corpus", query="Oslo fjord")
    observe(box, tool_call("prune_chunks", chunk_ids=["d3_0"]))
    assert "d3_0" not in shown(box, "search_corpus", query="fjord")
    assert shown(box, "grep_corpus", pattern="fjord") == ["d3_0"]
    assert "d3_0" in [held.chunk.id for held in box.context.held()]


def test_grep_and_read_do_not_hide_anything_from_later_searches() -> None:
    box = toolbox(FILMS)
    assert shown(box, "grep_corpus", pattern="(?i)fjord") == ["d3_0"]
    assert shown(box, "read_document", doc_id="d3") == ["d3_0"]
    assert "d3_0" in shown(box, "search_corpus", query="fjord")


def test_a_search_shows_at_most_ten_chunks() -> None:
    box = toolbox({f"d{n}": ["needle"] for n in range(15)})
    assert len(shown(box, "search_corpus", query="needle")) == 10
    assert len(shown(box, "search_corpus", query="needle again")) == 5
    assert box.call(tool_call("search_corpus", query="needle more")).text == "No results found"


def test_a_search_stops_at_the_first_chunk_that_does_not_fit_and_skips_none() -> None:
    sizes = (2000, 1500, 700, 10)

    def ordered(query: str, chunks: Sequence[Chunk]) -> list[float]:
        return [-float(chunk.document_id[1:]) for chunk in chunks]

    box = toolbox({f"d{n}": ["needle" + " word" * (size - 1)] for n, size in enumerate(sizes)})
    box.reranker = ordered
    assert shown(box, "search_corpus", query="needle") == ["d0_0", "d1_0"]


def test_fitting_counts_the_limit_exactly() -> None:
    chunks = MemorySpace({"a": ["word " * 9 + "word"] * 3}).read("a")
    assert [chunk.tokens for chunk in chunks] == [10, 10, 10]
    assert len(fitting(chunks, 30, 10)) == 3
    assert len(fitting(chunks, 29, 10)) == 2
    assert len(fitting(chunks, 30, 1)) == 1


def test_results_shrink_when_the_window_is_nearly_full() -> None:
    documents = {f"d{n}": [LONG] for n in range(10)}
    assert len(shown(toolbox(documents, used=24_576), "search_corpus", query="needle")) == 8
    small = Rules(window=4_000)
    assert len(shown(toolbox(documents, small, used=1_000), "search_corpus", query="needle")) == 3000 // 2 // 500


def test_over_the_hard_cutoff_everything_but_pruning_is_refused() -> None:
    box = toolbox(FILMS)
    assert shown(box, "search_corpus", query="film")
    box.context.used = 24_577
    for name, arguments in (
        ("search_corpus", {"query": "Oslo"}),
        ("grep_corpus", {"pattern": "Oslo"}),
        ("read_document", {"doc_id": "d1"}),
    ):
        refusal = box.call(tool_call(name, **arguments))
        assert refusal.error
        assert "24577" in refusal.text
        assert "24576" in refusal.text
    pruned = observe(box, tool_call("prune_chunks", chunk_ids=["d1_0"]))
    assert pruned.text == "Pruned"
    assert not pruned.error


def test_a_prune_that_comes_first_in_a_turn_makes_room_for_the_calls_after_it() -> None:
    box = toolbox({"d1": [LONG], "d2": ["fjord"]})
    shown(box, "search_corpus", query="needle")
    box.context.used = 24_600
    assert box.call(tool_call("search_corpus", query="fjord")).error
    observe(box, tool_call("prune_chunks", chunk_ids=["d1_0"]))
    assert shown(box, "search_corpus", query="fjord") == ["d2_0"]


def test_grep_shows_five_and_tells_the_model_what_is_wrong_with_a_pattern() -> None:
    box = toolbox({f"d{n}": ["needle"] for n in range(9)})
    assert shown(box, "grep_corpus", pattern="need.e") == [f"d{n}_0" for n in range(5)]
    broken = box.call(tool_call("grep_corpus", pattern="needle("))
    assert broken.error
    assert "not valid" in broken.text


def test_a_read_shows_the_whole_document_without_ids_that_could_be_pruned() -> None:
    box = toolbox(FILMS)
    observation = observe(box, tool_call("read_document", doc_id="d1"))
    text = box.context.view().turns[-1].results[-1].text
    assert [chunk.id for chunk in observation.chunks] == ["d1_0", "d1_1"]
    assert "d1_0" not in text
    assert text.startswith("# Document (")


def test_a_long_read_keeps_what_fits_the_query_that_found_the_document_in_document_order() -> None:
    filler = "word " * 499
    texts = [f"{filler}{'heron ' if n in (3, 11) else 'plain '}" for n in range(14)]
    box = toolbox({"d1": texts, "d2": ["heron heron heron"]})
    unfound = shown(box, "read_document", doc_id="d1")
    assert unfound == [f"d1_{n}" for n in range(8)]
    box = toolbox({"d1": texts, "d2": ["nothing"]})
    observe(box, tool_call("search_corpus", query="heron"))
    read = shown(box, "read_document", doc_id="d1")
    assert {"d1_3", "d1_11"} <= set(read)
    assert len(read) == 8
    assert read == sorted(read, key=lambda one: int(one.split("_")[1]))


def test_the_first_query_that_displayed_a_document_stays_its_query() -> None:
    box = toolbox(FILMS)
    shown(box, "search_corpus", query="Moonrise directed")
    shown(box, "search_corpus", query="shot in Norway film Moonrise")
    assert box.surfaced["d1"] == "Moonrise directed"


def test_a_chunk_id_or_another_argument_name_still_reads_the_document() -> None:
    box = toolbox(FILMS)
    assert shown(box, "read_document", doc_id="d3_0") == ["d3_0"]
    assert shown(box, "read_document", id="d4") == ["d4_0"]


def test_an_unknown_document_is_told_to_the_model() -> None:
    observation = toolbox(FILMS).call(tool_call("read_document", doc_id="zz"))
    assert observation.error
    assert "zz" in observation.text


@pytest.mark.parametrize(
    ("name", "arguments", "part"),
    [
        ("fly", "{}", "no tool named fly"),
        ("search_corpus", '{"query": ', "not valid JSON"),
        ("search_corpus", "", "'query' is missing"),
        ("search_corpus", "[1]", "not a JSON object"),
        ("search_corpus", '"text"', "not a JSON object"),
        ("search_corpus", '{"query": ""}', "is empty"),
        ("search_corpus", '{"query": null}', "is missing"),
        ("search_corpus", '{"query": {"a": 1}}', "must be a string"),
        ("search_corpus", '{"query": ["a", "b"]}', "one string"),
        ("prune_chunks", '{"chunk_ids": [[1]]}', "list of strings"),
        ("prune_chunks", '{"chunk_ids": []}', "is empty"),
        ("prune_chunks", '{"chunk_ids": true}', "list of strings"),
    ],
)
def test_malformed_calls_become_text_for_the_model(name: str, arguments: str, part: str) -> None:
    observation = toolbox(FILMS).call(ToolCall("c", name, arguments))
    assert observation.error
    assert part in observation.text


def test_prune_takes_a_single_id_where_a_list_is_wanted() -> None:
    box = toolbox(FILMS)
    shown(box, "search_corpus", query="fjord")
    pruned = observe(box, ToolCall("c", "prune_chunks", '{"chunk_ids": "d3_0"}')).pruned
    assert pruned is not None
    assert pruned.chunk_ids == ("d3_0",)


def test_unknown_ids_of_a_prune_go_to_the_record_and_not_to_the_model() -> None:
    observation = toolbox(FILMS).call(tool_call("prune_chunks", chunk_ids=["d9_9"]))
    assert observation.text == "Pruned"
    assert observation.pruned is not None
    assert observation.pruned.unknown == ("d9_9",)


def test_a_repeated_call_gets_a_notice_and_a_third_one_is_refused() -> None:
    box = toolbox(FILMS)
    first, second, third = (box.call(tool_call("grep_corpus", n, pattern="Oslo")) for n in range(3))
    assert (first.notice, first.error) == ("", False)
    assert second.notice == box.rules.wording.repeated
    assert second.chunks == first.chunks
    assert third.error
    assert "2 times" in third.text


def test_a_defect_in_a_tool_is_named_in_the_result_and_does_not_end_the_search() -> None:
    def explode(name: str) -> None:
        raise ZeroDivisionError

    box = toolbox(MemorySpace(FILMS, before=explode))
    observation = box.call(tool_call("search_corpus", query="film"))
    assert observation.error
    assert "search_corpus failed" in observation.text
    assert list(box.degraded) == ["tool-failed"]


def test_an_error_of_the_node_is_not_swallowed() -> None:
    def lose(name: str) -> None:
        raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        toolbox(MemorySpace(FILMS, before=lose)).call(tool_call("search_corpus", query="film"))


def test_degradations_of_a_search_and_the_state_of_the_index_are_kept() -> None:
    box = toolbox(MemorySpace(FILMS, degraded=("vectors-unavailable",)))
    box.call(tool_call("search_corpus", query="film"))
    assert (list(box.degraded), box.index_version, box.vector_lag) == (["vectors-unavailable"], 7, 2)


def test_a_reranker_orders_the_candidates_and_scores_each_pair_once() -> None:
    asked: list[tuple[str, str]] = []

    def longest_first(query: str, chunks: Sequence[Chunk]) -> list[float]:
        asked.extend((query, chunk.id) for chunk in chunks)
        return [float(len(chunk.text)) for chunk in chunks]

    box = toolbox(FILMS)
    box.reranker = longest_first
    texts = [chunk.text for chunk in observe(box, tool_call("search_corpus", query="film Anna")).chunks]
    assert texts == sorted(texts, key=len, reverse=True)
    assert len(asked) == len(set(asked))


def test_without_its_reranker_a_search_keeps_the_fused_order_and_says_so() -> None:
    def away(query: str, chunks: Sequence[Chunk]) -> list[float]:
        raise ModelUnavailable("away")

    plain, box = toolbox(FILMS), toolbox(FILMS)
    box.reranker = away
    call = tool_call("search_corpus", query="film Anna Oslo")
    assert box.call(call).chunks == plain.call(call).chunks
    assert list(box.degraded) == ["reranker-unavailable"]


WORDS = ["film", "Anna", "Oslo", "moon", "fjord", "train", "north", "river"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
CORPORA = st.dictionaries(
    st.sampled_from([f"d{n}" for n in range(12)]), st.lists(TEXTS, min_size=1, max_size=4), min_size=1
)
QUERIES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
IDS = st.builds("d{}_{}".format, st.integers(0, 12), st.integers(0, 4))
CALLS = st.one_of(
    QUERIES.map(lambda query: ("search_corpus", {"query": query})),
    QUERIES.map(lambda query: ("search_corpus", {"query": query})),
    st.sampled_from([*WORDS, "(", ".*"]).map(lambda pattern: ("grep_corpus", {"pattern": pattern})),
    st.integers(0, 12).map(lambda n: ("read_document", {"doc_id": f"d{n}"})),
    st.lists(IDS, max_size=4).map(lambda ids: ("prune_chunks", {"chunk_ids": ids})),
    st.just(("nothing", {})),
)


def by_vowels(query: str, chunks: Sequence[Chunk]) -> list[float]:
    return [sum(chunk.text.count(letter) for letter in "aeiou") / len(chunk.text) for chunk in chunks]


@settings(max_examples=60, deadline=None)
@given(
    documents=CORPORA,
    turns=st.lists(st.lists(CALLS, min_size=1, max_size=6), min_size=1, max_size=3),
    window=st.sampled_from([32_768, 700, 250]),
    rerank=st.booleans(),
    leg=st.sampled_from([3, 25]),
)
def test_calls_fetched_side_by_side_end_like_calls_one_after_the_other(
    documents: dict[str, list[str]],
    turns: list[list[tuple[str, dict[str, object]]]],
    window: int,
    rerank: bool,
    leg: int,
) -> None:
    rules = Rules(window=window, result_tokens=40, result_tokens_floor=10, result_chunks=4)
    one_by_one, at_once = (toolbox(MemorySpace(documents, leg=leg), rules) for _ in range(2))
    if rerank:
        one_by_one.reranker = at_once.reranker = by_vowels
    for turn in turns:
        calls = [tool_call(name, at, **arguments) for at, (name, arguments) in enumerate(turn)]
        expected = [observe(one_by_one, call) for call in calls]
        seen = frozenset(at_once.seen)
        fetched = [at_once.prefetch(call, seen) for call in calls]
        observed = []
        for call, got in zip(calls, fetched, strict=True):
            observed.append(at_once.call(call, got))
            at_once.context.observe(observed[-1])
        assert observed == expected
    assert at_once.seen == one_by_one.seen
    assert at_once.surfaced == one_by_one.surfaced
    assert at_once.context.view() == one_by_one.context.view()
