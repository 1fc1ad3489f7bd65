"""How many small faults in the program do its tests find? A table for
docs/benchmarks.md.

    python -P benchmarks/mutants.py WORK [--most 120]
    python -P benchmarks/mutants.py WORK --deeper
    python -P benchmarks/mutants.py WORK --again tests/text/test_new.py ...
    python -P benchmarks/mutants.py WORK --put

A mutant is the program with one small fault: `<` for `<=`, `and` for `or`, `+` for `-`,
8 for 7, True for False, a missing `not`, a missing statement, None returned. A seed
draws them over all packages, in proportion to lines of code with at least three a
package: first the kind of fault, then its place. Their order is random too, so those
that ran before somebody stopped the script are a fair sample.

WORK is a folder outside of the checkout. It keeps every result, so an interrupted run
goes on. The script copies the tree there once with all mutants in it; the variable
FUSETUI_MUTANT chooses one. It first runs the tests of a package without a mutant, those
near its mutants first, for a limited time. That shows which tests pass, how long they
take and which of them execute the place of a mutant. With the mutant it runs at most 60
of these, the quickest first. A mutant is killed if a test fails or they take too long.

`--deeper` runs whole files of tests with each mutant that survived: those that execute
its place or import its module. `--again` runs these files, as they are now in the
checkout, with the survivors whose modules they import.

`--put` writes docs/mutants.tsv, a line for each mutant, and the table. A person judges
which survivors behave as the program does, and lists them in
benchmarks/mutants_equivalent.tsv.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

ROOT = Path(__file__).resolve().parents[1]
SEED = 20261129
MUTANTS = 120
LEAST_PER_PACKAGE = 3
MOST_TESTS_PER_MUTANT = 60
MOST_SECONDS_OF_CHOSEN_TESTS = 60.0
"""By what they took without a mutant."""
RECORDING_SECONDS_PER_MUTANT = 10
LEAST_RECORDING_SECONDS = 60
STARTING_SECONDS = 90
"""What pytest may need to start and to collect on a machine that others use."""
SLOWER = 4
"""Tests that take this many times as long as without the mutant have hung."""
PAGE = ROOT / "docs" / "benchmarks.md"
FIRST, DEEPER, AFTER = "first.jsonl", "deeper.jsonl", "after.jsonl"
"""Results in WORK: of the first run, of whole files, and with new tests."""
TIME_LIMIT = "the time limit"
DEEPER_SECONDS = 60
AGAIN_SECONDS = 300
MOST_EXECUTING_FILES = 8
MOST_IMPORTING_FILES = 4
POLLING_SECONDS = 0.05
PLUGINS = ("pytest_asyncio.plugin", "_hypothesis_pytestplugin")
PRELOADED = (
    *PLUGINS,
    "hypothesis.strategies",
    "msgspec",
    "nanoarrow",
    "numpy",
    "orjson",
    "regex",
    "textual.app",
    "textual.pilot",
)
TABLE = ROOT / "docs" / "mutants.tsv"
EQUIVALENT = ROOT / "benchmarks" / "mutants_equivalent.tsv"


@dataclass(frozen=True)
class Package:
    """A part of the program and the folders of its tests, relative to the root."""

    name: str
    folder: str
    tests: tuple[str, ...]
    with_subfolders: bool = True

    def files(self) -> list[Path]:
        """Return the modules of the package, sorted by path."""
        folder = ROOT / self.folder
        found = folder.rglob("*.py") if self.with_subfolders else folder.glob("*.py")
        return sorted(path for path in found if "__pycache__" not in path.parts)


def _analysis(name: str) -> Package:
    return Package(name, f"src/fusetui/analysis/{name}", (f"tests/analysis/{name}",))


PACKAGES = (
    Package("trace", "src/fusetui/trace", ("tests/trace",)),
    Package("timeline", "src/fusetui/timeline", ("tests/timeline",)),
    _analysis("diff"),
    _analysis("why"),
    _analysis("replay"),
    _analysis("ranks"),
    _analysis("memory"),
    _analysis("serving"),
    _analysis("graphs"),
    _analysis("questions"),
    Package("gpu", "src/fusetui/gpu", ("tests/gpu",)),
    Package("tables", "src/fusetui/tables", ("tests/tables",)),
    Package("report", "src/fusetui/report", ("tests/cli", "tests/tui")),
    Package("command_line", "src/fusetui/command_line", ("tests/cli",)),
    Package("commands", "src/fusetui/commands", ("tests/cli",)),
    Package("text", "src/fusetui/text", ("tests/text",)),
    Package("attach", "src/fusetui/attach", ("tests/attach",)),
    Package("capture", "capture", ("tests/capture",)),
    Package("kernels", "kernels", ("tests/kernels",)),
    Package("tui", "tui", ("tests/tui",)),
    Package(
        "top level", "src/fusetui", ("tests/api", "tests/cli"), with_subfolders=False
    ),
)
"""`report` and the top level have no folder of tests of their own: these say their
sentences."""


@dataclass(frozen=True)
class Mutant:
    """One fault: `before` becomes `after`. `index` counts the faults of this kind in
    the file."""

    number: int
    package: str
    file: str
    line: int
    kind: str
    index: int
    before: str
    after: str


@dataclass(frozen=True)
class Result:
    """What became of a mutant: `killed_by` is a test, "" if it survived `tests`
    tests."""

    number: int
    killed_by: str
    tests: int


# Faults


@dataclass(frozen=True)
class Fault:
    """A node of a syntax tree, and the kind of fault that it can have."""

    kind: str
    node: ast.expr | ast.stmt


COMPARISON = "comparison"
AND_OR = "and, or"
NOT_REMOVED = "not removed"
PLUS_MINUS = "plus, minus"
TRUE_FALSE = "True, False"
NUMBER = "number"
RETURN_NONE = "return None"
STATEMENT_REMOVED = "statement removed"
OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SEQUENCES = (ast.List, ast.Tuple, ast.JoinedStr, ast.ListComp)
"""What is joined by `+`, and cannot be subtracted."""
DECLARATIONS = ("frozen", "strict", "kw_only", "gc", "slots", "eq", "order")
"""Arguments that declare what always holds: nothing changes a record; zip() gets equal
lengths."""
LOGGING = ("log", "logger", "logging", "warnings")


def faults(tree: ast.Module) -> Iterator[Fault]:
    """Yield all faults that can be made in a module, in the order of its text."""
    yield from _faults_in(tree, returns_none=False)


def _faults_in(node: ast.AST, returns_none: bool) -> Iterator[Fault]:
    """Yield the faults that can be made in a node and all nodes inside it.
    `returns_none` is whether the function around it may return None."""
    if _is_skipped(node):
        return

    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        returns_none = _may_be_none(node.returns)

    if isinstance(node, ast.expr):
        yield from _faults_of_expression(node)

    if isinstance(node, ast.Return) and returns_none and not _is_none(node.value):
        assert node.value is not None
        yield Fault(RETURN_NONE, node.value)

    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if isinstance(node, ast.stmt) and (is_call or isinstance(node, ast.AugAssign)):
        yield Fault(STATEMENT_REMOVED, node)

    for child in _code_children(node):
        yield from _faults_in(child, returns_none)


def _faults_of_expression(node: ast.expr) -> Iterator[Fault]:
    """Yield the faults that an expression itself can have, without those of its parts."""
    match node:
        case ast.Compare():
            yield Fault(COMPARISON, node)
        case ast.BoolOp():
            yield Fault(AND_OR, node)
        case ast.UnaryOp(op=ast.Not()):
            yield Fault(NOT_REMOVED, node)
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
            if not (_is_sequence(left) or _is_sequence(right)):
                yield Fault(PLUS_MINUS, node)
        case ast.Constant(value=bool()):
            yield Fault(TRUE_FALSE, node)
        case ast.Constant(value=int()):
            yield Fault(NUMBER, node)


def replacement(fault: Fault) -> ast.expr | None:
    """Return the node that stands in the place of a faulty one in the mutant. None
    removes the statement."""
    if fault.kind == STATEMENT_REMOVED:
        return None
    if fault.kind == RETURN_NONE:
        return ast.Constant(None)

    node = copy.deepcopy(fault.node)
    match node:
        case ast.Compare():
            node.ops[0] = OTHER_COMPARISON[type(node.ops[0])]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.BinOp():
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        case ast.UnaryOp():
            return node.operand
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int() as number):
            node.value = number + 1

    assert isinstance(node, ast.expr)
    return node


def _is_sequence(node: ast.expr) -> bool:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, SEQUENCES)


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _may_be_none(annotation: ast.expr | None) -> bool:
    """Return whether a function with this annotation returns a value or None."""
    return annotation is not None and "| None" in ast.unparse(annotation)


def _is_skipped(node: ast.AST) -> bool:
    """Return whether a node is no code that a fault could change. That is so for types,
    logging, `__all__`, `__main__`, declarations, patterns of `match`, and Triton
    kernels, which are read as text."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.pattern():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGGING
        case ast.FunctionDef(decorator_list=decorators):
            return any("jit" in ast.unparse(decorator) for decorator in decorators)
        case ast.keyword(arg=name):
            return name in DECLARATIONS
        case ast.JoinedStr():
            return True

    return False


def _code_children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node without annotations and decorators."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


# Drawing


def allotment(lines: dict[str, int], total: int) -> dict[str, int]:
    """Return how many mutants each package gets: the least number for all, and the
    others in proportion to lines of code. Remainders go to the packages with the
    largest ones."""
    free = total - LEAST_PER_PACKAGE * len(lines)
    shares = {name: free * count / sum(lines.values()) for name, count in lines.items()}
    found = {name: LEAST_PER_PACKAGE + int(share) for name, share in shares.items()}
    by_remainder = sorted(shares, key=lambda name: int(shares[name]) - shares[name])
    for name in by_remainder[: total - sum(found.values())]:
        found[name] += 1
    return found


def drawn(total: int = MUTANTS) -> list[Mutant]:
    """Return the mutants, in the random order in which they are run. The seed is fixed,
    so they are always the same."""
    lines = {package.name: _lines_of_code(package) for package in PACKAGES}
    mutants: list[Mutant] = []
    for package in PACKAGES:
        wanted = allotment(lines, total)[package.name]
        mutants += _drawn_in(package, wanted, first=len(mutants))
    random.Random(SEED).shuffle(mutants)
    return mutants


@dataclass(frozen=True)
class _Place:
    """Where a fault can be: `index` counts those of its kind in the file."""

    path: Path
    fault: Fault
    index: int


def _drawn_in(package: Package, wanted: int, first: int) -> Iterator[Mutant]:
    """Yield the mutants of one package, numbered from `first`. First the kind of a
    fault is drawn, and then its place."""
    chance = random.Random(f"{SEED} {package.name}")
    by_kind = _places_by_kind(package)
    for number in range(first, first + wanted):
        places = by_kind[
            chance.choice([kind for kind in sorted(by_kind) if by_kind[kind]])
        ]
        place = places.pop(chance.randrange(len(places)))
        changed = replacement(place.fault)
        yield Mutant(
            number=number,
            package=package.name,
            file=place.path.relative_to(ROOT).as_posix(),
            line=place.fault.node.lineno,
            kind=place.fault.kind,
            index=place.index,
            before=_one_line(place.fault.node),
            after=_one_line(changed) if changed else "pass",
        )


def _places_by_kind(package: Package) -> dict[str, list[_Place]]:
    """Return all places in a package where a fault can be, by the kind of the fault."""
    by_kind: dict[str, list[_Place]] = {}
    for path in package.files():
        counts: Counter[str] = Counter()
        for fault in faults(ast.parse(path.read_text(encoding="utf-8"))):
            place = _Place(path=path, fault=fault, index=counts[fault.kind])
            by_kind.setdefault(fault.kind, []).append(place)
            counts[fault.kind] += 1
    return by_kind


def _lines_of_code(package: Package) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in package.files())


def _one_line(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


# The copy with all mutants in it

CHOOSER = '''\
"""Chooses a mutant, and records which tests execute its place."""

import os

CHOSEN = int(os.environ.get("FUSETUI_MUTANT", "-1"))
HITS = os.environ.get("FUSETUI_MUTANT_HITS", "")
seen = set()


def chosen(number):
    if HITS:
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        if (number, test) not in seen:
            seen.add((number, test))
            file = os.open(HITS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            os.write(file, f"{number}\\t{test}\\n".encode())
            os.close(file)
    return number == CHOSEN
'''
PLUGIN = '''\
"""A plugin of pytest: runs the tests of a list in its order, and writes what became of each."""

import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if path := os.environ.get("MUTANTS_WANTED"):
        wanted = {name: n for n, name in enumerate(Path(path).read_text().splitlines())}
        items[:] = sorted(
            (item for item in items if item.nodeid in wanted), key=lambda item: wanted[item.nodeid]
        )


def pytest_runtest_logreport(report):
    with open(os.environ["MUTANTS_REPORTS"], "a") as file:
        print(report.nodeid, report.when, report.outcome, report.duration, sep="\\t", file=file)
'''


class _Planted(ast.NodeTransformer):
    """Puts faults into a tree, each of which is off unless its mutant is chosen."""

    def __init__(self, chosen: Sequence[tuple[int, Fault]]) -> None:
        self.numbers = {id(fault.node): number for number, fault in chosen}
        self.faults = {number: fault for number, fault in chosen}

    def visit(self, node: ast.AST) -> ast.AST:
        """Return a node with the faults inside it, and with its own one if it has any.
        A fault is active only if its mutant is chosen when the code runs."""
        number = self.numbers.get(id(node))
        new: ast.AST = self.generic_visit(node)
        if number is None:
            return new

        asked = ast.Call(
            ast.Name("_chosen_mutant", ast.Load()), [ast.Constant(number)], []
        )
        changed = replacement(self.faults[number])
        if changed is None:
            assert isinstance(new, ast.stmt)
            return ast.If(ast.UnaryOp(ast.Not(), asked), [new], [])

        assert isinstance(new, ast.expr)
        return ast.IfExp(asked, changed, new)


def planted(source: str, mutants: Iterable[Mutant]) -> str:
    """Return the text of a module with these mutants in it, each of which is off unless
    it is chosen."""
    tree = ast.parse(source)
    by_kind: dict[str, list[Fault]] = {}
    for fault in faults(tree):
        by_kind.setdefault(fault.kind, []).append(fault)

    chosen = [(mutant.number, by_kind[mutant.kind][mutant.index]) for mutant in mutants]
    _Planted(chosen).visit(tree)
    chooser = ast.parse("from fusetui._mutants import chosen as _chosen_mutant").body
    at = _first_after_head(tree)
    tree.body[at:at] = chooser
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _first_after_head(tree: ast.Module) -> int:
    """Return the index of the first statement after the docstring and the imports from
    `__future__`."""
    at = 0
    for n, statement in enumerate(tree.body):
        is_docstring = n == 0 and ast.get_docstring(tree) is not None
        is_future = (
            isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        )
        if not (is_docstring or is_future):
            break
        at = n + 1

    return at


def make_copy(work: Path, mutants: Sequence[Mutant]) -> Path:
    """Copy the files that git knows, and the compiled ones, with all mutants in them,
    and return the folder. An existing copy is kept."""
    tree = work / "tree"
    if tree.exists():
        return tree

    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others"]
    listed = subprocess.run(
        [*command, "--exclude-standard"], capture_output=True, check=True
    )
    names = [name for name in listed.stdout.decode().split("\0") if name]
    names += [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "src/fusetui").rglob("*.so")
    ]
    half = work / "tree.half"
    shutil.rmtree(half, ignore_errors=True)

    for name in names:
        (half / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, half / name, follow_symlinks=False)

    for file in {mutant.file for mutant in mutants}:
        inside = [mutant for mutant in mutants if mutant.file == file]
        source = (ROOT / file).read_text(encoding="utf-8")
        (half / file).write_text(planted(source, inside), encoding="utf-8")

    (half / "src/fusetui/_mutants.py").write_text(CHOOSER, encoding="utf-8")
    (half / "src/mutants_plugin.py").write_text(PLUGIN, encoding="utf-8")

    shared = work / "shared"  # tests look for real traces beside the checkout
    if (ROOT.parent / "shared").exists() and not shared.exists():
        shared.symlink_to((ROOT.parent / "shared").resolve())

    half.rename(tree)
    return tree


# Running tests


@dataclass(frozen=True)
class Ran:
    """How pytest ended: its exit code, None if it ran out of time."""

    code: int | None
    output: str


def run_tests(
    work: Path,
    files: Sequence[str],
    variables: dict[str, str],
    seconds: float,
    *options: str,
) -> Ran:
    """Run pytest in the copy, in a forked child of this process, which has imported
    everything but fusetui. It is killed after so many seconds, and its code is None
    then."""
    preload()

    output = work / "output.txt"
    child = os.fork()
    if not child:
        _become_pytest(work, output, variables, [*options, *files])

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return Ran(
                code=code, output=output.read_text(encoding="utf-8", errors="replace")
            )
        time.sleep(POLLING_SECONDS)

    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return Ran(code=None, output=output.read_text(encoding="utf-8", errors="replace"))


def preload() -> None:
    """Import what tests import, except for the program and its tests, so that each
    child starts quickly."""
    for name in PRELOADED:
        importlib.import_module(name)


def _become_pytest(
    work: Path, output: Path, variables: dict[str, str], arguments: Sequence[str]
) -> NoReturn:
    """Run pytest in this process, and end it with pytest's exit code."""
    code = 3  # pytest's internal error
    try:
        os.setsid()
        # ignored in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
        tree = work / "tree"
        os.chdir(tree)
        os.environ.pop("FUSETUI_TRACES", None)
        os.environ.update({**variables, "PYTHONPATH": str(tree / "src")})
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        sys.path[:] = [
            str(tree / "src"),
            *(path for path in sys.path if path != str(ROOT)),
        ]

        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(file, stream)

        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        options = ["-q", "--tb=line", "-p", "no:cacheprovider", "-p", "mutants_plugin"]
        options.append(f"--basetemp={work / 'temporary'}")
        plugins = [importlib.import_module(name) for name in PLUGINS]
        code = int(pytest.main([*options, *arguments], plugins))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def record(work: Path, package: Package, mutants: Sequence[Mutant]) -> None:
    """Run the tests of a package without a mutant, and record which of them execute the
    places of mutants. Files of tests that are near the mutants come first, as the time
    is limited."""
    done = work / f"recorded-{_file_name(package.name)}"
    if done.exists():
        return

    inside = [mutant for mutant in mutants if mutant.package == package.name]
    files = _nearest_first(package, inside)
    variables = {
        "FUSETUI_MUTANT_HITS": str(work / "hits.tsv"),
        "MUTANTS_REPORTS": str(work / "reports.tsv"),
    }
    seconds = max(LEAST_RECORDING_SECONDS, RECORDING_SECONDS_PER_MUTANT * len(inside))
    start = time.monotonic()
    ran = run_tests(work, files, variables, seconds)
    took = time.monotonic() - start
    told = f"{package.name}: code {ran.code} after {took:.0f} s"
    print(told, ran.output[-2000:], flush=True)
    done.write_text(told, encoding="utf-8")


def _file_name(name: str) -> str:
    return name.replace(" ", "-")


def _nearest_first(package: Package, mutants: Sequence[Mutant]) -> list[str]:
    """Return the files of a package's tests, with those first that name modules of the
    mutants."""
    modules = [Path(mutant.file).stem for mutant in mutants]
    folders = [Path(mutant.file).parent.name for mutant in mutants]

    names = re.compile(rf"\b({'|'.join(map(re.escape, modules))})\b")
    near: dict[str, int] = {}
    for folder in package.tests:
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            named = len(set(names.findall(path.read_text(encoding="utf-8"))))
            same_folder = path.parent.name in folders
            near[path.relative_to(ROOT).as_posix()] = 2 * named + same_folder

    return sorted(near, key=lambda file: -near[file])


@dataclass(frozen=True)
class Recorded:
    """Seconds by test that passes without a mutant, and tests by mutant that execute
    its place."""

    seconds: dict[str, float]
    tests: dict[int, set[str]]


def read_recorded(work: Path) -> Recorded:
    """Return what all recordings so far have found: the seconds of each test that
    passes, and the tests that execute the place of each mutant.

    A place that a fixture of a module executes counts for all tests of the file. A
    place that is executed at import is recorded under the name "".
    """
    seconds: dict[str, float] = {}

    ended: set[str] = set()
    failed: set[str] = set()
    for name, phase, outcome, duration in _rows(work / "reports.tsv"):
        seconds[name] = seconds.get(name, 0.0) + float(duration)
        if phase == "teardown":
            ended.add(name)
        if outcome != "passed":
            failed.add(name)

    passed = {name: took for name, took in seconds.items() if name in ended - failed}
    tests: dict[int, set[str]] = {}
    for number, current in _rows(work / "hits.tsv"):
        test, _, phase = current.rpartition(" ")
        found = tests.setdefault(int(number), set())
        found.add(test)
        if phase == "(setup)":
            file = test.partition("::")[0]
            found.update(name for name in passed if name.startswith(f"{file}::"))

    return Recorded(seconds=passed, tests=tests)


def _rows(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.split("\t") for line in lines]


def chosen_tests(mutant: Mutant, recorded: Recorded) -> list[str]:
    """Return the tests to run with a mutant, the quickest first, at most
    MOST_TESTS_PER_MUTANT and for a limited time. For a place that is executed at import
    they are those of files that name the module."""
    package = package_of(mutant)

    hits = recorded.tests.get(mutant.number, set())
    found = hits & recorded.seconds.keys()
    if "" in hits:  # executed at import, so any test may see it
        stem = Path(mutant.file).stem
        own = tuple(f"{folder}/" for folder in package.tests)
        inside = [name for name in recorded.seconds if name.startswith(own)]
        texts = {name.partition("::")[0] for name in inside}
        naming = {
            file
            for file in texts
            if re.search(
                rf"\b{re.escape(stem)}\b", (ROOT / file).read_text(encoding="utf-8")
            )
        }
        found |= {name for name in inside if name.partition("::")[0] in naming}
        found = found or set(inside)

    ordered = sorted(found, key=lambda name: (recorded.seconds[name], name))
    total = 0.0
    for n, name in enumerate(ordered[:MOST_TESTS_PER_MUTANT]):
        total += recorded.seconds[name]
        if total > MOST_SECONDS_OF_CHOSEN_TESTS and n > 0:
            return ordered[:n]

    return ordered[:MOST_TESTS_PER_MUTANT]


def kill(work: Path, mutant: Mutant, recorded: Recorded) -> Result:
    """Run the chosen tests with a mutant and return what became of it."""
    tests = chosen_tests(mutant, recorded)
    if not tests:
        return Result(number=mutant.number, killed_by="", tests=0)

    wanted = work / "wanted.txt"
    wanted.write_text("\n".join(tests), encoding="utf-8")
    files = sorted({name.partition("::")[0] for name in tests})
    seconds = STARTING_SECONDS + SLOWER * sum(recorded.seconds[name] for name in tests)

    return _killed_by(
        work, mutant, files, {"MUTANTS_WANTED": str(wanted)}, seconds, len(tests)
    )


def _killed_by(
    work: Path,
    mutant: Mutant,
    files: Sequence[str],
    variables: dict[str, str],
    seconds: float,
    count: int,
) -> Result:
    """Run files of tests with a mutant and return its result. It is killed if a test
    fails, if they take too long, or if pytest cannot import a module. Raises
    RuntimeError if pytest ends otherwise."""
    reports = work / "reports-of-mutant.tsv"
    reports.unlink(missing_ok=True)
    all_variables = {
        "FUSETUI_MUTANT": str(mutant.number),
        "MUTANTS_REPORTS": str(reports),
        **variables,
    }
    ran = run_tests(work, files, all_variables, seconds, "-x")

    failed = [name for name, _, outcome, _ in _rows(reports) if outcome == "failed"]
    if ran.code is None:
        return Result(number=mutant.number, killed_by=TIME_LIMIT, tests=count)
    if failed:
        return Result(number=mutant.number, killed_by=failed[0], tests=count)
    if ran.code == 0:
        return Result(number=mutant.number, killed_by="", tests=count)

    # modules cannot be imported, or pytest crashed
    if ran.code in (2, 3, 4) or ran.code < 0:
        print(ran.output[-1500:], flush=True)
        return Result(
            number=mutant.number, killed_by=f"import of {files[0]}", tests=count
        )

    raise RuntimeError(f"pytest ended with {ran.code}: {ran.output[-2000:]}")


def kill_deeper(work: Path, mutant: Mutant, recorded: Recorded) -> Result:
    """Run whole files of tests with a mutant that survived: those with most tests that
    execute its place, then those that import its module. Taking too long says nothing
    here."""
    hits = recorded.tests.get(mutant.number, set())
    executing = Counter(name.partition("::")[0] for name in hits if name)
    files = [file for file, _ in executing.most_common(MOST_EXECUTING_FILES)]

    files += [file for file in _importing(mutant) if file not in files][
        :MOST_IMPORTING_FILES
    ]
    if not files:
        return Result(number=mutant.number, killed_by="", tests=0)

    result = _killed_by(work, mutant, files, {}, DEEPER_SECONDS, len(hits))
    if result.killed_by == TIME_LIMIT:
        return Result(number=mutant.number, killed_by="", tests=len(hits))

    return result


def _importing(mutant: Mutant) -> list[str]:
    """Return the files of tests that import something of the module of a mutant, with
    those of its own package first."""
    module = (
        mutant.file.removesuffix(".py").removeprefix("src/").removeprefix("fusetui/")
    )
    dotted = "fusetui." + module.removesuffix("/__init__").replace("/", ".")
    parent, _, stem = dotted.rpartition(".")
    whole = dotted.split(".")[1]
    forms = (
        rf"{re.escape(dotted)}\b"
        rf"|{re.escape(parent)} import [^\n]*\b{re.escape(stem)}\b"
        rf"|from fusetui import [^\n]*\b{whole}\b"
    )
    package = package_of(mutant)

    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if re.search(forms, path.read_text(encoding="utf-8")):
            found.append(path.relative_to(ROOT).as_posix())

    return sorted(found, key=lambda file: not file.startswith(package.tests))


def package_of(mutant: Mutant) -> Package:
    """The package of a mutant."""
    return next(package for package in PACKAGES if package.name == mutant.package)


def read_results(path: Path) -> dict[int, Result]:
    """Return the results of an earlier run, by the number of the mutant; empty if there
    is no such file."""
    if not path.exists():
        return {}
    found = [
        Result(**json.loads(line))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return {result.number: result for result in found}


def add_result(path: Path, result: Result) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")


# Tables


def read_equivalent() -> dict[int, str]:
    """Return why mutants behave as the program does, by their numbers, as a person has
    judged."""
    rows = _rows(EQUIVALENT)[1:]
    return {int(number): reason for number, reason in rows}


def fate(mutant: Mutant, results: dict[int, Result], equivalent: dict[int, str]) -> str:
    """Return what became of a mutant, in words."""
    result = results[mutant.number]
    if result.killed_by:
        return f"killed by {result.killed_by}"
    if mutant.number in equivalent:
        return f"equivalent: {equivalent[mutant.number]}"

    return (
        "survived"
        if result.tests
        else "survived, not executed by the tests that were run"
    )


def write_tsv(mutants: Sequence[Mutant], results: dict[int, Result]) -> None:
    """Write docs/mutants.tsv, with a line for each mutant that was run."""
    equivalent = read_equivalent()
    lines = ["mutant\tfile\tline\tkind\tbefore\tafter\twhat became of it"]
    for mutant in sorted(mutants, key=lambda mutant: mutant.number):
        if mutant.number in results:
            told = fate(mutant, results, equivalent)
            place = f"{mutant.number}\t{mutant.file}\t{mutant.line}"
            lines.append(
                f"{place}\t{mutant.kind}\t{mutant.before}\t{mutant.after}\t{told}"
            )

    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(
    mutants: Sequence[Mutant], first: dict[int, Result], after: dict[int, Result]
) -> list[str]:
    """Return the lines of a Markdown table with a row for each package. It counts the
    mutants that were run, those that tests killed at first and with new tests, and
    those that are left."""
    equivalent = read_equivalent()
    head = ["package", "mutants run", "killed", "with new tests", "equivalent", "left"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]

    run = [mutant for mutant in mutants if mutant.number in first]
    names = [package.name for package in PACKAGES]
    for name in [*names, "all"]:
        inside = [mutant.number for mutant in run if name in (mutant.package, "all")]
        killed = sum(bool(first[number].killed_by) for number in inside)
        killed_after = sum(bool(after[number].killed_by) for number in inside)
        same = sum(
            number in equivalent and not after[number].killed_by for number in inside
        )
        left = len(inside) - killed_after - same
        cells = [
            name,
            str(len(inside)),
            str(killed),
            str(killed_after),
            str(same),
            str(left),
        ]
        lines.append(f"| {' | '.join(cells)} |")

    return lines


def main() -> None:
    """Draw the mutants, make the copy, run what the options ask for, and print the
    table."""
    parser = argparse.ArgumentParser(
        description="Runs tests with small faults in the program."
    )
    parser.add_argument("work", type=Path, help="a folder outside of the checkout")
    parser.add_argument(
        "--most", type=int, default=MUTANTS, help="run only so many of them"
    )
    parser.add_argument(
        "--deeper", action="store_true", help="whole files for survivors"
    )
    parser.add_argument(
        "--again", nargs="+", default=[], metavar="FILE", help="of new tests"
    )
    parser.add_argument(
        "--put", action="store_true", help="only put the tables into docs/"
    )
    options = parser.parse_args()

    work: Path = options.work.resolve()
    if work.is_relative_to(ROOT):
        sys.exit("WORK is inside the checkout")

    work.mkdir(parents=True, exist_ok=True)
    mutants = drawn()
    make_copy(work, mutants)

    if options.again:
        run_again(work, mutants, options.again)
    elif options.deeper:
        run_deeper(work, mutants)
    elif not options.put:
        run_first(work, mutants[: options.most])

    before = {**read_results(work / FIRST), **read_results(work / DEEPER)}
    after = {**before, **read_results(work / AFTER)}
    lines = table(mutants, before, after)
    print("\n".join(lines))

    if options.put:
        write_tsv(mutants, after)
        head = f"{len(before)} of {len(mutants)} mutants were run, seed {SEED}."
        put(PAGE, "mutants", "\n".join([head, "", *lines]), __file__)


def run_first(work: Path, mutants: Sequence[Mutant]) -> None:
    """Run the mutants that have no result yet, and keep each result at once."""
    path = work / FIRST
    known = read_results(path)
    for mutant in mutants:
        if mutant.number in known:
            continue
        record(work, package_of(mutant), mutants)
        result = kill(work, mutant, read_recorded(work))
        add_result(path, result)
        told = result.killed_by or f"SURVIVED {result.tests} tests"
        print(
            f"{mutant.number} {mutant.file}:{mutant.line} {mutant.kind}: {told}",
            flush=True,
        )


def run_deeper(work: Path, mutants: Sequence[Mutant]) -> None:
    """Run whole files of tests with each mutant that survived the first run."""
    path = work / DEEPER
    known = {**read_results(work / FIRST), **read_results(path)}

    done = read_results(path)
    recorded = read_recorded(work)
    for mutant in mutants:
        number = mutant.number
        if number in done or number not in known or known[number].killed_by:
            continue
        result = kill_deeper(work, mutant, recorded)
        add_result(path, result)
        print(
            f"{number} {mutant.file}:{mutant.line}: {result.killed_by or 'SURVIVED'}",
            flush=True,
        )


def run_again(work: Path, mutants: Sequence[Mutant], files: Sequence[str]) -> None:
    """Run files of tests, as they are now in the checkout, with each surviving mutant
    whose module they import. Exits if these tests fail without a mutant."""
    equivalent = read_equivalent()
    results = {
        **read_results(work / FIRST),
        **read_results(work / DEEPER),
        **read_results(work / AFTER),
    }

    for name in files:
        shutil.copy2(ROOT / name, work / "tree" / name)

    unchanged = run_tests(work, files, {"MUTANTS_REPORTS": os.devnull}, AGAIN_SECONDS)
    if unchanged.code != 0:
        sys.exit(f"these tests fail without a mutant:\n{unchanged.output[-3000:]}")

    for mutant in mutants:
        number = mutant.number
        if number not in results or results[number].killed_by or number in equivalent:
            continue
        relevant = [file for file in _importing(mutant) if file in files]
        if not relevant:
            continue
        result = _killed_by(work, mutant, relevant, {}, AGAIN_SECONDS, len(relevant))
        if result.killed_by:
            add_result(work / AFTER, result)
        told = result.killed_by or "SURVIVED"
        print(f"{number} {mutant.file}:{mutant.line} {mutant.kind}: {told}", flush=True)


if __name__ == "__main__":
    main()
