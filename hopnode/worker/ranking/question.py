"""A question as terms and stems, each with its weight in the indexed text: rare words tell more than frequent ones."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.bm25 import rarity
from hopnode.worker.corpus.finding.insight import CorpusInsight
from hopnode.worker.ranking.reading import STEM_LETTERS

LONGEST_GRAM = 8
"""Terms of the longest piece of a question that is looked for word for word; longer ones hardly ever stand anywhere."""

STRONG_PHRASE, MOST_STRENGTH = 12.0, 1.5
"""A phrase of this weight (summed inverse document frequency: two words that stand in one chunk of a few hundred each) has
strength 1; beyond one and a half more weight adds nothing, so that a long title does not drown all else. The scale and the
end were chosen when the weights were first fitted, and fitted with since: another value needs weights fitted anew."""

POINTING_COUNT, POINTING_SHARE = 3, 0.05
"""A name points somewhere when one of its terms stands in at most so many chunks, or in at most this share of them."""
SINGLE_COUNT, SINGLE_SHARE = 10, 0.02
"""The same for a name of one term, which has to be rarer: it is often a common word as well."""
SHARED_COUNT, SHARED_SHARE, MOST_SHARED = 30, 0.02, 60
"""A word connects the chunks that share it when at most so many hold it, or at most this share; never more than the last. These
six were chosen by hand for collections between a thousand and a few ten thousand chunks. The weights were fitted with them."""

_WORD = re.compile(r"\w+")


class WeighedQuestion:
    """The question of one run, and what is known of the frequency of terms. `mean_terms` is the mean length of the candidates
    in terms, above 0, as far as they are known."""

    def __init__(self, text: str, insight: CorpusInsight) -> None:
        self.text = text
        self.terms = tuple(analyze(text, query=True))
        self.known = frozenset(self.terms)
        self._insight = insight
        self._chunks = insight.size()
        self.mean_terms = 1.0
        self._frequency: dict[str, int] = {}
        self._weight: dict[str, float] = {}
        self._unknown = rarity(self._chunks, 0)
        self.learn(self.terms)
        self.stems: dict[str, float] = {}
        for term in self.terms:
            stem = term[:STEM_LETTERS]
            self.stems[stem] = max(self.stems.get(stem, 0.0), self.weight(term))
        self.total = sum(self.stems.values()) or 1.0
        self.grams = self._grams()
        # A term as long as a stem is looked for as the beginning of others; a shorter one is its own stem.
        self.cuts = tuple((stem, f" {stem}" if len(stem) == STEM_LETTERS else "") for stem in self.stems)

    @cached_property
    def words(self) -> Mapping[str, list[str]]:
        """The words of the question as they are written, with the terms of each."""
        return {word: analyze(word, query=True) for word in _WORD.findall(self.text)}

    @cached_property
    def word_weights(self) -> Mapping[str, float]:
        """What each of these words weighs."""
        return {word: self.weight_of(terms) for word, terms in self.words.items()}

    def learn(self, terms: Iterable[str]) -> None:
        """Looks up the frequency of terms that are not known yet."""
        new = [term for term in dict.fromkeys(terms) if term not in self._frequency]
        found = self._insight.frequencies(new) if new else {}
        for term in new:
            self._frequency[term] = found.get(term, 0)
            self._weight[term] = rarity(self._chunks, found.get(term, 0))

    def frequency(self, term: str) -> int:
        """In how many chunks a learnt term stands."""
        return self._frequency.get(term, 0)

    def weight(self, term: str) -> float:
        """Inverse document frequency of a learnt term."""
        return self._weight.get(term, self._unknown)

    def weight_of(self, terms: Iterable[str]) -> float:
        """Sum of the weights of the different terms."""
        weight, unknown = self._weight, self._unknown
        return sum([weight.get(term, unknown) for term in dict.fromkeys(terms)])

    def strength_of(self, phrase: Iterable[str]) -> float:
        """How much a phrase says, from 0 to MOST_STRENGTH: its weight as a share of that of a strong one."""
        return min(self.weight_of(phrase) / STRONG_PHRASE, MOST_STRENGTH)

    def coverages(self, held: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Share of the question's weight that the stems marked in each line carry."""
        return (held * np.fromiter(self.stems.values(), np.float64)).sum(1) / self.total

    def usable(self, phrase: Sequence[str]) -> bool:
        """Whether a name is rare enough to point anywhere."""
        counts = [self._frequency.get(term, 0) for term in phrase]
        if len(phrase) == 1 and counts[0] > max(SINGLE_COUNT, SINGLE_SHARE * self._chunks):
            return False
        return any(count <= max(POINTING_COUNT, POINTING_SHARE * self._chunks) for count in counts)

    def rare(self, term: str) -> bool:
        """Whether one term is rare enough to connect two chunks that share it."""
        return 2 <= self.frequency(term) <= min(max(SHARED_COUNT, SHARED_SHARE * self._chunks), MOST_SHARED)

    def _grams(self) -> dict[tuple[str, ...], float]:
        size = len(self.terms)
        return {
            self.terms[start:end]: sum(self.weight(term) for term in self.terms[start:end])
            for start in range(size)
            for end in range(start + 2, min(size, start + LONGEST_GRAM) + 1)
        }
