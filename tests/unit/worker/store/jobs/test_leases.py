"""Named leases, on both engines: one holder at a time."""

from concurrent.futures import ThreadPoolExecutor

from support.node.queue import wait_until

from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.leases import drop_lease, try_lease


def test_one_of_many_gets_the_lease_and_keeps_it(database: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: try_lease(database, "leader", f"token-{n}", 60), range(8)))
    assert sum(won) == 1
    holder = f"token-{won.index(True)}"
    assert try_lease(database, "leader", holder, 60)
    assert not try_lease(database, "leader", "somebody-else", 60)
    assert try_lease(database, "another-name", "somebody-else", 60)


def test_a_lease_can_be_given_back_only_by_its_holder(database: Database) -> None:
    assert try_lease(database, "leader", "a", 60)
    drop_lease(database, "leader", "b")
    assert not try_lease(database, "leader", "b", 60)
    drop_lease(database, "leader", "a")
    assert try_lease(database, "leader", "b", 60)


def test_a_lease_that_ended_is_inherited(database: Database) -> None:
    assert try_lease(database, "leader", "a", 0.1)
    wait_until(lambda: try_lease(database, "leader", "b", 60), 5, "the lease of a ended")
    assert not try_lease(database, "leader", "a", 60)
