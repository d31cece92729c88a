"""Evaluations: questions with known answers, asked to a collection by the node."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Unpack

from hopnode_client.asynchronous.transport import AsyncTransport
from hopnode_client.options import EvaluationOptions, Question
from hopnode_client.records import Evaluation
from hopnode_client.requests import Request, idempotency, path_of, poll


class AsyncEvaluations:
    """Measurements of what searches in a collection bring back."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def start(
        self,
        collection: str,
        questions: Sequence[Question],
        *,
        idempotency_key: str | None = None,
        **options: Unpack[EvaluationOptions],
    ) -> Evaluation:
        """Starts an evaluation and returns at once. The same `idempotency_key` and request give the same one again."""
        body = {"collection": collection, "questions": questions, **options}
        request = Request("POST", "/v1/evaluations", json=body, headers=idempotency(idempotency_key))
        return await self._transport.fetch(Evaluation, request)

    async def get(self, evaluation_id: str) -> Evaluation:
        """The state of an evaluation, and its report once it succeeded."""
        return await self._transport.fetch(Evaluation, Request("GET", path_of("evaluations", evaluation_id)))

    def list(self, *, page_size: int = 50) -> AsyncIterator[Evaluation]:
        """The evaluations of the workspace without their reports, newest first."""
        return self._transport.items(Evaluation, Request("GET", "/v1/evaluations", {"limit": page_size}))

    async def wait_for(self, evaluation_id: str, *, timeout: float = 3600.0) -> Evaluation:
        """The evaluation once it has succeeded. It is not cancelled when the wait ends without a result.

        Raises JobFailed, and WaitTimedOut when it goes on for longer than `timeout` seconds.
        """
        ask = partial(poll, path_of("evaluations", evaluation_id))
        return await self._transport.success(await self.get(evaluation_id), ask, timeout)

    async def cancel(self, evaluation_id: str) -> Evaluation:
        """Ends an evaluation at once; there is no report of a part. Raises Conflict when it has ended already."""
        path = path_of("evaluations", evaluation_id, "/cancel")
        return await self._transport.fetch(Evaluation, Request("POST", path, repeatable=False))
