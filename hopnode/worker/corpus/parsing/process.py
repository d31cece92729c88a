"""One child process that parses: started, asked, timed and ended from here. Knows nothing of formats.

A fresh interpreter rather than a fork, which would copy this process's threads and locks in whatever state they are;
rather than multiprocessing's spawn, since that hands over pickles, imports the parent's main module and its
environment with all its secrets.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time

from pydantic import ValidationError

from hopnode.worker.corpus.parsing.wire import (
    EXIT_OUT_OF_MEMORY,
    OUT_OF_MEMORY,
    Reply,
    Request,
    document_of,
    receive,
    send,
)
from hopnode.worker.corpus.records import ParsedDocument
from hopnode.worker.errors import ConfigurationError, DocumentRejected

_BYTES_PER_CHARACTER = 4
_START_SECONDS = 60
_MOST_REQUEST_BYTES = 2**32 - 1
# A child that died with this much of its allowance in use most likely died of it.
_MEMORY_SHARE = 0.5
_END_SECONDS = 2.0


class ChildDied(Exception):
    """The child ended without an answer; `reason` is a reason of `DocumentRejected`, the message a sentence."""

    def __init__(self, reason: str, message: str, exit_code: int | None) -> None:
        super().__init__(message)
        self.reason = reason
        self.exit_code = exit_code


class ParsingProcess:
    """A warm child; used by one thread at a time."""

    def __init__(self, memory_bytes: int, cpu_seconds: int, max_characters: int) -> None:
        """Starts the child and waits (about a second) until its libraries are loaded; `ConfigurationError` if it cannot."""
        self._memory_bytes = memory_bytes
        self._max_characters = max_characters
        self._peak_bytes = 0
        # What the system tells of a dead child starts with the size of the process that started it.
        self._inherited_bytes = _resident(resource.getrusage(resource.RUSAGE_SELF))
        self._retired = False
        self._process = subprocess.Popen(  # noqa: S603 our own module, numbers only
            [sys.executable, "-P", "-m", "hopnode.worker.corpus.parsing.child"]
            + [str(number) for number in (os.getpid(), memory_bytes, cpu_seconds, max_characters)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,  # Ctrl-C in a terminal is for the node, which ends its children itself
        )
        self._greet()

    def parse(self, raw: bytes, media_type: str | None, filename: str | None, timeout_seconds: float) -> ParsedDocument:
        """The child's answer; raises `DocumentRejected` as the child did, or `ChildDied`."""
        if len(raw) > _MOST_REQUEST_BYTES:
            raise DocumentRejected("too-large", "The document is larger than 4 GB.")
        reply, body = self._exchange(Request(media_type=media_type, filename=filename), raw, timeout_seconds)
        self._retired = reply.last
        if reply.reason:
            raise DocumentRejected(reply.reason, reply.message)
        return document_of(reply, body)

    def is_usable(self) -> bool:
        """Whether the child lives and takes another document."""
        return not self._retired and self._process.poll() is None

    def end(self) -> None:
        """Kills the child if it lives, and frees what belongs to it."""
        self._retired = True
        self._process.kill()
        self._reap()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with contextlib.suppress(OSError):  # bytes that the child did not take
                    stream.close()

    def _greet(self) -> None:
        try:
            reply, _ = self._exchange(None, b"", _START_SECONDS)
        except ChildDied as death:
            self.end()
            raise ConfigurationError(f"The parsing process does not start (exit code {death.exit_code}).") from death
        if not reply.ready:
            self.end()
            raise ConfigurationError(reply.message)

    def _exchange(self, request: Request | None, body: bytes, timeout_seconds: float) -> tuple[Reply, bytes]:
        """Sends a frame and waits for one; a timer kills the child, which ends every wait on its pipes."""
        late = threading.Event()
        timer = threading.Timer(timeout_seconds, self._kill, args=(late,))
        timer.daemon = True
        timer.start()
        try:
            frame = self._talk(request, body)
            if frame is not None and not late.is_set():
                return Reply.model_validate_json(frame[0]), frame[1]
        except (ValueError, ValidationError):
            self._process.kill()  # what speaks there is our child no more
        finally:
            timer.cancel()
            timer.join()  # or a timer that has just fired would kill the child in its next document
            self._retired = self._retired or late.is_set()
        raise self._death(late.is_set(), timeout_seconds)

    def _talk(self, request: Request | None, body: bytes) -> tuple[bytes, bytes] | None:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            return None
        try:
            if request:
                send(stdin, request, body)
            return receive(stdout, self._max_characters * _BYTES_PER_CHARACTER)
        except OSError:  # the pipe broke: the child is gone
            return None

    def _kill(self, late: threading.Event) -> None:
        late.set()
        self._process.kill()

    def _death(self, late: bool, timeout_seconds: float) -> ChildDied:
        self._retired = True
        if not late:
            self._let_end()
        self._process.kill()
        self._reap()
        code = self._process.returncode
        if late or code == -signal.SIGXCPU:
            return ChildDied("timeout", f"Parsing took longer than {timeout_seconds:g} seconds.", code)
        if code == EXIT_OUT_OF_MEMORY or self._peak_bytes > _MEMORY_SHARE * self._memory_bytes:
            return ChildDied("out-of-memory", OUT_OF_MEMORY, code)
        return ChildDied("corrupt", "The document made its parser crash; it is damaged or hostile.", code)

    def _let_end(self) -> None:
        """Gives a child whose pipe broke a moment to end by itself, so that its exit code can say why."""
        ends_at = time.monotonic() + _END_SECONDS
        with contextlib.suppress(ChildProcessError):  # somebody else waited for it
            while time.monotonic() < ends_at:
                if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    return
                time.sleep(0.01)

    def _reap(self) -> None:
        """Waits for the child and notes the most memory it had, which only the wait itself tells."""
        if self._process.returncode is not None:
            return
        try:
            _, status, usage = os.wait4(self._process.pid, 0)
        except ChildProcessError:  # somebody else waited for it
            self._process.returncode = -9
            return
        self._process.returncode = os.waitstatus_to_exitcode(status)
        peak = _resident(usage)
        self._peak_bytes = peak if peak > self._inherited_bytes else 0


def _resident(usage: resource.struct_rusage) -> int:
    """The most resident memory, in bytes."""
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _environment() -> dict[str, str]:
    """Nothing of this process's environment, which holds secrets: only where to find the code."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {"PYTHONPATH": path, "PYTHONUTF8": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
