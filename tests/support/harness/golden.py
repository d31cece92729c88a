"""Reads the golden trajectories of `tests/data/golden`: what a corpus gives, what a model writes, and what must be sent then.

The form is described in the README beside the files. Nothing here knows how the harness works.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "data" / "golden"
CASES = sorted(path.stem for path in FOLDER.glob("[0-9]*.txt"))

_SECTION = re.compile(r"^--- (\w+) ?(.*)\n", re.MULTILINE)
_REPEATED = re.compile(r"\{(\w+)\*(\d+)\}")


@dataclass(frozen=True)
class Expected:
    """A request: the prompt as text, the part of it that no later prompt holds, and the limit of the reply (None: any)."""

    prompt: str
    once: str = ""
    cap: int | None = None

    @property
    def whole(self) -> str:
        """All that is sent."""
        return self.prompt + self.once


@dataclass
class Golden:
    """One file, read."""

    settings: dict[str, str] = field(default_factory=dict[str, str])
    corpus: dict[str, str] = field(default_factory=dict[str, str])
    searches: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    scores: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    completions: list[str] = field(default_factory=list[str])
    requests: list[Expected] = field(default_factory=list[Expected])
    shown: list[list[str]] = field(default_factory=list[list[str]])
    reason: str = ""
    selections: list[str] = field(default_factory=list[str])


def load(name: str) -> Golden:
    """The trajectory in the file of this name."""
    golden, prompt = Golden(), ""
    for kind, argument, body in _sections((FOLDER / f"{name}.txt").read_text(encoding="utf-8")):
        if kind == "settings":
            golden.settings = _pairs(body)
        elif kind == "corpus":
            texts = _pairs(body)
            golden.corpus = {key: _expanded(text.replace("\\n", "\n")) for key, text in texts.items()}
        elif kind == "search":
            golden.searches[argument] = body.split()
        elif kind == "rerank":
            golden.scores[argument] = {key: float(score) for key, score in (one.split("=") for one in body.split())}
        elif kind == "completion":
            golden.completions.append(_joined(body))
        elif kind == "change":
            prompt = _changed(prompt, *map(_expanded, (f"\n{body}\n").split("\n=>\n")))
        elif kind == "adds":
            prompt += _expanded(_joined(body))
            golden.requests.append(Expected(prompt))
        elif kind in ("once", "cap"):
            value = _joined(body) if kind == "once" else int(body)
            golden.requests[-1] = replace(golden.requests[-1], **{kind: value})
        elif kind == "shown":
            golden.shown += [row.split() if row != "-" else [] for row in body.splitlines()]
        elif kind == "ends":
            golden.reason, golden.selections = argument, body.split()
        else:
            assert kind == "rule", kind
    return golden


def _sections(text: str) -> list[tuple[str, str, str]]:
    heads = list(_SECTION.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [
        (head.group(1), head.group(2), text[head.end() : end].removesuffix("\n"))
        for head, end in zip(heads, ends, strict=True)
    ]


def _pairs(body: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in body.splitlines())


def _joined(body: str) -> str:
    """Messages stand on lines of their own; the opening is put in."""
    opening = (FOLDER / "opening.txt").read_text(encoding="utf-8").removesuffix("\n")
    return body.replace("{opening}", opening).replace("\n<|start|>", "<|start|>")


def _expanded(text: str) -> str:
    return _REPEATED.sub(lambda found: f" {found[1]}" * int(found[2]), text)


def _changed(prompt: str, old: str, new: str) -> str:
    old, new = old.removeprefix("\n"), new.removesuffix("\n")
    assert prompt.count(old) == 1, f"a change must name text that stands once: {old[:80]!r}"
    return prompt.replace(old, new)


USAGE = re.compile(r"(?:\\n\\n|\n\n)?\[Token usage: ([\d,]+)/[\d,]+\]")


def usages(prompt: str) -> Mapping[str, str]:
    """For every usage line of a prompt as it was written: the number, and the text that it counts, which is the prompt up
    to the end of its message without the line itself."""
    counted: dict[str, str] = {}
    for line in USAGE.finditer(prompt):
        end = prompt.index("<|end|>", line.end()) + len("<|end|>")
        counted[line.group(1)] = prompt[: line.start()] + prompt[line.end() : end]
    return counted
