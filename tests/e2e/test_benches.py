"""The benches run to their end on very little, so that they are there when somebody needs a figure."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SECONDS = 300
TEXTS = {
    "nordlys": "The ferry Nordlys leaves from Harstad every morning. Its captain is Liv Holm.",
    "holm": "Liv Holm was born in Bergen and learnt to sail on the boat of an uncle.",
    "key": "The harbour master keeps the key of the lighthouse.",
}


def bench(name: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / f"{name}.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_set(folder: Path, gold: list[str]) -> None:
    folder.mkdir(parents=True)
    rows = [{"id": key, "title": key, "text": text} for key, text in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    question = {"id": "q", "question": "Where was the captain of the ferry Nordlys born?", "gold": gold}
    (folder / "queries.jsonl").write_text(json.dumps(question) + "\n")


def test_all_sets_of_a_folder_become_a_page_and_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    write_set(tmp_path / "data" / "hops", ["nordlys", "holm"])
    write_set(tmp_path / "data" / "plain", ["holm"])
    (tmp_path / "data" / "no-set").mkdir()
    page = tmp_path / "page.md"
    arguments = (tmp_path / "data", "--data-dir", tmp_path / "kept", "--page", page, "--pooled", "20")
    told = bench("retrieval_quality", *arguments)
    assert "left out:" in told and "hops blind agent: R@1" in told
    text = page.read_text()
    for words in (
        "## Questions that need several documents",
        "| hops (1 over 3) | one_shot |",
        "pooled-20",
        "### In a pool",
        "and 20 unrelated passages",
        "## Auto",
    ):
        assert words in text
    assert "Where the agent does not help: one document" in text
    again = bench("retrieval_quality", *arguments)
    assert "R@1" not in again
    assert page.read_text() == text


def test_latency_is_measured_beside_raw_chroma_and_raw_fts5(tmp_path: Path) -> None:
    told = bench("search_latency", "--chunks", "150", "--queries", "8", "--json", tmp_path / "latency.json")
    assert all(
        name in told for name in ("raw Chroma", "raw FTS5", "one shot", "grep, a word", "offline agent", "6 at once")
    )
    rows = json.loads((tmp_path / "latency.json").read_text())["rows"]
    assert {row["at_once"] for row in rows} == {1, 6}
    assert all(row["p95"] >= row["p50"] > 0 and row["ratio"] > 0 for row in rows)


def test_what_a_turn_takes_beside_its_model_is_measured_and_has_its_part_of_the_page(tmp_path: Path) -> None:
    arguments = ("--chunks", "150", "--searches", "2", "--at-once", "1", "3", "--model-seconds", "0.1")
    told = bench("harness_overhead", *arguments, "--json", tmp_path / "harness.json")
    assert all(words in told for words in ("generic", "context-1", "characters tokenised", "3 at once"))
    found = json.loads((tmp_path / "harness.json").read_text())
    for row in found["rows"]:
        assert row["p95"] >= row["p50"] > 0
        assert all(0 < row["shares"][name] < 1 for name in ("search", "rerank", "counting", "storing"))
        assert 0 < row["last_turn"]["tokenised"] < 5 * row["last_turn"]["new"]
    assert [row["at_once"] for row in found["at_once"]["rows"]] == [1, 3]
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        from page.benchmark_page import table
        from page.harness import harness_section
    finally:
        sys.path.remove(str(ROOT / "bench"))
    page = "\n".join(harness_section([found, {"chunks": 1}], table))
    assert "| generic |" in page and "| context-1 |" in page and "HOPNODE_AGENT_SLOTS" in page


@pytest.mark.parametrize("mode", ["embedded", "server"])
def test_a_burst_of_searches_and_a_long_queue_are_measured_and_have_their_part_of_the_page(
    tmp_path: Path, mode: str
) -> None:
    kept = tmp_path / "load.json"
    tiny = ("--many", "8", "--few", "2", "--queued", "100", "--model-seconds", "0.05", "--json", kept)
    told = bench("load", *tiny, *(["--server"] if mode == "server" else []))
    assert "accepted in" in told and "all 2 ended after" in told
    found = json.loads(kept.read_text())
    burst = found["burst"]
    assert burst["accept"]["p95"] >= burst["accept"]["p50"] > 0
    assert 0 < burst["few_done_at"] <= 1 and 0 <= burst["many_done_before_few"] <= 1
    assert burst["per_second"] > 0 and burst["memory_most"] >= burst["memory_idle"] > 0
    assert [row["what"] for row in found["queue"]] == ["claim", "accept", "look"]
    assert all(row["short"] > 0 and row["long"] > 0 for row in found["queue"])
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        from page.load import load_section
        from page.text import table
    finally:
        sys.path.remove(str(ROOT / "bench"))
    page = "\n".join(load_section([found, {"chunks": 1}], table))
    assert f"## 10 searches in one second, {mode} mode" in page and "With 100 queued jobs in place of 10" in page


def test_ingest_is_measured_beside_embedding_alone(tmp_path: Path) -> None:
    told = bench("ingest", "--documents", "40", "--json", tmp_path / "ingest.json")
    assert "again, unchanged" in told and "again, 1 % changed" in told
    rows = json.loads((tmp_path / "ingest.json").read_text())["rows"]
    assert [row["what"] for row in rows][:2] == ["embedding alone", "first ingest"]
    assert rows[2]["seconds"] < rows[1]["seconds"]


def test_weights_are_fitted_and_tried_on_the_set_that_was_left_out(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_set(tmp_path / "data" / name, ["nordlys", "holm"])
    kept = tmp_path / "held-out.json"
    told = bench(
        "train_offline", tmp_path / "data", "first", "second", "--data-dir", tmp_path / "kept", "--held-out", kept
    )
    assert "wrote" not in told, "the weights that ship stay"
    found = json.loads(kept.read_text())
    assert [(row["set"], row["titled"], row["learnt"]) for row in found["held_out"]] == [
        (name, titled, [other])
        for name, other in (("first", "second"), ("second", "first"))
        for titled in (True, False)
    ]
    for row in found["held_out"]:
        assert row["questions"] == 1 and all(
            0 <= row["figures"][mode]["recall@5"] <= 1 for mode in ("one_shot", "agent")
        )
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        from page.held_out import held_out_section
    finally:
        sys.path.remove(str(ROOT / "bench"))
    page = "\n".join(held_out_section([found, {"chunks": 1}]))
    assert "| first, title-blind | agent | 1 |" in page and found["command"] in page and "All 2 questions" in page
