"""Whether tests can fail: what each test function expects, and assertions that hold whatever the code does."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.house.tree import Function, functions

EXPECTING = ("assert_", "expect_", "must_")
"""How names of functions begin that expect something, whoever wrote them."""


def hollow(node: ast.AST) -> Iterator[str]:
    """The assertions of a function or module that cannot fail: on constants, on what equals itself, on `or True`."""
    for inside in ast.walk(node):
        if isinstance(inside, ast.Assert) and _always_true(inside.test):
            yield ast.unparse(inside)


def _always_true(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return bool(test.value)  # `assert False` marks a place that is not to be reached
    if isinstance(test, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.Lambda | ast.JoinedStr):
        return True
    if isinstance(test, ast.BoolOp):
        parts = [_always_true(value) for value in test.values]
        return any(parts) if isinstance(test.op, ast.Or) else all(parts)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Constant):
        return not test.operand.value
    if isinstance(test, ast.Compare):
        sides = [test.left, *test.comparators]
        if all(isinstance(side, ast.Constant) for side in sides):
            return True
        same = len({ast.dump(side) for side in sides}) == 1 and not any(map(_calls_something, sides))
        return same and all(isinstance(one, ast.Eq | ast.Is | ast.LtE | ast.GtE) for one in test.ops)
    return False


def _calls_something(node: ast.AST) -> bool:
    return any(isinstance(inside, ast.Call | ast.Await) for inside in ast.walk(node))


class Expectations:
    """Which tests expect something, be it in a function of their own file or of `tests/support` that they call."""

    def __init__(self, trees: Mapping[Path, ast.Module]) -> None:
        self.trees = trees
        self._shared = _by_name({path: tree for path, tree in trees.items() if _is_shared(path)})

    def without_any(self) -> list[str]:
        """The tests that nothing can make fail but a crash."""
        found: list[str] = []
        for path, tree in self.trees.items():
            if path.name.startswith("test_"):
                own = _by_name({path: tree})
                tests = [(name, node) for name, node in functions(tree) if name.rpartition(".")[2].startswith("test_")]
                found += [f"{path}:{name}" for name, node in tests if not self._expects(node, own, set())]
        return found

    def _expects(self, function: Function, own: Mapping[str, list[Function]], seen: set[int]) -> bool:
        if id(function) in seen:
            return False
        seen.add(id(function))
        if any(_is_expectation(inside) for inside in ast.walk(function)):
            return True
        called = {
            inside.attr if isinstance(inside, ast.Attribute) else inside.id
            for inside in ast.walk(function)
            if isinstance(inside, ast.Attribute | ast.Name)
        }
        if any(name.lstrip("_").startswith(EXPECTING) for name in called):
            return True
        candidates = [node for name in called for node in own.get(name, self._shared.get(name, []))]
        return any(self._expects(node, own, seen) for node in candidates)


def _is_shared(path: Path) -> bool:
    return "support" in path.parts or path.name == "conftest.py"


def _is_expectation(node: ast.AST) -> bool:
    """An assertion that can fail, `pytest.raises` and its kin, or an error raised for a test's sake."""
    if isinstance(node, ast.Assert):
        return not _always_true(node.test)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id == "pytest" and node.attr in ("raises", "warns", "fail")
    raised = node.exc.func if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) else None
    return isinstance(raised, ast.Name) and raised.id in ("AssertionError", "TimeoutError")


def _by_name(trees: Mapping[Path, ast.Module]) -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for tree in trees.values():
        for name, node in functions(tree):
            found.setdefault(name.rpartition(".")[2], []).append(node)
    return found
