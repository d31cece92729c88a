"""Waiting without a thread: naps, and the end of a wait."""

import itertools
import threading
import time

import anyio

from hopnode.node_service.waiting import FIRST_NAP_SECONDS, LONGEST_NAP_SECONDS, naps, wait_until


async def never_gone() -> bool:
    return False


async def gone() -> bool:
    return True


def waited(look, done, seconds=5.0, stopping=None, left=never_gone):
    started = time.monotonic()

    async def run():
        event = stopping or threading.Event()
        return await wait_until(look, done, seconds=seconds, stopping=event, gone=left)

    return anyio.run(run), time.monotonic() - started


def test_naps_grow_from_short_to_the_longest_and_stay_there() -> None:
    first = list(itertools.islice(naps(), 20))
    assert first[0] == FIRST_NAP_SECONDS
    assert first == sorted(first)
    assert first[-1] == LONGEST_NAP_SECONDS


def test_a_wait_ends_when_the_thing_is_done() -> None:
    counter = itertools.count()
    seen, seconds = waited(lambda: next(counter), lambda count: count == 3)
    assert seen == 3
    assert seconds < 2


def test_a_wait_ends_after_its_seconds_with_what_it_last_saw() -> None:
    seen, seconds = waited(lambda: "running", lambda _: False, seconds=0.2)
    assert seen == "running"
    assert 0.2 <= seconds < 2


def test_a_wait_of_no_seconds_looks_once() -> None:
    counter = itertools.count()
    assert waited(lambda: next(counter), lambda _: False, seconds=0)[0] == 0
    assert next(counter) == 1


def test_a_wait_ends_when_the_server_stops() -> None:
    stopping = threading.Event()
    threading.Timer(0.1, stopping.set).start()
    assert waited(lambda: None, lambda _: False, seconds=30, stopping=stopping)[1] < 2


def test_a_wait_ends_when_the_caller_has_gone() -> None:
    assert waited(lambda: None, lambda _: False, seconds=30, left=gone)[1] < 2
