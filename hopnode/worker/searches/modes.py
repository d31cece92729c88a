"""Which way a search goes: by one look at the question, by the agent, or by whichever `auto` finds fit. Knows no model."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import JsonValue

from hopnode.worker.harness.outcome import AgentOutcome, Selection, Usage
from hopnode.worker.harness.trajectory import FORMAT_VERSION
from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.one_shot import came_by, one_shot, route
from hopnode.worker.ranking.reasons import reason
from hopnode.worker.ranking.weighing import Placement
from hopnode.worker.searches.by_agent import by_agent
from hopnode.worker.searches.live_search import LiveSearch, Searched


def find(search: LiveSearch) -> Searched:
    """Does the search in the mode that the request names, or in the one that `auto` finds fit. Raises what `search.check`
    raises, and ConfigurationError for a profile that the node is not set up for."""
    mode = search.request.mode
    if mode == "agent":
        return by_agent(search)
    with search.turn():
        evidence = search.survey()
        search.check()
        shot = one_shot(evidence, search.most)
        if mode == "one_shot":
            return Searched("one_shot", _shown(search, evidence, shot))
        chosen = route(evidence, shot[: search.request.top_k])
        search.check()
    if chosen.mode == "one_shot":
        return Searched("one_shot", _shown(search, evidence, chosen.shot[: search.most]), why=chosen.why)
    return replace(by_agent(search, evidence), why=chosen.why)


def _shown(search: LiveSearch, evidence: Evidence, shot: Sequence[Placement]) -> AgentOutcome:
    """The outcome of one shot, with the two steps of its trajectory."""
    search.step("start", {"format_version": FORMAT_VERSION, "question": search.request.query, "mode": "one_shot"})
    found, rows = evidence.found, [one.row for one in shot]
    selections = tuple(
        Selection(
            evidence.candidates[one.row].chunk,
            one.trust,
            reason(evidence, one.row, rows),
            (came_by(evidence, one.row, rows),),
        )
        for one in shot
    )
    outcome = AgentOutcome(
        selections=selections,
        stop_reason="finished" if selections else "nothing-found",
        degraded=found.degraded,
        usage=Usage(turns=1, tool_calls=1),
        index_version=found.index_version,
        vector_lag=found.vector_lag,
    )
    shown: list[JsonValue] = [one.chunk.id for one in selections]
    search.step("end", {"stop_reason": outcome.stop_reason, "degraded": list(found.degraded), "shown": shown})
    return outcome
