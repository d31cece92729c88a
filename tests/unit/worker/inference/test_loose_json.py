import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopnode.worker.inference.loose_json import first_balanced, loads


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"query": "x"}', {"query": "x"}),
        ('[{"a": 1}]', [{"a": 1}]),
        ('{"query": "x"} and then some', {"query": "x"}),
        ('{"query": "x"}{"query": "y"}', {"query": "x"}),
        ('json{"query": "x"}', {"query": "x"}),
        ('Sure: {"query": "a } in a text"} [END]', {"query": "a } in a text"}),
        ('{"query": "say \\"}\\" now"} x', {"query": 'say "}" now'}),
        ('{"pattern": "\\d+\\.\\d"}', {"pattern": "\\d+\\.\\d"}),
        ('{"pattern": "\\w+ \\u00e9 \\uZZ"}', {"pattern": "\\w+ é \\uZZ"}),
        ('{"query": "two\nlines\tand\x01"}', {"query": "two\nlines\tand\x01"}),
        ('  {"query": "x"}  ', {"query": "x"}),
        ('"just a text"', "just a text"),
    ],
)
def test_what_is_nearly_json_is_read(text: str, value: object) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "no json", '{"query": "x', '{"query": "x"', '[{"a": 1}', "{]}", "{query: x}", '{"a": }', "[" * 100_000],
)
def test_what_is_not_whole_is_not_completed(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        loads(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(value=st.lists(JSON) | st.dictionaries(st.text(), JSON), before=st.sampled_from(["", "json ", "```"]))
def test_any_object_or_list_is_found_whole_with_anything_behind_it(value: object, before: str) -> None:
    written = json.dumps(value)
    assert first_balanced(f"{before}{written} }}]trailing") == written
    assert loads(f"{before}{written}") == value


@given(st.text(alphabet='{}[]"\\ab:,1 \n'))
def test_any_text_gives_a_json_value_or_a_value_error_that_says_why(text: str) -> None:
    try:
        value = loads(text)
    except ValueError as error:
        assert str(error)
    else:
        assert json.loads(json.dumps(value)) == value
