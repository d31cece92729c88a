"""What the JSON of every kind of job shares: its status, why it failed, and how a search is asked for."""

from typing import Literal

from pydantic import ConfigDict, Field

from hopnode.node_service.schemas.base import Outgoing

QUERY_CHARACTERS = 4000
Status = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Profile = Literal["auto", "generic", "context-1", "context-1-chat", "offline"]


class ErrorRead(Outgoing):
    """Why a job failed or was cancelled."""

    model_config = ConfigDict(extra="allow")

    code: str = Field(description="A stable word, see docs/errors.md.", examples=["model-unavailable"])
    message: str
