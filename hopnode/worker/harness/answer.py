"""The answer to a question from the passages of a search: what a model is asked, and what its reply may become.

A reply can only choose among the passages that it was given: citations are built from numbers that name one, everything
else that looks like a citation, an image or a foreign link is taken out. Knows no network and no storage.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from hopnode.worker.corpus.records import Chunk
from hopnode.worker.inference.messages import ChatRequest, Message

NOT_FOUND = "<NotInCorpus/>"
"""What a model writes when the passages do not hold the answer."""
TEMPERATURE = 0.2

_STRUCTURE = re.compile(r"<(?=\s*/?\s*(?:passage|question|NotInCorpus)\b|[|｜])|\[(?=\s*P\d)", re.IGNORECASE)
"""What would read as structure of the prompt or of a reply, if it stood in a passage."""
_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_NOT_FOUND = re.compile(r"<\s*/?\s*not[-_ ]?in[-_ ]?corpus\s*/?\s*>", re.IGNORECASE)
_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)", re.DOTALL)
_NUMBER = r"(?:P\s?\d+|\d{1,3})"
_MARK = re.compile(
    rf"[ ]?[\[【]\s*(?:passages?\s+)?({_NUMBER}(?:\s*(?:[-–—,;、，&]|and)\s*{_NUMBER})*)\s*(?:†[^\[\]【】\n]*)?[\]】]",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(\d+)\s*[-–—]\s*(?:P\s?)?(\d+)|(\d+)", re.IGNORECASE)
_IMAGE = re.compile(r"!\[([^\[\]]*)\](?:\([^()\n]*\)|\[[^\[\]]*\])|<\s*img\b[^<>]*>", re.IGNORECASE)
_LINK = re.compile(r"\[([^\[\]]*)\]\(\s*<?([^\s()<>]*)>?[^()\n]*\)")
_DEFINITION = re.compile(r"^[ ]{0,3}\[[^\[\]]+\]:\s*<?(https?:[^\s>]+)>?.*$\n?", re.MULTILINE | re.IGNORECASE)
_CITED, _LINKED, _LINK_TO, _LINK_END, _END = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004"
"""Stand for the brackets of what was built or approved here until the whole text is done."""
_MID_LINE = "\ue005"
"""Stands before a text that goes on behind code, so that its beginning is not taken for that of a line."""
_OURS = re.compile("[\ue000-\ue005]")
MOST_PASSES = 16


@dataclass(frozen=True)
class Written:
    """A reply as it may be shown. `cited` are numbers of passages, from 1, in the order of first mention; `unknown` counts
    what looked like a citation and named none."""

    text: str
    found: bool
    cited: tuple[int, ...]
    unknown: int


def fitting_passages(chunks: Sequence[Chunk], tokens: int) -> Sequence[Chunk]:
    """The first chunks, in order, that take at most so many tokens together; the first one always."""
    total = 0
    for at, chunk in enumerate(chunks):
        total += chunk.tokens
        if at and total > tokens:
            return chunks[:at]
    return chunks


def answer_request(question: str, chunks: Sequence[Chunk], reply_tokens: int) -> ChatRequest:
    """What the model is asked; passages have the ids P1, P2 and so on, and nothing in them can end its own passage."""
    passages = "\n\n".join(_passage(number, chunk) for number, chunk in enumerate(chunks, start=1))
    asked = f"{passages}\n\n<question>\n{_harmless(question)}\n</question>"
    messages = (Message("system", _instructions()), Message("user", asked))
    return ChatRequest(messages, temperature=TEMPERATURE, top_p=1.0, max_tokens=reply_tokens)


@cache
def _instructions() -> str:
    return resources.files("hopnode.worker.harness").joinpath("prompts/answer.md").read_text(encoding="utf-8").strip()


def _passage(number: int, chunk: Chunk) -> str:
    about = " › ".join(part for part in (chunk.title, chunk.heading) if part)
    title = f"{_harmless(' '.join(about.split())[:200])}\n" if about else ""
    return f'<passage id="P{number}">\n{title}{_harmless(chunk.text)}\n</passage>'


def _harmless(text: str) -> str:
    return _STRUCTURE.sub(lambda found: "‹" if found[0] == "<" else "(", text)


def read_answer(reply: str, chunks: Sequence[Chunk]) -> Written:
    """What becomes of a reply to a question about these chunks. What stands between backticks is code and no citation."""
    text = _OURS.sub("", _THINKING.sub("", reply))
    found = _NOT_FOUND.search(text) is None
    parts = _CODE.split(_NOT_FOUND.sub("", text))
    named = any("p" in mark[1].lower() for part in parts[::2] for mark in _MARK.finditer(part))
    reader = _Reader(chunks, named=named)
    parts[::2] = [reader.cleaned(f"{_MID_LINE if at else ''}{part}") for at, part in enumerate(parts[::2])]
    return Written("".join(parts).strip(), found, tuple(reader.cited), reader.unknown)


class _Reader:
    """Turns marks into citations and takes out what leads elsewhere. Where a reply `named` passages by their ids, a bare
    number is nobody's citation: it is a footnote that was quoted along."""

    def __init__(self, chunks: Sequence[Chunk], *, named: bool) -> None:
        self._chunks, self._named = chunks, named
        self._urls = {chunk.url for chunk in chunks if chunk.url}
        self.cited: dict[int, None] = {}
        self.unknown = 0

    def cleaned(self, text: str) -> str:
        """The text without foreign marks, images and links. To take one out may bring the parts of another together. So this
        goes on until nothing changes. After MOST_PASSES a text that still changes loses its brackets."""
        for _ in range(MOST_PASSES):
            before = text
            text = _IMAGE.sub(lambda found: found[1] or "", text)
            text = _LINK.sub(self._link, text)
            text = _DEFINITION.sub(lambda found: found[0] if self._is_known(found[1]) else "", text)
            text = _MARK.sub(self._cite, text)
            if text == before:
                break
        else:
            text = text.translate({ord("["): "(", ord("]"): ")", ord("【"): "(", ord("】"): ")"})
        # A citation before a parenthesis would be a link, and one before a colon at the start of a line its definition.
        text = re.sub(rf"([\]{_END}])\(", r"\1 (", text)
        text = re.sub(rf"^(\s*(?:{_CITED}\d+{_END})+)\s*:", r"\1", text, flags=re.MULTILINE)
        brackets = {_CITED: "[", _END: "]", _LINKED: "[", _LINK_TO: "](", _LINK_END: ")", _MID_LINE: ""}
        return text.translate({ord(sign): bracket for sign, bracket in brackets.items()})

    def _is_known(self, url: str) -> bool:
        return url in self._urls or any(url in chunk.text for chunk in self._chunks)

    def _link(self, found: re.Match[str]) -> str:
        label, url = found[1], found[2]
        if _MARK.fullmatch(f"[{label}]"):
            return f"[{label}]"
        return f"{_LINKED}{label}{_LINK_TO}{url}{_LINK_END}" if url and self._is_known(url) else label

    def _cite(self, mark: re.Match[str]) -> str:
        """The citations that a mark stands for; where there are none, the space before it goes as well."""
        bare = self._named and "p" not in mark[1].lower()
        numbers = dict.fromkeys(number for found in _RANGE.finditer(mark[1]) for number in self._numbers(found))
        good = [number for number in numbers if 1 <= number <= len(self._chunks) and not bare]
        self.unknown += len(numbers) - len(good)
        self.cited.update(dict.fromkeys(good))
        space = " " if mark[0].startswith(" ") and good else ""
        return space + "".join(f"{_CITED}{number}{_END}" for number in good)

    def _numbers(self, found: re.Match[str]) -> Iterable[int]:
        if found[3]:
            return (int(found[3][:9]),)
        first, last = int(found[1][:9]), int(found[2][:9])
        return range(first, last + 1) if first <= last <= len(self._chunks) else (first, last)
