"""Writes the synchronous client from the asynchronous one, so that every rule stands in one place.

    .venv/bin/python plugins/python/write_sync.py

The two `pausing.py` are written by hand: they are where threads and asyncio differ. A contract test compares the rest.
"""

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "hopnode_client"
BY_HAND = {"__init__.py", "pausing.py"}
WORDS = {
    r"await ": "",
    r"async (def|with|for)\b": r"\1",
    r"\basynccontextmanager\b": "contextmanager",
    r"\bAsync(?=[A-Z])": "",
    r"\basynchronous\b": "synchronous",
    r"__aenter__": "__enter__",
    r"__aexit__": "__exit__",
    r"\baclose\b": "close",
    r"\baread\b": "read",
    r"\baiter_bytes\b": "iter_bytes",
    r"A node, for asyncio\.": "A node.",
    r", cancelled task": "",
    r"for item in (.+):\n +yield item": r"yield from \1",
}


def synchronous(text: str) -> str:
    """The same module without asyncio, formatted."""
    for word, instead in WORDS.items():
        text = re.sub(word, instead, text)
    for command in (["check", "--select", "I", "--fix-only"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", f"--stdin-filename={PACKAGE}/synchronous/x.py", "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def written() -> dict[Path, str]:
    """What each module of the synchronous client must hold."""
    modules = (path for path in sorted((PACKAGE / "asynchronous").glob("*.py")) if path.name not in BY_HAND)
    return {PACKAGE / "synchronous" / path.name: synchronous(path.read_text(encoding="utf-8")) for path in modules}


if __name__ == "__main__":
    for target, text in written().items():
        target.write_text(text, encoding="utf-8")
