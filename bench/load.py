"""What a node does when 200 searches come in one second, and whether 10,000 queued jobs slow its queue.

    python bench/load.py --json results/load-embedded.json
    python bench/load.py --server --json results/load-server.json

The node is real processes: `hopnode serve`, or with --server `hopnode api` and a Celery worker on a PostgreSQL and a Redis
server of its own. Only the model is a script, behind HTTP. One workspace asks for most of it, and then another for a little.
"""

import argparse
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import sqlalchemy as sa
from node import busy, keep, machine, say, summary
from page.load import Moments, lines, moments

from hopnode.worker.inference.messages import Completion
from hopnode.worker.inference.scripted import Fault, ScriptedChatServer, ServerRequest, final, use
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus
from hopnode.worker.store.tables import job_steps
from hopnode.worker.store.tables import jobs as job_table
from hopnode.worker.store.workspaces import create_workspace

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.node.running import RunningNode  # noqa: E402 - the node of the tests, on the path since the line above
from support.servers.postgres import PostgresServer  # noqa: E402
from support.servers.redis_server import RedisServer  # noqa: E402

QUESTION = "Where was the engine of the ferry Nordlys built?"
TEXTS = {
    "ferry": "The ferry Nordlys leaves from Harstad every morning at seven.",
    "engine": "The engine of the ferry Nordlys was built by a workshop in Bergen.",
    "harbour": "The harbour master of Harstad keeps the key of the lighthouse.",
}
REPLIES = 3
PATIENCE_SECONDS = 240.0
CLAIMS = 40


def model(seconds: float):
    """Searches twice, then names nothing in particular; takes `seconds` for each reply."""

    def reply(request: ServerRequest) -> Completion | Fault:
        time.sleep(seconds)
        messages = request.body["messages"]
        assert isinstance(messages, list)
        turn = sum(isinstance(one, dict) and one.get("role") == "tool" for one in messages)
        return final("none") if turn >= REPLIES - 1 else use(("search_corpus", {"query": f"{QUESTION} {turn}"}))

    return reply


def tenant(node: RunningNode, name: str) -> httpx.Client:
    """A workspace with three documents in `handbook`, and a client of it."""
    with node.client() as admin:
        made = admin.post("/v1/workspaces", json={"name": name})
        made.raise_for_status()
    http = node.client(made.json()["key"]["token"])
    http.post("/v1/collections", json={"name": "handbook"}).raise_for_status()
    for key, text in TEXTS.items():
        http.put(f"/v1/collections/handbook/documents/{key}", json={"text": text}).raise_for_status()
    return http


def ask(http: httpx.Client) -> tuple[str, float]:
    """Starts one search; its id, and the milliseconds until it was accepted."""
    body = {"query": QUESTION, "collection": "handbook", "mode": "agent", "profile": "generic", "join": False}
    started = time.perf_counter()
    answer = http.post("/v1/searches", json=body)
    answer.raise_for_status()
    return answer.json()["id"], (time.perf_counter() - started) * 1000


def ask_all(who: list[httpx.Client], seconds: float) -> list[tuple[str, float]]:
    """One search of each client in the list, in this order, spread evenly over `seconds`."""
    begin = time.perf_counter()

    def in_turn(place: int) -> tuple[str, float]:
        time.sleep(max(0.0, begin + seconds * place / len(who) - time.perf_counter()))
        return ask(who[place])

    with ThreadPoolExecutor(min(64, len(who))) as pool:
        return list(pool.map(in_turn, range(len(who))))


def moments_of(db: Database, ids: list[str]) -> list[Moments]:
    """When each search was accepted, made its first step and ended, in the order of `ids`; all have succeeded."""
    until = time.monotonic() + PATIENCE_SECONDS
    open_jobs = sa.select(sa.func.count()).where(job_table.c.id.in_(ids), job_table.c.ended_at.is_(None))
    while True:
        with db.read() as connection:
            if not connection.execute(open_jobs).scalar_one():
                break
        assert time.monotonic() < until, "the searches did not end"
        time.sleep(0.1)
    first = sa.select(sa.func.min(job_steps.c.created_at)).where(job_steps.c.job_id == job_table.c.id).scalar_subquery()
    columns = (job_table.c.id, job_table.c.status, job_table.c.created_at, first, job_table.c.ended_at)
    with db.read() as connection:
        rows = {row[0]: row[1:] for row in connection.execute(sa.select(*columns).where(job_table.c.id.in_(ids)))}
    assert {row[0] for row in rows.values()} == {"succeeded"}, rows
    return [Moments(*rows[one][1:]) for one in ids]


class Memory:
    """The most that all processes of the node held at once, in MB, looked at four times a second."""

    def __init__(self, node: RunningNode) -> None:
        self._node, self._over = node, threading.Event()
        self.most = self.idle = node.memory()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.25):
            self.most = max(self.most, self._node.memory())


def burst(node: RunningNode, many: int, few: int, model_seconds: float) -> dict:
    """The figures of one burst: `many` searches of one workspace and then `few` of another within a second."""
    large, small = tenant(node, "large"), tenant(node, "small")
    with closing(large), closing(small), closing(Database(node.database_url)) as db:
        for http in (large, small):
            moments_of(db, [ask(http)[0]])
        alone = [ask(small) for _ in range(5)]
        quiet = moments_of(db, [one for one, _ in alone])
        with Memory(node) as memory:
            asked = ask_all([large] * many + [small] * few, 1.0)
            found = moments_of(db, [one for one, _ in asked])
    return {
        "many": many,
        "few": few,
        "accept": summary([taken for _, taken in asked], 1.0),
        "accept_alone": summary([taken for _, taken in alone], 1.0),
        **moments(found[:many], found[many:], quiet),
        "slots": node.agent_slots,
        "limit": node.workspace_limit,
        "ideal_per_second": min(node.agent_slots, 2 * node.workspace_limit) / (REPLIES * model_seconds),
        "memory_idle": memory.idle,
        "memory_most": memory.most,
    }


def queue_times(db: Database, queued: int) -> dict[str, float]:
    """Median milliseconds of a claim, of accepting a job and of looking for more with `queued` jobs of two workspaces."""
    owners = [create_workspace(db, f"queue-{queued}-{number}").id for number in (1, 2)]
    row = {"kind": "search", "role": "agent", "status": "queued", "max_attempts": 3, "next_at": 0.0}
    rows = [
        row | {"id": f"{queued}-{at}", "workspace_id": owners[at % 2], "request": {"query": QUESTION}, "created_at": at}
        for at in range(queued)
    ]
    with db.write() as connection:
        connection.execute(job_table.insert(), rows)
        if db.dialect == "postgresql":  # as its own vacuum does; on SQLite nothing does
            connection.exec_driver_sql("ANALYZE jobs")
    taken: dict[str, list[float]] = {"claim": [], "accept": [], "look": []}

    def timed(name, work):
        started = time.perf_counter()
        made = work()
        taken[name].append((time.perf_counter() - started) * 1000)
        return made

    for _ in range(CLAIMS):
        job = timed("claim", lambda: jobs.claim_next(db, role="agent", lease_seconds=60, workspace_limit=16))
        timed("look", lambda: jobs.has_claimable(db, "agent", 16))
        jobs.finish(db, job, JobStatus.SUCCEEDED)
        again = {"workspace_id": owners[0], "kind": "search", "role": "agent", "request": {"query": QUESTION}}
        timed("accept", lambda again=again: jobs.create_job(db, **again))
    with db.write() as connection:
        connection.execute(job_table.delete())
    return {name: summary(times, 1.0)["p50"] for name, times in taken.items()}


def queue_rows(url: str, full: int) -> list[dict]:
    """The same with 10 queued jobs and with `full`."""
    with closing(Database(url)) as db:
        db.migrate()
        short, long = queue_times(db, 10), queue_times(db, full)
    return [
        {"what": name, "short": short[name], "long": long[name], "ratio": long[name] / short[name]} for name in short
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="store_true", help="API and Celery worker on PostgreSQL and Redis")
    parser.add_argument("--many", type=int, default=190)
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--model-seconds", type=float, default=0.5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hopnode-load-")))
        chat = stack.enter_context(ScriptedChatServer(model(options.model_seconds)))
        settings = {"chat_url": chat.url, "chat_model": "scripted"}
        queue_url = f"sqlite:///{folder / 'queue.db'}"
        if options.server:
            postgres = PostgresServer()
            stack.callback(postgres.stop)
            redis = RedisServer(folder)
            redis.start()
            stack.callback(redis.stop)
            settings |= {"database_url": postgres.new_empty_database(), "redis_url": redis.url}
            queue_url = postgres.new_empty_database()
        node = stack.enter_context(RunningNode.of_mode(folder / "node", settings, server=options.server))
        found = burst(node, options.many, options.few, options.model_seconds)
        result = {
            "load_mode": "server" if options.server else "embedded",
            "store": "PostgreSQL" if options.server else "SQLite",
            "machine": f"{machine()}, {busy()}",
            "model_seconds": options.model_seconds,
            "replies": REPLIES,
            "queued": options.queued,
            "burst": found,
            "queue": queue_rows(queue_url, options.queued),
        }
    say("\n".join(lines(result)))
    keep(options.json, result)


if __name__ == "__main__":
    main()
