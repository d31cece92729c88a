"""The policy that lets a language model decide, through a profile that knows how to talk to it. Knows no rules."""

from dataclasses import replace
from typing import Protocol

from worker.harness.actions import Action
from worker.harness.budget import Rules
from worker.harness.context import ContextView
from worker.inference.abort import Abort
from worker.inference.chat import ChatModel
from worker.inference.messages import ChatRequest, Completion


class Profile(Protocol):
    """A wire format: how a view becomes a request, and how an answer becomes an action. Rules stay outside."""

    rules: Rules

    def opening_tokens(self, question: str) -> int:
        """Tokens of instructions, tool table and question."""
        ...

    def request(self, view: ContextView) -> ChatRequest:
        """The request that shows this view."""
        ...

    def action(self, completion: Completion) -> Action:
        """What the model decided."""
        ...


class ModelPolicy:
    """Asks a chat model; one object serves one run."""

    def __init__(self, chat: ChatModel, profile: Profile) -> None:
        self.rules = profile.rules
        self._chat, self._profile = chat, profile
        self._abort = Abort()

    def opening_tokens(self, question: str) -> int:
        """Tokens of instructions, tool table and question."""
        return self._profile.opening_tokens(question)

    def next_action(self, view: ContextView) -> Action:
        """One model call. Where the endpoint reports no token counts, the prompt counts as our own estimate of it."""
        completion = self._chat.complete(self._profile.request(view), abort=self._abort)
        action = self._profile.action(completion)
        return replace(
            action,
            finish_reason=completion.finish_reason,
            prompt_tokens=completion.prompt_tokens or view.used,
            completion_tokens=completion.completion_tokens,
        )

    def stop(self) -> None:
        """Breaks off the model call that is in flight; this object asks nothing any more."""
        self._abort.set()
