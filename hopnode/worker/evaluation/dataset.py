"""The records of a question set, with what is asked kept apart from what is right; knows no file format and no search.

`questions` is all that a search may see; `gold` goes to the figures only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np


@dataclass(frozen=True)
class Text:
    """A document of a question set, before it is ingested."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Question:
    """What is asked. There is nothing here that tells the answer."""

    id: str
    text: str


@dataclass(frozen=True)
class GoldSpan:
    """Evidence: characters `start` to `end` of the text of a document as the set has it."""

    document: str
    start: int
    end: int


@dataclass(frozen=True)
class Gold:
    """What is right for one question: `gains` has its documents, each with 1 unless the set grades them. `hops` has the
    document of each hop in order, where the set says so. `spans` is the evidence within documents."""

    gains: Mapping[str, int]
    hops: tuple[str, ...] = ()
    spans: tuple[GoldSpan, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """Questions over documents. Without documents it asks about a collection that exists already."""

    name: str
    questions: tuple[Question, ...]
    gold: Mapping[str, Gold]
    documents: tuple[Text, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def without_titles(self) -> "Dataset":
        """The title-blind variant: titles are neither indexed nor shown."""
        return replace(self, documents=tuple(replace(one, title="") for one in self.documents))

    def limited(self, count: int | None, seed: int) -> "Dataset":
        """At most `count` questions, drawn with `seed` and left in their order; the documents stay as they are."""
        if count is None or count >= len(self.questions):
            return self
        drawn = np.random.default_rng(seed).choice(len(self.questions), size=count, replace=False)
        questions = tuple(self.questions[place] for place in sorted(drawn.tolist()))
        return replace(self, questions=questions, gold={one.id: self.gold[one.id] for one in questions})

    def unknown_gold(self, known: set[str]) -> int:
        """How many gold entries of the questions name a document that is not among `known`."""
        return sum(document not in known for one in self.questions for document in self.gold[one.id].gains)


def pooled(name: str, sets: Sequence[Dataset], unrelated: Sequence[Text] = ()) -> Dataset:
    """All questions over the documents of all sets in one collection, with unrelated documents between them."""
    documents = [replace(one, id=f"{part.name}/{one.id}") for part in sets for one in part.documents]
    documents += [replace(one, id=f"unrelated/{one.id}") for one in unrelated]
    questions = [replace(one, id=f"{part.name}/{one.id}") for part in sets for one in part.questions]
    gold = {f"{part.name}/{question}": _moved(one, part.name) for part in sets for question, one in part.gold.items()}
    return Dataset(name, tuple(questions), gold, tuple(documents))


def _moved(gold: Gold, name: str) -> Gold:
    return Gold(
        {f"{name}/{document}": gain for document, gain in gold.gains.items()},
        tuple(f"{name}/{document}" for document in gold.hops),
        tuple(replace(span, document=f"{name}/{span.document}") for span in gold.spans),
    )
