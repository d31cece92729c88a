import threading
import time
from collections.abc import Sequence

import pytest

from worker.inference.together import MOST_AT_ONCE, Together


class Doubler:
    """Doubles numbers; holds its first batch until it is let go, and remembers all batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.started = threading.Event()
        self.go = threading.Event()

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        self.started.set()
        assert self.go.wait(20)
        if 13 in numbers:
            raise ValueError("thirteen")
        return [2 * number for number in numbers]


def ask_all(together: Together[int, int], doubler: Doubler, numbers: Sequence[int]) -> dict[int, int | str]:
    """Asks for the first number, for the others while it is being worked on, and lets go."""
    found: dict[int, int | str] = {}

    def ask(number: int) -> None:
        try:
            found[number] = together.ask(number)
        except ValueError as error:
            found[number] = str(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in numbers]
    threads[0].start()
    assert doubler.started.wait(20)
    for thread in threads[1:]:
        thread.start()
    while len(together._waiting) < len(numbers) - 1:
        time.sleep(0.001)
    doubler.go.set()
    for thread in threads:
        thread.join(20)
    return found


def test_who_is_alone_is_answered_alone() -> None:
    doubler = Doubler()
    doubler.go.set()
    together = Together(doubler)
    assert [together.ask(number) for number in (1, 2, 3)] == [2, 4, 6]
    assert doubler.batches == [[1], [2], [3]]


def test_who_comes_meanwhile_is_answered_in_one_batch() -> None:
    doubler = Doubler()
    found = ask_all(Together(doubler), doubler, range(6))
    assert found == {number: 2 * number for number in range(6)}
    assert [sorted(batch) for batch in doubler.batches] == [[0], [1, 2, 3, 4, 5]]


def test_a_batch_has_an_end_and_nobody_is_left_behind() -> None:
    doubler = Doubler()
    numbers = range(100, 100 + 3 * MOST_AT_ONCE)
    assert ask_all(Together(doubler), doubler, numbers) == {number: 2 * number for number in numbers}
    assert max(map(len, doubler.batches)) == MOST_AT_ONCE


def test_an_error_reaches_everybody_in_its_batch_and_nobody_else() -> None:
    doubler = Doubler()
    together = Together(doubler)
    assert ask_all(together, doubler, [1, 12, 13]) == {1: 2, 12: "thirteen", 13: "thirteen"}
    assert together.ask(4) == 8
    with pytest.raises(ValueError, match="thirteen"):
        together.ask(13)


def test_several_may_work_side_by_side() -> None:
    barrier = threading.Barrier(2)

    def both(numbers: Sequence[int]) -> list[int]:
        barrier.wait(20)  # passed only when two batches are being worked on
        return list(numbers)

    together = Together(both, at_once=2)
    threads = [threading.Thread(target=together.ask, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert barrier.n_waiting == 0 and not barrier.broken
