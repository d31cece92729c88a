"""The command `demo`: loads the sample into a node of its own and asks each question in both modes, side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopnode.node_service.commands.demo.records import MODES, Comparison, LoadedSample, ModeOutcome, totals
from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.invocation import Invocation, load
from hopnode.node_service.commands.terminal.options import JsonOption

if TYPE_CHECKING:
    from hopnode.node_service.commands.connection.client import NodeClient
    from hopnode.node_service.commands.demo.sample import SampleQuestion
    from hopnode.worker.settings import WorkerSettings

DEMO_QUESTIONS = (
    "b088d3ca08e211ebbda4ac1f6bf848b6",
    "9b3d9fa4089d11ebbd78ac1f6bf848b6",
    "f06815680bdb11eba7f7acde48001122",
)
"""Ids of the questions that the demo asks when nobody names others."""
COLLECTION = "2wiki"
TOP_K = 5
BATCH = 50


def demo(
    ctx: typer.Context,
    data_dir: Annotated[
        Path | None, typer.Option(help="Data folder of the demo; `demo` in HOPNODE_DATA_DIR otherwise.")
    ] = None,
    questions: Annotated[int | None, typer.Option(min=1, max=163, help="Ask the first N of the sample.")] = None,
    question: Annotated[str | None, typer.Option(help="Ask this instead; no gold paragraphs are known then.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Load 1,294 real paragraphs and ask multi-hop questions: one-shot retrieval and the agent side by side."""
    from hopnode.node_service.commands.connection.open_client import client_of_folder
    from hopnode.node_service.commands.demo import view

    if questions and question:
        raise CommandError("Give --questions or --question, not both.", "Leave one of them away.", ExitCode.USAGE)
    invocation: Invocation = ctx.obj
    invocation.quiet_logs()
    settings = _settings(invocation, data_dir)
    console = display.output()
    comparisons: list[Comparison] = []
    with client_of_folder(settings) as client:
        library = fill(client)
        if not as_json:
            view.opening(console, len(library.keys), settings)
        for asked in _chosen(questions, question):
            comparisons.append(compare(client, library, asked))
            if not as_json:
                view.comparison(console, comparisons[-1], library, len(comparisons))
    if as_json:
        display.print_json(_as_json(comparisons))
    else:
        url = f"http://{invocation.service.host}:{invocation.service.port}"
        view.closing(console, comparisons, settings, url)


def fill(client: "NodeClient") -> LoadedSample:
    """Loads the sample; paragraphs that are there already are recognised and cost nothing.

    One batch after the other: the embedder has every core to itself, and side by side they cost a quarter more.
    """
    from hopnode.node_service.commands.collections import ensure, path_of
    from hopnode.node_service.commands.demo import sample
    from hopnode.node_service.commands.terminal.progress import progress

    paragraphs = sample.paragraphs()
    batches = [paragraphs[start : start + BATCH] for start in range(0, len(paragraphs), BATCH)]
    library = LoadedSample({one.id: one.title for one in paragraphs})
    ensure(client, COLLECTION)
    with progress("Loading the sample", len(batches)) as advance:
        for batch in batches:
            documents = [{"key": one.id, "title": one.title, "text": one.text} for one in batch]
            answer = client.post(f"{path_of(COLLECTION)}/documents:batch", {"documents": documents})
            library.keys.update(map(_stored, answer["outcomes"]))
            advance()
    return library


def _stored(outcome: dict[str, Any]) -> tuple[str, str]:
    """The id and the key of a stored document. Raises CommandError when it could not be stored."""
    if outcome["status"] == "failed":
        raise CommandError(
            f"The paragraph {outcome['key']} could not be stored: {outcome['message']}",
            "Run `hopnode doctor`; delete the demo's data folder to start anew.",
        )
    return outcome["document_id"], outcome["key"]


def compare(client: "NodeClient", library: LoadedSample, question: "SampleQuestion") -> Comparison:
    """Asks one question in every mode."""
    answers = tuple(_ask(client, library, question, mode) for mode in MODES)
    return Comparison(question.text, question.gold, answers)


def _ask(client: "NodeClient", library: LoadedSample, question: "SampleQuestion", mode: str) -> ModeOutcome:
    from hopnode.node_service.commands.searching import run

    body = {"query": question.text, "collection": COLLECTION, "mode": mode, "top_k": TOP_K}
    finished = run(client, body, show_steps=False)
    if finished.search["status"] != "succeeded":
        reason = (finished.search.get("error") or {}).get("message", finished.search["status"])
        raise CommandError(f"The {mode} search failed: {reason}", "Run `hopnode doctor`; it tries every part.")
    returned = {library.key_of(passage["document_id"]) for passage in finished.search["result"]["passages"]}
    return ModeOutcome(mode, finished, frozenset(question.gold) & returned)


def _settings(invocation: Invocation, data_dir: Path | None) -> "WorkerSettings":
    """Settings of the demo's own embedded node: those in force, with its own folder and no outside service but the model."""
    from hopnode.worker.settings import WorkerSettings

    folder = data_dir or invocation.settings.root / "demo"
    return load(WorkerSettings, data_dir=folder, database_url=None, redis_url=None, chroma_url=None)


def _chosen(count: int | None, text: str | None) -> "list[SampleQuestion]":
    from hopnode.node_service.commands.demo import sample

    if text:
        return [sample.SampleQuestion("", text, (), (), "")]
    known = sample.questions()
    if count:
        return known[:count]
    by_id = {question.id: question for question in known}
    return [by_id[question_id] for question_id in DEMO_QUESTIONS]


def _as_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    return {
        "questions": [
            {
                "question": one.question,
                "gold": list(one.gold),
                "answers": {
                    answer.mode: {
                        "found": sorted(answer.found),
                        "seconds": answer.finished.seconds,
                        "result": answer.result,
                    }
                    for answer in one.answers
                },
            }
            for one in comparisons
        ],
        "totals": totals(comparisons),
    }
