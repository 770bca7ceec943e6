# SPDX-License-Identifier: Apache-2.0
"""A plugin for pytest that changes the core in one place at a time, and sees whether a test fails: what tests prove.

Two runs over the same PATHS, of which the second can take fewer:
    python -m pytest -p tools.mutants --entered FILE PATHS
    python -m pytest -p tools.mutants --entered FILE --mutate store_core/queue --mutants 150 --seed 1 -s PATHS
A mutant runs, in a process of its own, tests that enter its function, until one fails: quick ones first, one of each
test function. Tests of the paths that `--last` names come last: what they find, no other test has found in its time.
"""

from __future__ import annotations

import ast
import gc
import importlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from resource import RLIMIT_CPU, setrlimit
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROOT: Final = Path(__file__).resolve().parents[1]
SECONDS: Final = 5.0
"""Of tests for a mutant, as they took before; ten times as much processor time, or a long wait, counts as found."""

PAIRS: Final = (
    "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, And Or, Add Sub, Mult FloorDiv, LShift RShift, BitAnd BitOr"
)
SWAPS: Final[dict[str, type[ast.AST]]] = {
    one: getattr(ast, other) for pair in PAIRS.split(", ") for one, other in (pair.split(), pair.split()[::-1])
}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Yield functions and methods, without those inside others."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node)


def changes(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef, Any, str, object]]:
    """Yield what can be changed: the outermost function, a node, and what its attribute becomes."""
    for function in functions(tree):
        for node in (node for statement in function.body for node in ast.walk(statement)):
            match node:
                case ast.Compare(ops=[op, *_]) if type(op).__name__ in SWAPS:
                    yield function, node, "ops", [SWAPS[type(op).__name__](), *node.ops[1:]]
                case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op).__name__ in SWAPS:
                    yield function, node, "op", SWAPS[type(op).__name__]()
                case ast.Constant(value=bool() | int() as value):
                    yield function, node, "value", not value if isinstance(value, bool) else value + 1
                case ast.If(test=test):
                    yield function, node, "test", ast.UnaryOp(ast.Not(), test)
                case ast.Return(value=ast.expr()) | ast.Expr(value=ast.Call()):
                    yield function, node, "value", ast.Constant(None)
                case ast.Raise():
                    yield function, node, "__class__", ast.Pass


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all within it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)


def place(code: CodeType) -> str:
    """Return what names a function also after lines before it have come or gone."""
    return f"{code.co_filename.removeprefix(f'{ROOT}/')} {code.co_qualname}"


def mutate(path: Path, index: int) -> tuple[str, str, list[tuple[FunctionType, CodeType]]]:
    """Return a mutant's name, its function, and the functions that there are with the code that they are to get."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    function, node, attribute, value = list(changes(tree))[index]
    setattr(node, attribute, value)
    first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
    made = codes(compile(ast.fix_missing_locations(tree), str(path), "exec"))
    code = next(each for each in made if (each.co_name, each.co_firstlineno) == (function.name, first))
    key = (str(path), first, code.co_qualname)
    there = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
    keys = ((each.__code__.co_filename, each.__code__.co_firstlineno, each.__code__.co_qualname) for each in there)
    named = f"{path.relative_to(ROOT)}:{node.lineno} {function.name}, {attribute} of {type(node).__name__}"
    return named, place(code), [(each, code) for each, found in zip(there, keys, strict=True) if found == key]


def first_failed(changed: list[tuple[FunctionType, CodeType]], items: list[pytest.Item], report: Path) -> str:
    """Run tests in a child whose functions are changed, and return which fails, or nothing."""
    report.write_text("")
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            setrlimit(RLIMIT_CPU, (round(10 * SECONDS), round(10 * SECONDS)))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            for each, code in changed:
                each.__code__ = code
            for item, following in zip(items, [*items[1:], None], strict=False):
                if any(each.failed for each in runtestprotocol(item, log=False, nextitem=following)):
                    report.write_text(item.nodeid)
                    break
        finally:
            os._exit(0)
    ends = time.monotonic() + 100 * SECONDS
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > ends:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "(waits)"
        time.sleep(0.005)
    if os.WIFSIGNALED(ended[1]):
        return "(never ends)"
    return report.read_text()


class Mutants:
    """Records what each test enters, and its time, or tries mutants in the place of running tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.option = config.option
        self.took: dict[str, float] = {}
        self.codes: dict[int, CodeType] = {}
        self.entered = defaultdict[str, list[str]](list)

    def enter(self, frame: FrameType, _event: str, _arg: object) -> None:
        """Note a function that is called, and trace none of its lines."""
        self.codes[id(frame.f_code)] = frame.f_code

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count what is called from here on as the test's."""
        self.codes.clear()
        threading.settrace(self.enter)
        sys.settrace(self.enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            for each in {place(code) for code in [*self.codes.values()] if f"{ROOT}/store_core/" in code.co_filename}:
                self.entered[each].append(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long a test took."""
        self.took[report.nodeid] = self.took.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Write down which test entered which function."""
        if not self.option.mutate:
            self.option.entered.write_text(json.dumps([self.took, self.entered]), encoding="utf-8")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Try mutants, and print what finds each."""
        if not self.option.mutate:
            return None
        gc.unfreeze()
        self.took, self.entered = json.loads(self.option.entered.read_text(encoding="utf-8"))
        items = {item.nodeid: item for item in session.items}
        paths = sorted((ROOT / self.option.mutate).rglob("*.py")) or [ROOT / self.option.mutate]
        for path in paths:
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
        places = [(path, index) for path in paths for index, _ in enumerate(changes(ast.parse(path.read_text())))]
        chosen = random.Random(self.option.seed).sample(places, min(self.option.mutants, len(places)))  # noqa: S311 -- reproducible
        report = self.option.entered.with_suffix(".failed")
        if failed := first_failed([], [items[test] for test in self.chosen(items.keys() & self.took.keys())], report):
            raise pytest.UsageError(f"{failed} fails without a change, so that its failures prove nothing")
        found = 0
        for path, index in chosen:
            named, function, changed = mutate(path, index)
            tests = items.keys() & set(self.entered.get(function, ()))
            failed = first_failed(changed, [items[test] for test in self.chosen(tests)], report)
            found += bool(failed)
            print(named, failed or "SURVIVED", sep="\t", flush=True)
        print(f"{self.option.mutate}: {found} of {len(chosen)} mutants found, of {len(places)} that there are")
        return True

    def chosen(self, tests: set[str]) -> list[str]:
        """Return the tests that are run, those that are to come last at the end."""
        last = {test for test in tests if test.startswith(tuple(self.option.last))}
        return [*self.quick(tests - last), *self.quick(last)]

    def quick(self, tests: set[str]) -> list[str]:
        """Return the quickest case of each function, then the second, for some seconds."""
        seen, ranked, seconds = Counter[str](), [], 0.0
        for test in sorted(tests, key=self.took.__getitem__):
            seen[test.split("[")[0]] += 1
            ranked.append((seen[test.split("[")[0]], self.took[test], test))
        few: list[str] = []
        for _, took, test in sorted(ranked):
            seconds += took + 0.01
            few += [test] if seconds < SECONDS else []
        return few


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take where calls are written, what is changed, and which tests come last."""
    group = parser.getgroup("mutants")
    group.addoption("--entered", type=Path, required=True)
    group.addoption("--mutate")
    group.addoption("--mutants", type=int, default=150)
    group.addoption("--seed", type=int, default=1)
    group.addoption("--last", nargs="*", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Do not let Hypothesis look for the least example: that there is one is enough."""
    settings.register_profile("mutants", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("mutants")
    config.pluginmanager.register(Mutants(config))
