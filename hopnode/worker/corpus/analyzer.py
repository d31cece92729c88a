"""Text to index terms, one way for every lexical engine; knows no engine, and keeps nothing but how words come apart.

NFKC, case folding, Unicode words with their marks, Latin letters without accents; scripts written without spaces as
overlapping pairs of characters. No stemming: the seam for it is `_word_term`.
"""

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import chain
from operator import add

ANALYZER_VERSION = 2
"""Part of every lexical index: a change of what `analyze` returns must raise it, then indexes are rebuilt."""

LONGEST_TERM = 64
"""Letters; what is longer is cut."""

# Han (with extensions and the iteration mark), Kana, Bopomofo, Hangul; Thai, Lao, Myanmar and Khmer, which put no spaces
# between words either (measured on Thai: recall@1 21 % by words, 89 % by pairs). Compatibility forms are gone after NFKC.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f"
    "\u3005-\u3007\u3031-\u3035\u3041-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U000323af"
)


# Measured on XQuAD: without accents Spanish and Romanian find a little more, German and Turkish the same, and everybody
# finds names that are typed without them. Vietnamese, where accents tell words apart, loses 2.5 points (recall@1), and
# nothing when words with letters of its own keep them.
_VIETNAMESE = re.compile("[\u1ea0-\u1ef9\u0103\u0111\u01a1\u01b0]")
_ACCENTED = re.compile("[\u00c0-\u024f]+(?:[\u0300-\u036f]+)?|(?<=[a-z])[\u0300-\u036f]+")
_PLAIN: dict[int, str | None] = {
    **dict.fromkeys(range(768, 880)),
    **{ord(letter): plain for letter, plain in {"ł": "l", "ø": "o", "ı": "i", "æ": "ae", "œ": "oe"}.items()},
}


_ASCII = bytes(code if code > 127 else ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(256))
"""Over UTF-8: ASCII letters in lower case, spaces for what stands between ASCII words, everything else as it is."""
_REMEMBERED_LETTERS = 24
_REMEMBERED_WORDS = 50_000


@cache
def _runs() -> re.Pattern[str]:
    """Either a run of an unspaced script or a run of other letters, digits and the marks that belong to them.

    Python's `\\w` leaves out combining marks, which would break every word of the Indic scripts into pieces.
    """
    marks: list[str] = []
    start: int | None = None
    for code in range(0x300, sys.maxunicode // 8):
        is_mark = unicodedata.category(chr(code))[0] == "M"
        if is_mark and start is None:
            start = code
        elif not is_mark and start is not None:
            marks.append(f"{chr(start)}-{chr(code - 1)}")
            start = None
    return re.compile(f"([{_UNSPACED}]+)|((?:[^\\W_{_UNSPACED}]+|[{''.join(marks)}]+)+)")


def analyze(text: str, *, query: bool = False) -> list[str]:
    """The terms of `text` in order, with repetitions.

    An unspaced run gives its pairs, and when indexing its single characters too, so that a query of one character
    finds its documents. A query gives single characters only where the run has no pair.
    """
    if text.isascii():
        terms = _ascii_words(text)
        return [term[:LONGEST_TERM] for term in terms] if max(map(len, terms), default=0) > LONGEST_TERM else terms
    terms: list[str] = []
    for word in _ascii_words(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())):
        if word.isascii():
            terms.append(word[:LONGEST_TERM])
        elif len(word) <= _REMEMBERED_LETTERS:
            terms.extend(_remembered_terms(word, query))
        else:
            terms.extend(_terms_between(word, query))
    return terms


def _ascii_words(text: str) -> list[str]:
    """What stands between spaces and ASCII punctuation: whole terms where it is ASCII. No term reaches over those."""
    return text.encode("utf-8", "surrogatepass").translate(_ASCII).decode("utf-8", "surrogatepass").split()


def _terms_between(word: str, query: bool) -> tuple[str, ...]:
    """The terms of folded text without ASCII separators."""
    terms: list[str] = []
    for unspaced, spaced in _runs().findall(word):
        if spaced:
            terms.append(_word_term(spaced))
        else:
            terms.extend(_pair_terms(unspaced, query))
    return tuple(terms)


# Words repeat: looking one up takes a tenth of the time of taking it apart.
_remembered_terms = lru_cache(_REMEMBERED_WORDS)(_terms_between)


def _without_accents(word: str) -> str:
    """Latin letters only: in other scripts a mark makes another letter."""
    return _ACCENTED.sub(lambda run: unicodedata.normalize("NFD", run[0]).translate(_PLAIN), word)


def _word_term(word: str) -> str:
    if not word.isascii() and not _VIETNAMESE.search(word):
        word = _without_accents(word)
    return word[:LONGEST_TERM]


def _pair_terms(run: str, query: bool) -> Iterator[str]:
    pairs = map(add, run, run[1:])
    return pairs if query and len(run) > 1 else chain(run, pairs)


def is_unspaced(text: str) -> bool:
    """Whether most letters of `text` belong to a script without spaces (used to weigh the legs of a search)."""
    folded = unicodedata.normalize("NFKC", text)
    unspaced = sum(len(run) for run in re.findall(f"[{_UNSPACED}]+", folded))
    return unspaced * 2 > sum(letter.isalpha() for letter in folded)
