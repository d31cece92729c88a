import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopnode.worker.corpus.names import best_name, lead_of, leads_in, names_of


def phrases(title: str, text: str) -> set[str]:
    return {name.phrase for name in names_of(title, text)}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Shawn Adam Levy (born July 23, 1968) is a director.", "shawn levy"),
        ("Forbidden Ground is a Hungarian film.", "forbidden ground"),
        ("The House of Pulcini is a silent film by the same man.", "house of pulcini"),
        ("“Homer's Odyssey” is the third episode.", "homer s odyssey"),
        ("John Boorman, born 1933, is a filmmaker.", "john boorman"),
        ("J. R. Smith wrote it.", "j r smith"),
        ("Pál Gábor was a director.", "pal gabor"),
    ],
)
def test_the_words_that_open_a_text_are_its_name(text: str, name: str) -> None:
    assert name in phrases("", text)


def test_a_name_ends_where_the_sentence_goes_on() -> None:
    assert "gabor directed" not in phrases("", "Pál Gábor. Directed by him, the film was shown.")


def test_a_title_names_its_document_without_what_stands_in_brackets() -> None:
    assert {"springfield illinois", "springfield"} <= phrases("Springfield, Illinois (city)", "it lies on a lake")
    assert "springfield illinois city" not in phrases("Springfield, Illinois (city)", "")


def test_titles_name_documents_in_scripts_without_capital_letters() -> None:
    assert phrases("東京都", "日本の首都である。") == {"東京 京都"}


@pytest.mark.parametrize("text", ["", "   ", "1984", "it was a dark night", "x", "???"])
def test_a_text_that_opens_with_no_name_has_none(text: str) -> None:
    assert names_of("", text) == []


def test_numbers_and_single_letters_are_no_names() -> None:
    assert names_of("1984", "") == []
    assert names_of("A", "") == []


def test_every_name_in_a_text_is_found_by_its_lead() -> None:
    terms = ["he", "met", "shawn", "levy", "in", "oslo"]
    leads = set(leads_in(terms))
    assert lead_of(("shawn", "levy")) in leads
    assert lead_of(("oslo",)) in leads


@given(st.text(st.sampled_from("Ab 1,.()京\n"), max_size=12), st.text(st.sampled_from("Ab 1,.(–京É\n"), max_size=40))
def test_the_best_name_is_the_first_of_all(title: str, text: str) -> None:
    assert [best_name(title, text)] == ([name.terms for name in names_of(title, text)][:1] or [()])
