import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hopnode.worker.errors import InvalidRequest
from hopnode.worker.evaluation.dataset import Dataset, Gold, GoldSpan, Question, Text, pooled
from hopnode.worker.evaluation.loading import load

CORPUS = [
    {"id": "a", "title": "Nordlys", "text": "A ferry.", "lang": "en"},
    {"id": "b", "title": "Holm", "text": "A captain.", "lang": "de"},
]
QUERIES = [
    {
        "id": "q1",
        "question": "Who?",
        "answers": ["Holm"],
        "gold": ["a", "b"],
        "gold_spans": [["a", 0, 3]],
        "steps": [{"question": "x", "answer": "y", "gold": "b"}, {"question": "x", "answer": "y", "gold": "a"}],
        "lang": "en",
    },
    {"id": "q2", "question": "Where?", "answers": [], "gold": ["b"], "lang": "de"},
]
SQUAD = {
    "data": [
        {
            "title": "Boats",
            "paragraphs": [
                {
                    "context": "Nordlys is a ferry.",
                    "qas": [
                        {
                            "id": "s1",
                            "question": "What is Nordlys?",
                            "answers": [{"text": "a ferry", "answer_start": 11}, {"text": "ferry", "answer_start": 13}],
                        }
                    ],
                }
            ],
        }
    ]
}


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def write_set(folder: Path, corpus: list[Any] | None = None, queries: list[Any] | None = None, end: str = "") -> Path:
    write_lines(folder / f"corpus.jsonl{end}", CORPUS if corpus is None else corpus)
    write_lines(folder / f"queries.jsonl{end}", QUERIES if queries is None else queries)
    return folder


def write_beir(
    folder: Path, qrels: str = "query-id\tcorpus-id\tscore\nq1\ta\t2\nq1\tb\t0\n", name: str = "test"
) -> Path:
    write_lines(folder / "corpus.jsonl", [{"_id": "a", "title": "", "text": "One."}, {"_id": "b", "text": "Two."}])
    write_lines(folder / "queries.jsonl", [{"_id": "q1", "text": "Which?"}, {"_id": "unjudged", "text": "What?"}])
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / f"{name}.tsv").write_text(qrels)
    return folder


# --- what is read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_folder_of_json_lines_is_read_plain_and_compressed(tmp_path: Path, end: str) -> None:
    read = load(write_set(tmp_path / "ferries", end=end))
    assert read.name == "ferries"
    assert read.documents == (Text("a", "Nordlys", "A ferry."), Text("b", "Holm", "A captain."))
    assert read.questions == (Question("q1", "Who?"), Question("q2", "Where?"))
    assert read.gold["q1"] == Gold({"a": 1, "b": 1}, ("b", "a"), (GoldSpan("a", 0, 3),))


def test_a_question_holds_nothing_that_tells_the_answer(tmp_path: Path) -> None:
    asked = load(write_set(tmp_path)).questions[0]
    assert vars(asked) == {"id": "q1", "text": "Who?"}


def test_a_language_keeps_its_own_lines_only(tmp_path: Path) -> None:
    read = load(write_set(tmp_path / "set"), language="de")
    assert ([one.id for one in read.documents], [one.id for one in read.questions]) == (["b"], ["q2"])
    assert read.name == "set-de"
    with pytest.raises(InvalidRequest, match=r"corpus\.jsonl has no line in the language 'fr'; it has: de, en"):
        load(tmp_path / "set", language="fr")


def test_a_beir_folder_is_read_with_its_grades_and_without_what_nobody_judged(tmp_path: Path) -> None:
    read = load(write_beir(tmp_path))
    assert read.questions == (Question("q1", "Which?"),)
    assert read.gold == {"q1": Gold({"a": 2})}
    assert len(read.documents) == 2


def test_a_split_of_a_beir_folder_is_chosen_by_name(tmp_path: Path) -> None:
    write_beir(tmp_path)
    write_beir(tmp_path, "query-id\tcorpus-id\tscore\nunjudged\tb\t1\n", "dev")
    assert [one.id for one in load(tmp_path, split="dev").questions] == ["unjudged"]
    assert [one.id for one in load(tmp_path).questions] == ["q1"]
    with pytest.raises(InvalidRequest, match=r"no train\.tsv; there are: dev, test\. Choose one with --split"):
        load(tmp_path, split="train")


@pytest.mark.parametrize("name", ["boats.json", "boats.json.gz"])
@pytest.mark.parametrize("by_folder", [True, False])
def test_the_json_of_squad_is_converted_when_it_is_read(tmp_path: Path, name: str, by_folder: bool) -> None:
    path = write_lines(tmp_path / "boats" / name, [SQUAD])
    read = load(path.parent if by_folder else path)
    assert read.name == "boats"
    assert read.documents == (Text("p00000", "Boats", "Nordlys is a ferry."),)
    assert read.gold == {"s1": Gold({"p00000": 1}, spans=(GoldSpan("p00000", 11, 18),))}


def test_a_csv_names_keys_of_documents_with_bars_between(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('question,gold\n"Who, and\nwhere?",a.md| b/c.txt \nWhat?,b/c.txt\n', encoding="utf-8-sig")
    read = load(path)
    assert (read.name, read.documents) == ("mine", ())
    assert read.questions == (Question("q1", "Who, and\nwhere?"), Question("q2", "What?"))
    assert read.gold["q1"] == Gold({"a.md": 1, "b/c.txt": 1})


def test_a_csv_may_bring_its_own_ids_and_columns_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("Gold,ID,note,Question\na,one,x,Who?\n")
    assert load(path).gold == {"one": Gold({"a": 1})}


# --- what is wrong, and where -------------------------------------------------------------------------------------

BAD_QUERIES: dict[str, tuple[list[Any], str]] = {
    "no JSON": ([QUERIES[0], "{no"], r"queries\.jsonl, line 2: this is no JSON"),
    "no object": ([[1]], r"queries\.jsonl, line 1: a line must hold a JSON object, not a list"),
    "no id": ([{"question": "x", "gold": ["a"]}], r"line 1: the field `id` or `_id` is missing"),
    "no question": ([{"id": "q", "gold": ["a"]}], r"line 1: the field `question` or `text` is missing"),
    "blank question": ([{"id": "q", "question": " ", "gold": ["a"]}], r"line 1: `question` is empty"),
    "question of another kind": (
        [{"id": "q", "question": ["x"], "gold": ["a"]}],
        r"`question` must be text, not a list",
    ),
    "no gold": ([{"id": "q", "question": "x"}], r"line 1: the field `gold` is missing"),
    "empty gold": ([{"id": "q", "question": "x", "gold": []}], r"line 1: `gold` names no document"),
    "gold of another kind": ([{"id": "q", "question": "x", "gold": "a"}], r"line 1: `gold` must be a list of texts"),
    "id twice": ([QUERIES[0], QUERIES[0]], r"line 2: the id 'q1' stood on an earlier line already"),
    "span of two": ([QUERIES[0] | {"gold_spans": [["a", 1]]}], r"`gold_spans` must be \[document, start, end\]"),
    "span backwards": ([QUERIES[0] | {"gold_spans": [["a", 5, 2]]}], r"with start below end"),
    "step without gold": ([QUERIES[0] | {"steps": [{"question": "x"}]}], r"every entry of `steps` must name"),
    "nothing": ([], r"holds no question"),
}
BAD_DOCUMENTS: dict[str, tuple[list[Any], str]] = {
    "no id": ([{"text": "x"}], r"corpus\.jsonl, line 1: the field `id` or `_id` is missing"),
    "no text": ([CORPUS[0], {"id": "z"}], r"corpus\.jsonl, line 2: the field `text` is missing"),
    "id twice": ([CORPUS[0], CORPUS[0]], r"corpus\.jsonl, line 2: the id 'a' stood on an earlier line already"),
    "nothing": ([], r"corpus\.jsonl holds no document"),
}


@pytest.mark.parametrize("case", BAD_QUERIES)
def test_a_line_of_questions_that_is_wrong_is_named(tmp_path: Path, case: str) -> None:
    rows, message = BAD_QUERIES[case]
    with pytest.raises(InvalidRequest, match=message):
        load(write_set(tmp_path, queries=rows))


@pytest.mark.parametrize("case", BAD_DOCUMENTS)
def test_a_line_of_documents_that_is_wrong_is_named(tmp_path: Path, case: str) -> None:
    rows, message = BAD_DOCUMENTS[case]
    with pytest.raises(InvalidRequest, match=message):
        load(write_set(tmp_path, corpus=rows))


BAD_TABLES = {
    "header": ("a,b\n", r"line 1: the header must name the columns question, gold; question and gold are missing"),
    "one column": ("question\nx\n", r"gold is missing \(it names question\)"),
    "empty file": ("", r"it names nothing"),
    "too few cells": ("question,gold\nonly\n", r"line 2: there are 1 cells, and the header names 2"),
    "blank question": ("question,gold\n ,a\n", r"line 2: `question` is empty"),
    "no gold": ("question,gold\nWho?, | \n", r"line 2: `gold` names no document"),
    "id twice": ("id,question,gold\nx,Who?,a\nx,What?,b\n", r"line 3: the id 'x' stood"),
    "no rows": ("question,gold\n", r"holds no question"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_csv_that_is_wrong_says_where(tmp_path: Path, case: str) -> None:
    text, message = BAD_TABLES[case]
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=message):
        load(path)


BAD_QRELS = {
    "unknown query": ("query-id\tcorpus-id\tscore\nnobody\ta\t1\n", r"test\.tsv, line 2: there is no query 'nobody'"),
    "score": ("query-id\tcorpus-id\tscore\nq1\ta\thigh\n", r"test\.tsv, line 2: `score` must be a whole number"),
    "header": ("q1\ta\t1\n", r"test\.tsv, line 1: the header must name"),
    "all zero": ("query-id\tcorpus-id\tscore\nq1\ta\t0\n", r"holds no question"),
}


@pytest.mark.parametrize("case", BAD_QRELS)
def test_qrels_that_are_wrong_say_where(tmp_path: Path, case: str) -> None:
    text, message = BAD_QRELS[case]
    with pytest.raises(InvalidRequest, match=message):
        load(write_beir(tmp_path, text))


BAD_SQUAD: dict[str, tuple[Any, str]] = {
    "no object": ([], r"must hold one JSON object with `data`"),
    "no data": ({}, r"x\.json: the field `data` is missing"),
    "no paragraphs": ({"data": [{"title": "t"}]}, r"x\.json, article 1: the field `paragraphs` is missing"),
    "no context": (
        {"data": [{"paragraphs": [{"qas": []}]}]},
        r"article 1, paragraph 1: the field `context` is missing",
    ),
    "no question": (
        {"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "1"}]}]}]},
        r"article 1, paragraph 1, qa 1: the field `question` is missing",
    ),
}


@pytest.mark.parametrize("case", BAD_SQUAD)
def test_json_of_squad_that_is_wrong_says_where(tmp_path: Path, case: str) -> None:
    value, message = BAD_SQUAD[case]
    with pytest.raises(InvalidRequest, match=message):
        load(write_lines(tmp_path / "x.json", [value]))


def damaged(tmp_path: Path) -> Path:
    write_set(tmp_path, end=".gz")
    path = tmp_path / "queries.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    return tmp_path


def not_text(tmp_path: Path) -> Path:
    write_set(tmp_path)
    (tmp_path / "queries.jsonl").write_bytes(b"\xff\xfe\x00{")
    return tmp_path


def other_kind(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("x")
    return tmp_path / "notes.txt"


UNREADABLE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda folder: folder / "nothing", r"There is no file or folder"),
    "empty folder": (lambda folder: folder, r"holds no question set: it has neither queries\.jsonl"),
    "other kind": (other_kind, r"is no question set: give a folder"),
    "damaged": (damaged, r"queries\.jsonl\.gz cannot be read"),
    "not text": (not_text, r"queries\.jsonl is not UTF-8"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_at_all_is_an_error_that_says_why(tmp_path: Path, case: str) -> None:
    make, message = UNREADABLE[case]
    with pytest.raises(InvalidRequest, match=message):
        load(make(tmp_path))


def test_a_folder_without_its_corpus_says_what_is_missing(tmp_path: Path) -> None:
    write_lines(tmp_path / "queries.jsonl", QUERIES)
    with pytest.raises(InvalidRequest, match=r"has no corpus\.jsonl \(or corpus\.jsonl\.gz\)"):
        load(tmp_path)


# --- what can be done with a set ------------------------------------------------------------------------------------


def numbered(count: int) -> Dataset:
    questions = tuple(Question(f"q{number}", "?") for number in range(count))
    return Dataset("n", questions, {one.id: Gold({"a": 1}) for one in questions}, (Text("a", "T", "x"),))


def test_a_limit_draws_the_same_questions_for_the_same_seed_and_keeps_their_order() -> None:
    drawn = numbered(50).limited(10, 3)
    numbers = [int(one.id[1:]) for one in drawn.questions]
    assert numbers == sorted(numbers) and len(set(numbers)) == 10
    assert drawn == numbered(50).limited(10, 3) != numbered(50).limited(10, 4)
    assert set(drawn.gold) == {one.id for one in drawn.questions}
    assert drawn.documents == numbered(50).documents
    assert numbered(5).limited(10, 3) == numbered(5).limited(None, 3) == numbered(5)


def test_the_title_blind_variant_has_no_titles() -> None:
    assert [one.title for one in numbered(1).without_titles().documents] == [""]


def test_gold_that_names_no_document_is_counted(tmp_path: Path) -> None:
    assert load(write_set(tmp_path)).unknown_gold({"a"}) == 2


def test_pooled_sets_keep_their_ids_apart_and_gain_strangers(tmp_path: Path) -> None:
    one = load(write_set(tmp_path / "one"))
    pool = pooled("pool", [one, numbered(1)], [Text("x", "", "unrelated")])
    assert {text.id for text in pool.documents} == {"one/a", "one/b", "n/a", "unrelated/x"}
    assert pool.gold["one/q1"] == Gold({"one/a": 1, "one/b": 1}, ("one/b", "one/a"), (GoldSpan("one/a", 0, 3),))
    assert pool.unknown_gold({text.id for text in pool.documents}) == 0
