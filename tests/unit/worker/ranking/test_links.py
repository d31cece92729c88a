"""A link is a name that stands in one chunk and belongs to another; its best form wins, and common names are none."""

from hypothesis import given
from hypothesis import strategies as st
from support.harness.space import make_chunk

from hopnode.worker.corpus.names import MOST_SHARERS
from hopnode.worker.corpus.sqlite.name_table import NamedRow
from hopnode.worker.ranking.links import Link, Phrasebook, outgoing, owners_of
from hopnode.worker.ranking.reading import CONTEXT_TERMS, read


def reading_of(text: str, title: str = ""):
    return read(make_chunk("d0", 0, text, title=title))


def links_in(text: str, *names: NamedRow, row: int = 0) -> dict[int, Link]:
    owners = owners_of(names)
    return outgoing(row, reading_of(text), owners, Phrasebook(owners))


# --- who goes by a name -------------------------------------------------------------------------------------------


def test_a_name_that_very_many_documents_go_by_is_no_name() -> None:
    few = [NamedRow("carla boes", row, 1.0) for row in range(MOST_SHARERS)]
    assert list(owners_of(few)) == [("carla", "boes")]
    assert owners_of([*few, NamedRow("carla boes", 99, 1.0)]) == {}


def test_all_who_go_by_a_name_are_kept() -> None:
    owners = owners_of([NamedRow("springfield", 1, 1.0), NamedRow("springfield", 2, 0.5), NamedRow("holm", 3, 1.0)])
    assert [one.row for one in owners["springfield",]] == [1, 2]


# --- links out of a chunk -----------------------------------------------------------------------------------------


def test_a_name_in_the_text_leads_to_its_document() -> None:
    links = links_in("The ferry was built by Carla Boes in Bergen.", NamedRow("carla boes", 5, 0.9))
    assert list(links) == [5]
    assert links[5].phrase == ("carla", "boes") and links[5].quality == 0.9 and links[5].sharers == 1


def test_a_name_of_one_word_leads_nowhere_unless_it_is_written_with_a_capital() -> None:
    bergen = NamedRow("bergen", 5, 1.0)
    assert links_in("She was born in Bergen.", bergen)
    assert not links_in("she was born in bergen.", bergen)


def test_a_name_of_several_words_counts_however_it_is_written() -> None:
    assert links_in("the work of carla boes", NamedRow("carla boes", 5, 1.0))


def test_the_longest_name_wins_where_several_begin() -> None:
    links = links_in(
        "He saw the Northern Light House.", NamedRow("northern light", 1, 1.0), NamedRow("northern light house", 2, 1.0)
    )
    assert list(links) == [2]


def test_a_document_does_not_lead_to_itself() -> None:
    own, other = NamedRow("carla boes", 0, 0.5), NamedRow("carla boes", 7, 0.5)
    assert list(links_in("Carla Boes sails.", own, other)) == [7]
    assert not links_in("Carla Boes sails.", NamedRow("carla boes", 0, 1.0), other), "it is this very one"


def test_two_names_of_one_document_are_one_link_of_the_stronger_with_the_context_of_both() -> None:
    text = "Painted walls greet Carla Boes. " + "Ships pass by slowly. " * 10 + "Old sailors meet Boes Carla Holm here."
    links = links_in(text, NamedRow("carla boes", 5, 0.5), NamedRow("boes carla holm", 5, 0.8))
    assert links[5].phrase == ("boes", "carla", "holm") and links[5].quality == 0.8
    assert {"painte", "sailor"} <= links[5].context


def test_the_context_of_a_link_ends_after_a_few_words() -> None:
    words = [f"w{n}" for n in range(40)]
    text = " ".join([*words[:20], "Carla Boes", *words[20:]])
    context = links_in(text, NamedRow("carla boes", 5, 1.0))[5].context
    assert context == frozenset(words[20 - CONTEXT_TERMS : 20 + CONTEXT_TERMS])


def test_names_in_other_scripts_lead_to_their_documents() -> None:
    terms = reading_of("", "灯台守").name
    assert list(links_in("港の灯台守は老人だった。", NamedRow(" ".join(terms), 4, 1.0))) == [4]


def test_no_names_no_links() -> None:
    assert links_in("Carla Boes sails.") == {}
    assert links_in("", NamedRow("carla boes", 5, 1.0)) == {}


# --- merging ------------------------------------------------------------------------------------------------------

LINKS = st.builds(
    Link,
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple),
    st.sampled_from([0.25, 0.5, 1.0]),
    st.integers(1, 20),
    st.frozensets(st.sampled_from("xyz")),
)


@given(LINKS, LINKS)
def test_a_merged_link_is_no_weaker_than_either(one: Link, other: Link) -> None:
    both = one.merged(other)
    assert both.quality == max(one.quality, other.quality)
    assert both.sharers == min(one.sharers, other.sharers)
    assert both.context == one.context | other.context
    assert both.phrase in (one.phrase, other.phrase)
    assert (both.quality, both.sharers, both.context) == (
        (again := other.merged(one)).quality,
        again.sharers,
        again.context,
    )


@given(LINKS)
def test_merging_a_link_with_itself_changes_nothing(one: Link) -> None:
    assert one.merged(one) == one


# --- finding phrases ----------------------------------------------------------------------------------------------


def test_a_book_shows_every_place_where_a_phrase_stands_and_mentions_do_not_overlap() -> None:
    book = Phrasebook([("a", "b"), ("b",), ("b", "c")])
    terms = ("a", "b", "c")
    assert list(book.standing(terms)) == [(0, 2, ("a", "b")), (1, 3, ("b", "c")), (1, 2, ("b",))]
    assert list(book.mentions(terms, frozenset("b"))) == [(0, 2, ("a", "b"))]


def test_an_empty_book_finds_nothing() -> None:
    assert not list(Phrasebook([]).standing(("a", "b")))
