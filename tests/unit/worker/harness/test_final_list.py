import pytest
from support.harness.space import make_chunk

from hopnode.worker.harness.actions import Action, FinalEntry
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.context import Context, Observation
from hopnode.worker.harness.final_list import fallback, parse_final, resolve
from hopnode.worker.harness.outcome import rank_score
from hopnode.worker.inference.messages import ToolCall

CALL = ToolCall("call_1", "search_corpus", "{}")


def ids(text: str) -> list[str] | None:
    ranked = parse_final(text)
    return None if ranked is None else [entry.id for entry in ranked]


@pytest.mark.parametrize(
    "text",
    [
        '<Document id="a_0"><Justification>One.</Justification></Document>\n'
        '<Document id="b"><Justification>Two.</Justification></Document>',
        "<Document id=a_0><Justification>One.</Justification></Document><Document id=b>"
        "<Justification>Two.</Justification></Document>",
        "<document id='a_0'>\n<justification>One.\n</justification>\n</document>\n<DOCUMENT ID={b}>Two.</DOCUMENT>",
        "Here you are:\n<Document id=a_0>One.\n<Document id = b>\n<Justification>Two.",
        '```\n<Document id="{a_0}">One.</Document>\n<Document id="b" >Two.</Document>\n```',
        '[{"id": "a_0", "justification": "One."}, {"id": "b", "justification": "Two."}]',
        '```json\n{"documents": [{"id": "a_0", "justification": "One."}, {"id": "b", "justification": "Two."}]}\n```',
        "<Document id=a_0>One.</Document><Document id=b>Two.</Document><Document id=a_0>Again.</Document>",
    ],
)
def test_the_list_is_read_in_order_from_every_form_that_models_write(text: str) -> None:
    ranked = parse_final(text)
    assert ranked is not None
    assert [(entry.id, entry.justification.rstrip("`\n")) for entry in ranked] == [("a_0", "One."), ("b", "Two.")]


@pytest.mark.parametrize("text", ["", "I found it in a_0.", "<Document>a_0</Document>", '{"a": 1}', "12", '"x"', "<b>"])
def test_text_without_a_list_is_no_list(text: str) -> None:
    assert parse_final(text) is None


@pytest.mark.parametrize("text", ["<NoDocuments/>", "<NoDocuments>none</NoDocuments>", "[]", '{"documents": []}'])
def test_saying_that_nothing_was_found_is_an_empty_list(text: str) -> None:
    assert parse_final(text) == ()


def test_a_bare_json_list_of_ids_is_read() -> None:
    assert ids('["a_0", "b", 17]') == ["a_0", "b", "17"]


def test_self_closing_and_slashed_ids_are_read() -> None:
    assert ids('<Document id="a_0"/><Document id=b_1/>') == ["a_0", "b_1"]


def test_endless_brackets_are_read_quickly() -> None:
    assert parse_final("<document id=" * 20_000) is None
    assert parse_final("[" * 100_000) is None


def context() -> Context:
    made = Context("Where does the heron nest?", 0, Rules())
    made.act(Action(calls=(CALL,)))
    found = (make_chunk("a", 0, "Alpha."), make_chunk("b", 2, "Beta."), make_chunk("a", 5, "Gamma."))
    made.observe(Observation(CALL, "list", found, found_by="q"))
    made.act(Action(calls=(CALL,)))
    texts = ("Rain.", "The heron nests in reeds.", "Snow.", "A heron.", "Wind.", "Herons and reeds.")
    read = tuple(make_chunk("r", at, text) for at, text in enumerate(texts))
    made.observe(Observation(CALL, "document", read, found_by="read: r"))
    return made


def chosen(made: Context, *given: str) -> tuple[list[str], tuple[str, ...]]:
    resolved = resolve([FinalEntry(one, f"because {one}") for one in given], made, 30)
    return [selection.chunk.id for selection in resolved.selections], resolved.unknown


def test_ids_that_were_never_shown_are_dropped_and_counted() -> None:
    assert chosen(context(), "zz_9", "b_2", "a_1", "a_0") == (["b_2", "a_0"], ("zz_9", "a_1"))


def test_a_document_id_stands_for_its_found_chunks_in_order() -> None:
    assert chosen(context(), "a", "b_2") == (["a_0", "a_5", "b_2"], ())


def test_a_document_that_was_only_read_is_cut_to_what_fits_question_and_justification() -> None:
    picked, unknown = chosen(context(), "r")
    assert unknown == ()
    assert len(picked) == 3
    assert {"r_1", "r_3"} <= set(picked)
    assert picked == sorted(picked)


def test_a_chunk_named_twice_keeps_its_first_place_and_reason() -> None:
    resolved = resolve([FinalEntry("a_5", "first"), FinalEntry("a", "second")], context(), 30)
    assert [(one.chunk.id, one.justification) for one in resolved.selections] == [("a_5", "first"), ("a_0", "second")]


def test_a_chunk_that_was_pruned_may_still_be_cited() -> None:
    made = context()
    made.prune(["b_2"])
    assert chosen(made, "b_2")[0] == ["b_2"]
    assert chosen(made, "b")[0] == ["b_2"]


def test_scores_fall_with_the_rank_from_one() -> None:
    resolved = resolve([FinalEntry("b_2"), FinalEntry("a_0"), FinalEntry("a_5")], context(), 2)
    assert [one.score for one in resolved.selections] == [1.0, rank_score(2)]
    assert 0 < rank_score(1000) < rank_score(30) < rank_score(2) < 1


def test_the_fallback_ranks_what_is_still_in_view_by_reciprocal_ranks() -> None:
    made = context()
    made.prune(["a_0", "r"])
    resolved = fallback(made, 30)
    assert [one.chunk.id for one in resolved.selections] == ["b_2", "a_5"]
    assert resolved.selections[0].found_by == ("q",)
