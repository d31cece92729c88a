"""A scripted server that looks like vLLM to `hopnode model check`: lists models, tells a version, answers from a function."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from hopnode.worker.inference.messages import Completion, Sampled
from hopnode.worker.inference.scripted import Fault, Reply, ScriptedChatServer, ServerRequest

Answer = Completion | Sampled | tuple[int, Any]
"""A status with its body where it is no completion."""


class ModelDouble(ScriptedChatServer):
    """`gets` has what is shown by path; `posts` has the paths that were asked, each with its body."""

    def __init__(
        self,
        answer: Callable[[str, Mapping[str, Any]], Answer],
        *,
        models: Any = ({"id": "context-1", "max_model_len": 32_768},),
        version: str | None = "0.32.0",
        key: str | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(self._reply, port)
        self.gets: dict[str, Any] = {"/v1/models": {"object": "list", "data": models}, "/health": {}}
        if version:
            self.gets["/version"] = {"version": version}
        self.answer, self._key = answer, key

    @property
    def posts(self) -> list[tuple[str, Mapping[str, Any]]]:
        return [(request.path, request.body) for request in self.requests if request.method == "POST"]

    def _reply(self, request: ServerRequest) -> Reply:
        if request.method == "GET":
            if self._key and request.headers.get("authorization") != f"Bearer {self._key}":
                return _json(401, {"error": "Unauthorized"})
            found = self.gets.get(request.path)
            return _json(404 if found is None else 200, found)
        answer = self.answer(request.path, request.body)
        return _json(*answer) if isinstance(answer, tuple) else answer


def _json(status: int, body: Any) -> Fault:
    return Fault(status, json.dumps(body).encode(), {"content-type": "application/json"})
