import pytest
from support.harness.context1 import RawRun
from support.harness.harmony import call, concluded, several

from hopnode.worker.harness.run_figures import GoldFacts, measure, stretches
from hopnode.worker.harness.trajectory import StepRecord


def step(kind: str, **data: object) -> StepRecord:
    return StepRecord(kind, data)  # type: ignore[arg-type]


def action(turn: int) -> StepRecord:
    return step("action", turn=turn)


def shown(*ids: str) -> StepRecord:
    return step("observation", shown=list(ids))


def pruned(turn: int, *ids: str, documents: tuple[str, ...] = ()) -> StepRecord:
    return step("prune", turn=turn, chunk_ids=list(ids), document_ids=list(documents))


def end(*ids: str, kind: str = "end") -> StepRecord:
    return step(kind, selections=[{"chunk_id": one} for one in ids])


RUN = [
    action(1),
    shown("a_0", "b_0"),
    shown("c_0"),
    action(2),
    shown("d_1"),
    shown(),
    pruned(2, "b_0", "c_0"),
    action(3),
    end("d_1", "a_0", "a_3", "e_0"),
]


def test_turns_calls_and_the_output_in_its_order() -> None:
    figures = measure(RUN)
    assert (figures.turns, figures.tool_calls, figures.pruned) == (3, 4, 2)
    assert figures.calls_per_turn == pytest.approx(4 / 3)
    assert figures.output == ("d", "a", "e")
    assert figures.trajectory_recall is figures.prune_accuracy is figures.output_f1 is figures.answer_found is None


def test_recall_and_precision_are_over_documents() -> None:
    figures = measure(RUN, GoldFacts.of(["a", "c", "f"], answers=["a"]))
    assert figures.trajectory_recall == pytest.approx(2 / 3)
    assert figures.output_recall == pytest.approx(1 / 3)
    assert figures.output_precision == pytest.approx(1 / 3)
    assert figures.output_f1 == pytest.approx(1 / 3)
    assert figures.prune_accuracy == 0.5
    assert figures.answer_found is True


def test_a_fact_counts_once_whichever_of_its_chunks_supplies_it() -> None:
    facts = GoldFacts((frozenset({"d_1", "x_0"}), frozenset({"a_9"})), frozenset({"a_9"}))
    figures = measure(RUN, facts)
    assert (figures.trajectory_recall, figures.output_recall, figures.answer_found) == (0.5, 0.5, False)
    assert figures.output_precision == pytest.approx(1 / 3)
    assert figures.prune_accuracy == 1.0


def test_prune_accuracy_counts_every_pruned_id_and_is_undefined_without_prunes() -> None:
    gold = GoldFacts.of(["b"])
    assert measure([action(1), pruned(1, "b_0", "a_0", "c_0"), pruned(1, "d_0")], gold).prune_accuracy == 0.75
    assert measure([action(1), pruned(1, documents=("b",))], gold).prune_accuracy == 0.0
    assert measure([action(1), pruned(1)], gold).prune_accuracy is None


def test_of_several_rollouts_the_fused_list_counts_and_all_that_any_of_them_saw() -> None:
    steps = [action(1), shown("a_0"), end("a_0"), action(1), shown("b_0"), end("b_0"), end("b_0", "a_0", kind="fusion")]
    figures = measure(steps, GoldFacts.of(["a", "b"]))
    assert (figures.output, figures.trajectory_recall, figures.turns) == (("b", "a"), 1.0, 2)


def test_of_a_search_that_was_begun_again_the_last_attempt_counts() -> None:
    restart = step("restart", attempt=2, last_step=4)
    again = [action(1), shown("x_0"), pruned(1, "x_0"), action(2), restart, *RUN]
    gold = GoldFacts.of(["a", "x"])
    assert measure(again, gold) == measure(RUN, gold)
    assert stretches(again) == stretches(RUN)
    assert measure([*RUN, restart]).output == ()


def test_a_run_without_an_end_or_without_anything_has_figures_too() -> None:
    assert measure([]).output == ()
    assert measure([], GoldFacts.of(["a"])).output_f1 == 0.0
    assert GoldFacts.of([]).covered([]) == 1.0
    assert stretches([]) == ()


def test_stretches_lie_between_prunes() -> None:
    assert stretches(RUN) == ((1, 2), (3, 3))
    assert stretches([action(1), action(2)]) == ((1, 2),)
    assert stretches([action(1), pruned(1), action(2)]) == ((1, 2),)
    assert stretches([action(1), pruned(1, "a_0"), action(2), pruned(2, "b_0")]) == ((1, 1), (2, 2))


def test_a_real_trajectory_is_measured() -> None:
    both = several(("search_corpus", {"query": "Anna Berg born"}), ("prune_chunks", {"chunk_ids": ["d1_1"]}))
    run = RawRun([call("search_corpus", {"query": "director of Moonrise"}), both, concluded("d2_0", "d1_0")])
    run()
    figures = measure(run.recorder.steps, GoldFacts.of(["d1", "d2"], answers=["d2_0"]))
    assert (figures.turns, figures.tool_calls, figures.output) == (3, 3, ("d2", "d1"))
    assert (figures.trajectory_recall, figures.output_recall, figures.output_precision) == (1.0, 1.0, 1.0)
    assert (figures.prune_accuracy, figures.answer_found) == (0.0, True)
    assert stretches(run.recorder.steps) == ((1, 2), (3, 3))
