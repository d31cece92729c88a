"""The signals that speak for or against a passage, by name and in the order of their columns. Knows no values and no weights.

Each member's text says what the signal measures. The names are those of `ranking.json`; a column that is added, dropped or
moved needs weights that were fitted with it.
"""

from enum import IntEnum


class Direct(IntEnum):
    """What the question alone says of a passage. Shares are of 1; cosines and ranks are those of the two legs of the index."""

    WORD_MATCH = 0
    """BM25 of the question's words, as a share of the best candidate's."""
    CLOSENESS = 1
    """Cosine of question and passage."""
    CLOSENESS_BESIDE_BEST = 2
    """The cosine as a share of the closest candidate's."""
    LOG_LEXICAL_RANK = 3
    """Logarithm of the place among those found by words."""
    LOG_DENSE_RANK = 4
    """Logarithm of the place among those found by vectors."""
    NAME_SAID = 5
    """The share of the weight of the document's name that the question says."""
    NAMED = 6
    """How strongly the question names the document: the quality of the name times the strength of the phrase."""
    NAMED_ALONE = 7
    """The quality of the name that the question says, over the number of documents that go by it."""
    COVERAGE = 8
    """The share of the question's weight that stands in the passage, by stems."""
    INVERSE_LEXICAL_RANK = 9
    """One over the place among those found by words."""
    INVERSE_DENSE_RANK = 10
    """One over the place among those found by vectors."""
    PHRASE = 11
    """The weight of the heaviest piece of the question that stands in the passage word for word."""
    OPENING_PHRASE = 12
    """The same near the start of the passage."""


class Linked(IntEnum):
    """What leads to a passage: the best over all links to it, each times the trust in the passage where it begins.

    `MENTIONED_…`: a trusted passage mentions the name of this one. `MENTIONS_…`: this one mentions the name of a trusted
    passage. `SHARED_…`: both have a rare capitalised word.
    """

    MENTIONED_STRENGTH = 0
    """Quality of the name over the root of how many documents go by it."""
    MENTIONED_CONTEXT = 1
    """Strength times the share of the question that stands around the name."""
    MENTIONED_GAP = 2
    """Strength times the share of the question that this passage has and the trusted one lacks."""
    MENTIONED_CLOSENESS = 3
    """Strength times the cosine of question and this passage."""
    MENTIONED_UNKNOWN = 4
    """Strength where the name says more than the question does, else 0."""
    MENTIONED_SPREAD = 5
    """Strength over the root of how many links the trusted passage has."""
    MENTIONED_WEIGHT = 6
    """Strength times the strength of the name as a phrase."""
    MENTIONS_STRENGTH = 7
    """As `MENTIONED_STRENGTH`, the other way round; so are the six that follow."""
    MENTIONS_CONTEXT = 8
    MENTIONS_GAP = 9
    MENTIONS_CLOSENESS = 10
    MENTIONS_UNKNOWN = 11
    MENTIONS_SPREAD = 12
    MENTIONS_WEIGHT = 13
    SHARED_GAP = 14
    """Trust over the root of how many passages hold the word, times the gap as above."""
    SHARED_CLOSENESS = 15
    """The same times the cosine of question and this passage."""
    SHARED_RARITY = 16
    """Trust over the root of how many passages hold the word."""
    SHARED_GAP_SQUARED = 17
    """Trust times the square of the gap, however many hold the word."""


class Certainty(IntEnum):
    """What the round before thought."""

    TRUST = 0
    """The trust in this passage."""
    LOG_TRUST = 1
    """Its logarithm."""
    BEST_WORD_MATCH = 2
    """The trust in the most trusted passage, times this one's `WORD_MATCH`: where one is sure, words tell less of others."""
    BEST_CLOSENESS = 3
    """The same times this one's `CLOSENESS`."""
    BEST_COVERAGE = 4
    """The same times this one's `COVERAGE`."""
    BEST_MENTIONED = 5
    """The trust in the most trusted passage where any trusted passage mentions this one, else 0."""


LINKS_PER_DIRECTION = Linked.MENTIONS_STRENGTH - Linked.MENTIONED_STRENGTH
"""How many columns tell of the links in one direction."""


def names_of(number: int) -> tuple[str, ...]:
    """The names of the columns of a round, counted from 1: the first knows the question alone."""
    kinds = (Direct,) if number == 1 else (Direct, Linked, Certainty)
    return tuple(member.name.lower() for kind in kinds for member in kind)
