"""Weights written by hand: a model of the gpt-oss architecture that knows three replies by heart, and says the right one.

Asked by a prompt that tells of `multi_tool_use` it makes two calls side by side, asked by another it makes one. Once a call
stands in the conversation it concludes. So a real server carries whole searches from the first call to the final list.

How: what follows is decided by the last two tokens. Layer 0 attends to the token before (its queries and keys depend on the
position only); layer 1 attends to the tokens `<|call|>` and `_use`, wherever they stand, and so finds out which reply it is; the
head of the model is a table from there to the next token. Everything else is zero.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import GptOssConfig, GptOssForCausalLM

HEAD, MANY = 128, 30.0
CALL, END, MESSAGE, CHANNEL, CONSTRAIN, START, RETURN = 200_012, 200_007, 200_008, 200_005, 200_003, 200_006, 200_002
CALLED, TOLD = "called", "told"
# Spaced and named so that no two tokens in a row come twice with different ones after them.
SIDE_BY_SIDE = (
    '[{"tool_name":"search_corpus","parameters":{"query":"Berg was born"}},'
    '{"name": "read_document", "arguments": {"doc_id" : "d3"}}]'
)
ALONE = '{"query": "Anna Berg"}'
LIST = "<Document id=d2_0><Justification>Anna Berg was born in Oslo.</Document>"


def replies(encode: Any) -> dict[tuple[str, ...], list[int]]:
    """The token ids of each reply, from the end of the prompt on, by the signs that choose it."""

    def call(name: str, arguments: str) -> list[int]:
        header = [START, *encode(f"assistant to=functions.{name}"), CHANNEL, *encode("commentary "), CONSTRAIN]
        return [END, *header, *encode("json"), MESSAGE, *encode(arguments), CALL]

    final = [END, START, *encode("assistant"), CHANNEL, *encode("final"), MESSAGE, *encode(LIST), RETURN]
    return {(): call("search_corpus", ALONE), (TOLD,): call("multi_tool_use", SIDE_BY_SIDE), (CALLED,): final}


def configuration(vocabulary: int, dims: int) -> GptOssConfig:
    return GptOssConfig(
        vocab_size=vocabulary,
        hidden_size=math.ceil((2 * dims + 3) / 64) * 64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=HEAD,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=128,
        max_position_embeddings=32_768,
        layer_types=["sliding_attention", "full_attention"],
        eos_token_id=RETURN,
        pad_token_id=199_999,
        tie_word_embeddings=False,
    )


def reciting(encode: Any, vocabulary: int) -> GptOssForCausalLM:
    """The model; `encode` gives the token ids of a text."""
    texts = replies(encode)
    known = sorted({token for reply in texts.values() for token in reply} | {sign(encode)})
    place = {token: at for at, token in enumerate(known)}
    assert len(known) < HEAD
    model = GptOssForCausalLM(configuration(vocabulary, len(known)))
    weights = model.state_dict()
    for name, tensor in weights.items():
        tensor.fill_(1.0 if "norm" in name else 0.0)
    weights["model.embed_tokens.weight"][known, list(place.values())] = 1.0
    look_back(weights, len(known), model.config.hidden_size)
    look_for(weights, 0, place[CALL], 2 * len(known), model.config.hidden_size)
    look_for(weights, 1, place[sign(encode)], 2 * len(known) + 1, model.config.hidden_size)
    write_table(weights["lm_head.weight"], texts, place)
    model.load_state_dict(weights)
    return model.to(torch.bfloat16)


def sign(encode: Any) -> int:
    """A token that stands in a prompt if and only if that tells of the carrier."""
    return encode("multi_tool_use")[-1]


def look_back(weights: Mapping[str, torch.Tensor], dims: int, width: int) -> None:
    """Head 0 of layer 0 copies the token before: rotary positions turn a constant query and key into a peak at distance 1."""
    frequencies = [150_000 ** (-2 * at / HEAD) for at in range(8)]
    of = "model.layers.0.self_attn."
    for at, frequency in enumerate(frequencies):
        weights[f"{of}q_proj.bias"][at] = MANY
        # The key is turned by one step more, so that it meets the query of the next position.
        weights[f"{of}k_proj.bias"][at] = MANY * math.cos(frequency)
        weights[f"{of}k_proj.bias"][at + HEAD // 2] = MANY * math.sin(frequency)
    for at in range(dims):
        weights[f"{of}v_proj.weight"][at, at] = 1.0
        weights[f"{of}o_proj.weight"][dims + at, at] = 1 / math.sqrt(width)  # undoes the norm of a single one
    weights[f"{of}sinks"].fill_(-100.0)


def look_for(weights: Mapping[str, torch.Tensor], group: int, token: int, target: int, width: int) -> None:
    """A head of layer 1 writes to `target` when the token stands anywhere before; else its attention goes to the sink."""
    of, slow = "model.layers.1.self_attn.", HEAD // 2 - 1
    weights[f"{of}q_proj.bias"][2 * group * HEAD + slow] = MANY
    weights[f"{of}k_proj.weight"][group * HEAD + slow, token] = MANY
    weights[f"{of}v_proj.weight"][group * HEAD, token] = 1.0
    weights[f"{of}o_proj.weight"][target, 2 * group * HEAD] = 1 / math.sqrt(width / 2)
    weights[f"{of}sinks"].fill_(20.0)


def write_table(head: torch.Tensor, texts: Mapping[tuple[str, ...], Sequence[int]], place: Mapping[int, int]) -> None:
    """The last token counts most, the one before it decides; of the three replies each outdoes those before it where its sign is
    there. The numbers are small and exact, since logits are rounded to eight bits."""
    dims = len(place)
    votes = {(): (8.0, 0, 0.0), (TOLD,): (7.5, 1, 1.5), (CALLED,): (6.5, 0, 4.0)}
    earlier: dict[tuple[int | None, int], int] = {}
    for signs, reply in texts.items():
        sure, sign_at, bonus = votes[signs]
        known: dict[tuple[int | None, int], int] = {}
        for before, last, then in zip([None, *reply], reply, reply[1:], strict=False):
            assert known.setdefault((before, last), then) == then, "two tokens in a row must decide"
            head[then, place[last]] = max(sure, head[then, place[last]].item())
            if before is not None:
                head[then, dims + place[before]] = 4.0
            # Where the replies part, more: the other token may be of this reply too, and have its bonus.
            parts = earlier.get((before, last), then) != then
            at = 2 * dims + sign_at
            head[then, at] = max(head[then, at].item(), bonus * (2 if parts else 1))
        earlier = known | earlier
