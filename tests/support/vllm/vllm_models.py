"""Models that a real vLLM serves on a CPU, made without a download: `main(FOLDER, VOCABULARY, TEXTS, WORDS)`.

Run by the Python of vLLM's own environment (torch, transformers, tokenizers); nothing of Hopnode is imported. FOLDER gets
`tiny-gptoss` (the gpt-oss architecture and vocabulary: real harmony prompts and parsers), `tiny-llama` (ChatML with calls in
tags, for schema-bound calls) and `tiny-bert` (embeddings and scores), all of random weights, and `tiny-recital`: gpt-oss again,
with the weights of `vllm_recital.py`. VOCABULARY is the file o200k_base.tiktoken, TEXTS any text to train a small tokenizer on,
WORDS a word-piece vocabulary.
"""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.convert_slow_tokenizer import TikTokenConverter
from vllm_recital import reciting

FIRST_SPECIAL, VOCABULARY_SIZE = 199_998, 201_088
SPECIAL = {
    199_998: "<|startoftext|>",
    199_999: "<|endoftext|>",
    200_002: "<|return|>",
    200_003: "<|constrain|>",
    200_005: "<|channel|>",
    200_006: "<|start|>",
    200_007: "<|end|>",
    200_008: "<|message|>",
    200_012: "<|call|>",
}
# How o200k cuts a text before it looks for pieces of its vocabulary.
PIECES = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
GPTOSS_TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant"
)
CHATML_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_gptoss(folder: Path, vocabulary: Path) -> PreTrainedTokenizerFast:
    special = [SPECIAL.get(token, f"<|reserved_{token}|>") for token in range(FIRST_SPECIAL, VOCABULARY_SIZE)]
    converter = TikTokenConverter(vocab_file=str(vocabulary), pattern=PIECES, extra_special_tokens=special)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=converter.converted(),
        bos_token="<|startoftext|>",
        eos_token="<|return|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.chat_template = GPTOSS_TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = GptOssConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=128,
        max_position_embeddings=32_768,
        layer_types=["sliding_attention", "full_attention"],
        eos_token_id=200_002,
        pad_token_id=199_999,
        tie_word_embeddings=False,
    )
    GptOssForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return tokenizer


def tiny_recital(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.save_pretrained(folder)

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    reciting(encode, VOCABULARY_SIZE).save_pretrained(folder)


def tiny_llama(folder: Path, texts: str) -> None:
    small = Tokenizer(models.BPE())
    small.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    small.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    small.train_from_iterator(
        [texts], trainers.BpeTrainer(vocab_size=2_048, special_tokens=special, initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=small, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHATML_TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8_192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def tiny_bert(folder: Path, words: Path) -> None:
    tokenizer = BertTokenizerFast(vocab_file=str(words), model_max_length=512)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
    )
    BertModel(config).to(torch.bfloat16).save_pretrained(folder)


def main(folder: str, vocabulary: str, texts: str, words: str) -> None:
    target = Path(folder)
    tiny_recital(target / "tiny-recital", tiny_gptoss(target / "tiny-gptoss", Path(vocabulary)))
    tiny_llama(target / "tiny-llama", Path(texts).read_text(encoding="utf-8"))
    tiny_bert(target / "tiny-bert", Path(words))
