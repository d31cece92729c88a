"""Measures how well chunks answer a question without a language model: words, vectors, names, and links over names.

Gives each candidate the signals that `signals.py` names and `weighing.py` weighs. Knows no tools and decides nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.finding.insight import CorpusInsight
from hopnode.worker.corpus.names import leads_in
from hopnode.worker.corpus.records import Chunk, SearchHits
from hopnode.worker.corpus.sqlite.name_table import NamedRow
from hopnode.worker.ranking.links import Link, Phrase, Phrasebook, outgoing, owners_of
from hopnode.worker.ranking.matching import Matches, match
from hopnode.worker.ranking.question import WeighedQuestion
from hopnode.worker.ranking.reading import STEM_LETTERS, Reading, read
from hopnode.worker.ranking.signals import LINKS_PER_DIRECTION, Direct, Linked
from hopnode.worker.ranking.weights import Numbers

LEAST_PER_LEG, MOST_PER_LEG = 40, 120
"""Candidates taken from each leg of the index. Measured on all sets, what the legs find later changes the first ten places by a
fifth of a point, and costs half of the time."""
LAST_RANK = 150
"""What counts as the rank of a chunk that a leg did not find."""
MOST_HOLDERS = 60
"""A phrase that stands in more chunks connects nothing."""
MOST_NAMES = 200
"""Names looked up at once. Measured, a question or its first passages rarely bring more than a hundred; the commands of one large
program, whose names all begin alike, bring thousands."""
RANK_SCALE, PHRASE_SCALE = 5, 15
"""Bring logarithms of ranks and weights of phrases to about 1. Weighing standardises every signal, so these change nothing
but the units of `mean` and `scale` in `ranking.json`: they have to be the ones that it was fitted with."""

_DIRECTIONS = (Linked.MENTIONED_STRENGTH, Linked.MENTIONS_STRENGTH)


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


@dataclass(frozen=True)
class Bundle:
    """The links between one chunk and others, all in one direction, side by side.

    `targets` are the rows to which they lead. `numbers` has a column for each link and five lines: its strength, and that
    times context, times unknown, by spread, and times weight. `signals.py` explains them at `MENTIONED_…`.
    """

    targets: list[int]
    numbers: Numbers


@dataclass
class Evidence:
    """All that was found out about one question so far. `found` is what the search brought, `near` has its rows. `rows` has the
    rows of all candidates, in the order in which other methods give their lines of numbers."""

    question: WeighedQuestion
    insight: CorpusInsight
    found: SearchHits = field(default_factory=lambda: SearchHits(()))
    near: frozenset[int] = frozenset()
    names: list[Phrase] = field(default_factory=list[Phrase])
    rows: list[int] = field(default_factory=list[int])
    candidates: dict[int, Candidate] = field(default_factory=dict[int, Candidate])
    _out: dict[int, dict[int, Link]] = field(default_factory=dict[int, dict[int, Link]])
    _in: dict[int, dict[int, Link]] = field(default_factory=dict[int, dict[int, Link]])
    _bundles: dict[int, tuple[Bundle, Bundle]] = field(default_factory=dict[int, tuple[Bundle, Bundle]])
    _shared: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    _holders: dict[Phrase, list[int]] = field(default_factory=dict[Phrase, list[int]])
    _lines: Numbers = field(default_factory=lambda: np.zeros((0, len(Direct))))
    _stems: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), bool))

    # --- the question alone ---------------------------------------------------------------------------------------

    def collect(self, wanted: int) -> None:
        """Takes in what is near the question, and what it names, to choose `wanted` passages from; `names` has the names in
        the question's order."""
        per_leg = min(max(2 * wanted, LEAST_PER_LEG), MOST_PER_LEG)
        self.found = self.insight.candidates(self.question.text, per_leg)
        self.near = frozenset(near.chunk.row for near in self.found.hits)
        similar = self._admit({near.chunk.row: near.chunk for near in self.found.hits})
        for near in self.found.hits:
            candidate = self.candidates[near.chunk.row]
            candidate.lexical_rank = near.lexical_rank or LAST_RANK
            candidate.dense_rank = (near.dense_rank if similar else None) or LAST_RANK
        lengths = [len(candidate.reading.keys) for candidate in self.candidates.values()]
        self.question.mean_terms = sum(lengths) / len(lengths) if any(lengths) else 1.0
        named = self._named(self._stored([self.question.terms]))
        self._admit_rows(one.row for one in named)
        owners = owners_of(named)
        mentions = Phrasebook(owners).mentions(self.question.terms, self.question.known)
        phrases = [phrase for _, _, phrase in mentions]
        for phrase in phrases:
            strength = self.question.strength_of(phrase)
            for owner in owners[phrase]:
                if candidate := self.candidates.get(owner.row):
                    candidate.named = max(candidate.named, owner.quality * strength)
                    candidate.alone = max(candidate.alone, owner.quality / len(owners[phrase]))
        self.names = list(dict.fromkeys(phrases))

    def consider(self, chunks: Mapping[int, Chunk]) -> None:
        """Takes in chunks that were found in other ways, by row."""
        self._admit({row: chunk for row, chunk in chunks.items() if row not in self.candidates})

    def direct(self) -> Numbers:
        """One line of `Direct` signals for each candidate."""
        new = [self.candidates[row] for row in self.rows[len(self._lines) :]]
        if new:
            matched = match(self.question, [one.reading for one in new])
            self._stems = np.concatenate([self._stems, matched.stems]) if len(self._stems) else matched.stems
            self._lines = np.concatenate([self._lines, self._compared(new, matched)])
        numbers = self._lines.copy()
        words, closeness = numbers[:, Direct.WORD_MATCH], numbers[:, Direct.CLOSENESS_BESIDE_BEST]
        words /= words.max(initial=0.0) or 1.0
        closeness /= (closeness.max() if len(numbers) else 0.0) or 1.0
        return numbers

    def _compared(self, new: Sequence[Candidate], matched: Matches) -> Numbers:
        """The signals of candidates, before those that compare them with the best of all are divided by that one's."""
        found = [
            (one.similar, one.lexical_rank, one.dense_rank, self._name_coverage(one.reading.name), one.named, one.alone)
            for one in new
        ]
        similar, lexical, dense, name, named, alone = np.array(found, np.float64).T
        return np.column_stack(
            [
                matched.words,
                similar,
                similar,
                np.log(lexical) / RANK_SCALE,
                np.log(dense) / RANK_SCALE,
                name,
                named,
                alone,
                self.question.coverages(matched.stems),
                1 / lexical,
                1 / dense,
                matched.phrase / PHRASE_SCALE,
                matched.opening / PHRASE_SCALE,
            ]
        )

    def _name_coverage(self, name: Phrase) -> float:
        """The share of a name's weight that the question says."""
        said = [term for term in name if term in self.question.known]
        if not said:
            return 0.0
        total = self.question.weight_of(name)
        return self.question.weight_of(said) / total if total else 0.0

    # --- links ----------------------------------------------------------------------------------------------------

    def follow(self, seeds: Sequence[int]) -> None:
        """Looks up the links of these rows, both ways, and takes in what they lead to."""
        new = [row for row in seeds if row not in self._out]
        texts = [self.candidates[row].reading.terms for row in new]
        stored = Phrasebook(self._stored(texts))
        owners = owners_of(self._named(phrase for terms in texts for _, _, phrase in stored.standing(terms)))
        book = Phrasebook(owners)
        holders = self._holders_of_names(new)
        for row in new:
            self._out[row] = outgoing(row, self.candidates[row].reading, owners, book)
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
            self._bundles[row] = self._bundle(self._out[row]), self._bundle(self._in[row])

    def share(self, seeds: Sequence[int]) -> None:
        """Looks up which chunks share a rare capitalised word with these rows, and takes them in."""
        new = [row for row in seeds if row not in self._shared]
        self.question.learn(term for row in new for term in self.candidates[row].reading.capitals)
        telling = {row: self._telling(self.candidates[row].reading) for row in new}
        holding = self._holding((term,) for terms in telling.values() for term in terms)
        for row in new:
            fewest: dict[int, int] = {}
            for holders in (holding[term,] for term in telling[row]):
                for target in holders:
                    if target != row and target not in self._out[row]:
                        fewest[target] = min(len(holders), fewest.get(target, MOST_HOLDERS))
            self._shared[row] = fewest
        self._admit_rows(target for row in new for target in self._shared[row])

    def _telling(self, reading: Reading) -> list[str]:
        """Rare capitalised words that neither the question says nor the name."""
        known = self.question.known.union(reading.name)
        return sorted(term for term in reading.capitals - known if self.question.rare(term))

    def linked(self, trust: Mapping[int, float], seeds: Sequence[int], sharing: Sequence[int]) -> Numbers:
        """One line of `Linked` signals for each candidate: the best of all links to it, each weighed by the trust in the
        chunk where it begins. `direct` was asked for since the last candidate came."""
        numbers = np.zeros((len(self.rows), len(Linked)))
        at = {row: index for index, row in enumerate(self.rows)}
        stems, near = self._stems, np.maximum(self._lines[:, Direct.CLOSENESS], 0.0)
        for row in seeds:
            gap = self.question.coverages(stems & ~stems[at[row]])
            for first, bundle in zip(_DIRECTIONS, self._bundles[row], strict=True):
                targets = [at[target] for target in bundle.targets]
                strength, context, unknown, spread, weight = trust[row] * bundle.numbers
                best = (strength, context, strength * gap[targets], strength * near[targets], unknown, spread, weight)
                place = numbers[:, first : first + LINKS_PER_DIRECTION]
                place[targets] = np.maximum(place[targets], np.column_stack(best))
        for row in sharing:
            fewest = {at[target]: holders for target, holders in self._shared[row].items() if target in at}
            targets = list(fewest)
            gap = self.question.coverages(stems & ~stems[at[row]])[targets]
            share = trust[row] / np.sqrt(list(fewest.values()))
            best = (share * gap, share * near[targets], share, trust[row] * gap * gap)
            place = numbers[:, Linked.SHARED_GAP :]
            place[targets] = np.maximum(place[targets], np.column_stack(best))
        return numbers

    def way_to(self, target: int, seeds: Sequence[int]) -> tuple[int, Link] | None:
        """The first of the seeds from which a link leads to the target, and that link."""
        if not self._out:
            return None
        for row in seeds:
            for links in (self._out.get(row, {}), self._in.get(row, {})):
                if target in links:
                    return row, links[target]
        return None

    def _bundle(self, links: Mapping[int, Link]) -> Bundle:
        lines = [self._weigh(link) for link in links.values()]
        numbers = np.array(lines, np.float64).reshape(-1, 4).T
        strength, context, unknown, weight = numbers
        spread = strength / math.sqrt(1 + len(links))
        return Bundle(
            list(links), np.stack([strength, strength * context, strength * unknown, spread, strength * weight])
        )

    def _weigh(self, link: Link) -> tuple[float, float, float, float]:
        """What a link is worth where everything is trusted; how much of the question stands around its phrase; whether
        the phrase is more than the question says; how much the phrase weighs."""
        question = self.question
        own = {term[:STEM_LETTERS] for term in link.phrase}
        context = sum(weight for stem, weight in question.stems.items() if stem in link.context and stem not in own)
        return (
            link.quality / math.sqrt(link.sharers),
            context / question.total,
            0.0 if question.known.issuperset(link.phrase) else 1.0,
            question.strength_of(link.phrase),
        )

    def _holders_of_names(self, rows: Sequence[int]) -> dict[int, list[int]]:
        """For each chunk those in which its name stands; none when the name says little."""
        readings = {row: self.candidates[row].reading for row in rows}
        self.question.learn(term for reading in readings.values() for term in reading.name)
        telling = {
            row: reading.name
            for row, reading in readings.items()
            if reading.is_opening and reading.name and self.question.usable(reading.name)
        }
        holders = self._holding(telling.values())
        return {row: [one for one in holders.get(telling.get(row, ()), ()) if one != row] for row in rows}

    def _holding(self, phrases: Iterable[Phrase]) -> dict[Phrase, list[int]]:
        """Which chunks hold each of the phrases, as far as they are few."""
        new = [phrase for phrase in dict.fromkeys(phrases) if phrase not in self._holders]
        if new:
            self._holders.update(zip(new, self.insight.holding(new, MOST_HOLDERS), strict=True))
        return self._holders

    def _stored(self, texts: Sequence[tuple[str, ...]]) -> list[Phrase]:
        """The stored names of which at least the first terms stand in one of the texts."""
        leads = dict.fromkeys(lead for terms in texts for lead in leads_in(terms))
        return [tuple(phrase.split(" ")) for phrase in self.insight.phrases(leads)] if leads else []

    def _named(self, phrases: Iterable[Phrase]) -> list[NamedRow]:
        """Who goes by these names, as far as they point anywhere; of too many, those of which the question says most."""
        different = list(dict.fromkeys(phrases))
        self.question.learn(term for phrase in different for term in phrase)
        usable = [phrase for phrase in different if self.question.usable(phrase)]
        if len(usable) > MOST_NAMES:
            usable = sorted(usable, key=self._name_coverage, reverse=True)[:MOST_NAMES]
        return self.insight.named(" ".join(phrase) for phrase in usable) if usable else []

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
