"""Answers calls that wait at the same time with one batch: several short texts side by side cost a model little more than one."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_AT_ONCE = 16
"""Items of a batch; more would let the first of them wait for the last."""


class _Asked(Generic[Item, Answer]):
    def __init__(self, item: Item) -> None:
        self.item = item
        self.turn = threading.Event()
        self.answers: list[Answer] = []
        self.error: BaseException | None = None


class Together(Generic[Item, Answer]):
    """A function of many items, asked for one at a time from many threads.

    Up to `at_once` threads work side by side, each for itself when nobody waits. Whoever comes meanwhile waits, and the
    first of them then works for all of them. An error of a batch is everybody's who is in it.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Answer]], at_once: int = 1) -> None:
        self._work = work
        self._free = at_once
        self._lock = threading.Lock()
        self._waiting: list[_Asked[Item, Answer]] = []

    def ask(self, item: Item) -> Answer:
        """The answer for one item; raises what the function raises."""
        asked = _Asked[Item, Answer](item)
        with self._lock:
            leads = self._free > 0
            if leads:
                self._free -= 1
            else:
                self._waiting.append(asked)
        if not leads:
            asked.turn.wait()
        if not asked.answers and not asked.error:
            self._lead(asked)
        if asked.error:
            raise asked.error
        return asked.answers[0]

    def _lead(self, asked: _Asked[Item, Answer]) -> None:
        with self._lock:
            others = self._waiting[: MOST_AT_ONCE - 1]
            del self._waiting[: MOST_AT_ONCE - 1]
        batch = [asked, *others]
        try:
            for one, answer in zip(batch, self._work([one.item for one in batch]), strict=True):
                one.answers.append(answer)
        except BaseException as error:  # noqa: BLE001 - raised in every thread that waits for it
            for one in batch:
                one.answers, one.error = [], error
        for one in others:
            one.turn.set()
        with self._lock:
            if self._waiting:
                self._waiting.pop(0).turn.set()
            else:
                self._free += 1
