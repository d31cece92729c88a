"""Run and qrels files in the form of TREC, for trec_eval, ir-measures and their kin.

Ids may hold anything in a question set and no white space in these files: there it stands percent-encoded.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hopnode.worker.errors import InvalidRequest
from hopnode.worker.evaluation.dataset import Gold

TAG = "hopnode"
_SPECIAL = re.compile(r"[\s%]")


def write_run(path: Path, rankings: Mapping[str, Sequence[str]]) -> None:
    """One line a document: question, Q0, document, rank, score, tag. Scores fall with the rank and say nothing else."""
    lines = [
        f"{_plain(question)} Q0 {_plain(document)} {rank} {1 / rank:.6f} {TAG}"
        for question, ranked in rankings.items()
        for rank, document in enumerate(ranked, start=1)
    ]
    _write(path, lines)


def write_qrels(path: Path, gold: Mapping[str, Gold]) -> None:
    """One line a gold document: question, 0, document, gain."""
    lines = [
        f"{_plain(question)} 0 {_plain(document)} {gain}"
        for question, one in gold.items()
        for document, gain in one.gains.items()
    ]
    _write(path, lines)


def _plain(name: str) -> str:
    return _SPECIAL.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)


def _write(path: Path, lines: Sequence[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from error
