"""Reads pages in a child process with limits on time and memory: a page built to stall a parser costs a child, not the node.
It knows nothing of crawling."""

import json
import resource
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from hopnode.connectors.errors import PageRejected
from hopnode.connectors.website.pages import PageFacts, read_page

_MEMORY_BYTES = 2_000_000_000


class PageReader:
    """One child, started with the first page and again after each page that it died of. For one thread at a time."""

    def __init__(self, seconds: float = 20) -> None:
        self._seconds = seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def read(self, body: bytes, content_type: str, url: str) -> PageFacts:
        """Facts of a page. Raises PageRejected when it takes longer than `seconds`, too much memory, or breaks the parser."""
        pipe = self._pipe or self._start()
        try:
            pipe.send_bytes(json.dumps([content_type, url]).encode())
            pipe.send_bytes(body)
            if not pipe.poll(self._seconds):
                raise PageRejected(f"{url}: the page takes longer than {self._seconds:g} s to read.")
            answer = pipe.recv_bytes()
        except (EOFError, OSError) as error:
            self.close()
            raise PageRejected(f"{url}: the page cannot be read.") from error
        except PageRejected:
            self.close()
            raise
        return PageFacts.model_validate_json(answer)

    def close(self) -> None:
        """Ends the child."""
        if self._pipe:
            self._pipe.close()
        if self._child:
            self._child.kill()
            self._child.wait()
        self._child = self._pipe = None

    def _start(self) -> Connection:
        self._pipe, remote = Pipe()
        # -P: a folder called `connectors` in the working directory is not ours.
        command = [sys.executable, "-P", "-m", "hopnode.connectors.website.page_reader", str(remote.fileno())]
        # A session of its own, so that Ctrl-C in a terminal ends the sync in order; without its parent the child reads EOF.
        self._child = subprocess.Popen(command, pass_fds=[remote.fileno()], start_new_session=True)  # noqa: S603
        remote.close()
        return self._pipe


def main(descriptor: int) -> None:
    """The child: answers pages until the pipe closes."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pipe = Connection(descriptor)
    while True:
        try:
            content_type, url = json.loads(pipe.recv_bytes())
            body = pipe.recv_bytes()
        except EOFError:
            return
        pipe.send_bytes(read_page(body, content_type, url).model_dump_json().encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
