"""The error tree of the node, sorted by who must act; every code is stable and documented in `docs/errors.md`.

HopnodeError
 ├─ StopSignal          Ends an agent loop with a reason; never a failure.
 ├─ ToolError           Is shown to the model, which may try something else.
 └─ NodeError           Fails the request or the job; `retryable` says whether trying again can help:
     ├─ InvalidRequest (InvalidField) · NotFound · Conflict · Unauthorized · Forbidden · TooLarge · DocumentRejected
     ├─ TooManyRequests · QueueFull
     ├─ ModelUnavailable · ModelRefused
     ├─ VectorsUnavailable · StoreUnavailable · BrokerUnavailable
     ├─ SourceUnavailable · SyncFailed
     ├─ LeaseLost · JobCancelled · JobInterrupted · DeadlineExceeded
     └─ ConfigurationError · SecretUnreadable · DataFolderInUse
"""

from typing import ClassVar


class HopnodeError(Exception):
    """Root of all errors raised on purpose; `str(error)` is a sentence that a user can act on."""

    code: ClassVar[str] = "internal-error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details


class StopSignal(HopnodeError):
    """Ends an agent loop; `reason` goes to the result as `stop_reason`."""

    code = "stop"

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class ToolError(HopnodeError):
    """A tool call that could not be answered; the text is shown to the model."""

    code = "tool-error"


class NodeError(HopnodeError):
    """Fails the request or the job."""


class InvalidRequest(NodeError):
    """The caller sent something that can never work."""

    code, status = "invalid-request", 422


class InvalidField(InvalidRequest):
    """One field of a well-formed request breaks a rule that only the node can judge; `reason` is a stable slug."""

    def __init__(self, field: str, reason: str, message: str) -> None:
        super().__init__(message, field=field, reason=reason)
        self.field = field
        self.reason = reason


class NotFound(NodeError):
    """The named thing does not exist in this workspace."""

    code, status = "not-found", 404


class Conflict(NodeError):
    """The request contradicts the present state."""

    code, status = "conflict", 409


class IdempotencyMismatch(NodeError):
    """The idempotency key was used before with another body."""

    code, status = "idempotency-mismatch", 422


class Unauthorized(NodeError):
    """No key, or a key that is not valid."""

    code, status = "unauthorized", 401


class Forbidden(NodeError):
    """The key is valid and lacks the scope."""

    code, status = "forbidden", 403


class TooLarge(NodeError):
    """Body or document over the configured limit."""

    code, status = "too-large", 413


class TooManyRequests(NodeError):
    """The key or its workspace asked too often; `retry_after` seconds from now one more request is welcome."""

    code, status, retryable = "too-many-requests", 429, True


class QueueFull(NodeError):
    """As many jobs of the workspace wait as the node allows; `retry_after` seconds from now there may be room."""

    code, status, retryable = "queue-full", 429, True


class DocumentRejected(NodeError):
    """One document could not be parsed or stored; `reason` is a stable slug, the message is for people."""

    code, status = "document-rejected", 422

    def __init__(self, reason: str, message: str, **details: object) -> None:
        super().__init__(message, reason=reason, **details)
        self.reason = reason


class ModelUnavailable(NodeError):
    """A model endpoint did not answer, timed out or answered with a server error."""

    code, status, retryable = "model-unavailable", 502, True


class ModelRefused(NodeError):
    """A model endpoint answered that the request itself is wrong (4xx)."""

    code, status = "model-refused", 502


class VectorsUnavailable(NodeError):
    """The vector index cannot be reached; searches go on with the lexical leg and say so."""

    code, status, retryable = "vectors-unavailable", 503, True


class StoreUnavailable(NodeError):
    """The SQL database cannot be reached."""

    code, status, retryable = "store-unavailable", 503, True


class BrokerUnavailable(NodeError):
    """Redis cannot be reached; jobs wait in the table and lose only time."""

    code, status, retryable = "broker-unavailable", 503, True


class SourceUnavailable(NodeError):
    """The outside world that a source reads from does not answer, so that nothing could be listed."""

    code, status, retryable = "source-unavailable", 502, True


class SyncFailed(NodeError):
    """A sync ran and its outcome cannot be called a success; what it stored stays, and nothing was deleted."""

    code, status = "sync-failed", 502


class LeaseLost(NodeError):
    """The job belongs to another worker now; whoever holds it must stop and write nothing."""

    code = "lease-lost"


class JobCancelled(NodeError):
    """Somebody cancelled the job while it ran."""

    code, status = "cancelled", 409


class JobInterrupted(NodeError):
    """The process that runs the job was told to stop, or others need its place; the job goes back to the queue untried."""

    code = "interrupted"


class DeadlineExceeded(NodeError):
    """The job ran past its deadline."""

    code, status = "deadline-exceeded", 504


class ConfigurationError(NodeError):
    """A setting is missing or contradicts another; the message names it."""

    code = "configuration"


class SecretUnreadable(NodeError):
    """A stored secret cannot be opened: its key is not at hand, or it was changed; whatever needs it does not run."""

    code, status = "secret-unreadable", 500


class DataFolderInUse(NodeError):
    """A second process opened a data folder that has an owner."""

    code, status = "data-folder-in-use", 409
