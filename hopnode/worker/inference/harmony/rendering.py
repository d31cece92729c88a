"""The harmony format of gpt-oss models as token ids: renders messages, and takes completions apart. Knows no rules.

Rendering is done by OpenAI's own library, message by message: a conversation is the concatenation of its messages, and
text in a message can never become a structural token. Reading is `reply.py`, because the library's reader raises.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopnode.worker.inference.harmony.reply import HarmonyReply, Mark, Piece, read_reply
from hopnode.worker.inference.harmony.vocabulary import ensure_vocabulary
from hopnode.worker.inference.messages import ToolSpec
from hopnode.worker.tokens import count_tokens

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding, Message

Tokens = tuple[int, ...]

STOP_TOKENS: Final = (200002, 200012)
"""`<|return|>` and `<|call|>`: the ends of an assistant's turn. The weights' own configuration lacks the second."""
KNOWLEDGE_CUTOFF: Final = "2024-06"

_MARK_OF_TOKEN: Final = {
    200006: Mark.START,
    200007: Mark.END,
    200008: Mark.MESSAGE,
    200005: Mark.CHANNEL,
    200003: Mark.CONSTRAIN,
    200002: Mark.RETURN,
    200012: Mark.CALL,
}
_MARK_TEXTS: Final = frozenset(mark.value for mark in Mark)
_PLAIN_TOKENS: Final = 199_998
"""Ids below are text; above stand the structural tokens and reserved ones, of which only `_MARK_OF_TOKEN` mean something."""
_END_OF_TEXT: Final = 199_999

_loading = threading.Lock()


@cache
def _encoding(folder: Path) -> "HarmonyEncoding":
    # Imported here: it takes a quarter of a second and 35 MB, which a node without a gpt-oss model never needs.
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    # The library reads its vocabulary from the folder that this variable names, and downloads it when none is named.
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(ensure_vocabulary(folder))
    return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


class Harmony:
    """Renders and reads with the vocabulary unpacked into `folder`. Loaded once per process; safe to share between threads.

    Building one takes about half a second the first time. ConfigurationError when the vocabulary cannot be had.
    """

    def __init__(self, folder: Path) -> None:
        with _loading:
            self._encoding = _encoding(folder)

    def opening(self, date: str, tools: Sequence[ToolSpec]) -> Tokens:
        """The system message (gpt-oss identity, cutoff, `date` as YYYY-MM-DD, high reasoning) and the developer message,
        which holds the tools and no instructions."""
        from openai_harmony import DeveloperContent, Message, ReasoningEffort, Role, SystemContent, ToolDescription

        system = (
            SystemContent.new()
            .with_reasoning_effort(ReasoningEffort.HIGH)
            .with_knowledge_cutoff(KNOWLEDGE_CUTOFF)
            .with_conversation_start_date(date)
        )
        described = [ToolDescription.new(tool.name, tool.description, dict(tool.parameters)) for tool in tools]
        developer = DeveloperContent.new().with_function_tools(described)
        contents = ((Role.SYSTEM, system), (Role.DEVELOPER, developer))
        return tuple(
            token for role, content in contents for token in self._render(Message.from_role_and_content(role, content))
        )

    def user(self, text: str) -> Tokens:
        """A user message."""
        from openai_harmony import Message, Role

        return self._render(Message.from_role_and_content(Role.USER, _encodable(text)))

    def said(self, text: str, channel: str) -> Tokens:
        """What the assistant wrote on a channel: `analysis`, `commentary` or `final`."""
        from openai_harmony import Message, Role

        return self._render(Message.from_role_and_content(Role.ASSISTANT, _encodable(text)).with_channel(channel))

    def called(self, name: str, arguments: str) -> Tokens:
        """A call by the assistant; `arguments` is JSON."""
        from openai_harmony import Message, Role

        message = Message.from_role_and_content(Role.ASSISTANT, _encodable(arguments)).with_channel("commentary")
        return self._render(message.with_recipient(f"functions.{name}").with_content_type("<|constrain|>json"))

    def answered(self, name: str, body: str) -> Tokens:
        """A tool's answer; `body` is JSON."""
        from openai_harmony import Author, Message, Role

        author = Author(role=Role.TOOL, name=f"functions.{name}")
        message = Message.from_author_and_content(author, _encodable(body)).with_channel("commentary")
        return self._render(message.with_recipient("assistant"))

    def read(self, tokens: Sequence[int]) -> HarmonyReply:
        """A completion's token ids taken apart; ids that do not exist are passed over."""
        return read_reply(self._pieces(tokens))

    def encode(self, text: str) -> list[int]:
        """Token ids of a text in which structural tokens are spelled out; for completions that came as text, and tests."""
        return self._encoding.encode(text, allowed_special=_MARK_TEXTS, disallowed_special=())

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids, structural tokens spelled out."""
        return self._encoding.decode(tokens)

    def _render(self, message: "Message") -> Tokens:
        from openai_harmony import RenderOptions

        return tuple(self._encoding.render(message, RenderOptions(conversation_has_function_tools=True)))

    def _pieces(self, tokens: Sequence[int]) -> Iterator[Piece]:
        run: list[int] = []
        for token in tokens:
            if token == _END_OF_TEXT:
                break
            if 0 <= token < _PLAIN_TOKENS:
                run.append(token)
            elif token in _MARK_OF_TOKEN:
                if run:
                    yield self._encoding.decode(run)
                    run = []
                yield _MARK_OF_TOKEN[token]
        if run:
            yield self._encoding.decode(run)


def _encodable(text: str) -> str:
    """Without lone surrogates, which a model may send in a JSON escape and no encoding can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


_BODY: Final = {"user": 0, "said": 0, "called": 1, "answered": 1}
"""Which part of a message is its text, by the name of what renders it; the others stand in its header."""


class Rendering:
    """Remembers what was rendered or counted, so that a conversation that grows is never tokenised again; serves one run.

    `tokenised` counts the characters that really went through a tokeniser.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Tokens] = {}
        self._counts: dict[tuple[str, ...], int] = {}
        self.tokenised = 0

    def count(self, render: Callable[..., Tokens], *parts: str) -> int:
        """How many tokens `render(*parts)` has. The text is counted with the same vocabulary, which takes a sixth of the time
        that the library takes to encode it; the rest of the message is rendered once around an empty text."""
        key, at = (render.__name__, *parts), _BODY[render.__name__]
        if key not in self._counts:
            around = self.of(render, *parts[:at], "", *parts[at + 1 :])
            self._counts[key] = len(around) + count_tokens(parts[at])
            self.tokenised += len(parts[at])
        return self._counts[key]

    def of(self, render: Callable[..., Tokens], *parts: str) -> Tokens:
        """`render(*parts)`, asked once for the same."""
        key = (render.__name__, *parts)
        if key not in self._known:
            self._known[key] = render(*parts)
            self.tokenised += sum(map(len, parts))
        return self._known[key]
