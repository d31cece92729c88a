"""Dify's client of the External Knowledge API, as it behaves: 5 s timeouts, three more tries, and what it makes of an answer."""

import time
from dataclasses import dataclass
from typing import Any

import httpx

TIMEOUT = httpx.Timeout(5, connect=5)
RETRIED = {429, 500, 502, 503, 504}
PAUSES = (0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Asked:
    """What came of one retrieval: `answer` is None where Dify gave up, `tries` the requests that it took."""

    answer: httpx.Response | None
    tries: int
    seconds: float

    @property
    def records(self) -> list[dict[str, Any]]:
        """As Dify reads them: any other status, or a record without an object of metadata, costs the whole result."""
        if self.answer is None or self.answer.status_code != 200:
            return []
        records = self.answer.json()["records"]
        return records if all(isinstance(one.get("metadata"), dict) for one in records) else []


class DifyClient:
    """One external knowledge base of a Dify: endpoint and key as its user typed them."""

    def __init__(self, endpoint: str, key: str) -> None:
        self._url = f"{endpoint}/retrieval"
        self._headers = {"Authorization": f"Bearer {key}"}

    def register(self) -> bool:
        """Whether Dify would save this knowledge API: it sends an empty body, and minds a few statuses only."""
        try:
            answer = httpx.post(self._url, headers=self._headers, timeout=TIMEOUT, trust_env=False)
        except httpx.HTTPError:
            return False
        return answer.status_code not in {403, 404, 502} | RETRIED

    def retrieve(
        self,
        query: str,
        knowledge_id: str,
        *,
        top_k: int | None = 4,
        score_threshold: float = 0.0,
        metadata_condition: dict[str, Any] | None = None,
    ) -> Asked:
        """One run of a Knowledge Retrieval node."""
        body = {
            "retrieval_setting": {"top_k": top_k, "score_threshold": score_threshold},
            "query": query,
            "knowledge_id": knowledge_id,
            "metadata_condition": metadata_condition,
        }
        started = time.monotonic()
        for tries, pause in enumerate((*PAUSES, None), 1):
            try:
                answer = httpx.post(self._url, json=body, headers=self._headers, timeout=TIMEOUT, trust_env=False)
                if answer.status_code not in RETRIED:
                    return Asked(answer, tries, time.monotonic() - started)
            except httpx.TimeoutException:
                pass
            if pause is not None:
                time.sleep(pause)
        return Asked(None, len(PAUSES) + 1, time.monotonic() - started)
