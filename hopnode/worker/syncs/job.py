"""The story of a sync: walk the listing of a source, bring its documents up to date, and forget what is gone.
It knows the three verbs of a connector and nothing of any one kind."""

from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from time import monotonic

from pydantic import JsonValue

from hopnode.connectors.base import Complete, Connector, ItemRef, Partial, Resume, Skip, Wait
from hopnode.connectors.errors import ConnectorError
from hopnode.worker.errors import (
    JobInterrupted,
    LeaseLost,
    NodeError,
    NotFound,
    SourceUnavailable,
    SyncFailed,
)
from hopnode.worker.logs import get_logger
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.store.sources.sources import Source, end_sync, get_source, get_sync_by_job, save_source_state
from hopnode.worker.syncs.deletes import forget_missing
from hopnode.worker.syncs.items import SyncRun, SyncRuntime, Window
from hopnode.worker.syncs.tally import Tally

__all__ = ["SyncRuntime", "run_sync_job"]

MOST_UNREACHABLE = 0.2
_LONG_WAIT_SECONDS = 1.0

_log = get_logger(__name__)


def run_sync_job(runtime: SyncRuntime, context: JobContext) -> JsonValue:
    """Runs the sync of a job to its end and returns its JSON.

    An attempt that is cut short leaves counts and resume token behind. The next one repeats at most what was listed since the
    last token. Documents are stored under the key of their item, so that nothing is stored twice. Raises SyncFailed when 20 %
    or more of the items could not be fetched; counts are kept, and nothing is deleted. Raises SourceUnavailable when nothing
    could be listed, and what `context.check` raises.
    """
    sync = get_sync_by_job(runtime.db, context.job.id)
    source = get_source(runtime.db, sync.workspace_id, sync.source_id)
    tally = Tally(runtime.db, sync, context)
    _log.info("sync_started", source=source.id, sync=sync.id, connector=source.kind, resumed=tally.token is not None)
    with (
        _closing_the_sync(runtime, context, tally, sync.id),
        _connected(runtime, source) as connector,
    ):
        run = SyncRun(runtime, context, source, sync, connector, tally)
        ending = _walk(run)
        note = _conclude(run, ending)
        end_sync(runtime.db, sync.id, tally.counts, note)
    tally.tell(now=True)
    _log.info("sync_ended", source=source.id, sync=sync.id, note=note, **tally.counts.to_json())
    return {
        "sync_id": sync.id,
        "source_id": source.id,
        "complete": isinstance(ending, Complete),
        "note": note,
        "counts": tally.counts.to_json(),
        "skipped": dict(tally.skipped),
        "failed": dict(tally.failed),
    }


@contextmanager
def _connected(runtime: SyncRuntime, source: Source) -> Generator[Connector]:
    """The connector of the source; its errors leave as ours."""
    try:
        with closing(runtime.connector_for(source)) as connector:
            yield connector
    except ConnectorError as error:
        _log.warning("connector_failed", source=source.id, code=error.code, details=error.details)
        ours = SourceUnavailable if error.retryable else SyncFailed
        raise ours(str(error), reason=error.code) from error


@contextmanager
def _closing_the_sync(runtime: SyncRuntime, context: JobContext, tally: Tally, sync_id: str) -> Generator[None]:
    """Writes the end of a sync when its job fails for good. Writes nothing when the job will be tried again, or is not ours."""
    try:
        yield
    except (LeaseLost, JobInterrupted):
        raise
    except NodeError as error:
        if not error.retryable or context.job.attempt >= context.job.max_attempts:
            with suppress(NotFound):  # the source may be what is gone
                end_sync(runtime.db, sync_id, tally.counts, error.code)
        raise


def _walk(run: SyncRun) -> Complete | Partial | None:
    """Goes through the listing; afterwards all that was listed is stored, and the connector's state with it."""
    window = Window(run)
    for listed in run.connector.list(run.source.state, run.tally.token):
        run.context.check()
        if isinstance(listed, Complete | Partial):
            window.flush()
            save_source_state(run.runtime.db, run.source.id, listed.state)
            return listed
        _take(run, window, listed)
    window.flush()
    return None


def _take(run: SyncRun, window: Window, listed: ItemRef | Skip | Resume | Wait) -> None:
    if isinstance(listed, ItemRef):
        window.add(listed)
    elif isinstance(listed, Skip):
        run.tally.skip(listed.reason)
    elif isinstance(listed, Resume):
        window.flush()
        run.tally.save(listed.token)
    if isinstance(listed, Wait):
        _wait(run, window, listed.seconds)
    elif window.due:
        window.flush()
    run.tally.tell()


def _wait(run: SyncRun, window: Window, seconds: float) -> None:
    """Uses a longer wait for the work at hand, and stays ready to stop for the rest of it."""
    ends = monotonic() + seconds
    if window.due or seconds >= _LONG_WAIT_SECONDS:
        window.flush()
    while (left := ends - monotonic()) > 0:
        run.context.cancelled.wait(min(left, 1.0))
        run.context.check()


def _conclude(run: SyncRun, ending: Complete | Partial | None) -> str | None:
    """Judges the listing, deletes what may be deleted, and gives the note of the sync."""
    counts, reason = run.tally.counts, ending.reason if isinstance(ending, Partial) else "listing-ended"
    complete = isinstance(ending, Complete)
    if not complete and not counts.listed:
        raise SyncFailed(f"The source could not be listed: {reason}.", reason=reason)
    if counts.listed and run.tally.unreachable >= MOST_UNREACHABLE * counts.listed:
        raise SyncFailed(
            f"{run.tally.unreachable} of {counts.listed} items could not be fetched ({_told(run.tally.failed)}). "
            "What could be fetched is stored, and nothing was deleted."
        )
    if counts.listed and counts.failed == counts.listed:
        raise SyncFailed(f"None of {counts.listed} items could be stored ({_told(run.tally.failed)}).")
    held_back = forget_missing(run, complete=complete)
    if held_back:
        return held_back
    if not complete:
        return f"incomplete-{reason}"[:64]
    return "needs-js" if run.tally.skipped["needs-js"] else None


def _told(reasons: Counter[str]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in reasons.most_common(5))
