"""The answer of a search: asks the reasoning model, watches job and clock meanwhile, and says what came of it.

Whatever goes wrong here is a named degradation: the passages of the search are never lost with its answer.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue

from hopnode.worker.corpus.records import Chunk
from hopnode.worker.errors import DeadlineExceeded, HopnodeError, ModelRefused, ModelUnavailable
from hopnode.worker.harness.answer import NOT_FOUND, answer_request, fitting_passages, read_answer
from hopnode.worker.inference.abort import Abort
from hopnode.worker.inference.messages import ChatRequest, Completion
from hopnode.worker.logs import get_logger
from hopnode.worker.searches.live_search import LiveSearch
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.tokens import count_tokens

POLL_SECONDS = 0.1
SHARE = 0.25
"""Of a search's time, kept back for its answer; never more than a model call may take."""

UNAVAILABLE, REFUSED, TOO_LATE = "answer-unavailable", "answer-refused", "answer-too-late"
EMPTY, CUT_OFF, UNCITED = "answer-empty", "answer-cut-off", "answer-uncited"
LEFT_OUT, OUTDATED = "answer-passages-left-out", "answer-outdated"

_log = get_logger(__name__)


@dataclass(frozen=True)
class Answered:
    """What the result says of the answer: None for the answer itself where there is none, and then `degraded` tells why.
    `usage` has tokens and seconds."""

    answer: JsonValue
    degraded: tuple[str, ...] = ()
    usage: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])

    def outdated(self) -> "Answered":
        """The same without the answer: a passage that it may rest on was deleted while it was written."""
        return Answered(None, (*self.degraded, OUTDATED), self.usage)


class _TooLate(HopnodeError):
    """The time of the search is over."""


def kept_back(settings: WorkerSettings, seconds: float) -> float:
    """Seconds of a search's time that belong to its answer."""
    return min(SHARE * seconds, settings.answer_timeout_seconds)


def write_answer(search: LiveSearch, passages: Sequence[Chunk]) -> Answered:
    """The answer from these passages, best first, within the time of the search. Raises only what `search.check` does.

    Without passages nobody is asked: nothing can be found in them.
    """
    settings = search.runtime.settings
    given = fitting_passages(passages, settings.answer_passage_tokens)
    request = answer_request(search.request.query, given, settings.answer_tokens)
    completion, error = None, None
    started = time.monotonic()
    try:
        if given:
            completion = _ask(search, request)
    except (ModelUnavailable, ModelRefused, _TooLate) as caught:
        error = caught
        _log.warning("answer_failed", code=error.code, error=str(error))
    reply = _Reply(settings.answer_model or "", given, completion, error, len(given) < len(passages))
    usage = _usage(request, completion, time.monotonic() - started)
    search.step("answer", reply.step() | usage)
    return Answered(reply.answer(), reply.degraded, usage)


def _ask(search: LiveSearch, request: ChatRequest) -> Completion:
    model = search.runtime.answers
    if model is None:
        raise ModelRefused(
            "This worker has no answer endpoint: set HOPNODE_ANSWER_MODEL for all processes of the node."
        )
    abort, pool = Abort(), ThreadPoolExecutor(1, thread_name_prefix="answer")
    call = pool.submit(copy_context().run, model.complete, request, abort)
    try:
        while not wait([call], timeout=POLL_SECONDS).done:
            search.check()
            if search.seconds >= search.whole_seconds:
                raise _TooLate("The time of the search was over before the answer was there.")
        search.check()
        return _result(call)
    except DeadlineExceeded as error:
        raise _TooLate("The deadline of the search passed before the answer was there.") from error
    finally:
        abort.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _result(call: Future[Completion]) -> Completion:
    try:
        return call.result()
    except HopnodeError:
        raise
    except Exception as error:  # boundary "answer": a defect in the call must not lose the passages
        _log.exception("answer_crashed")
        raise ModelUnavailable("The answer endpoint could not be asked; the node's log has the details.") from error


class _Reply:
    """What came of asking for an answer, and how result and trajectory tell it."""

    def __init__(
        self,
        model: str,
        given: Sequence[Chunk],
        completion: Completion | None,
        error: HopnodeError | None,
        left_out: bool,
    ) -> None:
        self._model, self._given, self._completion, self._error = model, given, completion, error
        self._written = read_answer(completion.message.content if completion else NOT_FOUND, given)
        self.degraded = (*((LEFT_OUT,) if left_out else ()), *self._shortcomings())

    def _shortcomings(self) -> Iterator[str]:
        if self._error is not None:
            late, refused = isinstance(self._error, _TooLate), isinstance(self._error, ModelRefused)
            yield TOO_LATE if late else REFUSED if refused else UNAVAILABLE
        if self._completion is not None and self._completion.finish_reason == "length":
            yield CUT_OFF
        if self._written.found and not self._written.text:
            yield EMPTY
        elif self._written.found and not self._written.cited:
            yield UNCITED

    def answer(self) -> JsonValue:
        """The answer as the result has it. Returns None where there is none."""
        if self._error is not None or EMPTY in self.degraded:
            return None
        return {
            "text": self._written.text,
            "found": self._written.found,
            "citations": [_citation(number, self._given[number - 1]) for number in self._written.cited],
            "unknown_citations": self._written.unknown,
            "passages": len(self._given),
            "model": self._model,
        }

    def step(self) -> dict[str, JsonValue]:
        """The data of the step: the reply as it came, and what was made of it."""
        message = self._completion.message if self._completion else None
        return {
            "model": self._model,
            "passages": [chunk.id for chunk in self._given],
            "reasoning": (message.reasoning or "") if message else "",
            "reply": message.content if message else "",
            "finish_reason": self._completion.finish_reason if self._completion else "",
            "found": self._written.found,
            "cited": [self._given[number - 1].id for number in self._written.cited],
            "unknown_citations": self._written.unknown,
            "degraded": list(self.degraded),
            "error": {"code": self._error.code, "message": str(self._error)} if self._error else None,
        }


def _citation(number: int, chunk: Chunk) -> JsonValue:
    names = ("document_id", "key", "title", "heading", "url", "start", "end", "page")
    about = {name: cast(JsonValue, getattr(chunk, name)) for name in names}
    return {"number": number, "chunk_id": chunk.id, **about}


def _usage(request: ChatRequest, completion: Completion | None, seconds: float) -> dict[str, JsonValue]:
    """What the answer took. Where the endpoint reports no tokens, those of the texts are counted."""
    prompt = reply = 0
    if completion is not None:
        message = completion.message
        prompt = completion.prompt_tokens or sum(count_tokens(one.content) for one in request.messages)
        reply = completion.completion_tokens or count_tokens(message.content) + count_tokens(message.reasoning or "")
    return {
        "answer_prompt_tokens": prompt,
        "answer_completion_tokens": reply,
        "answer_tokens_measured": completion is not None and completion.prompt_tokens > 0,
        "answer_seconds": round(seconds, 6),
    }
