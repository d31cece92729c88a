"""The parser pool: warm children with limits, replaced when they die, gone when their parent is gone."""

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from support.data import samples

from hopnode.worker.corpus.parsing.parser import ParserPool, parse
from hopnode.worker.errors import ConfigurationError, DocumentRejected

pytestmark = pytest.mark.slow

TESTS = str(Path(samples.__file__).parents[2])
MEMORY = 2_000_000_000
HEAVY = "<w:p/>" * 1_500_000  # 9 MB of XML in 50 kB, some 400 MB as a tree, and many seconds to walk

ENDLESS = b"<html><body>" + b"<div>" * 200_000 + b"x"  # quadratic for every reader of HTML: minutes


@pytest.fixture
def pool() -> Generator[ParserPool]:
    with ParserPool(60, MEMORY, 10_000_000) as pool:
        yield pool


def read(pool: ParserPool, raw: bytes, filename: str | None = None) -> str:
    return pool.parse_safely(raw, media_type=None, filename=filename).text


def reason(pool: ParserPool, raw: bytes) -> str:
    with pytest.raises(DocumentRejected) as caught:
        read(pool, raw)
    return caught.value.reason


def parsers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "hopnode.worker.corpus.parsing.child" in child.cmdline()]


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


@pytest.mark.parametrize(
    "make",
    [
        samples.word_document,
        samples.workbook,
        samples.presentation,
        lambda: samples.long_pdf(3),
        lambda: samples.page("<p>a</p>"),
    ],
)
def test_a_child_reads_what_this_process_reads(pool: ParserPool, make: Callable[[], bytes]) -> None:
    raw = make()
    assert pool.parse_safely(raw, media_type=None, filename="a.x") == parse(raw, media_type=None, filename="a.x")


def test_a_warm_child_is_used_again_and_plain_text_needs_none(pool: ParserPool) -> None:
    read(pool, b"plain", "a.txt")
    assert not parsers()
    pids: set[int] = set()
    for _ in range(3):
        read(pool, samples.word_document())
        pids |= {child.pid for child in parsers()}
    assert len(pids) == 1


def test_a_child_of_a_large_process_is_used_again(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(samples.word_document())
    program = f"""
        import psutil
        from pathlib import Path
        from hopnode.worker.corpus.parsing.parser import ParserPool
        ballast = bytes(1) * {MEMORY // 2}
        raw = (Path({str(tmp_path)!r}) / "a.docx").read_bytes()
        with ParserPool(60, {MEMORY}, 10_000_000) as pool:
            seen = set()
            for _ in range(3):
                pool.parse_safely(raw, media_type=None, filename="a.docx")
                seen |= {{child.pid for child in psutil.Process().children()}}
        assert len(ballast) and len(seen) == 1, seen
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)


def test_large_text_goes_to_a_child(pool: ParserPool) -> None:
    assert len(read(pool, b"word " * 300_000, "a.txt")) == 1_500_000
    assert len(parsers()) == 1


def test_a_rejection_crosses_with_its_reason(pool: ParserPool) -> None:
    assert reason(pool, samples.zip_bomb()) == "zip-bomb"
    assert reason(pool, samples.image_pdf()) == "needs-ocr"
    assert reason(pool, samples.long_pdf(2)[:2_000]) == "corrupt"
    assert samples.FACT in read(pool, samples.word_document())
    assert len(parsers()) == 1


def test_a_slow_document_times_out_and_the_next_one_is_read() -> None:
    with ParserPool(2, MEMORY, 10_000_000) as pool:
        read(pool, samples.word_document())
        started = time.monotonic()
        assert reason(pool, ENDLESS) == "timeout"
        assert time.monotonic() - started < 10
        assert samples.FACT in read(pool, samples.word_document())


def test_a_greedy_document_runs_out_of_memory_and_the_next_one_is_read() -> None:
    with ParserPool(60, 420_000_000, 10_000_000) as pool:
        assert reason(pool, samples.word_xml(HEAVY)) == "out-of-memory"
        assert samples.FACT in read(pool, samples.word_document())


def test_a_document_that_does_not_fit_into_the_child_runs_out_of_memory() -> None:
    with ParserPool(60, 420_000_000, 10_000_000) as pool:
        assert reason(pool, b"%PDF-1.4 " + bytes(300_000_000)) == "out-of-memory"
        assert samples.FACT in read(pool, samples.word_document())


def test_text_over_the_limit_is_too_large() -> None:
    with ParserPool(60, MEMORY, 100) as pool:
        assert reason(pool, samples.long_pdf(1)) == "too-large"
        assert reason(pool, b"word " * 21) == "too-large"


def test_a_child_without_room_for_itself_says_which_setting_to_raise() -> None:
    with (
        ParserPool(60, 100_000_000, 10_000_000) as pool,
        pytest.raises(ConfigurationError, match="HOPNODE_PARSE_MEMORY_BYTES"),
    ):
        read(pool, samples.word_document())


def test_a_child_that_is_killed_while_idle_is_replaced(pool: ParserPool) -> None:
    read(pool, samples.word_document())
    (child,) = parsers()
    child.kill()
    wait_until(lambda: child.status() == psutil.STATUS_ZOMBIE)
    assert samples.FACT in read(pool, samples.word_document())


def test_a_child_that_dies_in_a_document_fails_that_document_only(pool: ParserPool) -> None:
    read(pool, samples.word_document())
    (child,) = parsers()
    with ThreadPoolExecutor(1) as threads:
        outcome = threads.submit(reason, pool, samples.word_xml(HEAVY))
        before = child.cpu_times().user
        wait_until(lambda: child.cpu_times().user > before + 0.3)
        child.send_signal(signal.SIGSEGV)
        assert outcome.result() == "corrupt"
    assert samples.FACT in read(pool, samples.word_document())


def test_many_threads_share_two_children(pool: ParserPool) -> None:
    documents = [samples.pdf([[f"Document number {number}."]]) for number in range(40)]
    most = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, len(parsers()))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(8) as threads:
            texts = list(threads.map(lambda raw: read(pool, raw), documents))
    finally:
        done.set()
        watcher.join()
    assert texts == [f"Document number {number}." for number in range(40)]
    assert most == 2


def test_closing_the_pool_ends_its_children() -> None:
    with ParserPool(60, MEMORY, 10_000_000) as pool:
        read(pool, samples.word_document())
        assert len(parsers()) == 1
    assert not parsers()


def test_a_child_knows_no_secrets_of_its_parent(pool: ParserPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPNODE_CHAT_API_KEY", "very-secret")
    read(pool, samples.word_document())
    (child,) = parsers()
    assert "very-secret" not in " ".join(child.environ().values())


def test_a_forked_process_starts_children_of_its_own() -> None:
    program = f"""
        import os, sys; sys.path.insert(0, {TESTS!r})
        from support.data import samples
        from hopnode.worker.corpus.parsing.parser import ParserPool
        pool = ParserPool(60, {MEMORY}, 10_000_000)
        def read():
            return pool.parse_safely(samples.word_document(), media_type=None, filename=None).text
        text = read()
        forked = os.fork()
        if not forked:
            os._exit(0 if read() == text else 1)
        _, status = os.waitpid(forked, 0)
        sys.exit(status or read() != text)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)


@pytest.mark.parametrize("busy", [False, True])
def test_children_end_when_their_parent_is_killed(busy: bool) -> None:
    program = f"""
        import sys; sys.path.insert(0, {TESTS!r})
        from support.data import samples
        from hopnode.worker.corpus.parsing.parser import ParserPool
        pool = ParserPool(60, {MEMORY}, 10_000_000)
        pool.parse_safely(samples.word_document(), media_type=None, filename=None)
        heavy = samples.word_xml({HEAVY[:6]!r} * 1_500_000)
        print("ready", flush=True)
        while {busy}:
            pool.parse_safely(heavy, media_type=None, filename=None)
        sys.stdin.read()
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        (child,) = psutil.Process(parent.pid).children()
        before = child.cpu_times().user
        if busy:
            wait_until(lambda: child.cpu_times().user > before + 0.3)
        parent.kill()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_heavy_pdf_is_read_within_the_limits(pool: ParserPool) -> None:
    raw = samples.heavy_pdf(11)
    assert len(raw) > 10_000_000
    document = pool.parse_safely(raw, media_type="application/pdf", filename="big.pdf")
    assert len(document.pages) == 11
    assert reason(pool, raw[: len(raw) // 2]) == "corrupt"
