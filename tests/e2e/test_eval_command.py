"""`hopnode eval` as a user runs it: a small question set in a process of its own, files out, errors that say what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli

pytestmark = pytest.mark.slow

CORPUS = [
    ("nordlys", "Nordlys", "The ferry Nordlys leaves from Harstad every morning. Its captain is Liv Holm."),
    ("holm", "Liv Holm", "Liv Holm was born in Bergen and learnt to sail on the boat of an uncle."),
    ("key", "Lighthouse", "The harbour master keeps the key of the lighthouse."),
    ("bread", "Bakery", "The bakery opens at six and sells bread and cakes."),
]
QUERIES = [
    ("q1", "Where was the captain of the ferry Nordlys born?", ["nordlys", "holm"]),
    ("q2", "Who keeps the key of the lighthouse?", ["key", "nowhere"]),
]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command, with a question set in the folder `ferries` beside it."""
    folder = tmp_path / "ferries"
    folder.mkdir()
    write_lines(folder / "corpus.jsonl", [{"id": key, "title": title, "text": text} for key, title, text in CORPUS])
    write_lines(
        folder / "queries.jsonl", [{"id": key, "question": asked, "gold": gold} for key, asked, gold in QUERIES]
    )
    return Cli(tmp_path / "data", tmp_path, embedder="minilm")


def test_a_set_is_measured_without_a_node_and_leaves_nothing_but_its_files(cli: Cli) -> None:
    files = ("--json", "out/report.json", "--trec", "out/trec")
    done = cli.run("eval", "ferries", "--mode", "one_shot", *files)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    for words in ("ferries", "2 questions over 4 documents", "R@5", "nDCG@10", "lexical alone", "dense alone", "95 %"):
        assert words in done.stdout
    assert "1 gold entries name documents that are not there" in done.stdout
    report = json.loads((cli.cwd / "out/report.json").read_text())
    assert report["recall"]["5"] == pytest.approx(0.75)
    assert {"1", "2", "5", "8", "10", "20"} == report["recall"].keys() == report["all"].keys()
    wanted = "dataset questions documents mode profile titles mrr ndcg10 latency_ms embedder seed versions"
    assert report.keys() >= set(wanted.split())
    assert report["latency_ms"].keys() == {"p50", "p95"}
    assert (cli.cwd / "out/trec/qrels.trec").read_text().splitlines()[0] == "q1 0 nordlys 1"
    assert (cli.cwd / "out/trec/run.trec").exists()
    assert not cli.data_dir.exists()


def test_two_ways_to_search_are_compared_question_by_question(cli: Cli) -> None:
    first = cli.run("eval", "ferries", "--mode", "one_shot", "--json", "one.json")
    assert first.returncode == 0, first.stderr
    second = cli.run("eval", "ferries", "--mode", "agent", "--no-titles", "--compare", "one.json")
    assert second.returncode == 0, second.stderr
    assert "title-blind" in second.stdout
    assert "beside one.json, over the 2 questions of both" in second.stdout
    assert "95 % interval" in second.stdout


def test_own_questions_are_asked_of_a_collection_that_exists(cli: Cli) -> None:
    docs = cli.cwd / "docs"
    docs.mkdir()
    for key, title, text in CORPUS:
        (docs / f"{key}.md").write_text(f"# {title}\n\n{text}\n")
    assert cli.run("add", "docs", "--collection", "boats").returncode == 0
    (cli.cwd / "mine.csv").write_text(
        "question,gold\nWho keeps the key of the lighthouse?,key.md\nWho sails?,gone.md\n"
    )
    done = cli.run("eval", "mine.csv", "--data-dir", cli.data_dir, "--collection", "boats", "--json", "mine.json")
    assert done.returncode == 0, done.stderr
    assert "1 gold entries name documents that are not there" in done.stdout
    report = json.loads((cli.cwd / "mine.json").read_text())
    assert (report["documents"], report["recall"]["20"]) == (4, 0.5)


def test_searches_that_fail_are_told_and_set_the_exit_code(cli: Cli) -> None:
    done = cli.run("eval", "ferries", "--mode", "agent", "--profile", "generic")
    assert done.returncode == 1
    assert "failed searches, which found nothing: configuration 2" in done.stdout


WRONG: dict[str, tuple[list[str], int, str]] = {
    "no such set": (["nothing"], 2, "There is no file or folder nothing"),
    "a line that is wrong": (["broken"], 2, "queries.jsonl, line 2: the field `gold` is missing"),
    "a csv without a collection": (["mine.csv"], 2, "A CSV file holds questions only"),
    "a collection without its folder": (["mine.csv", "--collection", "boats"], 2, "--collection needs --data-dir"),
    "no such folder": (["mine.csv", "--collection", "boats", "--data-dir", "none"], 2, "There is no data folder none"),
    "no such collection": (["mine.csv", "--collection", "boats", "--data-dir", "."], 4, "no collection"),
    "no report to compare": (["ferries", "--compare", "mine.csv"], 2, "is no report of `hopnode eval`"),
    "titles of a collection": (
        ["mine.csv", "--collection", "boats", "--data-dir", ".", "--no-titles"],
        2,
        "An existing collection is asked as it is",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_how_to_mend_it(cli: Cli, case: str) -> None:
    arguments, code, message = WRONG[case]
    (cli.cwd / "mine.csv").write_text("question,gold\nWho?,a.md\n")
    (cli.cwd / "broken").mkdir()
    write_lines(cli.cwd / "broken" / "corpus.jsonl", [{"id": "a", "text": "x"}])
    write_lines(
        cli.cwd / "broken" / "queries.jsonl",
        [{"id": "1", "question": "?", "gold": ["a"]}, {"id": "2", "question": "?"}],
    )
    done = cli.run("eval", *arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "mend:" in done.stderr
    assert done.stdout == ""
