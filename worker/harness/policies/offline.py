"""A policy without any language model: searches with the question as it stands and ranks what comes back.

Knows nothing of endpoints or prompts.
"""

import json

from worker.harness.actions import Action, Ranked
from worker.harness.budget import Rules
from worker.harness.context import ContextView
from worker.inference.messages import ToolCall
from worker.tokens import count_tokens


class OfflinePolicy:
    """One search with the question, then its passages in the order found."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()

    def opening_tokens(self, question: str) -> int:
        """Only the question stands before the first turn."""
        return count_tokens(question)

    def next_action(self, view: ContextView) -> Action:
        """First a search, then the list."""
        if not view.turns and not view.closing:
            query = json.dumps({"query": view.question}, ensure_ascii=False)
            return Action("Search with the question as it stands.", (ToolCall("call_1", "search_corpus", query),))
        return Action("Rank what was found.", final=tuple(Ranked(held.chunk.id) for held in view.held))

    def stop(self) -> None:
        """Nothing is ever in flight."""
