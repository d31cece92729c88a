"""Says in words why a passage counts: how it is called, which link leads to it, which words it shares with the question."""

import re
from collections.abc import Sequence

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.links import Link

TELLING_WORDS = 5
_OPENING_CHARACTERS = 300
_WORD = re.compile(r"\w+")


def called(evidence: Evidence, row: int) -> str:
    """The title of a candidate's document, or the name that opens its text, as it is written there."""
    candidate = evidence.candidates[row]
    return candidate.chunk.title or surface(candidate.chunk.text[:_OPENING_CHARACTERS], candidate.reading.name)


def telling_words(evidence: Evidence, row: int) -> list[str]:
    """The rarest words of the question that stand in the candidate, in the question's order."""
    reading, weight = evidence.candidates[row].reading, evidence.question.word_weights
    shared = [word for word, terms in evidence.question.words.items() if any(map(reading.holds, terms))]
    rarest = sorted(shared, key=weight.__getitem__, reverse=True)[:TELLING_WORDS]
    return [word for word in shared if word in rarest]


def told_link(evidence: Evidence, row: int, source: int, link: Link) -> str:
    """A link between two candidates, told in the direction in which the name is read."""
    there, here = called(evidence, source), called(evidence, row)
    is_mentioned_here = link.phrase == evidence.candidates[source].reading.name
    return f"“{here}” mentions “{there}”." if is_mentioned_here else f"“{there}” mentions “{here}”."


def reason(evidence: Evidence, row: int, trusted: Sequence[int]) -> str:
    """Why a passage is in the list, in a sentence."""
    if evidence.candidates[row].named:
        return "Named in the question."
    if way := evidence.way_to(row, [other for other in trusted if other != row]):
        return told_link(evidence, row, *way)
    words = telling_words(evidence, row)
    return f"Shares with the question: {', '.join(words)}." if words else "Close to the question in meaning."


def surface(text: str, phrase: Sequence[str]) -> str:
    """The phrase as it is written in the text; its terms when it cannot be found there."""
    words = list(_WORD.finditer(text))
    for start in range(len(words)):
        for end in range(start, min(len(words), start + len(phrase))):
            piece = text[words[start].start() : words[end].end()]
            if tuple(analyze(piece, query=True)) == tuple(phrase):
                return piece
    return " ".join(phrase)
