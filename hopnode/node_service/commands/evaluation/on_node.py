"""`eval --node`: has a node evaluate a collection of its own, shows how far it is, and brings the report back.

Knows the API and the records of a question set; refuses to know how a report looks.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hopnode.node_service.commands.connection.client import TERMINAL, NodeClient, NodeRefused, NodeUnreachable
from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.schemas.evaluations import QUESTIONS_MOST
from hopnode.worker.evaluation.report import Report

if TYPE_CHECKING:
    from hopnode.worker.evaluation.dataset import Dataset
    from hopnode.worker.evaluation.running import Progress
    from hopnode.worker.evaluation.trial import Asking

POLL_SECONDS = 0.5


def evaluate_on_node(
    client: NodeClient, dataset: "Dataset", collection: str, asking: "Asking", seed: int, progress: "Progress"
) -> Report:
    """The report of the node; leaving early (Ctrl-C) cancels the evaluation there. Raises CommandError when it fails."""
    if len(dataset.questions) > QUESTIONS_MOST:
        raise CommandError(
            f"The set has {len(dataset.questions):,} questions, and a node takes {QUESTIONS_MOST:,} at once.",
            "Ask some of them with --limit.",
            ExitCode.USAGE,
        )
    made = _start(client, _body(dataset, collection, asking, seed))
    try:
        ended = _watch(client, made, progress)
    except KeyboardInterrupt:
        with suppress(CommandError):  # it ended meanwhile, or the node is gone: either way nothing is left to cancel
            client.post(f"{made['url']}/cancel")
        raise
    if ended["status"] != "succeeded":
        error = ended["error"] or {}
        raise CommandError(
            f"The evaluation {ended['id']} {ended['status']}: {error.get('message', 'no reason given')}",
            "docs/errors.md explains the errors of jobs.",
        )
    _tell(ended)
    return Report.model_validate(ended["report"])


def _body(dataset: "Dataset", collection: str, asking: "Asking", seed: int) -> dict[str, Any]:
    gold = dataset.gold
    questions = [
        {"id": one.id, "question": one.text, "gold": dict(gold[one.id].gains), "hops": list(gold[one.id].hops)}
        for one in dataset.questions
    ]
    how = {"mode": asking.mode, "profile": asking.profile, "top_k": asking.top_k, "seed": seed}
    return {"collection": collection, "name": dataset.name, "questions": questions} | how


def _start(client: NodeClient, body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return client.post("/v1/evaluations", body)
    except NodeRefused as error:
        if error.http_status != 413:
            raise
        raise CommandError(
            str(error), "Ask fewer questions with --limit, or raise HOPNODE_MAX_BODY_BYTES on the node."
        ) from error


def _watch(client: NodeClient, evaluation: dict[str, Any], progress: "Progress") -> dict[str, Any]:
    """Asks how far the evaluation is until it ends."""
    address, shown = f"{client.url}{evaluation['url']}", 0
    with progress(f"Asking ({evaluation['mode']})", evaluation["progress"]["questions"]) as advance:
        while True:
            for _ in range(evaluation["progress"]["asked"] - shown):
                advance()
            shown = evaluation["progress"]["asked"]
            if evaluation["status"] in TERMINAL:
                return evaluation
            time.sleep(POLL_SECONDS)
            try:
                evaluation = client.get(evaluation["url"])
            except NodeUnreachable as error:
                raise CommandError(str(error), f"When the node runs, the evaluation goes on: {address}.") from error


def _tell(evaluation: Mapping[str, Any]) -> None:
    """What the report itself does not say: where it is kept, and what it is less by."""
    console = display.notices()
    console.print(f"evaluation {evaluation['id']} on the node", style="dim", markup=False)
    if "collection-changed" in evaluation["degraded"]:
        console.print("The collection changed while it was asked: the figures mix two states of it.", style="yellow")
