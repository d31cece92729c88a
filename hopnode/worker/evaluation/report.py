"""What an evaluation found, as it is written to a JSON file and read back; every figure is a fraction of 1.

`docs/evaluation.md` explains the fields. Knows no search: `scoring.py` fills it in.
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hopnode.worker.errors import InvalidRequest


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Figures(_Part):
    """Means over the questions; `recall` and `all` by the rank at which they are measured."""

    recall: dict[str, float]
    all: dict[str, float]
    mrr: float
    ndcg10: float


class Intervals(_Part):
    """95 % bootstrap intervals of the figures of the same name."""

    recall: dict[str, tuple[float, float]]
    all: dict[str, tuple[float, float]]
    mrr: tuple[float, float]
    ndcg10: tuple[float, float]


class Hop(_Part):
    """How often the document of this hop was among the first 2, 5, …, over the questions that have such a hop."""

    hop: int
    questions: int
    recall: dict[str, float]


class Spans(_Part):
    """Evidence found within a budget of tokens: the share of its characters, the share of questions with all of it, and
    the tokens used. `interval` is that of `recall`."""

    recall: float
    whole: float
    tokens: float
    interval: tuple[float, float]


class SpanFigures(_Part):
    """The passages returned, beside one-shot search over fixed pieces of the same documents."""

    budget_tokens: int
    questions: int
    lost: int = Field(description="Spans that could not be placed in the stored text.")
    found: Spans
    fixed_tokens: int
    fixed: Spans
    difference: float
    difference_interval: tuple[float, float]


class Latency(_Part):
    """Milliseconds from request to result of one search at a time, without the first one."""

    p50: float
    p95: float


class Ingest(_Part):
    """Filling the collection; `failed` counts refused documents by reason."""

    seconds: float
    failed: dict[str, int] = {}


class QuestionRecord(_Part):
    """One question: the rank of each gold document (null: not returned), and how it was searched."""

    id: str
    ranks: dict[str, int | None]
    gains: dict[str, int] | None = Field(default=None, description="Only where the set grades its gold.")
    ms: float = 0.0
    mode: str = ""
    error: str | None = None

    def graded(self) -> Mapping[str, int]:
        """The gain of every gold document."""
        return self.gains or dict.fromkeys(self.ranks, 1)


class Report(Figures):
    """One data set, searched in one way."""

    dataset: str
    questions: int
    documents: int
    mode: str
    profile: str
    titles: bool
    top_k: int
    seed: int
    embedder: str
    intervals: Intervals
    latency_ms: Latency
    legs: dict[str, Figures] = {}
    hops: list[Hop] = []
    spans: SpanFigures | None = None
    cost: dict[str, float] = {}
    modes: dict[str, int] = Field(default={}, description="In which mode the searches ran; `auto` decides for each.")
    degraded: dict[str, int] = {}
    failed: dict[str, int] = Field(default={}, description="Searches that failed, by code; they found nothing.")
    ingest: Ingest | None = None
    unknown_gold: int = 0
    created_at: float = 0.0
    versions: dict[str, str] = {}
    per_question: list[QuestionRecord] = []

    def write(self, path: Path) -> None:
        """Writes the report. Raises `InvalidRequest` when it cannot be written there."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from error

    @classmethod
    def read(cls, path: Path) -> "Report":
        """The report in a file; `InvalidRequest` says why it is none."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the file"
            raise InvalidRequest(f"{path} is no report of `hopnode eval`: {field}: {first['msg']}.") from error
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"{path} is no report of `hopnode eval`: it is not UTF-8.") from error
