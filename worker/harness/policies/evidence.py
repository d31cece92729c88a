"""Measures how well chunks answer a question without a language model: words, vectors, names, and links over names.

Gives numbers for each candidate in a fixed order that `ranking.py` weighs. Knows no tools and decides nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from worker.corpus.names import leads_in
from worker.corpus.records import Chunk, SearchHits
from worker.harness.policies.insight import Insight, NamedRow
from worker.harness.policies.links import Link, Phrase, mentions, outgoing, owners_of
from worker.harness.policies.question import LONGEST_GRAM, Question
from worker.harness.policies.reading import STEM_LETTERS, Reading, read

PER_LEG = 120
"""Candidates taken from each leg of the index."""
LAST_RANK = 150
"""What counts as the rank of a chunk that a leg did not find."""
MOST_HOLDERS = 60
"""A phrase that stands in more chunks connects nothing."""
DIRECT, LINKED = 13, 18
"""How many numbers a candidate gets."""

Numbers: TypeAlias = NDArray[np.float64]


@dataclass
class Candidate:
    """A chunk under consideration. Ranks are those of the two legs; `named` says how strongly the question names it,
    `alone` how few other documents go by the same name."""

    chunk: Chunk
    reading: Reading
    similar: float = 0.0
    lexical_rank: int = LAST_RANK
    dense_rank: int = LAST_RANK
    named: float = 0.0
    alone: float = 0.0


@dataclass
class Evidence:
    """All that was found out about one question so far; `rows` keeps the order of the lines of numbers."""

    question: Question
    insight: Insight
    found: SearchHits = field(default_factory=lambda: SearchHits(()))
    names: list[Phrase] = field(default_factory=list[Phrase])
    rows: list[int] = field(default_factory=list[int])
    candidates: dict[int, Candidate] = field(default_factory=dict[int, Candidate])
    _out: dict[int, dict[int, Link]] = field(default_factory=dict[int, dict[int, Link]])
    _in: dict[int, dict[int, Link]] = field(default_factory=dict[int, dict[int, Link]])
    _shared: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    _holders: dict[Phrase, list[int]] = field(default_factory=dict[Phrase, list[int]])

    # --- the question alone ---------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Takes in what is near the question, and what it names; `names` has the names in the question's order."""
        self.found = self.insight.candidates(self.question.text, PER_LEG)
        similar = self._admit({near.chunk.row: near.chunk for near in self.found.hits})
        for near in self.found.hits:
            candidate = self.candidates[near.chunk.row]
            candidate.lexical_rank = near.lexical_rank or LAST_RANK
            candidate.dense_rank = (near.dense_rank if similar else None) or LAST_RANK
        lengths = [len(candidate.reading.terms) for candidate in self.candidates.values()]
        self.question.mean_terms = sum(lengths) / len(lengths) if any(lengths) else 1.0
        names = self._names_in([self.question.terms])
        self._admit_rows(named.row for named in names)
        owners = owners_of(names)
        phrases = [phrase for _, _, phrase in mentions(self.question.terms, owners, self.question.known)]
        for phrase in phrases:
            strength = min(self.question.weight_of(phrase) / 12, 1.5)
            for owner in owners[phrase]:
                if candidate := self.candidates.get(owner.row):
                    candidate.named = max(candidate.named, owner.quality * strength)
                    candidate.alone = max(candidate.alone, owner.quality / len(owners[phrase]))
        self.names = list(dict.fromkeys(phrases))

    def consider(self, chunks: Mapping[int, Chunk]) -> None:
        """Takes in chunks that were found in other ways, by row."""
        self._admit({row: chunk for row, chunk in chunks.items() if row not in self.candidates})

    def direct(self) -> Numbers:
        """One line of DIRECT numbers for each candidate."""
        candidates = [self.candidates[row] for row in self.rows]
        words = [self._bm25(candidate.reading) for candidate in candidates]
        most = max(words, default=0.0) or 1.0
        closest = max((candidate.similar for candidate in candidates), default=0.0) or 1.0
        lines = [
            self._line(candidate, score / most, closest) for candidate, score in zip(candidates, words, strict=True)
        ]
        return np.array(lines, np.float64).reshape(-1, DIRECT)

    def _line(self, candidate: Candidate, words: float, closest: float) -> list[float]:
        phrase, opening = self._heaviest_grams(candidate.reading)
        return [
            words,
            candidate.similar,
            candidate.similar / closest,
            math.log(candidate.lexical_rank) / 5,
            math.log(candidate.dense_rank) / 5,
            self._name_coverage(candidate.reading.name),
            candidate.named,
            candidate.alone,
            self._coverage(self.question.stems, candidate),
            1 / candidate.lexical_rank,
            1 / candidate.dense_rank,
            phrase / 15,
            opening / 15,
        ]

    def _bm25(self, reading: Reading) -> float:
        length = 1.2 * (0.25 + 0.75 * len(reading.terms) / self.question.mean_terms)
        return sum(
            self.question.weight(term) * count * 2.2 / (count + length)
            for term in self.question.known
            if (count := reading.counts.get(term, 0))
        )

    def _name_coverage(self, name: Phrase) -> float:
        total = self.question.weight_of(name)
        return self.question.weight_of(set(name) & self.question.known) / total if total else 0.0

    def _heaviest_grams(self, reading: Reading) -> tuple[float, float]:
        """Weight of the heaviest piece of the question that stands word for word in the chunk, and near its start."""
        terms, grams, known = reading.terms, self.question.grams, self.question.known
        best = opening = 0.0
        for start, term in enumerate(terms):
            if term not in known:
                continue
            for size in range(min(LONGEST_GRAM, len(terms) - start), 1, -1):
                if (weight := grams.get(terms[start : start + size])) is not None:
                    best = max(best, weight)
                    opening = max(opening, weight) if start < 20 else opening
                    break
        return best, opening

    # --- links ----------------------------------------------------------------------------------------------------

    def follow(self, seeds: Sequence[int]) -> None:
        """Looks up the links of these rows, both ways, and takes in what they lead to."""
        new = [row for row in seeds if row not in self._out]
        names = self._names_in([self.candidates[row].reading.terms for row in new])
        owners = owners_of(names)
        holders = {row: self._holders_of_name(row) for row in new}
        for row in new:
            self._out[row] = outgoing(row, self.candidates[row].reading, owners)
        self._admit_rows(target for row in new for target in (*self._out[row], *holders[row]))
        for row in new:
            name = self.candidates[row].reading.name
            sharers = len(owners.get(name, ())) or 1
            self._out[row] = {target: link for target, link in self._out[row].items() if target in self.candidates}
            self._in[row] = {
                target: Link(name, 1.0, sharers, self.candidates[target].reading.context_of(name))
                for target in holders[row]
                if target in self.candidates
            }

    def share(self, seeds: Sequence[int]) -> None:
        """Looks up which chunks share a rare capitalised word with these rows, and takes them in."""
        new = [row for row in seeds if row not in self._shared]
        self.question.learn(term for row in new for term in self.candidates[row].reading.capitals)
        for row in new:
            reading = self.candidates[row].reading
            rare = (term for term in sorted(reading.capitals) if self.question.rare(term))
            telling = [term for term in rare if term not in self.question.known and term not in reading.name]
            holders = [self._holding((term,)) for term in telling]
            self._shared[row] = [
                (target, len(rows)) for rows in holders for target in rows if target not in (row, *self._out[row])
            ]
        self._admit_rows(target for row in new for target, _ in self._shared[row])

    def linked(self, trust: Mapping[int, float], seeds: Sequence[int], sharing: Sequence[int]) -> Numbers:
        """One line of LINKED numbers for each candidate: the best of all links to it, each weighed by the trust in the
        chunk where it begins."""
        numbers = np.zeros((len(self.rows), LINKED))
        at = {row: index for index, row in enumerate(self.rows)}
        for row in seeds:
            missing = self._missing(row)
            for offset, links in ((0, self._out[row]), (7, self._in[row])):
                spread = 1 / math.sqrt(1 + len(links))
                for target, link in links.items():
                    place = numbers[at[target], offset : offset + 7]
                    np.maximum(place, self._weigh(trust[row], link, target, missing, spread), out=place)
        for row in sharing:
            missing = self._missing(row)
            for target, holders in self._shared[row]:
                if target in at:
                    place = numbers[at[target], 14:18]
                    np.maximum(place, self._weigh_shared(trust[row], holders, target, missing), out=place)
        return numbers

    def way_to(self, target: int, seeds: Sequence[int]) -> tuple[int, Link] | None:
        """The first of the seeds from which a link leads to the target, and that link."""
        for row in seeds:
            for links in (self._out.get(row, {}), self._in.get(row, {})):
                if target in links:
                    return row, links[target]
        return None

    def _weigh(
        self, trust: float, link: Link, target: int, missing: Mapping[str, float], spread: float
    ) -> tuple[float, ...]:
        strength = trust * link.quality / math.sqrt(link.sharers)
        own = {term[:STEM_LETTERS] for term in link.phrase}
        stems = self.question.stems.items()
        context = sum(weight for stem, weight in stems if stem in link.context and stem not in own)
        candidate = self.candidates[target]
        return (
            strength,
            strength * context / self.question.total,
            strength * self._coverage(missing, candidate),
            strength * max(candidate.similar, 0.0),
            0.0 if set(link.phrase) <= self.question.known else strength,
            strength * spread,
            strength * min(self.question.weight_of(link.phrase) / 12, 1.5),
        )

    def _weigh_shared(self, trust: float, holders: int, target: int, missing: Mapping[str, float]) -> tuple[float, ...]:
        candidate = self.candidates[target]
        gap, share = self._coverage(missing, candidate), trust / math.sqrt(holders)
        return (share * gap, share * max(candidate.similar, 0.0), share, trust * gap * gap)

    def _missing(self, row: int) -> dict[str, float]:
        """The stems of the question that a chunk lacks."""
        stems = self.candidates[row].reading.stems
        return {stem: weight for stem, weight in self.question.stems.items() if stem not in stems}

    def _coverage(self, stems: Mapping[str, float], candidate: Candidate) -> float:
        held = candidate.reading.stems
        return sum(weight for stem, weight in stems.items() if stem in held) / self.question.total

    def _holders_of_name(self, row: int) -> list[int]:
        """Chunks in which the name of this one stands; none when the name says little."""
        reading = self.candidates[row].reading
        self.question.learn(reading.name)
        if not reading.is_opening or not reading.name or not self.question.usable(reading.name):
            return []
        return [target for target in self._holding(reading.name) if target != row]

    def _holding(self, phrase: Phrase) -> list[int]:
        if phrase not in self._holders:
            self._holders[phrase] = self.insight.holding(phrase, MOST_HOLDERS)
        return self._holders[phrase]

    def _names_in(self, texts: Sequence[Sequence[str]]) -> list[NamedRow]:
        found = self.insight.named({lead for terms in texts for lead in leads_in(terms)})
        self.question.learn(term for named in found for term in named.phrase.split(" "))
        return [named for named in found if self.question.usable(named.phrase.split(" "))]

    def _admit_rows(self, rows: Iterable[int]) -> None:
        new = [row for row in dict.fromkeys(rows) if row not in self.candidates]
        if new:
            self._admit(self.insight.chunks(new))

    def _admit(self, chunks: Mapping[int, Chunk]) -> Mapping[int, float]:
        """Takes in chunks; how near each is to the question, as far as vectors can tell."""
        similar = self.insight.similarities(self.question.text, list(chunks))
        for row, chunk in chunks.items():
            self.candidates[row] = Candidate(chunk, read(chunk), similar.get(row, 0.0))
            self.rows.append(row)
        self.question.learn(term for row in chunks for term in self.candidates[row].reading.name)
        return similar
