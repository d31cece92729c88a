"""`hopnode serve` is killed while it calls back: the next one makes the call again under the same id, and only once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from standardwebhooks import Webhook
from support.node.cli import Cli, wait_for
from support.servers.receiver import Answer, Receiver, receiving

from hopnode.worker.store.database import Database
from hopnode.worker.store.tables import deliveries

pytestmark = pytest.mark.slow
SEARCHES = 3


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture
def cli(tmp_path: Path, receiver: Receiver) -> Cli:
    (tmp_path / "ferry.md").write_text("The ferry Nordlys leaves from Harstad every morning at seven.\n")
    return Cli(tmp_path / "data", tmp_path, webhook_allow_hosts=receiver.address)


def _deliveries(cli: Cli) -> list[dict[str, Any]]:
    with cli.client() as client:
        return client.get("/v1/deliveries").json()["items"]


def test_every_event_arrives_although_the_node_is_killed_while_it_calls(cli: Cli, receiver: Receiver) -> None:
    receiver.answers.extend([Answer(hold=True)] * SEARCHES)
    with cli.serve() as process:
        assert cli.run("add", "ferry.md").returncode == 0
        with cli.client() as client:
            secret = client.post("/v1/webhooks/callback-secret").json()["secret"]
            for number in range(SEARCHES):
                callback = {"url": receiver.url, "metadata": {"number": number}}
                body = {"query": f"When does ferry {number} leave?", "collection": "default", "callback": callback}
                assert client.post("/v1/searches", json=body).status_code == 202
        wait_for(lambda: len(receiver.calls) == SEARCHES, 60)
        process.kill()
        process.wait(10)
    (cli.data_dir / "node.json").unlink()
    database = Database(f"sqlite:///{cli.data_dir / 'hopnode.db'}")
    with database.write() as connection:  # a minute passes: the leases of the killed process end
        assert set(connection.execute(sa.select(deliveries.c.status)).scalars()) == {"pending"}
        connection.execute(deliveries.update().values(lease_until=0))
    database.close()
    with cli.serve():
        wait_for(lambda: [one["status"] for one in _deliveries(cli)] == ["delivered"] * SEARCHES, 60)
        told = {one["id"] for one in _deliveries(cli)}
    assert Counter(call.id for call in receiver.calls) == dict.fromkeys(told, 2)
    bodies = [Webhook(secret).verify(call.body, dict(call.headers)) for call in receiver.calls[SEARCHES:]]
    assert sorted(body["data"]["metadata"]["number"] for body in bodies) == list(range(SEARCHES))
    assert all(body["data"]["result"]["passages"] for body in bodies)


def test_a_receiver_that_hangs_does_not_hold_up_the_end_of_a_node(cli: Cli, receiver: Receiver) -> None:
    receiver.answers.append(Answer(hold=True))
    with cli.serve() as process:
        assert cli.run("add", "ferry.md").returncode == 0
        with cli.client() as client:
            body = {"query": "When?", "collection": "default", "callback": {"url": receiver.url}}
            assert client.post("/v1/searches", json=body).status_code == 202
        wait_for(lambda: len(receiver.calls) == 1, 60)
        process.terminate()
        assert process.wait(12) == 0
