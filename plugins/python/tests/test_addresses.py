"""The address and the key, before anything is sent."""

import pytest

from hopnode_client import AsyncHopnode, Hopnode, Misuse
from hopnode_client.address import bearer, node_address


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("http://127.0.0.1:8700", "http://127.0.0.1:8700"),
        ("http://127.0.0.1:8700/", "http://127.0.0.1:8700"),
        (" http://127.0.0.1:8700/v1 ", "http://127.0.0.1:8700"),
        ("https://search.example.com/v1/", "https://search.example.com"),
        ("https://example.com/hopnode/v1", "https://example.com/hopnode"),
        ("http://[::1]:8700//", "http://[::1]:8700"),
    ],
)
def test_an_address_is_the_root_of_the_node_however_it_ends(given: str, root: str) -> None:
    assert node_address(given) == root


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("127.0.0.1:8700", "Write http://"),
        ("localhost", "Write http://"),
        ("", "Write http://"),
        ("ftp://example.com", "no address of a node"),
        ("http://", "no address of a node"),
        ("http://example.com:port", "no address"),
        ("http://me:secret@example.com", "Leave them out"),
        ("http://example.com?key=1", "root of the node only"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused_with_how_to_write_it(given: str, said: str) -> None:
    with pytest.raises(Misuse, match=said) as caught:
        Hopnode(given, "hn_1_x")
    assert isinstance(caught.value, ValueError)
    assert "secret" not in str(caught.value)


def test_a_key_may_have_the_line_end_of_its_file() -> None:
    assert bearer("hn_1f0a_secret\n") == "Bearer hn_1f0a_secret"


@pytest.mark.parametrize("given", ["", "  \n", "hn_1 x", "hn_é", "hn_1\nX-Other: 1"])
def test_a_key_that_cannot_be_one_is_refused_and_never_repeated(given: str) -> None:
    with pytest.raises(Misuse) as caught:
        AsyncHopnode("http://127.0.0.1:8700", given)
    assert not given.strip() or given.strip() not in str(caught.value)
