"""A few lines of text that only the owner of the process may read; does not know what the lines mean."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hopnode.worker.errors import ConfigurationError


def read_private(path: Path) -> str | None:
    """The first line, at most 200 characters. Returns None without a file. Else as `read_private_lines`."""
    lines = read_private_lines(path)
    return None if lines is None else "".join(lines[:1])[:200].strip()


def read_private_lines(path: Path, *, close: bool = True) -> list[str] | None:
    """All lines, of at most 100,000 characters in all. Returns None without a file. With `close`, a file that others could read is
    closed to them.

    Raises `ConfigurationError` when the file is there and cannot be read.
    """
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            if close and os.fstat(file.fileno()).st_mode & 0o077:
                path.chmod(0o600)
            return file.read(100_000).splitlines()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"The file {path} cannot be read: {error.strerror}") from error


def write_private(path: Path, line: str) -> None:
    """Replaces the file whole or not at all, mode 0600 from its first moment; raises `ConfigurationError`."""
    _write(path, line, Path.replace)


def write_private_once(path: Path, line: str) -> None:
    """As `write_private`, unless the file is there: of several processes that begin together, one makes it."""

    def keep_first(draft: Path, target: Path) -> None:
        with suppress(FileExistsError):
            target.hardlink_to(draft)

    _write(path, line, keep_first)


def _write(path: Path, line: str, put_in_place: Callable[[Path, Path], object]) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())
        put_in_place(draft, path)
    except OSError as error:
        raise ConfigurationError(f"The file {path} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
