"""The words of the Context-1 profiles: the role prompt and the descriptions of tools. Knows no format and no rules.

Wording belongs to what a model was trained on, so a deployment may bring its own in a file; what is left out of it stays
as shipped.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from hopnode.worker.errors import ConfigurationError

QUERY = "{query}"
"""Where the question goes in a prompt; it must stand there exactly once."""
PROMPT = "prompt"
_HEADING = re.compile(r"^=== ([\w.]+) ===[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Phrasing:
    """`prompt` holds QUERY once; `described` has a text for each tool (`search_corpus`) and argument
    (`search_corpus.query`)."""

    prompt: str
    described: Mapping[str, str]

    def ask(self, question: str) -> str:
        """The prompt with the question in it."""
        return self.prompt.replace(QUERY, question)


@cache
def shipped() -> Phrasing:
    """The wording that comes with Hopnode."""
    text = resources.files("hopnode.worker.harness").joinpath("prompts/context1.md").read_text(encoding="utf-8")
    sections = _sections(text)
    return Phrasing(sections[PROMPT], {name: words for name, words in sections.items() if name != PROMPT})


def load_phrasing(file: Path | None) -> Phrasing:
    """The wording in `file`, the shipped one for whatever it leaves out; ConfigurationError says what is wrong with it.

    A file is one prompt, or sections under lines `=== prompt ===`, `=== search_corpus ===`, `=== search_corpus.query ===`.
    """
    ours = shipped()
    if file is None:
        return ours
    try:
        sections = _sections(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"HOPNODE_PROMPT_FILE cannot be read: {error}") from error
    unknown = sorted(set(sections) - set(ours.described) - {PROMPT})
    if unknown:
        raise ConfigurationError(
            f"HOPNODE_PROMPT_FILE has a section `{unknown[0]}`; known are `prompt`, "
            f"{', '.join(f'`{name}`' for name in ours.described)}."
        )
    prompt = sections.pop(PROMPT, ours.prompt)
    if prompt.count(QUERY) != 1:
        raise ConfigurationError(f"The prompt in HOPNODE_PROMPT_FILE must hold {QUERY} exactly once, for the question.")
    return Phrasing(prompt, {**ours.described, **sections})


def _sections(text: str) -> dict[str, str]:
    """The text under each heading; all of it is the prompt where there is no heading."""
    headings = list(_HEADING.finditer(text))
    if not headings:
        return {PROMPT: text.strip()}
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    return {heading.group(1): text[heading.end() : end].strip() for heading, end in zip(headings, ends, strict=True)}
