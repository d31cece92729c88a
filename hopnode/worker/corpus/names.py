"""What a document is called, and where such names stand in other texts: the links between passages. Pure text, no storage.

A name is a sequence of index terms. It comes from a document's title, or from the capitalised words that open its text,
since titles are often missing. Scripts without capital letters have names through titles only.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, pairwise

from hopnode.worker.corpus.analyzer import analyze

LONGEST_NAME = 8
"""Terms; longer names are cut."""
MOST_SHARERS = 20
"""Documents that may go by one name; a name that more of them share says nothing, and is neither looked up nor a link."""

_OPENING_CHARACTERS = 200
_OPENING_WORDS = 12
_ARTICLE_CHARACTERS = 2000
_REMEMBERED_TITLES = 10_000
_WORD = re.compile(r"\w+")
_BREAK = re.compile(r"[.!?,;:()\[\]{}<>|/–—\n]|--")
_ASIDE = re.compile(r"\([^)]*\)|（[^）]*）")


@dataclass(frozen=True)
class Name:
    """A way to refer to a document; `quality` in (0, 1] is how likely the phrase means this very document."""

    terms: tuple[str, ...]
    quality: float

    @property
    def phrase(self) -> str:
        """The terms in one string, as they are stored and looked up."""
        return " ".join(self.terms)


def names_of(title: str, text: str) -> list[Name]:
    """The names of a document, best first, each once."""
    names: dict[tuple[str, ...], float] = {}
    for terms, quality in _usable_forms(title, text):
        names[terms] = max(quality, names.get(terms, 0.0))
    return [Name(terms, quality) for terms, quality in names.items()]


def best_name(title: str, text: str) -> tuple[str, ...]:
    """The terms of the first of `names_of`, found without the others; empty where there is none."""
    return _best_title(title) or next((terms for terms, _ in _usable(_opening_forms(text))), ())


@lru_cache(_REMEMBERED_TITLES)
def _best_title(title: str) -> tuple[str, ...]:
    return next((terms for terms, _ in _usable((form, 1.0) for form in _title_forms(title))), ())


def _usable_forms(title: str, text: str) -> Iterator[tuple[tuple[str, ...], float]]:
    return _usable(chain(((form, 1.0) for form in _title_forms(title)), _opening_forms(text)))


def _usable(forms: Iterable[tuple[str, float]]) -> Iterator[tuple[tuple[str, ...], float]]:
    for form, quality in forms:
        terms = tuple(analyze(form, query=True)[:LONGEST_NAME])
        if terms and not all(term.isdigit() for term in terms) and max(map(len, terms)) > 1:
            yield terms, quality


def lead_of(terms: Sequence[str]) -> str:
    """The first two terms (or the only one): what stored names are looked up by."""
    return " ".join(terms[:2])


def leads_in(terms: Sequence[str]) -> Iterator[str]:
    """Every lead that a name in this text could have."""
    yield from terms
    for first, second in pairwise(terms):
        yield f"{first} {second}"


def _title_forms(title: str) -> Iterator[str]:
    plain = _ASIDE.sub(" ", title).strip() or title
    yield plain
    if "," in plain:
        yield plain.split(",", 1)[0]


def _opening_forms(text: str) -> Iterator[tuple[str, float]]:
    """The capitalised words at the start, up to the first lower-case word, and onwards over one or two of those."""
    groups = _groups(unicodedata.normalize("NFKC", text[:_OPENING_CHARACTERS]))
    if not groups:
        return
    first = groups[0]
    forms = [(first, 1.0 if len(groups) == 1 or len(first) > 1 else 0.8)]
    yield " ".join(first), forms[0][1]
    whole = list(first)
    for link, group in zip(groups[1::2], groups[2::2], strict=False):
        whole = [*whole, *link, *group]
        forms.append((whole, 0.8))
    if len(first) > 2:
        forms += [([first[0], first[-1]], 0.7), (first[:2], 0.7)]
    if len(whole) > 1 and _is_article(whole[0], text):
        forms += [(words[1:], quality * 0.8) for words, quality in forms if len(words) > 1]
    for words, quality in forms[1:]:
        yield " ".join(words), quality


def _groups(head: str) -> list[list[str]]:
    """Capitalised runs at even places, the one or two lower-case words between them at odd places."""
    groups: list[list[str]] = [[]]
    link: list[str] = []
    end = 0
    for match in islice(_WORD.finditer(head), _OPENING_WORDS):
        word, gap = match.group(), head[end : match.start()]
        if groups[0] and _ends_a_name(gap, (groups[-1] or groups[0])[-1]):
            break
        end = match.end()
        if word[0].isupper() or (word[0].isdigit() and not link):
            if link:
                groups += [link, [word]]
                link = []
            else:
                groups[-1].append(word)
        elif not groups[0] or len(link) == 2:
            break
        else:
            link.append(word)
    return groups if groups[0] else []


def _is_article(word: str, text: str) -> bool:
    """Whether a word that opens the text stands in it in lower case too: then it is hardly part of the name."""
    return word.casefold() in _WORD.findall(text[:_ARTICLE_CHARACTERS])


def _ends_a_name(gap: str, word_before: str) -> bool:
    is_initial = gap.startswith(".") and len(word_before) <= 2
    return bool(_BREAK.search(gap)) and not is_initial
