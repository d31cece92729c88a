"""One attempt of a delivery: its body, its headers, and what the answer means. Claims and schedules are not known here."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from pydantic import JsonValue

from hopnode.connectors.errors import ConnectorError
from hopnode.connectors.http import post
from hopnode.worker.errors import NodeError
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.jobs import Job, get_job
from hopnode.worker.store.secrets.vault import Owner, Vault
from hopnode.worker.store.webhooks import subscriptions
from hopnode.worker.store.webhooks.outbox import Attempt, Claim, Outcome
from hopnode.worker.webhooks import signing
from hopnode.worker.webhooks.retries import Verdict, judge_answer, try_again

TIMEOUT_SECONDS = 15.0
ANSWER_BYTES = 65_536
RESULT_BYTES = 256 * 1024
"""A result that is larger does not travel with the event: the receiver fetches it by the link."""

_PATHS = {"search": "searches", "sync": "syncs", "evaluation": "evaluations"}


@dataclass(frozen=True)
class Sender:
    """Makes attempts, one at a time for each caller; safe to share between threads."""

    db: Database
    vault: Vault
    client: httpx.Client
    timeout_seconds: float = TIMEOUT_SECONDS

    def send(self, claim: Claim) -> tuple[Attempt, Verdict]:
        """Sends one delivery once, and says how it went; only a broken database raises."""
        started_at, clock = time.time(), time.monotonic()
        try:
            status, verdict = self._try(claim, started_at)
        except ConnectorError as error:
            status, verdict = None, _refusal(error, claim.round_number)
        except NodeError as error:  # its secret cannot be opened, or its job is gone
            status, verdict = None, try_again(str(error), claim.round_number)
        return Attempt(claim.number, started_at, time.monotonic() - clock, status, verdict.error), verdict

    def _try(self, claim: Claim, now: float) -> tuple[int, Verdict]:
        delivery = claim.delivery
        job = get_job(self.db, delivery.workspace_id, delivery.job_id)
        body = body_of(delivery.payload, job)
        headers = {} if delivery.webhook_id else self._callback_headers(job)
        headers |= {
            "content-type": "application/json",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(int(now)),
            "webhook-signature": signing.signature(self._secrets(claim), delivery.id, int(now), body),
        }
        reply = post(self.client, delivery.url, body, headers, seconds=self.timeout_seconds, most_bytes=ANSWER_BYTES)
        verdict = judge_answer(reply.status, reply.body, reply.headers.get("retry-after"), claim.round_number, now)
        return reply.status, verdict

    def _secrets(self, claim: Claim) -> list[str]:
        """Those of the webhook; for a callback, those of the webhook with the same URL, else of the workspace's callbacks."""
        delivery = claim.delivery
        if delivery.webhook_id is not None:
            held = self.vault.open(Owner(delivery.workspace_id, "webhook", delivery.webhook_id))
        elif webhook := subscriptions.find_by_url(self.db, delivery.workspace_id, delivery.url):
            held = self.vault.open(subscriptions.owner_of(webhook))
        else:
            held = subscriptions.callback_secrets(self.db, self.vault, delivery.workspace_id, signing.new_secret())
        return [held[name] for name in (subscriptions.CURRENT, subscriptions.PREVIOUS) if name in held]

    def _callback_headers(self, job: Job) -> dict[str, str]:
        return {name.lower(): value for name, value in self.vault.open(Owner(job.workspace_id, "job", job.id)).items()}


def body_of(payload: Mapping[str, JsonValue], job: Job) -> bytes:
    """The JSON of an event: `type`, `timestamp` and `data`, with links to the job and, if it is not too large, its result."""
    data = payload["data"]
    assert isinstance(data, dict)
    told: dict[str, JsonValue] = {**data, "links": _links(job), "error": dict(job.error) if job.error else None}
    if job.kind == "search":
        small = len(json.dumps(job.result)) <= RESULT_BYTES
        told |= {"result": job.result if small else None, "result_omitted": not small}
    return json.dumps({**payload, "data": told}, ensure_ascii=False, separators=(",", ":")).encode()


def _links(job: Job) -> dict[str, JsonValue]:
    path = f"/v1/{_PATHS.get(job.kind, 'jobs')}/{job.id}"
    return {"self": path, "trajectory": f"{path}/trajectory"} if job.kind == "search" else {"self": path}


def _refusal(error: ConnectorError, tried: int) -> Verdict:
    return try_again(str(error), tried) if error.retryable else Verdict(Outcome.DEAD, error=str(error))
