"""JSON becomes lines `path: value` with every digit and every word of the file, a blank line between records."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument
from hopnode.worker.corpus.parsing.formats.structured import read_json, read_jsonl
from hopnode.worker.errors import DocumentRejected

KEYS = st.text("abcdefg", min_size=1, max_size=5)
WORDS = st.text("uvwxyz", min_size=1, max_size=8)
SCALARS = WORDS | st.integers() | st.booleans()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))


def read(value: Any) -> str:
    return text_of(read_json(RawDocument(json.dumps(value).encode())))


def text_of(draft: Draft) -> str:
    (part,) = draft.parts
    return part


def leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [json.dumps(value) if isinstance(value, bool) else str(value)]


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_every_value_of_an_object_is_in_its_text_in_order(value: dict[str, Any]) -> None:
    text = read(value)
    place = 0
    for leaf in leaves(value):
        place = text.index(leaf, place) + len(leaf)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(KEYS, WORDS, min_size=1, max_size=3), min_size=1, max_size=6))
def test_a_list_and_the_same_records_a_line_read_the_same(records: list[dict[str, str]]) -> None:
    whole = read_json(RawDocument(json.dumps(records).encode()))
    lines = read_jsonl(RawDocument("\r\n".join(json.dumps(one) for one in records).encode()))
    assert text_of(whole) == text_of(lines)
    assert text_of(whole).count("\n\n") == len(records) - 1


@pytest.mark.parametrize(
    "number", ["0.10", "1e400", "-0", "3.141592653589793238462643383279", "100000000000000000000001"]
)
def test_no_digit_of_a_number_is_lost(number: str) -> None:
    assert text_of(read_json(RawDocument(f'{{"n": {number}}}'.encode()))) == f"n: {number}"


def test_the_path_leads_to_a_value_through_objects_and_lists() -> None:
    value = {"a": {"b": [{"c": "x"}, {"c": ["y", "z"]}]}, "d": [[1, 2], [3]]}
    assert read(value).split("\n") == ["a.b[0].c: x", "a.b[1].c: y, z", "d[0]: 1, 2", "d[1]: 3"]


def test_a_text_of_several_lines_stands_below_its_path() -> None:
    assert read({"body": "first\nsecond", "end": "one line\n"}) == "body:\nfirst\nsecond\nend: one line"


def test_values_that_say_nothing_are_left_out() -> None:
    assert read({"a": "", "b": None, "c": {}, "d": "x"}) == "d: x"


def test_a_value_alone_is_a_document() -> None:
    assert read("just words") == "just words"
    assert read([1, "two", True]) == "1\n\ntwo\n\ntrue"


@pytest.mark.parametrize(
    ("value", "title"),
    [
        ({"title": "The  one", "name": "x"}, "The one"),
        ({"name": "The name", "title": ["x"]}, "The name"),
        ({"heading": "x"}, ""),
        ([{"title": "of a record"}], ""),
        ("title", ""),
    ],
)
def test_the_title_is_what_an_object_says_of_itself(value: Any, title: str) -> None:
    assert read_json(RawDocument(json.dumps(value).encode())).title == title


def test_a_title_is_kept_short() -> None:
    assert len(read_json(RawDocument(json.dumps({"title": "word " * 1_000}).encode())).title) == 200


def test_an_object_that_is_nested_too_deeply_for_paths_keeps_its_values() -> None:
    value: Any = "the core"
    for _ in range(100):
        value = {"k": value}
    text = read(value)
    assert "the core" in text
    assert text.index(":") < 150, "the path itself is bounded"


@pytest.mark.parametrize("text", ['{"a": 1,}', "{'a': 1}", '{"a": 1} {"b": 2}', "// note\n{}", '{"a": 1'])
def test_what_is_no_json_is_kept_as_it_is_and_says_so(text: str) -> None:
    draft = read_json(RawDocument(text.encode()))
    assert text_of(draft) == text
    assert draft.warnings == ("The file is not valid JSON; it was read as text.",)


def test_broken_lines_are_counted_and_empty_ones_are_not() -> None:
    draft = read_jsonl(RawDocument(b'{"a": 1}\n\n  \n{"a": \noops\n{"a": 2}\n'))
    assert text_of(draft) == 'a: 1\n\n{"a":\n\noops\n\na: 2'
    assert draft.warnings == ("2 of 4 lines are not valid JSON; they were read as text.",)


def test_records_over_the_limit_are_refused() -> None:
    data = b"\n".join(b'{"k": "%d"}' % number for number in range(1_000))
    for read_one, content in ((read_jsonl, data), (read_json, b"[" + data.replace(b"\n", b",") + b"]")):
        with pytest.raises(DocumentRejected) as refused:
            read_one(RawDocument(content, max_characters=500))
        assert refused.value.reason == "too-large"
