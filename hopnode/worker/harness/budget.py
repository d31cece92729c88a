"""The arithmetic of a run: how many tokens a context may hold, and how long a run may go on. Knows no text of documents.

Numbers and their sources: `docs/harness.md`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hopnode.worker.errors import StopSignal
from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.wording import Wording


class LimitReached(StopSignal):
    """A limit ends the search, and there is still room to ask the policy once for its final list."""


class CutShort(StopSignal):
    """The run ends at once: the policy cannot be asked any more."""


@dataclass(frozen=True)
class Rules:
    """The token rules of one context; the defaults are those of the generic profile.

    `usage_shown` is the number after the slash in the usage line: the soft threshold or the whole window.
    `missing_rank` is what a fused search counts where a leg did not find a chunk (None: nothing).
    `collapse_blank_lines` closes the gaps that pruning leaves in a result. `redraws` is how often a malformed reply is
    drawn again before it counts. `carrier` names the tool, if any, in which a model wraps calls made side by side.
    """

    window: int = 32_768
    result_tokens: int = 4_096
    result_tokens_floor: int = 512
    result_chunks: int = 10
    grep_chunks: int = 5
    candidates: int = 50
    document_chunks: int = 300
    reply_tokens: int = 4_096
    reply_tokens_floor: int = 256
    closing_reserve: int = 1_024
    final_documents: int = 30
    missing_rank: int | None = None
    usage_shown: str = "soft"
    thousands: bool = False
    soft_message: bool = True
    prune_documents: bool = True
    titles: bool = True
    collapse_blank_lines: bool = False
    redraws: int = 0
    carrier: str = ""
    wording: Wording = field(default_factory=Wording)

    @property
    def soft(self) -> int:
        """From here on the policy is told to prune or to conclude: half the window."""
        return self.window // 2

    @property
    def hard(self) -> int:
        """Above this only pruning works: half way between the soft threshold and the window."""
        return self.soft + (self.window - self.soft) // 2

    def over_soft(self, used: int) -> bool:
        """Whether the policy must be told that it is over the budget."""
        return used > self.soft

    def rejects(self, used: int) -> bool:
        """Whether every tool but pruning is refused."""
        return used > self.hard

    def result_allowance(self, used: int) -> int:
        """Tokens that the next search or read result may take; halves what is left when little is left."""
        left = self.window - used
        return self.result_tokens if left >= self.result_tokens else max(self.result_tokens_floor, left // 2)

    def reply_cap(self, used: int, prompt: int) -> int:
        """Tokens that the model may generate; `prompt` is `used` plus what is only shown once."""
        left = min(self.window - used, self.window - prompt - 100, self.reply_tokens)
        return max(self.reply_tokens_floor, left)

    def no_room(self, used: int) -> bool:
        """Whether the context is so full that only a final list still fits."""
        return self.window - used < self.closing_reserve

    def say(self, template: str, used: int) -> str:
        """Fills a wording with `used`, with the number that is displayed beside it, and with the hard cutoff."""
        shown = self.soft if self.usage_shown == "soft" else self.window
        form = "{:,}" if self.thousands else "{}"
        return template.format(used=form.format(used), shown=form.format(shown), limit=form.format(self.hard))


@dataclass(frozen=True)
class Limits:
    """How long a run may go on. `tokens` is the sum of prompt and completion tokens over all turns; seconds are
    wall-clock. `strikes` is how many fruitless turns in a row end the run."""

    turns: int = 32
    tool_calls: int = 128
    tokens: int = 1_000_000
    seconds: float = 300.0
    strikes: int = 3

    @property
    def closing_seconds(self) -> float:
        """Time kept back for the final list: a fifth of the whole, at most 30 s."""
        return min(30.0, self.seconds / 5)


class Meter:
    """Counts one run against its limits."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._started = clock()
        self._strikes = 0
        self.turns = 0
        self.tool_calls = 0
        self.parallel_calls = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.model_seconds = 0.0
        self.tool_seconds = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._started

    @property
    def out_of_time(self) -> bool:
        """Whether the wall-clock limit has passed, the reserve for the final list included."""
        return self.elapsed >= self._limits.seconds

    @property
    def calls_left(self) -> int:
        """Tool calls that may still be made."""
        return self._limits.tool_calls - self.tool_calls

    def admit(self) -> None:
        """Raises LimitReached when no further ordinary turn may begin."""
        limits = self._limits
        if self.turns >= limits.turns:
            raise LimitReached("turn-limit")
        if self.tool_calls >= limits.tool_calls:
            raise LimitReached("tool-call-limit")
        if self.prompt_tokens + self.completion_tokens >= limits.tokens:
            raise LimitReached("token-limit")
        if self.elapsed >= limits.seconds - limits.closing_seconds:
            raise LimitReached("time-limit")

    def asked(self, action: Action, seconds: float) -> None:
        """Books one answer of the policy."""
        self.turns += 1
        self.prompt_tokens += action.prompt_tokens
        self.completion_tokens += action.completion_tokens
        self.model_seconds += seconds

    def acted(self, calls: int, seconds: float, fruitful: bool) -> None:
        """Books the tool calls of one turn; raises LimitReached after too many fruitless turns in a row."""
        self.tool_calls += calls
        self.parallel_calls += calls if calls > 1 else 0
        self.tool_seconds += seconds
        self.strike(fruitful, "stalled", self._limits.strikes)

    def strike(self, fruitful: bool, reason: str, allowed: int) -> None:
        """Counts fruitless turns in a row; raises LimitReached(reason) when `allowed` is reached."""
        self._strikes = 0 if fruitful else self._strikes + 1
        if self._strikes >= allowed:
            raise LimitReached(reason)
