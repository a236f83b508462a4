"""What import-linter cannot see of the laws in `pyproject.toml`: uses of the world, and of names.

`.github/CONTRIBUTING.md` draws the map. Every import counts here, wherever it stands: in a
function, or as a module's name in a string.
"""

from __future__ import annotations

import ast
import graphlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from support.fences import clean_env

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gitlease"

# From the ground up; what is not named is a part. A module's name in a string may lead down only.
FLOORS = {"kernel": 0, "verbs": 1, "tools": 3, "library": 4, "mcp": 4, "gateway": 5, "cli": 6}
FLOORS |= {"door": 7, "testing": 7}
PARTS = 2
# Third parties, by the packages that may know them.
THIRD_PARTIES = {
    "kernel.git": {"filelock", "yaml"},
    "kernel.store": {"pygit2"},
    "kernel.settings": {"yaml"},
    "agents": {"yaml"},
    "board": {"rich"},
    "check": {"yaml"},
    "cli": {"click", "rich"},
    "gateway": {"anyio", "h11", "mcp", "starlette", "uvicorn"},
    "guard": {"yaml"},
    "mcp": {"anyio", "mcp"},
    "tasks": {"yaml"},
    "verbs": {"rich"},
    "testing": {"pytest"},  # for its fixture, where there is one
}
# Processes and the environment: whoever uses them is in one of these packages, or named here.
WORLD = {"subprocess", "os.environ", "os.environb", "os.getenv", "os.putenv"}
WORLDLY = {
    "kernel.git",
    "kernel.settings",
    "kernel.store",
    "tasks",
    "guard",
    "runs",
    "landing",
    "agents",
    "check",
    "server",
}
EXCEPTIONS = {
    "gitlease.gateway.opening": {"os.environ"},
    "gitlease.wiring.workspace": {"os.environ"},  # where a caller names no environment
    "gitlease.wiring.examined": {"os.environ"},  # it opens places for `doctor`
    "gitlease.tools.doctor": {"os.environ"},
    "gitlease.cli.app": {"os.environ"},  # the shell's own way to ask for completions
    "gitlease.cli.output": {"os.environ"},  # what a terminal is said to be able to
    "gitlease.cli.setup.demo": {"subprocess", "os.environ"},  # it plays the real command
}
# The pure packages have no clock, no dice and no I/O; the engine throws dice only to pause.
IO = {"io", "pathlib", "shutil", "tempfile", "socket", "signal", "logging"}
IMPURE = {"os", "time", "secrets", "uuid", "threading", "asyncio", "multiprocessing", *IO}
PURE = {"kernel.rules": IMPURE | {"random"}, "kernel.ledger": IMPURE}
THREADS = {"gitlease.kernel.ledger.heartbeat"}  # renewals go on beside whatever else is done
KERNEL = "gitlease.kernel"
MOST_NAMES = 475  # that the rest takes from the kernel, without settings; the aim is 130
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__"}
CLOCKS = {"now", "utcnow", "today"}
HEAVY = {"filelock", "yaml", "rich", "pygit2"}
HEAVY_MODULES = {
    "gitlease.kernel.store.libgit"
}  # which load one, and are loaded where they are used


@dataclass(frozen=True)
class Import:
    """One import: of what, in which line, and whether it happens when the module is loaded."""

    target: str
    line: int
    eager: bool
    named: bool = False


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


@cache
def nodes_of(tree: ast.Module) -> list[ast.AST]:
    """Every node; kept, since to walk over all of gitlease takes half a second each time."""
    return [*ast.walk(tree)]


# What is taken from a package; by its text, as to parse all tests takes seconds.
_TAKEN = re.compile(r"^ *from (gitlease[\w.]*) import (?:\(([^)]*)\)|([^\n]*))", re.MULTILINE)


def imported_by_tests() -> Iterator[tuple[str, str]]:
    """Every package that a test or a benchmark names, with every name that it takes of it."""
    for folder in ("tests", "benchmarks"):
        for file in (ROOT / folder).rglob("*.py"):
            for package, several, line in _TAKEN.findall(file.read_text(encoding="utf-8")):
                names = re.sub("#.*", "", several or line).split(",")
                yield from ((package, name.split()[0]) for name in names if name.strip())


def package_of(module: str) -> str:
    """The package that a module of ours lies in; of the kernel, its layer."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__main__":
        return "door"
    return ".".join(parts[1:3]) if parts[1] == "kernel" else parts[1]


def floor_of(module: str) -> int:
    """How high above the kernel a module of ours lies."""
    return FLOORS.get(package_of(module).partition(".")[0], PARTS)


@cache
def imports_of(module: str, tree: ast.Module) -> list[Import]:
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
                if (start, name.name) != ("gitlease", "__version__"):  # any floor may say it
                    yield Import(home_of(start, name.name), node.lineno, eager)
        elif isinstance(node, ast.Constant) and node.value in MODULES:
            if node.value != "gitlease":  # a word of every message
                yield Import(str(node.value), node.lineno, eager=False, named=True)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                yield from walk(child, eager=False)
            for child in node.orelse:
                yield from walk(child, eager)
            return
        for below in ast.iter_child_nodes(node):
            yield from walk(below, eager and below is not getattr(node, "annotation", None))

    return [*walk(tree, eager=True)]


def home_of(package: str, name: str) -> str:
    """The module that an import of a name from a module or package loads."""
    inner = f"{package}.{name}"
    return inner if inner in MODULES else package


def _absolute(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    is_package = MODULES.get(module, Path()).name == "__init__.py"
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def wrong_imports(module: str, tree: ast.Module) -> Iterator[str]:
    """What a module imports and must not, each with its place and the rule."""
    package = package_of(module)
    for found in imports_of(module, tree):
        place = f"{module}:{found.line} imports {found.target}"
        top = found.target.partition(".")[0]
        if top == "gitlease":
            leads_up = floor_of(found.target) > floor_of(module)
            if leads_up and floor_of(module) == FLOORS["kernel"] and not found.named:
                yield f"{place}: the kernel knows no part, not even for its types"
            if found.named and leads_up:
                yield f"{place} by its name: {package} lies below {package_of(found.target)}"
        elif top not in sys.stdlib_module_names:
            known = THIRD_PARTIES.get(package, set())
            if top not in known:
                yield f"{place}: {package} knows {_list(known)} of third parties"
        elif top in PURE.get(package, ()) and module not in THREADS:
            yield f"{place}: {package} has no clock, no dice, no I/O: take it as an argument"


def wrong_uses(module: str, tree: ast.Module) -> Iterator[str]:
    """Uses of the outside world, and in the pure packages of clocks, files and the terminal."""
    package = package_of(module)
    allowed = EXCEPTIONS.get(module, set())
    for node in nodes_of(tree):
        line = f"{module}:{getattr(node, 'lineno', 0)}"
        if package not in WORLDLY:
            for used in _world(node) - allowed:
                yield f"{line} uses {used}: {package} does not talk to the outside world"
        if package not in PURE:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS:
                yield f"{line} calls {node.func.id}(): {package} has no I/O"
        elif isinstance(node, ast.Attribute) and node.attr in CLOCKS:
            if isinstance(node.value, ast.Name) and node.value.id in ("datetime", "date"):
                yield f"{line} reads the clock: time comes in as an argument"
        elif _is_stream(node):
            yield f"{line} uses a standard stream: {package} has no I/O"


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


def test_a_module_imports_only_what_its_package_may() -> None:
    told(wrong for module in MODULES for wrong in wrong_imports(module, tree_of(module)))


def test_only_some_packages_talk_to_the_outside_world() -> None:
    told(wrong for module in MODULES for wrong in wrong_uses(module, tree_of(module)))


@cache
def classes() -> list[tuple[str, ast.ClassDef]]:
    """Every class of the package, with its module."""
    every = ((module, node) for module in MODULES for node in nodes_of(tree_of(module)))
    return [(module, node) for module, node in every if isinstance(node, ast.ClassDef)]


def test_a_class_has_a_name_of_its_own() -> None:
    names = Counter(node.name for _, node in classes())
    assert [name for name, times in names.items() if times > 1] == []


def test_no_class_inherits_from_another_modules() -> None:
    """But errors and Protocols may: what is built of parts is read in one place."""
    homes = {node.name: module for module, node in classes()}
    kinds = {node.name: {_name(base) for base in node.bases} for _, node in classes()}
    told(
        f"{node.name}({base})"
        for module, node in classes()
        for base in kinds[node.name]
        if homes.get(base, module) != module
        and not _is_error(base, kinds)
        and not ("Protocol" in kinds[base] or "Protocol" in kinds[node.name])
    )


def _name(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


def _is_error(name: str, kinds: dict[str, set[str]]) -> bool:
    if name.endswith(("Error", "Exception")):
        return True
    return any(_is_error(base, kinds) for base in kinds.get(name, ()))


_LOCKING = re.compile(r"\b(?:flock|lockf|F_SETLK\w*|F_OFD_SETLK\w*)\b")


def test_every_lock_between_processes_is_one_of_filelock() -> None:
    told(
        f"{module}: it takes a lock of its own"
        for module, file in MODULES.items()
        if _LOCKING.search(file.read_text(encoding="utf-8"))
    )
    users = {
        module
        for module in MODULES
        for found in imports_of(module, tree_of(module))
        if found.target.partition(".")[0] == "filelock"
    }
    assert users == {"gitlease.kernel.git.files"}


def test_no_python_runs_between_fork_and_exec_beside_threads() -> None:
    told(
        f"{module}: it starts a process with preexec_fn"
        for module, file in MODULES.items()
        if "preexec_fn=" in file.read_text(encoding="utf-8")
        and module != "gitlease.runs.guardian"  # a process of its own, without threads
    )


def names_of_the_kernel() -> dict[str, set[str]]:
    """The names that the rest takes from the kernel without its settings, by their users."""
    found: dict[str, set[str]] = {}
    for module in MODULES:
        if package_of(module).startswith("kernel"):
            continue
        whole: dict[str, str] = {}  # modules of the kernel, by the name that they have here
        taken = list[str]()
        for node in nodes_of(tree_of(module)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(KERNEL):
                for name in node.names:
                    full = f"{node.module}.{name.name}"
                    if full in MODULES:
                        whole[name.asname or name.name] = full
                    else:
                        taken.append(full)
        for node in nodes_of(tree_of(module)):
            if isinstance(node, ast.Attribute) and _name(node.value) in whole:
                taken.append(f"{whole[_name(node.value)]}.{node.attr}")
        for full in taken:
            found.setdefault(full.removeprefix(f"{KERNEL}."), set()).add(package_of(module))
    return {name: users for name, users in found.items() if not name.startswith("settings.")}


def test_the_rest_takes_few_names_from_the_kernel() -> None:
    found = names_of_the_kernel()
    single = sorted(f"{name} ({', '.join(x)})" for name, x in found.items() if len(x) == 1)
    assert len(found) <= MOST_NAMES, (
        f"the rest takes {len(found)} names from the kernel, {len(found) - MOST_NAMES} too many: "
        "move what one package alone uses into it, or give a value that callers already hold a "
        "method for what they put together by hand. Used by one package: " + ", ".join(single)
    )


def test_heavy_imports_happen_where_they_are_used() -> None:
    told(
        f"{module}:{found.line} imports {found.target} when loaded: import it where it is used"
        for module in MODULES
        for found in imports_of(module, tree_of(module))
        if found.eager
        and (
            (found.target.partition(".")[0] in HEAVY and module not in HEAVY_MODULES)
            or any(found.target.startswith(x) for x in HEAVY_MODULES)
        )
    )


# Refusals and hints of rooms below the verbs that name an option or a command, by their module:
# a server's administrator has no other door.
COMMANDS = {"gitlease.server.install": 1}
SPEAKING = {"cli", "library", "mcp", "gateway", "agents", "board", "verbs", "door", "testing"}
_COMMAND = re.compile(
    r"(?<![\w-])--[a-z]|\bgitlease (?:agent|brief|check|claim|config|done|hooks|init|list|next|park"
    r"|queue|release|renew|run|server|session|show|status)\b"
)
_OF_GIT = re.compile(r"\b(?:git|pip) [^;]*")
CHANGED = {"args", "assignees", "by_edge", "free_at_ms", "hints", "loss", "message", "views"}


def error_names() -> set[str]:
    """The names of all classes of refusals."""
    found = {"GitleaseError"}
    for _ in range(4):  # generations
        found |= {node.name for _, node in classes() if found & {*map(_name, node.bases)}}
    return found


def test_refusal_below_the_doors_names_no_command() -> None:
    """A hint is a value (``Hint``), and a message names parameters: each door has its own words."""
    errors, found = error_names(), Counter[str]()
    for module in MODULES:
        is_spoken = module.endswith((".entry", ".verbs", "_verbs", ".push_options"))
        if is_spoken or package_of(module) in SPEAKING:
            continue
        for node in nodes_of(tree_of(module)):
            if isinstance(node, ast.Call) and _name(node.func) in errors:
                texts = [x.value for x in ast.walk(node) if isinstance(x, ast.Constant)]
                plain = (_OF_GIT.sub("", x) for x in texts if isinstance(x, str))
                found[module] += sum(bool(_COMMAND.search(x)) for x in plain)
    assert {module: count for module, count in found.items() if count} == COMMANDS


def test_no_error_is_changed_after_it_was_made() -> None:
    """What a layer adds makes a copy: ``error.with_(…)``."""
    errors = error_names()
    for module in MODULES.keys() - {"gitlease.kernel.rules.errors"}:  # whose with_() makes the copy
        tree = tree_of(module)
        made = {
            target.id
            for node in nodes_of(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if _name(node.value.func) in errors
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        caught = {x.name for x in nodes_of(tree) if isinstance(x, ast.ExceptHandler) and x.name}
        told(
            f"{module}:{node.lineno} sets {ast.unparse(node)}"
            for node in nodes_of(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and (node.value.id in made | caught or node.attr in CHANGED)
            and node.value.id != "self"
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
        used = set().union(*(_world(node) for node in nodes_of(tree_of(module))))
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
def test_what_needs_no_repository_asks_no_git(words: list[str]) -> None:
    code = f"from gitlease.cli.app import run\nassert run({words!r}) == 0"
    loaded = loaded_by(code)
    assert not loaded & HEAVY
    assert not {
        name for name in loaded if name.startswith(("gitlease.kernel.git", "gitlease.kernel.store"))
    }


def test_the_independent_check_loads_no_rule_of_the_product() -> None:
    files = (ROOT / "tests" / "ledger_checker").glob("*.py")
    judges = ", ".join(f"ledger_checker.{file.stem}" for file in files if file.stem != "__init__")
    loaded = loaded_by(f"import sys; sys.path.append({str(ROOT / 'tests')!r}); import {judges}")
    modules = {name for name in loaded if name.startswith("gitlease.")}
    plain_yaml = "gitlease.kernel.git.plain_yaml"
    assert modules == {plain_yaml, "gitlease.kernel.git", "gitlease.kernel"}


def test_names_in_the_door_lead_somewhere() -> None:
    import gitlease

    for name in gitlease.__all__:
        assert getattr(gitlease, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = gitlease.nothing  # type: ignore[attr-defined]


def test_the_table_of_public_names_is_what_the_stub_tells_type_checkers() -> None:
    import gitlease

    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    told_types = {
        name.name: node.module
        for node in nodes_of(stub)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("gitlease")
        for name in node.names
    }
    assert vars(gitlease)["_MODULES"] == told_types


def test_a_package_is_only_its_docstring() -> None:
    """So an import says which module it loads, and no package hides a circle."""
    for module, file in MODULES.items():
        if file.name == "__init__.py" and module != "gitlease":
            (only,) = tree_of(module).body
            assert isinstance(only, ast.Expr), module
    assert [x.parent for x in PACKAGE.rglob("__init__.pyi")] == [PACKAGE]


# --- the rules themselves --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("gitlease.kernel.rules.x", "import time", "take it as an argument"),
        ("gitlease.kernel.ledger.x", "import rich", "knows none of third parties"),
        (
            "gitlease.kernel.ledger.x",
            "if TYPE_CHECKING:\n    import gitlease.tasks.queue",
            "the kernel knows no part",
        ),
        ("gitlease.wiring.x", "import_module('gitlease.cli.app')", "wiring lies below cli"),
        ("gitlease.cli.x", "import yaml", "cli knows click, rich of third parties"),
    ],
)
def test_a_wrong_import_is_noticed(module: str, source: str, complaint: str) -> None:
    (problem,) = wrong_imports(module, ast.parse(source))
    assert complaint in problem


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("gitlease.kernel.rules.x", "datetime.now()", "reads the clock"),
        ("gitlease.kernel.rules.x", "open('x')", "calls open()"),
        ("gitlease.kernel.rules.x", "sys.stderr.write('x')", "a standard stream"),
        ("gitlease.kernel.ledger.x", "os.environ['X']", "uses os.environ"),
        ("gitlease.verbs.wire", "import subprocess", "uses subprocess"),
        ("gitlease.verbs.wire", "from os import getenv", "uses os.getenv"),
    ],
)
def test_a_wrong_use_is_noticed(module: str, source: str, complaint: str) -> None:
    (problem,) = wrong_uses(module, ast.parse(source))
    assert complaint in problem
