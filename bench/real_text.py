"""Real text at scale from what a Debian machine has: passages of manual pages, documentation and Python sources.

    python bench/real_text.py 20        # prints twenty of them

Nothing is downloaded or made up. The same machine gives the same passages in the same order for the same seed.
"""

import gzip
import hashlib
import random
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from hopnode.worker.evaluation.dataset import Text

ROOTS = {
    "man": (Path("/usr/share/man"), "man?/*.gz"),
    "doc": (Path("/usr/share/doc"), "**/*"),
    "python": (Path(sys.base_prefix) / "lib", "**/*.py"),
    "debian-python": (Path("/usr/lib/python3"), "**/*.py"),
}
LARGEST_FILE = 2_000_000
SHORTEST, LONGEST = 300, 1_600
"""Characters of a passage."""
PER_FILE = 40
_TROFF_FONT = re.compile(r"\\f(?:\[[^]]*\]|\(..|.)|\\[&|^/,]|\\s[-+]?\d")


def passages(
    count: int,
    seed: int = 0,
    *,
    kinds: Sequence[str] = tuple(ROOTS),
    shortest: int = SHORTEST,
    longest: int = LONGEST,
    per_file: int = PER_FILE,
) -> list[Text]:
    """`count` distinct passages of about `shortest` to `longest` characters, at most `per_file` of a file of these kinds."""
    found: dict[bytes, Text] = {}
    for path in _files(kinds, seed):
        for text in islice(_cut(_plain(path), shortest, longest), per_file):
            if len(found) >= count:
                return list(found.values())
            digest = hashlib.sha256(text.encode()).digest()
            found.setdefault(digest, Text(f"t{len(found):06}", path.name.partition(".")[0], text))
    raise SystemExit(f"This machine has {len(found):,} passages of text, and {count:,} were asked for.")


def _files(kinds: Sequence[str], seed: int) -> Iterator[Path]:
    roots = [ROOTS[kind] for kind in kinds]
    paths = [path for root, pattern in roots if root.is_dir() for path in sorted(root.glob(pattern))]
    random.Random(seed).shuffle(paths)
    for path in paths:
        if path.is_file() and not path.is_symlink() and path.stat().st_size < LARGEST_FILE:
            yield path


def _plain(path: Path) -> str:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode()
    except (OSError, EOFError, ValueError):
        return ""
    if "\0" in text or "<html" in text[:500].lower():
        return ""
    return _without_troff(text) if path.parent.name.startswith("man") else text


def _without_troff(text: str) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith((".SH", ".SS", ".TP", ".PP", ".P", ".IP", ".LP")):
            lines += ["", line.partition(" ")[2].strip('"')]
        elif line.startswith((".B ", ".I ", ".BR ", ".IR ", ".RB ")):
            lines.append(line.partition(" ")[2].replace('"', ""))
        elif not line.startswith((".", "'")):
            lines.append(line)
    return _TROFF_FONT.sub("", "\n".join(lines)).replace("\\-", "-").replace("\\(", "")


def _cut(text: str, shortest: int, longest: int) -> Iterator[str]:
    """Paragraphs, joined until they are long enough."""
    held = ""
    for paragraph in re.split(r"\n\s*\n", text):
        held = f"{held}\n\n{paragraph}".strip() if held else paragraph.strip()
        if len(held) >= shortest:
            yield held[:longest]
            held = ""


if __name__ == "__main__":
    for passage in passages(int(sys.argv[1])):
        print(f"--- {passage.id} {passage.title}\n{passage.text}\n")
