"""What a search wants, as the API stored it; knows nothing of how it is done."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue


class SearchRequest(BaseModel):
    """What the job row holds of a search; fields that its story does not need are ignored."""

    model_config = ConfigDict(extra="ignore")

    query: str
    collections: list[str]
    mode: Literal["auto", "one_shot", "agent"] = "auto"
    effort: Literal["low", "medium", "high"] = "low"
    profile: Literal["auto", "generic", "context-1", "context-1-chat", "offline"] = "auto"
    top_k: int = 10
    filter: dict[str, JsonValue] | None = None
    min_score: float = 0.0
    neighbours: int = 0
    max_turns: int | None = None
    deadline_seconds: float | None = None
    answer: bool = False
