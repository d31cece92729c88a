"""What a language model reads of a result: numbered passages, each with where it stands, and what to do next.

Knows the shapes of results only; who asked, and over which protocol, it does not know.
"""

from typing import Any

from hopnode.node_service.schemas.tools import (
    RESULT_CHARACTERS,
    CollectionsFound,
    DocumentPart,
    PassageFound,
    SearchFound,
)
from hopnode.worker.store.jobs.jobs import Job, JobStatus


def found_by(job: Job) -> SearchFound:
    """The search that `job` is. Passages come whole, from rank 1 on, as many as fit; of the first one what fits."""
    result: Any = job.result or {"passages": [], "degraded": []}
    passages: list[PassageFound] = []
    room = RESULT_CHARACTERS
    for passage in map(PassageFound.of, result["passages"]):
        room -= len(passage.text)
        if room < 0 and passages:
            break
        passages.append(passage.model_copy(update={"text": passage.text[:RESULT_CHARACTERS]}))
    return SearchFound(
        search_id=job.id,
        status=job.status.value,
        passages=passages,
        left_out=len(result["passages"]) - len(passages),
        degraded=result["degraded"],
    )


def of_search(found: SearchFound, job: Job) -> str:
    """The passages by number, or what to do while there are none."""
    if job.status is JobStatus.SUCCEEDED:
        return _of_passages(found)
    if job.status.final:
        reason = (job.error or {}).get("message", f"It is {job.status}.")
        return f"The search {job.id} brought nothing. {reason}"
    return f'The search is not done yet. Call get_search with {{"search_id": "{job.id}"}} to wait for its passages.'


def _of_passages(found: SearchFound) -> str:
    if not found.passages:
        return "Nothing was found. Ask in other words, or search other collections."
    parts = [_of_passage(passage) for passage in found.passages]
    if found.left_out:
        parts.append(f"{found.left_out} more passages did not fit; ask a narrower question to see them.")
    if found.degraded:
        parts.append(f"This result is less than it could be: {', '.join(found.degraded)}.")
    return "\n\n".join(["Cite passages by their numbers, as [1].", *parts])


def _of_passage(passage: PassageFound) -> str:
    name = " › ".join(part for part in (passage.title or passage.key, passage.heading) if part)
    page = f", page {passage.page}" if passage.page is not None else ""
    url = f", {passage.url}" if passage.url else ""
    where = f"key {passage.key}, characters {passage.start} to {passage.end}{page}{url}"
    return f"[{passage.number}] {name} ({where})\n{passage.text}"


def of_document(part: DocumentPart) -> str:
    """The text, under a line that says which part of the document it is."""
    url = f", {part.url}" if part.url else ""
    more = f"; read on with start {part.next_start}" if part.next_start is not None else ""
    about = f"{part.title or part.key} (key {part.key}{url})"
    return f"{about}\nCharacters {part.start} to {part.end} of {part.characters}{more}.\n\n{part.text}"


def of_collections(found: CollectionsFound) -> str:
    """One line a collection."""
    if not found.collections:
        return "This workspace has no collections yet."
    lines = [f"- {one.name}: {one.description}" if one.description else f"- {one.name}" for one in found.collections]
    if found.left_out:
        lines.append(f"{found.left_out} more collections are not shown.")
    return "\n".join(lines)
