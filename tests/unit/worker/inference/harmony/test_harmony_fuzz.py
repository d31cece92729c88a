"""No completion, however broken, makes the reader raise, and none makes it invent a call."""

import random
import re

import pytest
from support.harness.harmony import call, concluded, harmony, several, thought

from hopnode.worker.inference.harmony.reply import HarmonyReply

SPECIAL = [200002, 200003, 200005, 200006, 200007, 200008, 200012, 199999, 199998, 200013]
MARK_IDS = frozenset(SPECIAL[:7])
WORDS = [
    "assistant",
    " to=",
    "functions",
    "commentary",
    "analysis",
    "final",
    " json",
    "user",
    '{"',
    '":',
    "}",
    "[",
    "\n",
]


def grown(seed: int) -> list[int]:
    """Random ids: mostly structure, with text and the words of headers in between, but never the name of a tool."""
    draw = random.Random(seed)
    ids: list[int] = []
    for _ in range(draw.randint(0, 40)):
        kind = draw.random()
        if kind < 0.45:
            ids.append(draw.choice(SPECIAL))
        elif kind < 0.8:
            ids += harmony().encode(draw.choice(WORDS))
        else:
            ids.append(draw.randrange(-3, 201_200))
    return ids


COMPLETIONS = [
    thought("I look for Moonrise.") + call("search_corpus", {"query": "who directed Moonrise"}),
    thought("Both.") + several(("grep_corpus", {"pattern": "O.lo"}), ("prune_chunks", {"chunk_ids": ["d1_0", "d2_1"]})),
    call("read_document", {"doc_id": "d1"}),
    thought("Enough.") + concluded("d1_0", "d2_0"),
    "<|channel|>commentary<|message|>Now.<|end|>" + call("prune_chunks", {"chunk_ids": ["d3_0"]}),
]


def mutated(seed: int) -> list[int]:
    """A proper completion, damaged in up to six places: dropped, doubled, swapped and foreign tokens, cut ends."""
    draw = random.Random(seed)
    ids = list(harmony().encode(draw.choice(COMPLETIONS)))
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(ids) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            del ids[at : at + draw.randint(1, 3)]
        elif kind == 1:
            ids[at:at] = ids[at : at + draw.randint(1, 5)]
        elif kind == 2:
            ids.insert(at, draw.choice(SPECIAL))
        elif kind == 3:
            ids.insert(at, draw.randrange(199_998))
        elif kind == 4 and len(ids) > 1:
            other = draw.randrange(len(ids))
            here = min(at, len(ids) - 1)
            ids[here], ids[other] = ids[other], ids[here]
        else:
            ids = ids[:at] or ids
    return ids


MARKS = re.compile(r"<\|(?:start|end|message|channel|constrain|return|call)\|>")


def assert_nothing_is_invented(ids: list[int], reply: HarmonyReply) -> None:
    """Name and arguments of every call stand in the completion, letter by letter."""
    written = harmony().decode([token for token in ids if 0 <= token < 199_998 or token in MARK_IDS])
    plain = MARKS.sub("", written)
    for made in reply.calls:
        assert re.search(rf"to=(?:<\|constrain\|>)?(?:functions\.)?{re.escape(made.name)}", written), (made, written)
        assert made.arguments in plain, (made, written)


def check(count: int) -> int:
    """Reads `count` completions of both kinds; how many calls they held."""
    held = 0
    for seed in range(count):
        random_ids, damaged = grown(seed), mutated(seed)
        reply = harmony().read(random_ids)
        known = ("search_corpus", "grep_corpus", "read_document", "prune_chunks", "multi_tool_use")
        assert not [made for made in reply.calls if made.name in known]
        assert_nothing_is_invented(random_ids, reply)
        reply = harmony().read(damaged)
        assert_nothing_is_invented(damaged, reply)
        held += len(reply.calls)
    return held


def test_hundreds_of_broken_completions_are_read_without_a_raise_or_an_invention() -> None:
    assert check(300) > 100


@pytest.mark.slow
def test_ten_thousand_broken_completions_are_read_without_a_raise_or_an_invention() -> None:
    assert check(10_000) > 3_000
