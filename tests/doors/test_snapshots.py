"""What users and programs rely on, word by word: help, JSON, exit codes, messages, the library.

A difference is either a fault or a declared change: read the diff of what is recorded as you would
read the code's.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.fences import clean_env
from support.hook_repos import into_files
from support.recording import how_to_record
from support.repos import commit_file, git, real_clone
from support.snapshots import cleaned

import gitlease
from gitlease.cli.app import MODULES, run

WIDTH = "100"
FOLDER = Path(__file__).parent / "snapshots"
TASK = "---\nid: {0}\ntitle: {0} it\nstatus: todo\nassigned:\ndepends_on: []\n---\n\ntext\n"
# One command a line, by whom; what `ada` and `bob` say to a remote that they share.
STORY = """
ada whoami
ada list
ada claim F001 --ttl 1h --reason why
ada claim F001
bob claim F001
bob claim NOPE
bob claim F001 --takeover
bob renew F001
bob release F001
bob extend F001 1h
ada extend F001 9h
ada renew F001
ada renew --all
ada fence F001 1
ada claim F001 --new
ada claim src/auth/ --path docs/x --scope api
bob claim src/auth/login.py
bob claim path:README F002 --any
ada list
ada list --mine
ada list --all
ada status
ada show F001
bob show src/auth/login.py
bob show NOPE
ada log
ada log F001
bob queue
bob next
bob next --claim
bob brief
bob note F001 half-done
bob wait F001 --timeout 1s
ada release F001 --note red
ada release F001
ada done src/auth --scope api
bob claim src/auth --scope api
bob done F002
bob claim F002
bob claim F002 --reopen
bob start F003
bob set F003 done
bob set F003 bogus
bob revoke F002 --reason x
ada config
ada config lease.ttl
ada config lease.ttl 20m
ada config lease.bogus 1
ada config --ledger
ada config --ledger ttl_max 2h
ada config --ledger admins kim@example.com
ada claim F001 --ttl 3h
ada claim F001 --ttl bogus
ada claim F001 --ttl 1s
ada claim F001 F001 f001
ada release F001 --keep --note later
ada claim ../x
ada claim {a,b}/c
ada claim F001 --layer other
ada list --layer other
ada claim F9 --local --any
ada list --local
ada claim
ada clam F001
ada claim F001 --bogus
ada run F003 -- true
ada run F003 -- false
ada run F003
ada session list
ada session end nobody
ada check
ada check --stale
ada verify
ada verify nope
ada hooks status
ada hooks install
ada hooks uninstall
ada agent status
ada serve token list
ada serve token revoke ci
ada serve token add
ada serve token add a@b --port 1
ada serve --repo web
ada list --cached
ada list --remote nowhere
ada push
ada help
ada help claim
"""


def library() -> str:
    """The public names of the library."""
    return "".join(f"{name}\n" for name in sorted(gitlease.__all__))


def helps() -> str:
    """Every ``--help``."""
    with tempfile.TemporaryDirectory() as folder:
        said = [spoken(Path(folder), [name, "--help"])[1] for name in sorted(MODULES)]
        top = spoken(Path(folder), ["--help"])[1]
    return "\n----\n".join([top, *said])


def told(as_json: bool) -> str:
    """What the story's commands say to people, or the shape of what they say to programs."""
    said = []
    with tempfile.TemporaryDirectory() as name, clean_environment():
        folder = Path(name) / ("json" if as_json else "text")
        folder.mkdir()
        desks = make_desks(folder)
        for line in STORY.strip().split("\n"):
            who, *words = line.split()
            asked = words if not as_json else _with_json(words)
            status, out, err = spoken(desks[who], asked)
            if as_json:
                said.append(f"$ {who} {' '.join(words)}\n[{status}] {shape_of(out or err)}\n")
            else:
                text = out + (f"--\n{err}" if err else "")
                shown = cleaned(text.replace(str(folder), "FOLDER"))
                said.append(f"$ {line}\n{shown}[{status}]\n")
    return "\n".join(said)


def _with_json(words: list[str]) -> list[str]:
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], "--json", *words[at:]]


def make_desks(folder: Path) -> dict[str, Path]:
    git(folder, "init", "-q", "--bare", "-b", "main", "origin.git")
    desks = {}
    for who in ("ada", "bob"):
        desks[who] = real_clone(folder / "origin.git", folder / who, f"{who}@example.com")
    for number in (1, 2, 3):
        commit_file(desks["ada"], f"tasks/F00{number}.md", TASK.format(f"F00{number}"))
    git(desks["ada"], "push", "-q", "origin", "HEAD:main")
    git(desks["bob"], "pull", "-q", "origin", "main")
    return desks


def spoken(cwd: Path, words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command line in a folder: its exit status, output and errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(list(words))
    return status, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def clean_environment() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        import os

        wanted = clean_env({"COLUMNS": "100"})
        for name in set(os.environ) - set(wanted):
            patched.delenv(name)
        for name, value in wanted.items():
            patched.setenv(name, value)
        into_files(patched)
        yield


def shape_of(text: str) -> str:
    """The shape of a JSON document: its keys in their order, with types, and its stable words."""
    try:
        return json.dumps(_shape(json.loads(text)))
    except ValueError:
        return f"no JSON: {text[:60]!r}"


WORDS = {"status", "edge", "code", "exit", "ok", "command", "state", "kind", "scope", "schema"}


def _shape(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _shape(one, name) for name, one in value.items()}
    if isinstance(value, list):
        shapes = [_shape(one) for one in value]
        return [one for number, one in enumerate(shapes) if one not in shapes[:number]]
    return value if key in WORDS else type(value).__name__


MAKERS: dict[str, Callable[[], str]] = {
    "library.txt": library,
    "help.txt": helps,
}
# By whether it is told to programs.
TOLD = {"messages.txt": False, "json.txt": True}


def snapshots() -> dict[str, str]:
    os.environ["COLUMNS"] = WIDTH
    made = {name: make() for name, make in MAKERS.items()}
    return {**made, **{name: told(as_json) for name, as_json in TOLD.items()}}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_promised_is_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", WIDTH)
    expected = (FOLDER / name).read_text(encoding="utf-8")
    assert MAKERS[name]() == expected, how_to_record("promises")


@pytest.mark.parametrize("name", TOLD)
def test_what_the_commands_say_is_as_it_was(name: str) -> None:
    expected = (FOLDER / name).read_text(encoding="utf-8")
    assert told(TOLD[name]) == expected, how_to_record("promises")
