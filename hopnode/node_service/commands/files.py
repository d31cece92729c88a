"""Which files `hopnode add` takes from the paths it was given, and under which key. Reads heads of files, sends nothing."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal, get_args

from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode

JUNK_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
JUNK_FILES = ("*.pyc", "*.lock", "*.min.js", "*.min.css", "*.map", "Thumbs.db", "*~")
BINARY_DOCUMENTS = frozenset({".pdf", ".docx", ".xlsx", ".pptx"})
HEAD_BYTES = 8192
_KEY = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,1024}")  # what the node takes as a key
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\x1b")
_MEDIA_TYPES = {
    ".csv": "text/csv",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".htm": "text/html",
    ".html": "text/html",
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".pdf": "application/pdf",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".txt": "text/plain",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


@dataclass(frozen=True)
class FoundFile:
    """A file to upload; `key` is its name in the collection, with forward slashes."""

    path: Path
    key: str

    @property
    def media_type(self) -> str:
        """The media type by suffix. Everything else goes as plain bytes, and the node decides by the name; a JSON file
        must, since a body of type `application/json` means a document in JSON to the node.
        """
        return _MEDIA_TYPES.get(self.path.suffix.lower(), "application/octet-stream")


Reason = Literal["hidden", "junk", "excluded", "outside", "special", "name", "empty", "binary", "unreadable"]
REASONS: tuple[str, ...] = get_args(Reason)
"""Why a file of a folder is left out; `docs/cli.md` explains each."""


@dataclass(frozen=True)
class SkippedFile:
    """A file that was left out on purpose."""

    path: Path
    reason: Reason


@dataclass(frozen=True)
class FilesToAdd:
    """What was found below the given paths, in a stable order."""

    files: tuple[FoundFile, ...]
    skipped: tuple[SkippedFile, ...]


def select(paths: Sequence[Path], *, exclude: Sequence[str] = (), prefix: str = "") -> FilesToAdd:
    """Files below `paths`. A file named by itself is always taken, its key is its name; a folder is filtered, keys are
    relative to it. Raises CommandError (usage) for a path that does not exist and for two files with the same key.
    """
    files, skipped = list[FoundFile](), list[SkippedFile]()
    for root in paths:
        if root.is_file():
            files.append(_named(root, prefix))
        elif root.is_dir():
            for path in _walk(root, skipped):
                key = prefix + path.relative_to(root).as_posix()
                if reason := _reason_to_skip(root, path, exclude) or (None if _KEY.fullmatch(key) else "name"):
                    skipped.append(SkippedFile(path, reason))
                else:
                    files.append(FoundFile(path, key))
        else:
            raise CommandError(
                f"There is no file or folder {root}.", "Check the path and run it again.", ExitCode.USAGE
            )
    _refuse_twins(files)
    return FilesToAdd(tuple(files), tuple(skipped))


def _named(path: Path, prefix: str) -> FoundFile:
    if not _KEY.fullmatch(prefix + path.name):
        raise CommandError(
            f"The name {path.name!r} cannot be a key: it is too long, not valid UTF-8, or holds control characters.",
            "Rename the file.",
            ExitCode.USAGE,
        )
    return FoundFile(path, prefix + path.name)


def _walk(root: Path, skipped: list[SkippedFile]) -> Iterator[Path]:
    def note(error: OSError) -> None:
        skipped.append(SkippedFile(Path(str(error.filename)), "unreadable"))

    for folder, names, files in os.walk(root, onerror=note):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in JUNK_FOLDERS)
        yield from (Path(folder, name) for name in sorted(files))


def _reason_to_skip(root: Path, path: Path, exclude: Sequence[str]) -> Reason | None:
    relative = path.relative_to(root).as_posix()
    if path.name.startswith("."):
        return "hidden"
    if any(fnmatch(path.name, pattern) for pattern in JUNK_FILES):
        return "junk"
    if any(fnmatch(relative, pattern) or fnmatch(path.name, pattern) for pattern in exclude):
        return "excluded"
    if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
        return "outside"
    if not path.is_file():
        return "special"
    return _reason_in_content(path)


def _reason_in_content(path: Path) -> Reason | None:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return "unreadable"
    if not head:
        return "empty"
    return "binary" if path.suffix.lower() not in BINARY_DOCUMENTS and looks_binary(head) else None


def looks_binary(head: bytes) -> bool:
    """Whether the first bytes of a file are not text: more than 2 % control bytes, and no UTF-16 mark in front."""
    if head.startswith(_UTF16_MARKS):
        return False
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in head)
    return controls * 50 > len(head)


def _refuse_twins(files: Sequence[FoundFile]) -> None:
    seen = dict[str, Path]()
    for file in files:
        if other := seen.get(file.key):
            raise CommandError(
                f"{other} and {file.path} would both be stored under the key {file.key!r}.",
                "Add them in two calls with different --prefix or --collection, or give their common parent folder.",
                ExitCode.USAGE,
            )
        seen[file.key] = file.path
