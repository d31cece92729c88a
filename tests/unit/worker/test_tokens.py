"""Token counts: exact, offline, and safe for any string."""

from hopnode.worker.tokens import count_tokens


def test_known_texts_have_their_known_o200k_counts() -> None:
    assert count_tokens("") == 0
    assert count_tokens("hello world") == 2
    assert count_tokens("안녕하세요") == 2


def test_special_token_text_is_counted_as_plain_text() -> None:
    assert count_tokens("<|endoftext|>") > 1


def test_a_lone_surrogate_is_counted_like_a_replacement_mark() -> None:
    assert count_tokens("\ud800abc") == count_tokens("?abc")


def test_a_text_longer_than_a_million_characters_is_counted() -> None:
    assert count_tokens("The quick brown fox. " * 60_000) == 300_001
