"""The metadata filter of a search: its grammar and its exact meaning, over one document's metadata at a time."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from pydantic import JsonValue

from hopnode.worker.errors import InvalidRequest

Predicate: TypeAlias = Callable[[Mapping[str, JsonValue]], bool]

_Test: TypeAlias = Callable[[JsonValue], bool]

_ORDERS: dict[str, Callable[[int], bool]] = {
    "gt": lambda order: order > 0,
    "gte": lambda order: order >= 0,
    "lt": lambda order: order < 0,
    "lte": lambda order: order <= 0,
}


def compile_filter(filter: Mapping[str, JsonValue]) -> Predicate:
    """A predicate that holds when every field of the filter holds; `InvalidRequest` for an unknown operator.

    `{"team": "blue"}` is equality; `{"team": {"in": ["blue", "red"]}}` one of several; `gt`, `gte`, `lt`, `lte`
    compare numbers with numbers and text with text, and may be combined. Where the metadata holds a list, equality and
    `in` hold when one entry does. A field that a document lacks fails every test except equality with null.
    """
    tests = {field: _field_test(field, wanted) for field, wanted in filter.items()}
    return lambda metadata: all(test(metadata.get(field)) for field, test in tests.items())


def _field_test(field: str, wanted: JsonValue) -> _Test:
    if isinstance(wanted, list):
        raise InvalidRequest(f'Filter on "{field}": to allow several values write {{"{field}": {{"in": […]}}}}.')
    if not isinstance(wanted, dict):
        return lambda value: _equal(value, wanted)
    if not wanted:
        raise InvalidRequest(f'Filter on "{field}": the operator is missing; use one of in, gt, gte, lt, lte.')
    tests = [_operator_test(field, operator, operand) for operator, operand in wanted.items()]
    return lambda value: all(test(value) for test in tests)


def _operator_test(field: str, operator: str, operand: JsonValue) -> _Test:
    if operator == "in":
        if not isinstance(operand, list):
            raise InvalidRequest(f'Filter on "{field}": "in" needs a list of values.')
        return lambda value: any(_equal(value, wanted) for wanted in operand)
    if operator not in _ORDERS:
        raise InvalidRequest(f'Filter on "{field}": unknown operator "{operator}"; use one of in, gt, gte, lt, lte.')
    if isinstance(operand, bool) or not isinstance(operand, int | float | str):
        raise InvalidRequest(f'Filter on "{field}": "{operator}" needs a number or a text.')
    return lambda value: _compare(operator, value, operand)


def _equal(value: JsonValue, wanted: JsonValue) -> bool:
    if isinstance(value, list) and not isinstance(wanted, list):
        return any(_equal(entry, wanted) for entry in value)
    # True == 1 in Python, and is not the same in JSON.
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _compare(operator: str, value: JsonValue, operand: float | str) -> bool:
    if isinstance(value, str) and isinstance(operand, str):
        return _ORDERS[operator]((value > operand) - (value < operand))
    if isinstance(value, int | float) and not isinstance(value, bool) and not isinstance(operand, str):
        return _ORDERS[operator]((value > operand) - (value < operand))
    return False
