"""The queue under fire: workers, pool children, supervisors, connections and Redis die at random; no job may suffer.

Every test works through at least 40 jobs of one to two seconds while things are killed. Then it audits the job table, the
deliveries, the logs of the workers and the run log that the jobs themselves wrote.
"""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import psutil
import pytest
import redis
from support.node.programs import LEASE_SECONDS, Program, parent_of, probe_environment
from support.node.queue import CALLBACK, new_workspace, queue_probe, wait_until
from support.node.run_log import Audit, audit
from support.servers.redis_server import RedisServer

from hopnode.worker.queue.dispatch import CeleryDispatcher
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs

pytestmark = pytest.mark.slow

FIRE_SECONDS = 40.0
CALM_SECONDS = 60.0


class Fire:
    """Kills things in a random order that is the same in every run, and counts what it hit."""

    def __init__(self, seed: int, weapons: dict[str, tuple[int, Callable[[], bool]]]) -> None:
        """`weapons`: how often each is to be used, and how; a use that found nothing to hit returns False."""
        self.hits: Counter[str] = Counter()
        self._weapons = {name: use for name, (_, use) in weapons.items()}
        self._order = [name for name, (times, _) in weapons.items() for _ in range(times)]
        random.Random(seed).shuffle(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def shoot(self) -> None:
        """Uses the next weapon, if one is left."""
        if self._order:
            name = self._order.pop()
            self.hits[name] += self._weapons[name]()


@pytest.fixture
def redis_server(tmp_path: Path) -> Generator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


def _kill(process: psutil.Process | None) -> bool:
    if process is None:
        return False
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return False
    return True


def _freeze(process: psutil.Process | None) -> bool:
    """Stops a worker for longer than its leases last, then lets it go on with jobs that are not its own any more."""
    if process is None or process.status() == psutil.STATUS_STOPPED:
        return False
    process.suspend()
    threading.Timer(LEASE_SECONDS * 1.5, lambda: process.is_running() and process.resume()).start()
    return True


def _kill_pool_child(program: Program, choose: random.Random) -> bool:
    worker = program.worker()
    children = [process for process in program.family() if worker and parent_of(process) == worker.pid]
    return _kill(choose.choice(children)) if children else False


def _kill_redis(server: RedisServer) -> bool:
    server.kill()
    time.sleep(0.5)
    server.start()
    return True


def _reset_connections(server: RedisServer) -> bool:
    client = server.client()
    try:
        for kind in ("normal", "pubsub"):
            client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    except redis.RedisError:
        return False
    finally:
        client.close()
    return True


def _restart(program: Program) -> bool:
    program.restart()
    return True


def _queue_jobs(db: Database, count: int, seed: int) -> Generator[jobs.Job]:
    """Jobs of one to two seconds in three workspaces and both roles; two of three have somebody who wants to know."""
    choose = random.Random(seed)
    workspaces = [new_workspace(db) for _ in range(3)]
    for n in range(count):
        yield queue_probe(
            db,
            choose.choice(workspaces),
            role=("agent", "sync")[n % 2],
            request={"seconds": round(choose.uniform(1, 2), 2)},
            max_attempts=30,
            callback=CALLBACK if n % 3 else None,
        )


def _all_ended(db: Database) -> bool:
    return all(status.final for _, status in jobs.job_counts(db))


def _report(title: str, found: Audit, fire: Fire, logs: list[Path], seconds: float) -> None:
    restarts = sum(log.read_text(errors="replace").count('"worker_exited"') for log in logs)
    print(f"\n{title}: {seconds:.0f} s, hits {dict(fire.hits)}, workers started again {restarts}\n  {found}")


def test_no_job_suffers_when_workers_children_and_redis_are_killed(
    database_url: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    environment = probe_environment(tmp_path, database_url, redis_url=redis_server.url)
    db = Database(database_url)
    dispatcher = CeleryDispatcher(WorkerSettings(_env_file=None, redis_url=redis_server.url))  # type: ignore[call-arg]
    agent = Program(["supervisor", "agent"], environment, tmp_path / "agent.log")
    sync = Program(["supervisor", "sync"], environment, tmp_path / "sync.log")
    fire = Fire(
        7,
        {
            "agent worker": (3, lambda: _kill(agent.worker())),
            "sync worker": (3, lambda: _kill(sync.worker())),
            "pool child": (3, lambda: _kill_pool_child(sync, random.Random(11))),
            "frozen worker": (2, lambda: _freeze(agent.worker())),
            "supervisor": (1, lambda: _restart(agent)),
            "redis": (3, lambda: _kill_redis(redis_server)),
            "connections": (2, lambda: _reset_connections(redis_server)),
        },
    )
    start = time.monotonic()
    try:
        dispatcher.start()
        created: list[str] = []
        for job in _queue_jobs(db, 60, seed=3):
            created.append(job.id)
            dispatcher.kick(job.role)
            if len(created) > 8 and len(created) % 3 == 0:
                fire.shoot()
            until = start + FIRE_SECONDS * len(created) / 60  # jobs keep coming for as long as the fire lasts
            time.sleep(max(0.0, until - time.monotonic()))
        wait_until(lambda: _all_ended(db), CALM_SECONDS, "all jobs ended")
    finally:
        agent.close()
        sync.close()
        dispatcher.stop(2)
    found = audit(db, created, tmp_path / "runs.jsonl", [agent.log, sync.log])
    db.close()
    _report(
        f"Celery and Redis, {database_url.split(':')[0]}", found, fire, [agent.log, sync.log], time.monotonic() - start
    )
    assert all(fire.hits[name] for name in ("agent worker", "sync worker", "pool child", "frozen worker", "redis"))
    assert found.broken_off > 0
    assert found.statuses == {"succeeded": 60}
    assert found.violations == 0


def test_no_job_suffers_when_the_embedded_process_is_killed(sqlite_url: str, tmp_path: Path) -> None:
    db = Database(sqlite_url)
    node = Program(["embedded"], probe_environment(tmp_path, sqlite_url), tmp_path / "embedded.log")
    fire = Fire(5, {"process": (8, lambda: _restart(node))})
    pauses = random.Random(6)
    start = time.monotonic()
    try:
        created = [job.id for job in _queue_jobs(db, 50, seed=4)]
        while len(fire):
            time.sleep(pauses.uniform(2.5, 4.5))
            fire.shoot()
        wait_until(lambda: _all_ended(db), CALM_SECONDS, "all jobs ended")
    finally:
        node.close()
    found = audit(db, created, tmp_path / "runs.jsonl", [node.log])
    db.close()
    _report("embedded process", found, fire, [node.log], time.monotonic() - start)
    assert fire.hits.total() == 8
    assert found.broken_off > 0
    assert found.statuses == {"succeeded": 50}
    assert found.violations == 0
