"""The numbers of the evidence, checked against the same formulas taken word by word and link by link."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data.memory_insight import MemoryInsight, evidence_of
from support.harness.space import make_chunk

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.sqlite.name_table import NamedRow
from hopnode.worker.ranking.evidence import LAST_RANK, MOST_HOLDERS, MOST_NAMES, Evidence
from hopnode.worker.ranking.links import Link, Phrase, Phrasebook, outgoing, owners_of
from hopnode.worker.ranking.matching import match
from hopnode.worker.ranking.question import LONGEST_GRAM, WeighedQuestion
from hopnode.worker.ranking.reading import Reading, read

WORDS = [
    "Anna",
    "Berg",
    "Cora",
    "harbour",
    "harbours",
    "Old",
    "Old-Town",
    "ship",
    "ships",
    "built",
    "in",
    "of",
    "the",
    "1900",
    "東京都",
]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=30).map(" ".join), min_size=1, max_size=8)
QUESTIONS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)


class Commands(MemoryInsight):
    """Many documents whose names all begin alike, as the commands of one program do; notes how many names are looked up."""

    def __init__(self, count: int) -> None:
        super().__init__([])
        self.all = [
            make_chunk(f"d{row}", row, f"Sets the value number {row}.", title=f"tool set value{row}")
            for row in range(count)
        ]
        self._terms = [tuple(analyze(f"{chunk.title}\n{chunk.text}")) for chunk in self.all]
        self.asked: list[list[str]] = []

    def named(self, phrases: Iterable[str]) -> list[NamedRow]:
        self.asked.append(list(phrases))
        return super().named(self.asked[-1])


def test_of_very_many_names_those_are_looked_up_that_the_question_says() -> None:
    insight = Commands(3 * MOST_NAMES)
    evidence = Evidence(WeighedQuestion("What does tool set value517 do?", insight), insight)
    evidence.collect(10)
    (asked,) = insight.asked
    assert len(asked) == MOST_NAMES and "tool set value517" in asked
    assert [row for row, one in evidence.candidates.items() if one.named] == [517]


def stems_of(reading: Reading) -> set[str]:
    return {term[:6] for term in reading.terms}


def coverage(question: WeighedQuestion, stems: Iterable[str], reading: Reading) -> float:
    held = stems_of(reading)
    return sum(question.stems[stem] for stem in stems if stem in held) / question.total


# --- the question alone -------------------------------------------------------------------------------------------


def bm25(question: WeighedQuestion, reading: Reading) -> float:
    counts = Counter(reading.terms)
    length = 1.2 * (0.25 + 0.75 * len(reading.keys) / question.mean_terms)
    return sum(question.weight(one) * counts[one] * 2.2 / (counts[one] + length) for one in question.known)


def heaviest(question: WeighedQuestion, reading: Reading, starts: int) -> float:
    terms, asked = reading.terms, question.terms
    sizes = range(2, LONGEST_GRAM + 1)
    pieces = {asked[at : at + size] for size in sizes for at in range(len(asked) - size + 1)}
    found = [terms[at : at + size] for size in sizes for at in range(starts) if terms[at : at + size] in pieces]
    return max((sum(question.weight(term) for term in piece) for piece in found), default=0.0)


@given(QUESTIONS, TEXTS)
@settings(deadline=None)
def test_a_match_is_what_looking_at_every_word_gives(asked: str, texts: list[str]) -> None:
    insight = MemoryInsight(texts)
    question = WeighedQuestion(asked, insight)
    question.mean_terms = 7.0
    readings = [read(chunk) for chunk in insight.all]
    found = match(question, readings)
    assert np.allclose(found.words, [bm25(question, one) for one in readings], rtol=1e-9, atol=1e-12)
    assert found.stems.tolist() == [[stem in stems_of(one) for stem in question.stems] for one in readings]
    assert np.allclose(found.phrase, [heaviest(question, one, len(one.terms)) for one in readings], atol=1e-12)
    assert np.allclose(found.opening, [heaviest(question, one, 20) for one in readings], atol=1e-12)


@given(QUESTIONS, TEXTS)
@settings(deadline=None)
def test_the_direct_numbers_compare_each_candidate_with_the_best(asked: str, texts: list[str]) -> None:
    evidence = evidence_of(asked, texts)
    question, candidates = evidence.question, [evidence.candidates[row] for row in evidence.rows]
    most = max((bm25(question, one.reading) for one in candidates), default=0.0) or 1.0
    closest = max((one.similar for one in candidates), default=0.0) or 1.0
    for one, line in zip(candidates, evidence.direct().tolist(), strict=True):
        assert math.isclose(line[0], bm25(question, one.reading) / most, abs_tol=1e-12)
        assert line[1] == one.similar
        assert math.isclose(line[2], one.similar / closest, abs_tol=1e-12)
        assert math.isclose(line[8], coverage(question, question.stems, one.reading), abs_tol=1e-12)
        assert line[9:11] == [1 / one.lexical_rank, 1 / one.dense_rank]
        assert one.lexical_rank <= LAST_RANK


# --- links --------------------------------------------------------------------------------------------------------


def weighed(evidence: Evidence, trust: float, row: int, target: int, link: Link, others: int) -> list[float]:
    question, candidate = evidence.question, evidence.candidates[target]
    missing = question.stems.keys() - stems_of(evidence.candidates[row].reading)
    strength = trust * link.quality / math.sqrt(link.sharers)
    own = {term[:6] for term in link.phrase}
    context = sum(question.stems[stem] for stem in question.stems if stem in link.context and stem not in own)
    return [
        strength,
        strength * context / question.total,
        strength * coverage(question, missing, candidate.reading),
        strength * max(candidate.similar, 0.0),
        0.0 if set(link.phrase) <= question.known else strength,
        strength / math.sqrt(1 + others),
        strength * min(question.weight_of(link.phrase) / 12, 1.5),
    ]


def links_of(evidence: Evidence, row: int) -> tuple[dict[int, Link], dict[int, Link]]:
    """The links from a chunk and to it, looked up for this chunk alone and over all names there are."""
    question, insight, reading = evidence.question, evidence.insight, evidence.candidates[row].reading
    names = [tuple(one.split(" ")) for one in insight.phrases(f"{a} {b}".strip() for a in TERMS for b in ("", *TERMS))]
    question.learn(term for phrase in names for term in phrase)
    owners = owners_of(insight.named(" ".join(phrase) for phrase in set(names) if question.usable(phrase)))
    name = reading.name
    incoming: list[int] = []
    if reading.is_opening and name and question.usable(name):
        incoming = [target for target in insight.holding([name], MOST_HOLDERS)[0] if target != row]
    sharers = len(owners.get(name, ())) or 1
    context = {target: evidence.candidates[target].reading.context_of(name) for target in incoming}
    return (
        outgoing(row, reading, owners, Phrasebook(owners)),
        {target: Link(name, 1.0, sharers, stems) for target, stems in context.items()},
    )


TERMS = sorted({term for word in WORDS for term in analyze(word, query=True)})


@given(QUESTIONS, TEXTS)
@settings(deadline=None)
def test_the_linked_numbers_are_the_best_of_all_links_to_a_candidate(asked: str, texts: list[str]) -> None:
    evidence = evidence_of(asked, texts)
    seeds = evidence.rows[:3]
    trust = {row: 1 / (2 + at) for at, row in enumerate(seeds)}
    evidence.follow(seeds)
    evidence.direct()
    found = evidence.linked(trust, seeds, [])
    plain = np.zeros_like(found)
    for row in seeds:
        for offset, links in zip((0, 7), links_of(evidence, row), strict=True):
            for target, link in links.items():
                place = plain[evidence.rows.index(target), offset : offset + 7]
                np.maximum(place, weighed(evidence, trust[row], row, target, link, len(links)), out=place)
    np.testing.assert_allclose(found, plain, atol=1e-12)


@given(QUESTIONS, TEXTS)
@settings(deadline=None)
def test_the_shared_numbers_are_the_best_of_all_words_shared(asked: str, texts: list[str]) -> None:
    evidence = evidence_of(asked, texts)
    question, sharing = evidence.question, evidence.rows[:3]
    evidence.follow(sharing)
    evidence.share(sharing)
    evidence.direct()
    found = evidence.linked(dict.fromkeys(sharing, 0.5), [], sharing)
    plain = np.zeros_like(found)
    for row in sharing:
        reading, linked = evidence.candidates[row].reading, links_of(evidence, row)[0]
        missing = question.stems.keys() - stems_of(reading)
        for term in reading.capitals - question.known - set(reading.name):
            holders = evidence.insight.holding([(term,)], MOST_HOLDERS)[0] if question.rare(term) else []
            for target in set(holders) - {row, *linked}:
                candidate = evidence.candidates[target]
                gap, share = coverage(question, missing, candidate.reading), 0.5 / math.sqrt(len(holders))
                best = [share * gap, share * max(candidate.similar, 0.0), share, 0.5 * gap * gap]
                place = plain[evidence.rows.index(target), 14:18]
                np.maximum(place, best, out=place)
    np.testing.assert_allclose(found, plain, atol=1e-12)


# --- names in a text ----------------------------------------------------------------------------------------------


def plain_mentions(
    terms: Sequence[str], names: set[Phrase], single: frozenset[str]
) -> Iterator[tuple[int, int, Phrase]]:
    start = 0
    while start < len(terms):
        sizes = [size for size in range(len(terms) - start, 0, -1) if tuple(terms[start : start + size]) in names]
        sizes = [size for size in sizes if size > 1 or terms[start] in single]
        if sizes:
            yield start, start + sizes[0], tuple(terms[start : start + sizes[0]])
        start += sizes[0] if sizes else 1


LETTERS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple)


@given(
    st.lists(st.sampled_from("abcd"), max_size=20), st.sets(LETTERS, max_size=6), st.frozensets(st.sampled_from("abc"))
)
def test_names_in_a_text_are_the_longest_that_begin_and_do_not_overlap(
    terms: list[str], names: set[Phrase], single: frozenset[str]
) -> None:
    found = Phrasebook(names).mentions(tuple(terms), single)
    assert list(found) == list(plain_mentions(terms, names, single))
