"""The child of a parser pool (`python -m hopnode.worker.corpus.parsing.child`): parses what comes in on stdin until it closes.

Whatever a hostile document makes of this process, it has no secrets, writes no files, and ends by its limits.
"""

import os
import resource
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from hopnode.worker.corpus.parsing.parser import parse
from hopnode.worker.corpus.parsing.wire import (
    EXIT_OUT_OF_MEMORY,
    OUT_OF_MEMORY,
    Reply,
    Request,
    receive,
    reply_of,
    send,
)
from hopnode.worker.errors import DocumentRejected

_READERS = ("html", "notebook", "office.reader", "pdf", "structured", "tabular", "text")
_MOST_REQUEST_BYTES = 2**32 - 1
_ROOM_BYTES = 128_000_000
_MOST_DOCUMENTS = 200
_RETIRE_SHARE = 0.4
_PARENT_LOOK_SECONDS = 1


def main(parent: int, memory_bytes: int, cpu_seconds: int, max_characters: int) -> None:
    """Loads every reader, then takes on its limits, says that it is ready, and serves."""
    source, sink = _own_streams()
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    try:
        _load_readers()
    except ImportError as error:
        send(sink, Reply(message=f"The parsing process lacks a library: {error}."))
        return
    own = _address_space("VmSize")
    if memory_bytes < own + _ROOM_BYTES:
        needed = (own + _ROOM_BYTES) // 1_000_000 + 1
        send(sink, Reply(message=f"The parsing process needs {needed} MB: raise HOPNODE_PARSE_MEMORY_BYTES."))
        return
    _limit(memory_bytes)
    send(sink, Reply(ready=True))
    try:
        _serve(source, sink, memory_bytes, cpu_seconds, max_characters)
    except MemoryError:  # while a document was on its way in or out
        sys.exit(EXIT_OUT_OF_MEMORY)


def _serve(source: BinaryIO, sink: BinaryIO, memory_bytes: int, cpu_seconds: int, max_characters: int) -> None:
    """Answers until the parent closes the pipe, or until this process has grown or served enough to be replaced."""
    for served in range(1, _MOST_DOCUMENTS + 1):
        frame = receive(source, _MOST_REQUEST_BYTES)
        if frame is None:
            return
        _allow_cpu(cpu_seconds)
        reply, body = _answer(*frame, max_characters)
        del frame
        full = _address_space("VmPeak") > memory_bytes - _ROOM_BYTES // 2
        if full and reply.reason == "corrupt":  # C libraries report a failed allocation as damage
            reply = Reply(reason="out-of-memory", message=OUT_OF_MEMORY)
        reply.last = full or served == _MOST_DOCUMENTS or _peak() > _RETIRE_SHARE * memory_bytes
        send(sink, reply, body)
        if reply.last:
            return


def _answer(head: bytes, raw: bytes, max_characters: int) -> tuple[Reply, bytes]:
    request = Request.model_validate_json(head)
    try:
        document = parse(raw, media_type=request.media_type, filename=request.filename, max_characters=max_characters)
        return reply_of(document, last=False)
    except DocumentRejected as rejected:
        return Reply(reason=rejected.reason, message=str(rejected)), b""


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Takes the pipes away from everything else, so that a library that prints cannot write into the talk."""
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    return source, sink


def _end_with_parent(parent: int) -> None:
    """A closed pipe ends an idle child; this ends a busy one whose parent was killed."""
    while os.getppid() == parent:
        time.sleep(_PARENT_LOOK_SECONDS)
    os._exit(1)


def _load_readers() -> None:
    """All libraries now: once instead of in the first document, and before memory is limited."""
    for name in _READERS:
        import_module(f"hopnode.worker.corpus.parsing.formats.{name}")


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _allow_cpu(seconds: int) -> None:
    """The limit counts from the start of the process, so every document moves it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime) + seconds + 1, hard))


def _address_space(name: str) -> int:
    """Bytes of address space in use (`VmSize`) or at most so far (`VmPeak`), as RLIMIT_AS counts, or the most resident ones
    (`VmHWM`); 0 where nobody tells."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def _peak() -> int:
    """The most resident memory so far, in bytes. Not from `getrusage` where /proc tells: there a process that was
    started by a large one counts the size of its parent as its own."""
    return _address_space("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:5]))
