"""Everything that the client raises, as one tree, each error with what is wrong and how to mend it.

    HopnodeError
    ├── Misuse                   The call itself cannot work; nothing was sent.
    ├── NoAnswer                 There is no connection, or it broke, or the node was silent for too long.
    ├── UnexpectedAnswer         Something answered that does not speak like a Hopnode node.
    ├── ProblemError             The node refused the request, and says why:
    │   ├── InvalidRequest  Unauthorized  Forbidden  NotFound  Conflict  IdempotencyMismatch
    │   └── TooLarge  DocumentRejected  SourceCheckFailed  Unavailable  NodeFailed
    ├── JobFailed                A search, sync or evaluation ended without success.
    │   └── JobCancelled
    ├── WaitTimedOut             It did not end within the time that the caller gave it.
    └── WebhookRejected          The body does not come from the node, or is too old.

Knows the problem codes of docs/errors.md, and nothing of HTTP beyond a status.
"""

from collections.abc import Mapping
from typing import ClassVar, TypeVar

from pydantic import ValidationError

from hopnode_client.records import FieldError, Job, Problem

J = TypeVar("J", bound=Job)


class HopnodeError(Exception):
    """Whatever goes wrong. `detail` says what, `remedy` what to do about it; `str()` has both."""

    default_remedy: ClassVar[str] = ""

    def __init__(self, detail: str, remedy: str | None = None) -> None:
        self.detail = detail
        self.remedy = self.default_remedy if remedy is None else remedy
        super().__init__(" ".join(filter(None, (detail, self.remedy))))


class Misuse(HopnodeError, ValueError):
    """The call cannot work as it was made; nothing was sent."""


class NoAnswer(HopnodeError):
    """The node cannot be reached, closed the connection, or was silent for too long."""

    default_remedy = "Is the node running, and is this its address? `hopnode doctor` on its machine tells more."


class UnexpectedAnswer(HopnodeError):
    """An answer that no Hopnode node gives, such as the page of a proxy; `status` is its HTTP status."""

    default_remedy = "Is this the address of a Hopnode node, and does the proxy before it pass requests on?"

    def __init__(self, detail: str, status: int, remedy: str | None = None) -> None:
        super().__init__(detail, remedy)
        self.status = status


class ProblemError(HopnodeError):
    """The node refused a request with a problem document (RFC 9457).

    `type` and its last part `code` are stable words to compare; `status` is that of HTTP; `request_id` finds the line
    in the node's log.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.type, self.code, self.status = problem.type, problem.code, problem.status
        self.title, self.request_id = problem.title, problem.request_id


class InvalidRequest(ProblemError):
    """A field, parameter or header breaks a rule; `errors` names each of them."""

    default_remedy = "Correct the request."

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """What is wrong, by field."""
        return self.problem.errors


class Unauthorized(ProblemError):
    """No key, or one that is wrong, revoked or past its end."""

    default_remedy = "Give a living key (`hn_…`); `hopnode keys create` on the node's machine makes one."


class Forbidden(ProblemError):
    """The key lacks a scope."""

    default_remedy = "Use a key with this scope, or make one."


class NotFound(ProblemError):
    """There is no such thing in the workspace of the key."""

    default_remedy = "Check the name or id, and that the key belongs to the right workspace (`whoami()`)."


class Conflict(ProblemError):
    """The request contradicts the present state: a name is taken, a job has ended already, a sync is running."""

    default_remedy = "Look at the present state first."


class IdempotencyMismatch(ProblemError):
    """The idempotency key was used with another request."""

    default_remedy = "Use a new key for a new request."


class TooLarge(ProblemError):
    """The body is larger than the node takes."""

    default_remedy = (
        "Send less at once, or let the operator raise HOPNODE_MAX_BODY_BYTES or HOPNODE_MAX_DOCUMENT_BYTES."
    )


class DocumentRejected(ProblemError):
    """The document cannot be parsed or stored; `reason` is a stable word for why."""

    default_remedy = "What was stored under this key before is still there."

    @property
    def reason(self) -> str | None:
        """For example `encrypted`, `needs-ocr` or `unsupported-type`."""
        return self.problem.reason


class SourceCheckFailed(ProblemError):
    """A look at the source says that a sync of it would not work."""

    default_remedy = "Correct the source's `config`."


class Unavailable(ProblemError):
    """The node cannot do this now; the client has tried again already where that was safe."""

    default_remedy = "Try again in a while; the node's `/readyz` shows what it waits for."


class NodeFailed(ProblemError):
    """Something broke inside the node."""

    default_remedy = "The node's log has the details under the request id."


class JobFailed(HopnodeError):
    """A search, sync or evaluation ended without success. `job` is its last state, `code` a stable word for why."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.code = job.error.code if job.error else job.status
        what = type(job).__name__
        said = job.error.message if job.error else f"It {job.status}."
        super().__init__(f"{what} {job.id} {job.status}: {said}", _JOB_REMEDIES.get(self.code, ""))


class JobCancelled(JobFailed):
    """Somebody cancelled it."""


class WaitTimedOut(HopnodeError, TimeoutError):
    """A job did not end within the time that the caller gave it. `job` is its last known state."""

    def __init__(self, job: Job, seconds: float, remedy: str) -> None:
        self.job = job
        super().__init__(f"{type(job).__name__} {job.id} did not end within {seconds:g} s.", remedy)


class WebhookRejected(HopnodeError):
    """A webhook that must not be trusted: answer it with status 400 and do nothing else."""


_JOB_REMEDIES: Mapping[str, str] = {
    "deadline-exceeded": "Give it more time (`deadline_seconds`), or the node more workers.",
    "worker-lost": "Its workers died on every attempt: look at their logs and memory.",
    "model-unavailable": "The model endpoint of the node does not answer; `profile='offline'` needs none.",
    "model-refused": "The operator should check HOPNODE_CHAT_URL, HOPNODE_CHAT_MODEL and the key of the endpoint.",
    "source-unavailable": "The site that the source reads did not answer; sync again later.",
    "not-found": "A collection or source that it needs was deleted meanwhile.",
    "internal-error": "The node's log has the details under the id of the job.",
}

_BY_CODE: Mapping[str, type[ProblemError]] = {
    "invalid-request": InvalidRequest,
    "method-not-allowed": InvalidRequest,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "not-found": NotFound,
    "conflict": Conflict,
    "data-folder-in-use": Conflict,
    "idempotency-mismatch": IdempotencyMismatch,
    "too-large": TooLarge,
    "document-rejected": DocumentRejected,
    "source-check-failed": SourceCheckFailed,
    "configuration": NodeFailed,
    "internal-error": NodeFailed,
}
_BY_STATUS: Mapping[int, type[ProblemError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: InvalidRequest,
    429: Unavailable,
    503: Unavailable,
}


def error_of(status: int, body: bytes, media_type: str) -> HopnodeError:
    """The error that an answer with this status means; a code that is not known yet goes by its status."""
    if media_type == "application/problem+json":
        try:
            problem = Problem.model_validate_json(body)
        except ValidationError:
            return UnexpectedAnswer(f"The node answered {status} with a problem document that cannot be read.", status)
        return _class_of(problem)(problem)
    return UnexpectedAnswer(f"The answer has status {status} and is {media_type or 'of no type'}, not JSON.", status)


def _class_of(problem: Problem) -> type[ProblemError]:
    if found := _BY_CODE.get(problem.code):
        return found
    return _BY_STATUS.get(problem.status, NodeFailed if problem.status >= 500 else ProblemError)


def succeeded(job: J) -> J:
    """A job that has ended, when it is a success. Raises JobFailed."""
    if job.status == "succeeded":
        return job
    raise JobCancelled(job) if job.status == "cancelled" else JobFailed(job)
