"""The 2WikiMultiHopQA sample that ships with Hopnode: its paragraphs and questions. Knows no node and no search."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_FOLDER = files("hopnode.node_service.commands.demo").joinpath("data", "2wiki-sample")


@dataclass(frozen=True)
class Paragraph:
    """One Wikipedia paragraph; `id` becomes its document key."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class SampleQuestion:
    """A multi-hop question; `gold` are the ids of the paragraphs that together answer it."""

    id: str
    text: str
    answers: tuple[str, ...]
    gold: tuple[str, ...]
    kind: str


def paragraphs() -> list[Paragraph]:
    """All 1,294 paragraphs, in the order of the file."""
    return [Paragraph(row["id"], row["title"], row["text"]) for row in _rows("corpus.jsonl.gz")]


def questions() -> list[SampleQuestion]:
    """All 163 questions, in the order of the file."""
    return [
        SampleQuestion(row["id"], row["question"], tuple(row["answers"]), tuple(row["gold"]), row["type"])
        for row in _rows("queries.jsonl.gz")
    ]


def _rows(name: str) -> Iterator[dict[str, Any]]:
    for line in gzip.decompress(_FOLDER.joinpath(name).read_bytes()).splitlines():
        yield json.loads(line)
