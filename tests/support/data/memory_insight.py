"""The corpus's view of a question, over a few texts in memory: what the ranking asks, answered word by word."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.names import lead_of, names_of
from hopnode.worker.corpus.records import Chunk, Hit, SearchHits
from hopnode.worker.corpus.sqlite.name_table import NamedRow
from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.links import Phrasebook
from hopnode.worker.ranking.question import WeighedQuestion
from support.harness.space import make_chunk


class MemoryInsight:
    """A few texts in memory, a chunk each; every other one has a title, and the vector of every third is unknown."""

    def __init__(self, texts: Sequence[str]) -> None:
        titles = [" ".join(text.split()[:2]) if row % 2 else "" for row, text in enumerate(texts)]
        self.all = [
            make_chunk(f"d{row}", row, text, title=title)
            for row, (text, title) in enumerate(zip(texts, titles, strict=True))
        ]
        self._terms = [tuple(analyze(f"{chunk.title}\n{chunk.text}", query=True)) for chunk in self.all]

    def snapshot(self, question: str) -> AbstractContextManager[None]:
        return nullcontext()

    def size(self) -> int:
        return len(self.all)

    def candidates(self, question: str, per_leg: int) -> SearchHits:
        wanted = set(analyze(question, query=True))
        found = [chunk for chunk, terms in zip(self.all, self._terms, strict=True) if wanted & set(terms)]
        return SearchHits(
            tuple(Hit(chunk, 1.0, rank if rank % 2 else None, rank) for rank, chunk in enumerate(found, 1))
        )

    def similarities(self, question: str, rows: Sequence[int]) -> Mapping[int, float]:
        return {row: (len(question) * 7 + row * 13) % 20 / 20 - 0.2 for row in rows if row % 3}

    def words_lead(self, question: str) -> bool:
        return not question.isascii()

    def frequencies(self, terms: Iterable[str]) -> Mapping[str, int]:
        return {term: count for term in terms if (count := sum(term in held for held in self._terms))}

    def phrases(self, leads: Iterable[str]) -> list[str]:
        wanted = set(leads)
        return [one.phrase for one in self._names() if lead_of(one.phrase.split(" ")) in wanted]

    def named(self, phrases: Iterable[str]) -> list[NamedRow]:
        wanted = set(phrases)
        return [one for one in self._names() if one.phrase in wanted]

    def holding(self, phrases: Sequence[Sequence[str]], limit: int) -> list[list[int]]:
        books = [Phrasebook([tuple(phrase)]) for phrase in phrases]
        found = [[row for row, held in enumerate(self._terms) if any(book.standing(held))] for book in books]
        return [rows if len(rows) <= limit else [] for rows in found]

    def chunks(self, rows: Sequence[int]) -> Mapping[int, Chunk]:
        return {row: self.all[row] for row in rows}

    def _names(self) -> Iterator[NamedRow]:
        for chunk in self.all:
            yield from (NamedRow(name.phrase, chunk.row, name.quality) for name in names_of(chunk.title, chunk.text))


def evidence_of(question: str, texts: Sequence[str], insight: MemoryInsight | None = None) -> Evidence:
    """What lies near a question in these texts; no link is followed yet."""
    insight = insight or MemoryInsight(texts)
    evidence = Evidence(WeighedQuestion(question, insight), insight)  # type: ignore[arg-type]
    evidence.collect(10)
    return evidence
