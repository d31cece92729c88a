"""The story of a search that is a job: from its row to the search, which reports to the job and ends when the job has to."""

from pydantic import JsonValue

from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.runtime import Runtime
from hopnode.worker.searches.request import SearchRequest
from hopnode.worker.searches.run import run_search
from hopnode.worker.searches.space import Space
from hopnode.worker.store.collections import get_collection


def run_search_job(runtime: Runtime, context: JobContext) -> JsonValue:
    """Carries out a search job; the result is what `GET /v1/searches/{id}` shows. Raises `NotFound` when a collection is
    gone, what `run_search` raises, and what `context.check` and `context.step` raise."""
    request = SearchRequest.model_validate(context.job.request)
    workspace = context.job.workspace_id
    collections = [get_collection(runtime.db, workspace, name) for name in request.collections]
    space = Space(runtime.corpora.open(workspace), collections, request.filter)
    context.check()
    if context.job.last_step:  # of an attempt that was lost, failed or stopped: nothing of it is taken over
        context.step("restart", {"attempt": context.job.attempt, "last_step": context.job.last_step})
    return run_search(request, space, runtime, check=context.check, step=context.step, started=context.claimed_at)
