"""The policy that lets a language model decide, through a profile that knows how to talk to it. Knows no rules."""

from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.context import ContextView, Measure
from hopnode.worker.inference.abort import Abort


class ModelReply(Protocol):
    """What every reply of a model tells, in whatever form it came; token counts are 0 where nothing is reported."""

    @property
    def finish_reason(self) -> str: ...  # noqa: D102
    @property
    def prompt_tokens(self) -> int: ...  # noqa: D102
    @property
    def completion_tokens(self) -> int: ...  # noqa: D102


Request = TypeVar("Request")
Reply = TypeVar("Reply", bound=ModelReply)
Made = TypeVar("Made", covariant=True)
Read = TypeVar("Read", contravariant=True)
Sent = TypeVar("Sent", contravariant=True)
Got = TypeVar("Got", bound=ModelReply, covariant=True)


class Profile(Protocol[Made, Read]):
    """A wire format: how a view becomes a request, and how a reply becomes an action. Rules stay outside.

    `measure` counts a turn exactly as it is sent; None where that is for the endpoint to know.
    """

    rules: Rules
    measure: Measure | None

    def opening_tokens(self, question: str) -> int:
        """Tokens of instructions, tool table and question."""
        ...

    def request(self, view: ContextView, draw: int = 0) -> Made:
        """The request that shows this view; `draw` counts how often the same view was asked before."""
        ...

    def action(self, reply: Read, /) -> Action:
        """What the model decided."""
        ...


class Endpoint(Protocol[Sent, Got]):
    """Where requests of a profile are sent."""

    def complete(self, request: Sent, abort: Abort | None = None) -> Got:
        """The reply; ModelUnavailable or ModelRefused when there is none."""
        ...


class ModelPolicy(Generic[Request, Reply]):
    """Asks a model; one object serves one run."""

    def __init__(self, model: Endpoint[Request, Reply], profile: Profile[Request, Reply]) -> None:
        self.rules, self.measure = profile.rules, profile.measure
        self._model, self._profile = model, profile
        self._abort = Abort()

    def opening_tokens(self, question: str) -> int:
        """Tokens of instructions, tool table and question."""
        return self._profile.opening_tokens(question)

    def next_action(self, view: ContextView) -> Action:
        """One action, for which a malformed reply is drawn again as often as the rules allow. Where the endpoint reports no
        token counts, the prompt counts as our own estimate of it."""
        prompt_tokens = completion_tokens = 0
        draw = 0
        while True:
            reply = self._model.complete(self._profile.request(view, draw), abort=self._abort)
            action = self._profile.action(reply)
            prompt_tokens += reply.prompt_tokens or view.used
            completion_tokens += reply.completion_tokens
            if not action.malformed or draw >= self.rules.redraws:
                return replace(
                    action,
                    finish_reason=reply.finish_reason,
                    prompt_tokens=prompt_tokens,
                    completion_tokens=completion_tokens,
                    measured=reply.prompt_tokens > 0,
                    redraws=draw,
                )
            draw += 1

    def stop(self) -> None:
        """Breaks off the model call that is in flight; this object asks nothing any more."""
        self._abort.set()
