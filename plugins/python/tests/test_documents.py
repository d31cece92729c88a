"""Collections and documents: text, bytes, files and batches, under any key."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unreliable_wire import UnreliableWire

from hopnode_client import Conflict, DocumentRejected, InvalidRequest, Misuse, NewDocument, NotFound
from hopnode_client.options import BATCH_CHARACTERS, batches

BROKEN = b"%PDF-1.4 and nothing that a PDF has"


def test_a_collection_is_made_changed_listed_and_deleted(client: Any) -> None:
    made = client.collections.create("shelf", description="Books", metadata={"floor": 2})
    assert (made.name, made.description, made.metadata, made.stats) == ("shelf", "Books", {"floor": 2}, None)
    assert client.collections.update("shelf", description="More books").metadata == {"floor": 2}
    assert client.collections.update("shelf", dense_weight=0.3).dense_weight == 0.3
    assert client.collections.update("shelf", dense_weight=None).dense_weight is None
    client.documents.put("shelf", "a.md", "The harbour lies north.")
    assert client.collections.get("shelf").stats.documents == 1
    assert "shelf" in [one.name for one in client.collections.list()]
    with pytest.raises(Conflict, match="shelf"):
        client.collections.create("shelf")
    client.collections.delete("shelf")
    with pytest.raises(NotFound) as caught:
        client.collections.get("shelf")
    assert (caught.value.code, caught.value.type) == ("not-found", "urn:hopnode:problem:not-found")
    assert caught.value.status == 404 and caught.value.request_id and caught.value.title


def test_a_text_is_put_found_replaced_and_deleted(client: Any, name: str) -> None:
    put = client.documents.put(
        name, "a.md", "# Harbour\n\nIt lies north.", url="https://example.com/a", metadata={"n": 1}
    )
    assert (put.key, put.status) == ("a.md", "stored") and put.document_id
    stored = client.documents.get(name, "a.md")
    assert (stored.url, stored.metadata, stored.text, stored.version) == ("https://example.com/a", {"n": 1}, None, 1)
    assert client.documents.put(name, "a.md", "It lies south.", title="Harbour").status == "stored"
    again = client.documents.get(name, "a.md", text=True)
    assert (again.text, again.title, again.version) == ("It lies south.", "Harbour", 2)
    found = client.search("Where does it lie?", name, mode="one_shot").passages[0]
    assert found.citation["source"] == "a.md" and found.citation["title"] == "Harbour"
    client.documents.delete(name, "a.md")
    assert client.search("Where does it lie?", name, mode="one_shot").passages == ()


def test_bytes_and_files_are_known_by_their_names_or_types(client: Any, name: str, tmp_path: Path) -> None:
    client.documents.put_bytes(name, "page", b"<title>Quay</title><p>The quay is long.", media_type="text/html")
    client.documents.put_bytes(name, "table", b"place,length\nquay,90", filename="table.csv", title="Places")
    file = tmp_path / "facts.json"
    file.write_text('{"quay": "long"}')
    client.documents.put_file(name, file)
    client.documents.put_file(name, str(file), key="data/facts.json", url="https://example.com/facts")
    stored = {one.key: one for one in client.documents.list(name, page_size=1)}
    assert list(stored) == sorted(stored) == ["data/facts.json", "facts.json", "page", "table"]
    assert (stored["page"].title, stored["table"].title) == ("Quay", "Places")
    assert stored["data/facts.json"].url == "https://example.com/facts"
    with pytest.raises(OSError, match="missing"):
        client.documents.put_file(name, tmp_path / "missing.txt")


def test_a_document_that_cannot_be_stored_says_why(client: Any, name: str) -> None:
    with pytest.raises(DocumentRejected) as caught:
        client.documents.put_bytes(name, "broken.pdf", BROKEN)
    assert caught.value.reason == "corrupt" and caught.value.status == 422
    with pytest.raises(DocumentRejected) as caught:
        client.documents.put(name, "empty.md", " ")
    assert caught.value.reason == "empty"
    with pytest.raises(Misuse, match="application/json"):
        client.documents.put_bytes(name, "a.json", b"{}", media_type="application/json; charset=utf-8")


def test_a_batch_tells_the_outcome_of_each_document_in_order(client: Any, name: str, wire: UnreliableWire) -> None:
    many = [NewDocument(key=f"{number}.md", text=f"Quay number {number} is long.") for number in range(120)]
    bad = NewDocument(key="broken.pdf", content=BROKEN)
    good = NewDocument(key="page", content=b"<p>A quay.", media_type="text/html", metadata={"n": 1})
    outcomes = client.documents.put_many(name, iter([bad, *many, good]))
    assert [outcome.key for outcome in outcomes] == ["broken.pdf", *(one.key for one in many), "page"]
    assert [outcome.status for outcome in outcomes] == ["failed", *["stored"] * 121]
    assert outcomes[0].reason == "corrupt" and outcomes[0].message
    assert len(wire.asked("POST /v1/collections")) == 2
    assert client.documents.get(name, "page").metadata == {"n": 1}
    assert client.documents.put_many(name, []) == ()


def test_batches_are_as_light_as_the_node_takes() -> None:
    heavy = NewDocument(key="a", text="x" * (BATCH_CHARACTERS // 2))
    assert [len(batch) for batch in batches([heavy] * 5)] == [2, 2, 1]
    with pytest.raises(Misuse, match="exactly one of text and content"):
        list(batches([NewDocument(key="a")]))


KEYS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=30)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=KEYS)
def test_a_document_is_found_again_under_any_key(client: Any, name: str, key: str) -> None:
    assert client.documents.put(name, key, "The quay.").key == key
    assert client.documents.get(name, key).key == key
    client.documents.delete(name, key)


@pytest.mark.parametrize("key", ["a?b=c#d.md", "100%25.md", "a b+c", "ä/ö", "documents:batch", "a/", "%2e%2e"])
def test_keys_with_signs_of_urls_are_only_names(client: Any, name: str, key: str) -> None:
    client.documents.put(name, key, "The quay.")
    assert [one.key for one in client.documents.list(name)] == [key]


def test_an_empty_name_is_refused_before_it_means_something_else(client: Any, wire: UnreliableWire) -> None:
    for call in (lambda: client.documents.delete("facts", ""), lambda: client.collections.delete("")):
        with pytest.raises(Misuse, match="is empty"):
            call()
    assert wire.seen == []


def test_a_field_that_breaks_a_rule_is_named(client: Any) -> None:
    with pytest.raises(InvalidRequest, match="Correct the request") as caught:
        client.search("Why?", "facts", top_k=0)
    assert [(error.place, error.field) for error in caught.value.errors] == [("body", "top_k")]
