"""The house has rooms, and only some doors between them: `.github/CONTRIBUTING.md` draws the map.

Every import counts, wherever it stands: in a function, for types only, or by a module's name in a
string.
"""

from __future__ import annotations

import ast
import graphlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from support.fences import clean_env

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gitlease"

# Room -> the rooms that it may import.
ARROWS = {
    "domain": {"domain"},
    "ports": {"domain"},
    "service": {"domain", "ports", "service"},
    "adapters": {"domain", "ports", "adapters"},
    "bootstrap": {"domain", "ports", "service", "adapters", "bootstrap"},
    "faces": {"domain", "service", "bootstrap", "faces", "door"},
    "door": {"domain", "faces", "door"},
}
# Third parties, by the rooms (or packages of a room) that may know them.
THIRD_PARTIES = {
    "gitlease.adapters": {"pygit2", "yaml", "filelock"},
    "gitlease.faces.cli": {"click", "rich"},
}
# The outside world is the adapters' alone; each exception has its reason.
WORLD = {"subprocess", "os.environ", "os.environb", "os.getenv", "os.putenv"}
EXCEPTIONS = {
    "gitlease.bootstrap": {"os.environ"},  # where a caller names no environment
    "gitlease.bootstrap_agents": {"os.environ"},
    "gitlease.bootstrap_hooks": {"os.environ"},
    "gitlease.bootstrap_running": {"os.environ"},  # the environment that a command gets
    "gitlease.faces.cli.app": {"os.environ"},  # the shell's own way to ask for completions
    "gitlease.faces.cli.demo": {"subprocess", "os.environ"},  # it plays with the real command
}
# The pure rooms have no clock, no dice and no I/O; the service throws dice only to pause.
IO = {"io", "pathlib", "shutil", "tempfile", "socket", "signal", "logging"}
IMPURE = {"os", "time", "secrets", "uuid", "threading", "asyncio", "multiprocessing", *IO}
PURE_ROOMS = {"domain": IMPURE | {"random"}, "ports": IMPURE | {"random"}, "service": IMPURE}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__"}
CLOCKS = {"now", "utcnow", "today"}
HEAVY = {"pygit2", "yaml", "filelock", "rich"}
LONGEST = 400  # lines; the aim is 250


@dataclass(frozen=True)
class Import:
    """One import: of what, in which line, and whether it happens when the module is loaded."""

    target: str
    line: int
    eager: bool


def module_files() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


MODULES = module_files()


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def room_of(module: str) -> str:
    """The room that a module of ours lies in."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__main__":
        return "door"
    if parts[1] in ("domain", "adapters", "faces", "ports"):
        return parts[1]
    if parts[1].startswith("ports_"):
        return "ports"
    if parts[1] == "bootstrap" or parts[1].startswith("bootstrap_"):
        return "bootstrap"  # a root for each way in, since hooks have no time for the others
    if len(parts) == 2:
        return "service"  # the service is in several modules beside it
    raise AssertionError(f"{module} lies in no known room")


def imports_of(module: str, tree: ast.Module) -> Iterator[Import]:
    """Every import of a module, and every string that names a module of ours."""

    def walk(node: ast.AST, eager: bool) -> Iterator[Import]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            eager = False
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(name.name, node.lineno, eager)
        elif isinstance(node, ast.ImportFrom):
            start = _absolute(module, node)
            for name in node.names:
                inner = f"{start}.{name.name}"
                yield Import(inner if inner in MODULES else start, node.lineno, eager)
        elif isinstance(node, ast.Constant) and node.value in MODULES:
            if node.value != "gitlease":  # a word of every message
                yield Import(str(node.value), node.lineno, eager=False)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                yield from walk(child, eager=False)
            for child in node.orelse:
                yield from walk(child, eager)
            return
        for below in ast.iter_child_nodes(node):
            yield from walk(below, eager)

    yield from walk(tree, eager=True)


def _absolute(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    is_package = MODULES.get(module, Path()).name == "__init__.py"
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def wrong_imports(module: str, tree: ast.Module) -> Iterator[str]:
    """What a module imports and must not, each with its place and the rule."""
    room = room_of(module)
    for found in imports_of(module, tree):
        place = f"{module}:{found.line} imports {found.target}"
        top = found.target.partition(".")[0]
        if top == "gitlease":
            there = room_of(found.target)
            if there not in ARROWS[room]:
                yield f"{place}: {room} may import {_list(ARROWS[room])}, not {there}"
        elif top not in sys.stdlib_module_names:
            known = next(
                (k for where, k in THIRD_PARTIES.items() if f"{module}.".startswith(f"{where}.")),
                set[str](),
            )
            if top not in known:
                yield f"{place}: this room knows {_list(known)} of third parties"
        elif top in PURE_ROOMS.get(room, ()):
            yield f"{place}: {room} has no clock, no dice, no I/O: take it as an argument"


def wrong_uses(module: str, tree: ast.Module) -> Iterator[str]:
    """Uses of the outside world, and in the pure rooms of clocks, files and the terminal."""
    room = room_of(module)
    allowed = EXCEPTIONS.get(module, set())
    for node in ast.walk(tree):
        line = f"{module}:{getattr(node, 'lineno', 0)}"
        if room != "adapters":
            for used in _world(node) - allowed:
                yield f"{line} uses {used}: only adapters talk to the outside world"
        if room not in PURE_ROOMS:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS:
                yield f"{line} calls {node.func.id}(): {room} has no I/O"
        elif isinstance(node, ast.Attribute) and node.attr in CLOCKS:
            if isinstance(node.value, ast.Name) and node.value.id in ("datetime", "date"):
                yield f"{line} reads the clock: time comes in as an argument"
        elif _is_stream(node):
            yield f"{line} uses a standard stream: {room} has no I/O"


def _world(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {name.name for name in node.names} & WORLD
    if isinstance(node, ast.ImportFrom):
        names = {node.module or "", *(f"{node.module}.{name.name}" for name in node.names)}
        return names & WORLD
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return {f"{node.value.id}.{node.attr}"} & WORLD
    return set()


def _is_stream(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("stdin", "stdout", "stderr")
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
    )


def _list(words: set[str]) -> str:
    return ", ".join(sorted(words)) or "none"


def told(problems: Iterator[str]) -> None:
    lines = list(problems)
    assert not lines, "\n" + "\n".join(lines)


# --- the house as it stands ------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_room_may(module: str) -> None:
    told(wrong_imports(module, tree_of(module)))


@pytest.mark.parametrize("module", MODULES)
def test_the_outside_world_is_the_adapters_alone(module: str) -> None:
    told(wrong_uses(module, tree_of(module)))


@pytest.mark.parametrize("module", MODULES)
def test_heavy_imports_happen_where_they_are_used(module: str) -> None:
    told(
        f"{module}:{found.line} imports {found.target} when loaded: import it where it is used"
        for found in imports_of(module, tree_of(module))
        if found.eager and found.target.partition(".")[0] in HEAVY
    )


def test_no_module_is_too_long() -> None:
    lengths = {m: len(f.read_text(encoding="utf-8").splitlines()) for m, f in MODULES.items()}
    told(
        f"{module} has {lines} lines; more than {LONGEST} is two modules (aim: 250)"
        for module, lines in lengths.items()
        if lines > LONGEST
    )


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = {
        module: {
            i.target for i in imports_of(module, tree_of(module)) if i.eager and i.target in MODULES
        }
        for module in MODULES
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_every_exception_is_still_needed() -> None:
    for module, allowed in EXCEPTIONS.items():
        if module not in MODULES:
            continue
        used = set().union(*(_world(node) for node in ast.walk(tree_of(module))))
        assert allowed <= used, f"{module} does not use {_list(allowed - used)} any more"


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after ``code``."""
    words = [
        sys.executable,
        "-c",
        f"import sys\n{code}\nimport json\nprint(json.dumps([*sys.modules]))",
    ]
    env = {**clean_env(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_door_alone_loads_nothing_else() -> None:
    loaded = loaded_by("import gitlease")
    assert not loaded & {*HEAVY, "click", "subprocess"}
    assert {name for name in loaded if name.startswith("gitlease")} == {"gitlease"}


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["claim", "--help"]])
def test_what_needs_no_repository_loads_no_adapters(words: list[str]) -> None:
    code = f"from gitlease.faces.cli.app import run\nassert run({words!r}) == 0"
    loaded = loaded_by(code)
    assert not loaded & HEAVY
    assert not {name for name in loaded if name.startswith("gitlease.adapters")}


def test_names_in_the_door_lead_somewhere() -> None:
    import gitlease

    for name in gitlease.__all__:
        assert getattr(gitlease, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = gitlease.nothing


# --- the rules themselves --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("gitlease.domain.x", "import gitlease.ports", "domain may import domain, not ports"),
        ("gitlease.domain.x", "def f():\n from gitlease.adapters import git", "not adapters"),
        ("gitlease.domain.x", "from ..adapters import git", "not adapters"),
        ("gitlease.domain.x", "import time", "take it as an argument"),
        ("gitlease.domain.x", "import click", "of third parties"),
        ("gitlease.service", "from gitlease import bootstrap", "not bootstrap"),
        ("gitlease.service", "import pygit2", "of third parties"),
        ("gitlease.adapters.x", "import gitlease.service", "not service"),
        ("gitlease.adapters.x", "import rich", "filelock, pygit2, yaml of third parties"),
        ("gitlease.bootstrap", "import_module('gitlease.faces.library')", "not faces"),
        ("gitlease.faces.library", "import click", "knows none of third parties"),
        (
            "gitlease.faces.library",
            "if TYPE_CHECKING:\n from gitlease.adapters.git import run_git",
            "not adapters",
        ),
    ],
)
def test_a_wrong_import_is_noticed(module: str, source: str, complaint: str) -> None:
    (problem,) = wrong_imports(module, ast.parse(source))
    assert complaint in problem


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("gitlease.domain.x", "datetime.now()", "reads the clock"),
        ("gitlease.domain.x", "open('x')", "calls open()"),
        ("gitlease.domain.x", "print('x')", "calls print()"),
        ("gitlease.domain.x", "sys.stderr.write('x')", "a standard stream"),
        ("gitlease.service", "os.environ['X']", "uses os.environ"),
        ("gitlease.faces.wire", "import subprocess", "uses subprocess"),
        ("gitlease.faces.wire", "from os import getenv", "uses os.getenv"),
    ],
)
def test_a_wrong_use_is_noticed(module: str, source: str, complaint: str) -> None:
    (problem,) = wrong_uses(module, ast.parse(source))
    assert complaint in problem


def test_an_unknown_room_is_noticed() -> None:
    with pytest.raises(AssertionError, match="no known room"):
        room_of("gitlease.cellar.wine")
