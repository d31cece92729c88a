from pathlib import Path

import ir_measures
import pytest
from ir_measures import R, nDCG

from hopnode.worker.errors import InvalidRequest
from hopnode.worker.evaluation.dataset import Gold
from hopnode.worker.evaluation.measures import NAMES, figures_of, ranks_of
from hopnode.worker.evaluation.trec import write_qrels, write_run

GOLD = {"q1": Gold({"a": 1, "b": 2}), "q 2": Gold({"notes/my file.md": 1})}
RANKINGS = {"q1": ["x", "b", "y", "a"], "q 2": ["100%.txt", "notes/my file.md"]}


def test_run_and_qrels_are_read_by_others_and_give_the_same_figures(tmp_path: Path) -> None:
    write_run(tmp_path / "out" / "run.trec", RANKINGS)
    write_qrels(tmp_path / "out" / "qrels.trec", GOLD)
    run = list(ir_measures.read_trec_run(str(tmp_path / "out" / "run.trec")))
    qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "out" / "qrels.trec")))
    theirs = ir_measures.calc_aggregate([R @ 2, nDCG @ 10], qrels, run)
    rows = [figures_of(ranks_of(gold.gains, RANKINGS[one]), gold.gains) for one, gold in GOLD.items()]
    ours = {name: sum(row[place] for row in rows) / len(rows) for place, name in enumerate(NAMES)}
    assert theirs[R @ 2] == pytest.approx(ours["recall@2"])
    assert theirs[nDCG @ 10] == pytest.approx(ours["ndcg10"])


def test_ids_come_back_as_they_were(tmp_path: Path) -> None:
    write_run(tmp_path / "run.trec", RANKINGS)
    lines = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    assert {len(line) for line in lines} == {6}
    assert [line[0] for line in lines[-2:]] == ["q%202", "q%202"]
    assert [line[2] for line in lines[-2:]] == ["100%25.txt", "notes/my%20file.md"]
    assert [line[3] for line in lines[-2:]] == ["1", "2"]


def test_a_place_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InvalidRequest, match=r"taken.run\.trec cannot be written"):
        write_run(tmp_path / "taken" / "run.trec", RANKINGS)
