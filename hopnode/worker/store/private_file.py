"""One line of text that only the owner of the process may read; does not know what the line means."""

import os
import secrets
from pathlib import Path

from hopnode.worker.errors import ConfigurationError


def read_private(path: Path) -> str | None:
    """The first line, at most 200 characters; None without a file. A file that others could read is closed to them.

    Raises `ConfigurationError` when the file is there and cannot be read.
    """
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                path.chmod(0o600)
            return file.readline(200).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"The file {path} cannot be read: {error.strerror}") from error


def write_private(path: Path, line: str) -> None:
    """Replaces the file whole or not at all, mode 0600 from its first moment; raises `ConfigurationError`."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise ConfigurationError(f"The file {path} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
