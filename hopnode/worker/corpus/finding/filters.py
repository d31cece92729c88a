"""The metadata filter of a search: its grammar and its exact meaning, over one document's metadata at a time."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from pydantic import JsonValue

from hopnode.worker.errors import InvalidField, InvalidRequest

Predicate: TypeAlias = Callable[[Mapping[str, JsonValue]], bool]

_Test: TypeAlias = Callable[[JsonValue], bool]

MOST_DEPTH = 10
"""How deep `and`, `or` and `not` may be nested: no question needs more, and no filter may exhaust the stack."""
MOST_TESTS = 1_000
"""Fields that one filter may test; each is looked at for every document."""
_ORDERS: dict[str, Callable[[int], bool]] = {
    "gt": lambda order: order > 0,
    "gte": lambda order: order >= 0,
    "lt": lambda order: order < 0,
    "lte": lambda order: order <= 0,
}
_TEXTS: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda value, part: part in value,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
}
OPERATORS = ("in", "ne", *_ORDERS, *_TEXTS, "exists", "empty")
COMBINERS = ("and", "or", "not")


def compile_filter(filter: Mapping[str, JsonValue]) -> Predicate:
    """A predicate that holds when every field of the filter holds. Raises `InvalidField` with the place of what cannot work.

    `{"team": "blue"}` is equality, `{"team": {"in": ["blue", "red"]}}` one of several, and `ne` is not equal. `gt`,
    `gte`, `lt`, `lte` compare numbers with numbers and text with text. `contains`, `starts_with` and `ends_with` look
    into text. `exists` asks whether there is a value that is not null, `empty` whether there is nothing in it. Several
    operators of one field must all hold. Where the metadata holds a list, a test holds when one entry passes; `ne`
    holds when none is equal.

    `{"or": [{…}, {…}]}`, `{"and": […]}` and `{"not": {…}}` combine filters; so these three names are no fields. A field
    that a document lacks fails every test except equality with null, `ne`, and `exists` and `empty` that say so.
    """
    budget = _Budget()
    with budget.at():
        return _all_of(filter, budget)


class _Budget:
    """How much of a filter is left to read, and where the reader stands."""

    def __init__(self) -> None:
        self.place = ["filter"]
        self.tests = MOST_TESTS
        self.depth = MOST_DEPTH

    def take(self) -> None:
        self.tests -= 1
        if self.tests < 0:
            raise InvalidRequest(f"The filter tests more than {MOST_TESTS:,} fields.")

    @contextmanager
    def at(self, *names: str) -> Generator[None]:
        """Within: an error is one of the field at this place. The innermost place is what the caller is told."""
        self.place += names
        try:
            yield
        except InvalidField:
            raise
        except InvalidRequest as error:
            raise InvalidField(".".join(self.place), "bad_filter", str(error)) from error
        finally:
            del self.place[len(self.place) - len(names) :]


def _all_of(filter: Mapping[str, JsonValue], budget: _Budget) -> Predicate:
    tests: list[Predicate] = []
    for name, wanted in filter.items():
        with budget.at(name):
            tests.append((_combined if name in COMBINERS else _on_field)(name, wanted, budget))
    return lambda metadata: all(test(metadata) for test in tests)


def _combined(combiner: str, wanted: JsonValue, budget: _Budget) -> Predicate:
    budget.depth -= 1
    if budget.depth < 0:
        raise InvalidRequest(f'The filter nests "and", "or" and "not" more than {MOST_DEPTH} levels deep.')
    try:
        if combiner == "not":
            if not isinstance(wanted, dict):
                raise InvalidRequest('Filter: "not" needs a filter, for example {"not": {"team": "blue"}}.')
            inner = _all_of(wanted, budget)
            return lambda metadata: not inner(metadata)
        parts: list[Predicate] = []
        for number, part in enumerate(_filters(combiner, wanted)):
            with budget.at(str(number)):
                parts.append(_all_of(part, budget))
        some = any if combiner == "or" else all
        return lambda metadata: some(part(metadata) for part in parts)
    finally:
        budget.depth += 1


def _filters(combiner: str, wanted: JsonValue) -> list[dict[str, JsonValue]]:
    parts = [part for part in wanted if isinstance(part, dict)] if isinstance(wanted, list) else []
    if not isinstance(wanted, list) or not parts or len(parts) != len(wanted):
        raise InvalidRequest(
            f'Filter: "{combiner}" needs a list of filters, for example {{"{combiner}": [{{…}}, {{…}}]}}.'
        )
    return parts


def _on_field(field: str, wanted: JsonValue, budget: _Budget) -> Predicate:
    budget.take()
    test = _field_test(field, wanted)
    return lambda metadata: test(metadata.get(field))


def _field_test(field: str, wanted: JsonValue) -> _Test:
    if isinstance(wanted, list):
        raise InvalidRequest(f'Filter on "{field}": to allow several values write {{"{field}": {{"in": […]}}}}.')
    if not isinstance(wanted, dict):
        return lambda value: _equal(value, wanted)
    if not wanted:
        raise InvalidRequest(f'Filter on "{field}": the operator is missing; use one of {", ".join(OPERATORS)}.')
    tests = [_operator_test(field, operator, operand) for operator, operand in wanted.items()]
    return lambda value: all(test(value) for test in tests)


def _operator_test(field: str, operator: str, operand: JsonValue) -> _Test:
    if operator == "in":
        if not isinstance(operand, list):
            raise InvalidRequest(f'Filter on "{field}": "in" needs a list of values.')
        return lambda value: any(_equal(value, wanted) for wanted in operand)
    if operator == "ne":
        if isinstance(operand, list | dict):
            raise InvalidRequest(f'Filter on "{field}": "ne" needs a single value; write {{"not": {{…}}}} for several.')
        return lambda value: not _equal(value, operand)
    if operator in ("exists", "empty"):
        return _presence_test(field, operator, operand)
    if operator in _TEXTS:
        return _text_test(field, operator, operand)
    if operator not in _ORDERS:
        raise InvalidRequest(f'Filter on "{field}": unknown operator "{operator}"; use one of {", ".join(OPERATORS)}.')
    if isinstance(operand, bool) or not isinstance(operand, int | float | str):
        raise InvalidRequest(f'Filter on "{field}": "{operator}" needs a number or a text.')
    return lambda value: any(_compare(operator, entry, operand) for entry in _entries(value))


def _presence_test(field: str, operator: str, operand: JsonValue) -> _Test:
    if not isinstance(operand, bool):
        raise InvalidRequest(f'Filter on "{field}": "{operator}" needs true or false.')
    if operator == "exists":
        return lambda value: (value is not None) == operand
    return lambda value: (value is None or value in ("", [], {})) == operand


def _text_test(field: str, operator: str, operand: JsonValue) -> _Test:
    if not isinstance(operand, str):
        raise InvalidRequest(f'Filter on "{field}": "{operator}" needs a text.')
    holds = _TEXTS[operator]
    return lambda value: any(isinstance(entry, str) and holds(entry, operand) for entry in _entries(value))


def _entries(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, list) else [value]


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
