"""What a turn of the agent takes beside its model (search, rerank, counting, storing), and what sixteen searches take at once.

    python bench/harness_overhead.py --chunks 10000 --data-dir /tmp/bench-10k --json results/harness-10k.json

Searches go through the job queue of an embedded node. Model and reranker are scripted and stand behind a real HTTP server on
loopback, so that a turn's time is what the model's server sees: from its answer to the next request. Text as in
`search_latency.py`; a folder that was filled by it is used as it is.
"""

import argparse
import json
import random
import re
import time
from collections import defaultdict
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
from node import busy, keep, machine, node, say
from real_text import passages
from search_latency import CHUNK_CHARACTERS, COLLECTION, HashedWords, questions

from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.evaluation.trial import Trial, workspace_of
from hopnode.worker.harness import context as harness_context
from hopnode.worker.harness.profiles.context1 import Context1Profile
from hopnode.worker.inference.harmony.rendering import Harmony, Rendering
from hopnode.worker.inference.messages import Sampled
from hopnode.worker.inference.reranker import HttpReranker
from hopnode.worker.inference.scripted import Fault, ScriptedChatServer, use
from hopnode.worker.inference.scripted import say as said
from hopnode.worker.job_handlers import make_runner
from hopnode.worker.queue.dispatch import ThreadDispatcher
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus

LISTED = re.compile(r"# DOCUMENT ID: (\w+)")
TURNS = 6
SUCCEEDED = ("search", JobStatus.SUCCEEDED)
SHARES = ("search", "rerank", "counting", "storing")


class Watch:
    """Notes when the parts of the harness are at work, and how many characters go through a tokeniser."""

    def __init__(self):
        self.spans, self.characters = defaultdict(list), []
        for name, place, function in (
            *(("search", Corpus, name) for name in ("search", "grep", "read")),
            ("rerank", HttpReranker, "score"),
            ("counting", harness_context, "count_tokens"),
            ("counting", Context1Profile, "turn_tokens"),
            ("storing", JobContext, "step"),
        ):
            setattr(place, function, self._timed(name, getattr(place, function)))
        harness_context.count_tokens = self._counted(harness_context.count_tokens)
        Rendering.of, Rendering.count = self._rendered(Rendering.of), self._rendered(Rendering.count)

    def _timed(self, name, work):
        def timed(*arguments, **named):
            started = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                self.spans[name].append((started, time.perf_counter()))

        return timed

    def _counted(self, count):
        def counted(text):
            self.characters.append((time.perf_counter(), len(text)))
            return count(text)

        return counted

    def _rendered(self, of):
        def rendered(rendering, render, *parts):
            before = rendering.tokenised
            found = of(rendering, render, *parts)
            self.characters.append((time.perf_counter(), rendering.tokenised - before))
            return found

        return rendered

    def within(self, name, start, end):
        """Seconds of a stretch in which a part was at work; what ran side by side counts once."""
        total, reached = 0.0, start
        for begun, ended in sorted(span for span in self.spans[name] if span[0] < end and span[1] > start):
            begun, ended = max(begun, reached), min(ended, end)
            total += max(0.0, ended - begun)
            reached = max(reached, ended)
        return total

    def tokenised(self, start, end):
        """Characters that went through a tokeniser in a stretch."""
        return sum(count for at, count in self.characters if start <= at < end)


class Script:
    """Plays model and reranker: two searches, a search and a grep, a read and a search, a prune and a search, two searches,
    the list. `calls` has when each request came and was answered, and the characters of its conversation."""

    def __init__(self, asked, harmony):
        self.asked, self.harmony, self.seconds, self.calls = asked, harmony, 0.0, []

    def reply(self, request):
        came = time.perf_counter()
        if request.path == "/score":
            rows = [{"index": at, "score": (at * 7919) % 101 / 101} for at in range(len(request.body["text_2"]))]
            return Fault(200, json.dumps({"data": rows}).encode())
        if "prompt" in request.body:
            prompt = self.harmony.decode(request.body["prompt"])
            turn, seen = prompt.count("<|call|>"), json_free(prompt)
        else:
            messages = request.body["messages"]
            prompt = "".join(str(one["content"]) for one in messages)
            turn, seen = sum(one["role"] == "assistant" for one in messages), prompt
        answer = self._play(turn, LISTED.findall(seen), len(request.body.get("prompt", ())))
        if self.seconds:
            time.sleep(self.seconds)
        self.calls.append((came, time.perf_counter(), turn, len(prompt)))
        return answer

    def _play(self, turn, ids, tokens):
        draw = random.Random(f"{turn} {ids}")
        search = lambda: ("search_corpus", {"query": draw.choice(self.asked).text})  # noqa: E731
        grep = ("grep_corpus", {"pattern": rf"\b{max(draw.choice(self.asked).text.split(), key=len)}\b"})
        read = ("read_document", {"doc_id": ids[0].split("_")[0] if ids else "none"})
        prune = ("prune_chunks", {"chunk_ids": ids[1:4]})
        plan = ([search(), search()], [search(), grep], [read, search()], [prune, search()], [search(), search()])
        if turn >= len(plan):
            listed = "".join(f"<Document id={one}><Justification>why</Justification></Document>" for one in ids[:8])
            return self._sampled(f"<|channel|>final<|message|>{listed}<|return|>", tokens) if tokens else said(listed)
        if not tokens:
            return use(*plan[turn])
        calls = json.dumps([{"tool_name": name, "parameters": given} for name, given in plan[turn]])
        head = " to=functions.multi_tool_use<|channel|>commentary <|constrain|>json<|message|>"
        return self._sampled(f"<|start|>assistant{head}{calls}<|call|>", tokens)

    def _sampled(self, text, prompt_tokens):
        ids = self.harmony.encode(text)
        return Sampled(tuple(ids), "stop", prompt_tokens, len(ids))


def json_free(prompt):
    return prompt.replace("\\n", "\n")


@contextmanager
def workers(runtime):
    """The threads of an embedded node that run searches."""
    settings = runtime.settings
    dispatcher = ThreadDispatcher(make_runner(runtime), {"agent": settings.agent_slots}, settings.poll_seconds)
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        dispatcher.stop(60)


def run(runtime, dispatcher, asked, profile, look_seconds=0.005):
    """Queues a search for each question and waits until all have succeeded; seconds. Looking costs what is measured here."""
    wanted = jobs.job_counts(runtime.db).get(SUCCEEDED, 0) + len(asked)
    started = time.perf_counter()
    for one in asked:
        queue(runtime, one, profile)
        dispatcher.kick("agent")
    while (counts := jobs.job_counts(runtime.db)).get(SUCCEEDED, 0) < wanted:
        assert not any(status is JobStatus.FAILED for _, status in counts), "a search failed"
        time.sleep(look_seconds)
    return time.perf_counter() - started


def queue(runtime, question, profile):
    request = {"query": question.text, "collections": [COLLECTION], "mode": "agent", "profile": profile}
    workspace = workspace_of(runtime)
    return jobs.create_job(runtime.db, workspace_id=workspace, kind="search", role="agent", request=request)[0]


def turns(runtime, dispatcher, script, watch, asked, profile):
    """Milliseconds of each turn beside the model, the share of each part, and how much was tokenised anew."""
    gaps, last, edges = [], [], {"before the first turn": [], "after the last turn": []}
    run(runtime, dispatcher, asked[:2], profile)
    for question in asked[2:]:
        script.calls.clear()
        started = time.perf_counter()
        run(runtime, dispatcher, [question], profile)
        ended = time.perf_counter()
        calls = sorted(script.calls)
        assert [turn for _, _, turn, _ in calls] == list(range(TURNS)), "the script was played to its end"
        gaps += [(one[1], other[0]) for one, other in pairwise(calls)]
        last.append((calls[-2][1], calls[-1][0], calls[-1][3] - calls[-2][3], calls[-1][3]))
        edges["before the first turn"].append(calls[0][0] - started)
        edges["after the last turn"].append(ended - calls[-1][1])
    whole = sum(end - start for start, end in gaps)
    parts = {name: sum(watch.within(name, *gap) for gap in gaps) / whole for name in SHARES}
    return {
        "profile": profile,
        "turns": len(gaps),
        **percentiles([end - start for start, end in gaps]),
        "shares": parts,
        "last_turn": {
            "tokenised": int(np.median([watch.tokenised(start, end) for start, end, *_ in last])),
            "new": int(np.median([new for *_, new, _ in last])),
            "sent": int(np.median([sent for *_, sent in last])),
        },
        "edges": {name: percentiles(seconds) for name, seconds in edges.items()},
    }


def percentiles(seconds):
    p50, p95 = np.percentile([one * 1000 for one in seconds], (50, 95)).tolist()
    return {"p50": p50, "p95": p95}


def told(row):
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in row["shares"].items())
    edges = ", ".join(f"{name} {found['p50']:.0f} ms" for name, found in row["edges"].items())
    last = row["last_turn"]
    return (
        f"{row['profile']:12} {row['p50']:8.1f} {row['p95']:8.1f}   {shares}\n{'':31}{edges}; in the last turn "
        f"{last['tokenised']:,} characters tokenised, {last['new']:,} new, {last['sent']:,} sent"
    )


def at_once(runtime, dispatcher, script, asked, profile, counts, seconds):
    """Seconds until all of so many searches have ended, with a model that takes `seconds` for a reply."""
    script.seconds = seconds
    rows, place = [], 0
    for count in counts:
        cpu = time.process_time()
        taken = run(runtime, dispatcher, asked[place : place + count], profile, look_seconds=0.05)
        cpu, place = time.process_time() - cpu, place + count
        ratio = taken / rows[0]["seconds"] if rows else 1.0
        rows.append({"at_once": count, "seconds": taken, "cpu_seconds": cpu, "ratio": ratio})
        say(f"{count:4} at once: {taken:6.2f} s, {ratio:.2f} x the time of one; {cpu:.2f} s of CPU, {busy()}")
    script.seconds = 0.0
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--searches", type=int, default=30, help="searches of each profile, one after the other")
    parser.add_argument("--profiles", nargs="+", default=["generic", "context-1"])
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--model-seconds", type=float, default=1.0)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    texts, embedder = passages(options.chunks, shortest=CHUNK_CHARACTERS), HashedWords()
    asked = questions(texts, options.searches + 2 + sum(options.at_once), 1)
    holder = {}
    with ScriptedChatServer(lambda request: holder["script"].reply(request)) as server:
        root = server.url.removesuffix("/v1")
        more = {"chat_url": server.url, "chat_model": "scripted", "reranker": "score", "reranker_url": root}
        with node(options.data_dir, **more, reranker_model="scripted") as runtime:
            script = holder["script"] = Script(asked, Harmony(runtime.settings.root / "cache"))
            measure(runtime, script, texts, asked, embedder, options)


def measure(runtime, script, texts, asked, embedder, options):
    runtime.corpora._parts.embedders._loaded[embedder.id] = embedder
    trial = Trial.make(runtime, workspace_of(runtime), COLLECTION, embedder.id)
    trial.fill(texts, 0, lambda: None)
    runtime.corpora.drain_vectors()
    chunks = runtime.corpora.open(workspace_of(runtime)).stats(trial.collection).chunks
    settings = runtime.settings
    say(f"{machine()}, {busy()}\n{chunks:,} chunks; beside the model, milliseconds a turn (p50, p95):")
    watch = Watch()
    result = {"machine": f"{machine()}, {busy()}", "chunks_below_harness": chunks, "at": time.time(), "rows": []}
    with workers(runtime) as dispatcher:
        for profile in options.profiles:
            row = turns(runtime, dispatcher, script, watch, asked[: options.searches + 2], profile)
            result["rows"].append(row)
            say(told(row))
        say(
            f"\nA model that takes {options.model_seconds:g} s for each of {TURNS} replies; HOPNODE_AGENT_SLOTS="
            f"{settings.agent_slots}, HOPNODE_WORKSPACE_JOB_LIMIT={settings.workspace_job_limit}"
        )
        rest = asked[options.searches + 2 :]
        rows = at_once(runtime, dispatcher, script, rest, options.profiles[0], options.at_once, options.model_seconds)
    result["at_once"] = {
        "rows": rows,
        "model_seconds": options.model_seconds,
        "replies": TURNS,
        "agent_slots": settings.agent_slots,
        "workspace_job_limit": settings.workspace_job_limit,
    }
    keep(options.json, result)


if __name__ == "__main__":
    main()
