"""What of Chroma's files a crash left half written or a dropped index left behind; looks at them while nobody has them open.

Chroma overwrites the files of an index one after the other, in place. A process that is killed in between leaves a
damaged set. Chroma cannot load it, loads it without most of its vectors, or tries to load it for ever. We measured about
one kill of sixty while vectors are written. The text store has the vectors too, so a damaged index need only be noticed.
"""

import sqlite3
import struct
from contextlib import closing, suppress
from pathlib import Path
from uuid import UUID

# hnswlib's header as Chroma 1.5 writes it: version; offset of level 0, most and present elements, bytes an element, offsets of
# label and vector; highest level, entry point; maxM, maxM0, M; mult, ef_construction.
_HEADER = struct.Struct("<i6QiI3QdQ")
_LENGTH = struct.Struct("<I")
_PICKLE_END = b"."
_FILES = ("header.bin", "data_level0.bin", "length.bin", "link_lists.bin", "index_metadata.pickle")
_INDEXES = "SELECT s.id, c.name FROM segments s JOIN collections c ON c.id = s.collection WHERE s.scope = 'VECTOR' ORDER BY c.name"


def damaged_indexes(folder: Path) -> list[str]:
    """Names of the indexes in a Chroma folder whose files do not fit each other; an index that has no files yet is whole.

    Empty also for a folder whose catalogue cannot be read: Chroma then says so itself.
    """
    return [name for segment, name in (_catalogue(folder) or {}).items() if not _is_whole(folder / segment)]


def unused_folders(folder: Path) -> list[Path]:
    """What Chroma leaves of an index that was dropped: folders named by an id that its catalogue does not know."""
    known = _catalogue(folder)
    if known is None:
        return []
    return [path for path in sorted(folder.iterdir()) if path.is_dir() and _is_id(path.name) and path.name not in known]


def _catalogue(folder: Path) -> dict[str, str] | None:
    """The names of the indexes by the names of their folders. Returns None when there is no catalogue or it cannot be read.

    Opened for writing, since a transaction that a kill broke off must be rolled back before anything can be read.
    """
    path = folder.resolve() / "chroma.sqlite3"
    if path.exists():
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as connection:
            return dict(connection.execute(_INDEXES).fetchall())
    return None


def _is_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


def _is_whole(folder: Path) -> bool:
    if not folder.is_dir() or not any((folder / name).exists() for name in _FILES):
        return True
    try:
        header = (folder / "header.bin").read_bytes()
        _, _, _, elements, element_bytes, *_ = _HEADER.unpack(header)
        return (
            (folder / "data_level0.bin").stat().st_size >= elements * element_bytes
            and (folder / "length.bin").exists()
            and _links(folder / "link_lists.bin") == elements
            and _ends(folder / "index_metadata.pickle", may_miss=elements == 0)
        )
    except (OSError, struct.error):
        return False


def _links(path: Path) -> int:
    """How many lists of links the file holds, each behind its length in bytes; -1 when the last one is cut."""
    content = path.read_bytes()
    lists = at = 0
    while at < len(content):
        at += _LENGTH.size + _LENGTH.unpack_from(content, at)[0]
        lists += 1
    return lists if at == len(content) else -1


def _ends(pickle: Path, may_miss: bool) -> bool:
    """Whether the pickle was written to its end; an index that holds all its vectors in the log has none."""
    if may_miss and not pickle.exists():
        return True
    with pickle.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == _PICKLE_END
