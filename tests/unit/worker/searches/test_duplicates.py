from support.harness.space import make_chunk

from hopnode.worker.harness.outcome import Selection
from hopnode.worker.searches.duplicates import without_duplicates

LONG = "The harbour of Oslo lies at the end of a fjord that is a hundred kilometres long and freezes rarely in winter."


def selections(*texts: str) -> list[Selection]:
    return [Selection(make_chunk(f"d{n}", 0, text), 1 / (n + 1)) for n, text in enumerate(texts)]


def kept(*texts: str) -> list[str]:
    return [one.chunk.document_id for one in without_duplicates(selections(*texts), 10)]


def test_a_copy_gives_its_place_to_the_next() -> None:
    assert kept(LONG, "Something else.", LONG) == ["d0", "d1"]


def test_nearly_the_same_words_count_as_a_copy() -> None:
    assert kept(LONG, LONG.replace("hundred", "thousand")) == ["d0"]


def test_texts_that_share_much_and_say_different_things_both_stay() -> None:
    assert kept("Anna was born in Oslo.", "Anna was born in Bergen.") == ["d0", "d1"]


def test_the_better_ranked_of_two_copies_stays() -> None:
    assert [one.score for one in without_duplicates(selections(LONG, LONG), 10)] == [1.0]
