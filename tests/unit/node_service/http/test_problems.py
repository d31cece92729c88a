"""Errors become problems that help the caller and tell nothing of the node; each field that is wrong is named."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError, field_validator

from hopnode.node_service.http.paging import decode_cursor, encode_cursor
from hopnode.node_service.http.problems import InvalidFields, field_errors, problem_of, refusals, told
from hopnode.worker.errors import (
    BrokerUnavailable,
    ConfigurationError,
    DocumentRejected,
    InvalidField,
    InvalidRequest,
    NodeError,
    NotFound,
    StoreUnavailable,
    VectorsUnavailable,
)

SECRET = "postgresql://root:hunter2@db.internal/hopnode"


class Row(BaseModel):
    size: int = Field(ge=1)
    name: str

    @field_validator("name")
    @classmethod
    def plain(cls, name: str) -> str:
        if name == "root":
            raise ValueError("This name is taken")
        return name


class Body(BaseModel):
    rows: list[Row]


def errors_of(value: object) -> list[dict[str, object]]:
    with pytest.raises(ValidationError) as refused:
        Body.model_validate(value)
    found = field_errors(refused.value.errors(), place="body", prefix="config")
    return [one.model_dump(by_alias=True) for one in found]


def test_each_wrong_field_is_named_by_its_path_and_its_value_is_not_repeated() -> None:
    wrong = errors_of({"rows": [{"size": 0, "name": "a"}, {"size": "hunter2", "name": "root"}, {}]})
    assert [(one["field"], one["code"]) for one in wrong] == [
        ("config.rows.0.size", "greater_than_equal"),
        ("config.rows.1.size", "int_parsing"),
        ("config.rows.1.name", "value_error"),
        ("config.rows.2.size", "missing"),
        ("config.rows.2.name", "missing"),
    ]
    assert {one["in"] for one in wrong} == {"body"}
    assert wrong[2]["message"] == "This name is taken"
    assert "hunter2" not in str(wrong)


def test_the_place_of_an_error_is_the_head_of_its_path_where_nobody_names_it() -> None:
    (found,) = field_errors([{"loc": ("query", "limit"), "type": "int_parsing", "msg": "Not a number"}])
    assert (found.place, found.field) == ("query", "limit")
    (whole,) = field_errors([{"loc": (), "type": "missing", "msg": "Field required"}])
    assert (whole.place, whole.field) == ("body", "")


def test_broken_json_names_no_field_and_says_what_is_broken() -> None:
    error = {"loc": ("body", 17), "type": "json_invalid", "msg": "JSON decode error", "ctx": {"error": "Expecting ','"}}
    (found,) = field_errors([error])
    assert (found.field, found.message) == ("", "This is not JSON: Expecting ','")


def test_a_body_that_is_no_object_says_what_to_send() -> None:
    (found,) = field_errors([{"loc": ("body",), "type": "model_attributes_type", "msg": "Input should be valid"}])
    assert "Content-Type: application/json" in found.message


@pytest.mark.parametrize("family", [StoreUnavailable, BrokerUnavailable, VectorsUnavailable, ConfigurationError])
def test_what_is_wrong_within_the_node_is_told_without_its_addresses(family: type[NodeError]) -> None:
    problem = problem_of("id-1", family(f"{SECRET} does not answer"))
    assert (problem.code, problem.status, problem.request_id) == (family.code, family.status, "id-1")
    assert "hunter2" not in problem.model_dump_json()
    assert "db.internal" not in problem.model_dump_json()
    assert problem.detail.endswith(".")


def test_an_error_that_no_page_knows_is_the_node_that_failed() -> None:
    class Strange(NodeError):
        code, status = "strange", 500

    problem = problem_of("id-1", Strange(f"cannot open {SECRET}"))
    assert (problem.code, problem.type) == ("internal-error", "urn:hopnode:problem:internal-error")
    assert "hunter2" not in told(Strange(SECRET)) + problem.model_dump_json()


def test_what_the_caller_can_mend_is_told_in_full() -> None:
    problem = problem_of("id-1", NotFound("There is no collection `handbook`."))
    assert (problem.status, problem.detail) == (404, "There is no collection `handbook`.")
    assert (problem.errors, problem.reason) == (None, None)


def test_a_rejected_document_carries_its_reason_as_a_word() -> None:
    assert problem_of("id-1", DocumentRejected("encrypted", "It has a password.")).reason == "encrypted"


def test_a_rule_that_only_the_node_can_judge_reads_like_any_other_wrong_field() -> None:
    problem = problem_of("id-1", InvalidField("filter.team", "unknown_operator", "There is no operator `like`."))
    assert (problem.code, problem.status) == ("invalid-request", 422)
    assert problem.errors is not None
    (wrong,) = problem.errors
    assert (wrong.place, wrong.field, wrong.code) == ("body", "filter.team", "unknown_operator")
    assert problem.detail == "filter.team: There is no operator `like`."
    plain = problem_of("id-1", InvalidRequest("This can never work."))
    assert plain.errors is not None
    assert (plain.errors[0].field, plain.detail) == ("", "body: This can never work.")


def test_the_detail_names_the_first_wrong_field_and_counts_the_rest() -> None:
    found = field_errors([{"loc": ("body", name), "type": "missing", "msg": "Field required"} for name in "abc"])
    assert str(InvalidFields(found)) == "a: Field required (2 more in `errors`)"
    assert str(InvalidFields(found[:1])) == "a: Field required"


def test_problems_of_one_status_share_its_entry_in_the_document_of_the_api() -> None:
    answers = refusals("conflict", "idempotency-mismatch", "not-found")
    assert set(answers) == {404, 409, 422}
    told_codes = [code for one in answers.values() for code in one["content"]["application/problem+json"]["examples"]]
    assert sorted(told_codes) == ["conflict", "idempotency-mismatch", "not-found"]
    for status, one in answers.items():
        for example in one["content"]["application/problem+json"]["examples"].values():
            assert example["value"]["status"] == status


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_any_position_survives_its_cursor_and_differs_from_every_other(position: str) -> None:
    cursor = encode_cursor(position)
    assert decode_cursor(cursor) == position
    assert encode_cursor(position + "x") != cursor


@settings(max_examples=60, deadline=None)
@given(st.text("abcXYZ09-_=+/ \né\ud800", max_size=12))
def test_any_text_as_a_cursor_is_a_position_or_one_wrong_field(cursor: str) -> None:
    try:
        position = decode_cursor(cursor)
    except InvalidFields as refused:
        assert [(one.place, one.field) for one in refused.errors] == [("query", "cursor")]
    else:
        assert isinstance(position, str)
