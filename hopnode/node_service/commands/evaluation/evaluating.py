"""The command `eval`: measures on a question set how well searches find what is right, and compares two ways to search."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from hopnode.node_service.commands.evaluation import options
from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.invocation import Invocation, load

if TYPE_CHECKING:
    from hopnode.worker.evaluation.dataset import Dataset
    from hopnode.worker.evaluation.report import Report
    from hopnode.worker.evaluation.running import Outcome, Setup
    from hopnode.worker.evaluation.scoring import Run
    from hopnode.worker.evaluation.trial import Asking
    from hopnode.worker.settings import WorkerSettings

FORMATS = "docs/evaluation.md shows every form of question set, with an example."


@dataclass(frozen=True)
class Place:
    """Where the documents are: a collection of the running node, one of a data folder, or none yet."""

    collection: str | None
    data_dir: Path | None
    on_node: bool


@dataclass(frozen=True)
class Files:
    """What is written beside the table, and what it is compared with."""

    report: Path | None
    trec: Path | None
    compare: Path | None


def evaluate(
    ctx: typer.Context,
    dataset: options.DatasetPath,
    mode: options.Mode = "auto",
    profile: options.Profile = "offline",
    top_k: options.TopK = 20,
    no_titles: options.NoTitles = False,
    language: options.Language = None,
    split: options.Split = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    embedder: options.Embedder = None,
    data_dir: options.DataDir = None,
    collection: options.CollectionName = None,
    node: options.OnNode = False,
    report: options.ReportFile = None,
    trec: options.TrecFolder = None,
    compare: options.CompareFile = None,
) -> None:
    """Measure how well searches find what is right: recall, MRR and nDCG with intervals, time and cost. Needs no node."""
    from hopnode.worker.evaluation.running import Setup
    from hopnode.worker.evaluation.trial import Asking

    invocation: Invocation = ctx.obj
    invocation.quiet_logs()
    place, files = Place(collection, data_dir, node), Files(report, trec, compare)
    _check(dataset, place, fills=no_titles or embedder is not None, trec=trec is not None)
    earlier = _earlier(compare)
    questions = _load(dataset, language, split).limited(limit, seed)
    asking = Asking(mode, profile, top_k)
    if collection is not None and node:
        measured, run = _on_node(invocation, questions, collection, asking, seed), None
    else:
        outcome = _run(invocation, questions, Setup(not no_titles, seed, embedder, collection), asking, data_dir)
        measured, run = outcome.report, outcome.run
    _finish(measured, run, files, earlier)
    raise typer.Exit(_exit_code(measured))


def _check(dataset: Path, place: Place, *, fills: bool, trec: bool) -> None:
    """Refuses what cannot be together; `fills` says that an option is about filling a collection."""
    for is_wrong, message, mend in (
        (
            place.on_node and place.data_dir is not None,
            "--node and --data-dir are two places: the running node, and a folder that no node runs on.",
            "Leave one away; HOPNODE_URL, or HOPNODE_DATA_DIR, says which node.",
        ),
        (
            place.on_node and not place.collection,
            "--node needs --collection: which one the node is to ask.",
            "`hopnode collections list` shows what there is.",
        ),
        (
            place.on_node and trec,
            "--trec needs all that was returned, and a node's report has the ranks of the gold only.",
            "Leave it away, or stop the node and name its folder with --data-dir.",
        ),
        (
            place.collection and not place.data_dir and not place.on_node,
            "--collection needs --data-dir, the folder that holds it, or --node.",
            "With a running node say --node; otherwise name both.",
        ),
        (
            not place.collection and ".csv" in (suffix.lower() for suffix in dataset.suffixes[-2:]),
            "A CSV file holds questions only, and no documents to search.",
            "Name the collection to ask with --collection, and --node or --data-dir.",
        ),
        (
            place.collection and fills,
            "An existing collection is asked as it is: --no-titles and --embedder would have to fill it anew.",
            "Leave them away.",
        ),
    ):
        if is_wrong:
            raise CommandError(message, mend, ExitCode.USAGE)


def _on_node(invocation: Invocation, dataset: "Dataset", collection: str, asking: "Asking", seed: int) -> "Report":
    from hopnode.node_service.commands.connection.open_client import open_client
    from hopnode.node_service.commands.evaluation.on_node import evaluate_on_node

    with open_client(invocation) as client:
        return evaluate_on_node(client, dataset, collection, asking, seed, bar)


def _load(path: Path, language: str | None, split: str | None) -> "Dataset":
    from hopnode.worker.errors import InvalidRequest
    from hopnode.worker.evaluation.loading import load as load_dataset

    try:
        return load_dataset(path, language=language, split=split)
    except InvalidRequest as error:
        raise CommandError(str(error), FORMATS, ExitCode.USAGE) from error


def _earlier(path: Path | None) -> "Report | None":
    from hopnode.worker.errors import InvalidRequest
    from hopnode.worker.evaluation.report import Report

    if path is None:
        return None
    try:
        return Report.read(path)
    except InvalidRequest as error:
        raise CommandError(str(error), "Write one with `hopnode eval … --json FILE`.", ExitCode.USAGE) from error


def _run(
    invocation: Invocation, dataset: "Dataset", setup: "Setup", asking: "Asking", data_dir: Path | None
) -> "Outcome":
    from hopnode.worker.evaluation.running import measure, prepare
    from hopnode.worker.runtime import open_runtime

    with _folder(data_dir, needed=setup.collection is not None) as folder:
        runtime = open_runtime(_settings(invocation, folder), embedded=True)
        try:
            prepared = prepare(runtime, dataset, setup, bar)
            return measure(prepared, asking, bar)
        finally:
            runtime.close()


@contextmanager
def _folder(data_dir: Path | None, *, needed: bool) -> Generator[Path]:
    if data_dir is None:
        with TemporaryDirectory(prefix="hopnode-eval-") as folder:
            yield Path(folder)
        return
    if needed and not data_dir.is_dir():
        raise CommandError(f"There is no data folder {data_dir}.", "Correct --data-dir.", ExitCode.USAGE)
    yield data_dir


def _settings(invocation: Invocation, folder: Path) -> "WorkerSettings":
    """Those in force, with a folder of its own and no outside service but the models."""
    from hopnode.worker.settings import WorkerSettings

    invocation.quiet_logs()
    return load(WorkerSettings, data_dir=folder, database_url=None, redis_url=None, chroma_url=None)


@contextmanager
def bar(label: str, total: int) -> Generator[Callable[[], None]]:
    """The progress bar of the command line, as an evaluation asks for one."""
    from hopnode.node_service.commands.terminal.progress import progress

    with progress(label, total) as advance:
        yield advance


def _finish(report: "Report", run: "Run | None", files: Files, earlier: "Report | None") -> None:
    from hopnode.node_service.commands.evaluation import view
    from hopnode.worker.evaluation.comparison import compare
    from hopnode.worker.evaluation.trec import write_qrels, write_run

    console = display.output()
    view.show(console, report)
    if files.report:
        report.write(files.report)
    if files.trec and run:
        write_qrels(files.trec / "qrels.trec", run.dataset.gold)
        write_run(files.trec / "run.trec", {one.question: one.documents for one in run.retrieved})
        for leg, ranked in run.legs.items():
            write_run(files.trec / f"run-{leg}.trec", ranked)
    if earlier is not None and files.compare:
        view.show_comparison(console, compare(earlier, report), files.compare.name)


def _exit_code(report: "Report") -> ExitCode:
    failed = sum(report.failed.values())
    if failed == report.questions:
        return ExitCode.FAILED
    refused = sum(report.ingest.failed.values()) if report.ingest else 0
    return ExitCode.PARTLY_FAILED if failed or refused else ExitCode.OK
