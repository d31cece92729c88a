"""The Python client of Hopnode: `Hopnode` for threads, `AsyncHopnode` for asyncio, `verify_webhook` for receivers.

Knows the HTTP contract of a node (docs/http-api.md) and nothing of how a node is made.
"""

from hopnode_client.asynchronous.client import AsyncHopnode
from hopnode_client.errors import (
    Conflict,
    DocumentRejected,
    Forbidden,
    HopnodeError,
    IdempotencyMismatch,
    InvalidRequest,
    JobCancelled,
    JobFailed,
    Misuse,
    NoAnswer,
    NodeFailed,
    NotFound,
    ProblemError,
    SourceCheckFailed,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    WaitTimedOut,
    WebhookRejected,
)
from hopnode_client.options import NewDocument, Question, SearchOptions
from hopnode_client.records import Collection, Document, Evaluation, Outcome, Source, Sync, Whoami
from hopnode_client.results import Answer, Citation, Passage, Search, SearchResult, Step, Trajectory
from hopnode_client.synchronous.client import Hopnode
from hopnode_client.webhooks import WebhookData, WebhookEvent, verify_webhook

__all__ = [
    "Answer",
    "AsyncHopnode",
    "Citation",
    "Collection",
    "Conflict",
    "Document",
    "DocumentRejected",
    "Evaluation",
    "Forbidden",
    "Hopnode",
    "HopnodeError",
    "IdempotencyMismatch",
    "InvalidRequest",
    "JobCancelled",
    "JobFailed",
    "Misuse",
    "NewDocument",
    "NoAnswer",
    "NodeFailed",
    "NotFound",
    "Outcome",
    "Passage",
    "ProblemError",
    "Question",
    "Search",
    "SearchOptions",
    "SearchResult",
    "Source",
    "SourceCheckFailed",
    "Step",
    "Sync",
    "TooLarge",
    "Trajectory",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "WaitTimedOut",
    "WebhookData",
    "WebhookEvent",
    "WebhookRejected",
    "Whoami",
    "verify_webhook",
]
