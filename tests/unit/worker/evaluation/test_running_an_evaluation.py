from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from hopnode.worker.errors import NotFound
from hopnode.worker.evaluation.dataset import Dataset, Gold, GoldSpan, Question, Text
from hopnode.worker.evaluation.running import Outcome, Setup, measure, prepare
from hopnode.worker.evaluation.trial import Asking, Trial, workspace_of
from hopnode.worker.runtime import Runtime

TEXTS = {
    "nordlys": ("Nordlys", "The ferry Nordlys leaves from Harstad every morning. Its captain is Liv Holm."),
    "holm": ("Liv Holm", "Liv Holm was born in Bergen and learnt to sail on the boat of an uncle."),
    "harstad": ("Harstad", "Harstad is a town in the north with a harbour and a market."),
    "key": ("Lighthouse", "The harbour master keeps the key of the lighthouse."),
    "bread": ("Bakery", "The bakery opens at six and sells bread and cakes."),
    "empty": ("Nothing", " "),
}
FERRIES = Dataset(
    "Ferries & Co",
    (Question("q1", "Where was the captain of the ferry Nordlys born?"), Question("q2", "Who keeps the key?")),
    {"q1": Gold({"nordlys": 1, "holm": 1}, hops=("nordlys", "holm")), "q2": Gold({"key": 1, "nowhere": 1})},
    tuple(Text(key, title, text) for key, (title, text) in TEXTS.items()),
)


class Watched:
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.bars: dict[str, list[int]] = {}

    @contextmanager
    def __call__(self, label: str, total: int) -> Generator[Callable[[], None]]:
        self.bars[label] = [0, total]

        def advance() -> None:
            self.bars[label][0] += 1

        yield advance


def run(runtime: Runtime, dataset: Dataset, setup: Setup | None = None, mode: str = "one_shot") -> Outcome:
    prepared = prepare(runtime, dataset, setup or Setup(), Watched())
    return measure(prepared, Asking(mode), Watched())


def test_a_set_is_filled_asked_and_summed_up(runtime: Runtime) -> None:
    watched = Watched()
    prepared = prepare(runtime, FERRIES, Setup(), watched)
    report = measure(prepared, Asking("one_shot"), watched).report
    assert (report.questions, report.documents, report.mode, report.embedder) == (2, 5, "one_shot", "minilm")
    assert report.recall["10"] == pytest.approx(0.75)
    assert report.all["10"] == pytest.approx(0.5)
    assert report.mrr == 1.0
    assert report.unknown_gold == 1
    assert report.ingest is not None and report.ingest.failed == {"empty": 1}
    assert report.latency_ms.p95 >= report.latency_ms.p50 > 0
    assert report.legs.keys() == {"lexical", "dense"}
    assert report.legs["lexical"].mrr == 1.0
    assert [(hop.hop, hop.questions, hop.recall["5"]) for hop in report.hops] == [(1, 1, 1.0), (2, 1, 1.0)]
    assert {one.id: one.ranks.keys() for one in report.per_question} == {
        "q1": {"nordlys", "holm"},
        "q2": {"key", "nowhere"},
    }
    assert watched.bars == {"Ingesting": [6, 6], "Asking (one_shot)": [2, 2], "Asking each leg alone": [2, 2]}
    assert report.versions.keys() >= {"hopnode", "chromadb"}


def test_what_is_right_changes_the_figures_and_never_the_answers(runtime: Runtime) -> None:
    swapped = replace(FERRIES, gold={"q1": FERRIES.gold["q2"], "q2": FERRIES.gold["q1"]})
    for mode in ("one_shot", "agent"):
        first, second = (run(runtime, dataset, mode=mode) for dataset in (FERRIES, swapped))
        assert [one.documents for one in first.run.retrieved] == [one.documents for one in second.run.retrieved]
        assert first.report.mrr != second.report.mrr


def test_the_order_of_the_documents_in_the_set_is_not_the_order_in_the_collection(runtime: Runtime) -> None:
    many = replace(FERRIES, documents=tuple(Text(f"d{number:02}", "", f"Boat {number}.") for number in range(30)))
    trial = prepare(runtime, many, Setup(seed=3), Watched()).trial
    corpus = runtime.corpora.open(workspace_of(runtime))
    rows = {hit.chunk.key: hit.chunk.row for hit in corpus.search([trial.collection], "boat", k=50).hits}
    by_row = sorted(rows, key=lambda key: rows[key])
    assert len(by_row) > 20
    assert by_row != sorted(by_row)


def test_a_folder_that_is_kept_ingests_only_what_changed(open_node: Callable[[], Runtime]) -> None:
    run(open_node(), FERRIES)
    changed = replace(FERRIES, documents=(*FERRIES.documents[1:5], Text("new", "New", "A new quay in Harstad.")))
    again = open_node()
    before = prepare(again, FERRIES, Setup(), Watched()).trial
    row = {one.key: one.updated_at for one in documents(again, before)}
    after = prepare(again, changed, Setup(), Watched()).trial
    stored = {one.key: one.updated_at for one in documents(again, after)}
    assert stored.keys() == {"holm", "harstad", "key", "bread", "new"}
    assert {key: at for key, at in stored.items() if key != "new"} == {key: row[key] for key in stored if key != "new"}


def documents(runtime: Runtime, trial: Trial) -> list:
    return runtime.corpora.open(workspace_of(runtime)).documents(trial.collection, limit=100)


def test_without_titles_no_title_is_stored_and_both_variants_share_a_folder(runtime: Runtime) -> None:
    titled = prepare(runtime, FERRIES, Setup(), Watched()).trial
    blind = prepare(runtime, FERRIES, Setup(titles=False), Watched()).trial
    assert {one.title for one in documents(runtime, blind)} == {""}
    assert "Liv Holm" in {one.title for one in documents(runtime, titled)}
    assert not run(runtime, FERRIES, Setup(titles=False)).report.titles


def test_a_collection_that_exists_is_asked_as_it_is(runtime: Runtime) -> None:
    prepare(runtime, FERRIES, Setup(), Watched())
    own = Dataset("mine", FERRIES.questions[:1], {"q1": Gold({"holm": 1, "gone.md": 1})})
    report = run(runtime, own, Setup(collection="eval-ferries-co"), mode="agent").report
    assert (report.documents, report.unknown_gold, report.ingest) == (5, 1, None)
    assert report.recall["10"] == 0.5
    assert report.cost["turns"] >= 2
    with pytest.raises(NotFound, match="nowhere"):
        prepare(runtime, own, Setup(collection="nowhere"), Watched())


def test_a_search_that_fails_is_counted_and_stops_no_other(runtime: Runtime) -> None:
    prepared = prepare(runtime, FERRIES, Setup(), Watched())
    report = measure(prepared, Asking("agent", profile="generic"), Watched()).report  # no chat endpoint is set
    assert report.failed == {"configuration": 2}
    assert (report.mrr, report.modes) == (0.0, {})
    assert [one.error is not None for one in report.per_question] == [True, True]


def test_auto_says_in_which_mode_each_question_was_searched(runtime: Runtime) -> None:
    report = run(runtime, FERRIES, mode="auto").report
    assert sum(report.modes.values()) == 2
    assert {one.mode for one in report.per_question} == report.modes.keys() <= {"one_shot", "agent"}


@pytest.mark.slow
def test_evidence_in_long_documents_is_held_against_pieces_of_a_fixed_size(runtime: Runtime) -> None:
    filler = " ".join(f"Line {number} of the logbook tells of wind and waves." for number in range(400))
    needle = "The cook of the Nordlys hid the silver spoon in the flour."
    text = f"{filler}\n\n{needle}\n\n{filler}"
    start = text.index(needle)
    log = Dataset(
        "log",
        (Question("q", "Where did the cook hide the silver spoon?"), Question("no-span", "What of the wind?")),
        {"q": Gold({"log": 1}, spans=(GoldSpan("log", start, start + len(needle)),)), "no-span": Gold({"log": 1})},
        (Text("log", "Logbook", text),),
    )
    spans = run(runtime, log).report.spans
    assert spans is not None
    assert (spans.questions, spans.lost, spans.budget_tokens) == (1, 0, 2_000)
    assert spans.found.recall == spans.found.whole == 1.0
    assert 0 < spans.found.tokens <= 2_000
    assert spans.fixed.recall > 0
    whole_pieces = spans.fixed.tokens / spans.fixed_tokens  # three and a rest, however small the node's own chunks are
    assert 3 <= whole_pieces < 3.4
    assert spans.difference == pytest.approx(spans.found.recall - spans.fixed.recall)
