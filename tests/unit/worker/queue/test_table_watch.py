"""A worker that looks into the job table by itself while Redis is away, and only then."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from support.node.queue import wait_until

from hopnode.worker.errors import BrokerUnavailable, StoreUnavailable
from hopnode.worker.queue.table_watch import TableWatch

SLOTS = 3


@dataclass
class Table:
    """Jobs that wait for a while each, and whether Redis and the database are there."""

    waiting: int = 0
    seconds: float = 0.05
    broker: bool = False
    store: bool = True
    ended: int = 0
    most: int = 0
    asked: int = 0
    busy: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask_broker(self) -> None:
        self.asked += 1
        if not self.broker:
            raise BrokerUnavailable("Redis does not answer.")

    def more(self, role: str) -> bool:
        if not self.store:
            raise StoreUnavailable("The database does not answer.")
        return role == "agent" and self.waiting > 0

    def run_next(self, role: str) -> bool:
        with self.lock:
            if not self.waiting:
                return False
            self.waiting -= 1
            self.busy += 1
            self.most = max(self.most, self.busy)
        time.sleep(self.seconds)  # the work
        with self.lock:
            self.busy -= 1
            self.ended += 1
        return True


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def watch(table: Table) -> Iterator[TableWatch]:
    made = TableWatch("agent", SLOTS, 0.01, ask_broker=table.ask_broker, taker=lambda: table)
    yield made
    made.stop()


def test_jobs_run_while_redis_is_away_in_no_more_threads_than_there_are_slots(table: Table, watch: TableWatch) -> None:
    table.waiting = 30
    watch.start()
    wait_until(lambda: table.ended == 30, 10, "all ran")
    assert 1 < table.most <= SLOTS


def test_nothing_is_taken_while_redis_answers(table: Table, watch: TableWatch) -> None:
    table.waiting, table.broker = 2, True
    watch.start()
    wait_until(lambda: table.asked > 5, 10, "it asked for Redis several times")
    assert (table.waiting, table.ended) == (2, 0)
    table.broker = False
    wait_until(lambda: table.ended == 2, 10, "then Redis went away")


def test_a_database_that_is_away_too_does_not_end_the_watch(table: Table, watch: TableWatch) -> None:
    table.waiting, table.store = 1, False
    watch.start()
    wait_until(lambda: table.asked > 3, 10, "it looks again and again")
    assert table.ended == 0
    table.store = True
    wait_until(lambda: table.ended == 1, 10, "the database is back")


def test_a_watch_that_was_stopped_takes_nothing_more(table: Table, watch: TableWatch) -> None:
    watch.start()
    wait_until(lambda: table.asked > 1, 10, "it watches")
    watch.stop()
    wait_until(lambda: not any(one.name == "table-watch" for one in threading.enumerate()), 10, "its thread ended")
    table.waiting = 1
    assert (table.ended, table.waiting) == (0, 1)
