"""Token counts with the o200k vocabulary that ships in a wheel; used for chunk sizes and budgets, never downloads."""

from functools import cache
from typing import Protocol, cast

import bpe_openai


class _Encoding(Protocol):
    def count(self, text: str) -> int: ...


@cache
def _o200k() -> _Encoding:
    return cast(_Encoding, bpe_openai.get_encoding("o200k_base"))


def count_tokens(text: str) -> int:
    """Number of o200k tokens in `text` (special tokens are counted as plain text)."""
    return _o200k().count(text)
