"""`hopnode eval` as a user runs it: a small question set in a process of its own, files out, errors that say what is wrong."""

import json
import signal
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.node.cli import Cli

from hopnode.worker.inference.scripted import Fault, Reply, ScriptedChatServer, ServerRequest

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


@pytest.mark.parametrize("place", ["a folder", "a running node", "a node for the command"])
def test_own_questions_are_asked_of_a_collection_that_exists(cli: Cli, place: str) -> None:
    docs = cli.cwd / "docs"
    docs.mkdir()
    for key, title, text in CORPUS:
        (docs / f"{key}.md").write_text(f"# {title}\n\n{text}\n")
    assert cli.run("add", "docs", "--collection", "boats").returncode == 0
    (cli.cwd / "mine.csv").write_text(
        "question,gold\nWho keeps the key of the lighthouse?,key.md\nWho sails?,gone.md\n"
    )
    where = ("--data-dir", str(cli.data_dir)) if place == "a folder" else ("--node",)
    with cli.serve() if place == "a running node" else nullcontext():
        done = cli.run("eval", "mine.csv", *where, "--collection", "boats", "--json", "mine.json")
    assert done.returncode == 0, done.stderr
    assert "1 gold entries name documents that are not there" in done.stdout
    report = json.loads((cli.cwd / "mine.json").read_text())
    assert (report["documents"], report["recall"]["20"]) == (4, 0.5)


def test_a_running_node_measures_what_a_run_of_ones_own_does_and_the_two_are_compared(cli: Cli) -> None:
    alone = cli.run("eval", "ferries", "--mode", "one_shot", "--data-dir", cli.data_dir, "--json", "alone.json")
    assert alone.returncode == 0, alone.stderr
    with cli.serve():
        where = ("--node", "--collection", "eval-ferries", "--mode", "one_shot")
        done = cli.run("eval", "ferries", *where, "--json", "node.json", "--compare", "alone.json")
        assert done.returncode == 0, done.stderr
        with cli.client() as http:
            (listed,) = http.get("/v1/evaluations").json()["items"]
            kept = http.get(listed["url"]).json()["report"]
    for words in ("2 questions over 4 documents", "lexical alone", "beside alone.json, over the 2 questions of both"):
        assert words in done.stdout
    assert f"evaluation {listed['id']} on the node" in done.stderr
    first, second = (json.loads((cli.cwd / name).read_text()) for name in ("alone.json", "node.json"))
    for figure in ("dataset", "recall", "all", "mrr", "ndcg10", "intervals", "legs", "documents", "embedder"):
        assert first[figure] == second[figure], figure
    assert second == kept, "the file is what the node keeps"


def test_leaving_an_evaluation_on_a_node_cancels_it_there(cli: Cli) -> None:
    waits = threading.Event()

    def reply(_: ServerRequest) -> Reply:
        waits.set()
        return Fault(wait_seconds=60)

    with ScriptedChatServer(reply) as model:
        cli.environment |= {"HOPNODE_CHAT_URL": model.url, "HOPNODE_CHAT_MODEL": "m"}
        docs = cli.cwd / "docs"
        docs.mkdir()
        (docs / "key.md").write_text("The harbour master keeps the key of the lighthouse.")
        assert cli.run("add", "docs", "--collection", "boats").returncode == 0
        with cli.serve(), cli.client() as http:
            asks = cli.start(
                *("eval", "ferries", "--node", "--collection", "boats", "--mode", "agent", "--profile", "generic")
            )
            assert waits.wait(60)
            asks.send_signal(signal.SIGINT)
            asks.communicate(timeout=60)
            (ended,) = http.get("/v1/evaluations").json()["items"]
    assert asks.returncode == 130
    assert (ended["status"], ended["progress"]) == ("cancelled", {"asked": 0, "questions": 2})


def test_more_questions_than_a_node_takes_are_refused_with_how_to_ask_fewer(cli: Cli) -> None:
    rows = "".join(f"Question {number}?,key.md\n" for number in range(1001))
    (cli.cwd / "many.csv").write_text(f"question,gold\n{rows}")
    done = cli.run("eval", "many.csv", "--node", "--collection", "boats")
    assert done.returncode == 2
    assert "The set has 1,001 questions, and a node takes 1,000 at once" in done.stderr


def test_searches_that_fail_are_told_and_set_the_exit_code(cli: Cli) -> None:
    done = cli.run("eval", "ferries", "--mode", "agent", "--profile", "generic")
    assert done.returncode == 1
    assert "failed searches, which found nothing: configuration 2" in done.stdout


WRONG: dict[str, tuple[list[str], int, str]] = {
    "no such set": (["nothing"], 2, "There is no file or folder nothing"),
    "a line that is wrong": (["broken"], 2, "queries.jsonl, line 2: the field `gold` is missing"),
    "a csv without a collection": (["mine.csv"], 2, "A CSV file holds questions only"),
    "a collection without its folder": (["mine.csv", "--collection", "boats"], 2, "--collection needs --data-dir"),
    "a node and a folder": (["ferries", "--node", "--collection", "boats", "--data-dir", "."], 2, "are two places"),
    "a node without a collection": (["ferries", "--node"], 2, "--node needs --collection"),
    "rankings of a node": (["ferries", "--node", "--collection", "boats", "--trec", "out"], 2, "--trec needs all"),
    "a collection that the node does not have": (
        ["ferries", "--node", "--collection", "none"],
        4,
        "no collection `none`",
    ),
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
