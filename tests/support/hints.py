"""A plugin of pytest: what a story prints as a command to type next is typed back, and noted.

It stands behind everything by which stories run commands, ``Typist``, ``Desk``, ``Agent`` and
``Person``, and types in copies of the clone and its remote, so that the story goes on undisturbed.
``FILE`` in the environment names where a line of JSON is written for each command.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from gitlease.kernel.git.run import SystemClock
from support.clock import ManualClock
from support.hooked import Person
from support.repos import GitFailed, git
from support.running import Desk
from support.typed import Agent, Typed, Typist, commands_in

FILE = "TYPED_HINTS"

# What would start processes, or end those of the story itself, or proves hooks where they are.
_PROCESSES = ("run", "dispatch --next", "dispatch --stop", "push", "hooks status")
# What is rightly refused in part, since a story damaged a layer.
_DAMAGED = ("test_a_layer_that_cannot_be_read_keeps_nobody_from_the_rest", "renew --all")
_WAITS = ("wait", "watch")

_typed: set[tuple[str, str]] = set()
_types = Typist.types


def hear(
    clone: Path, clock: ManualClock | None, env: Mapping[str, str], told: Iterable[str]
) -> None:
    """Type each of these commands back, once in a test with all its variants."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0].partition("[")[0]
    for command in told:
        words = shlex.split(command, comments=True)[1:]
        what = " ".join(words)
        if (test, command) in _typed or what.startswith(_PROCESSES) or "--" in words:
            continue
        if (test.rpartition("::")[2], what) == _DAMAGED:
            continue
        _typed.add((test, command))
        with tempfile.TemporaryDirectory() as folder:
            if (copy := _copied(clone, Path(folder))) is None:
                continue
            now = SystemClock().now()
            own = replace(clock) if clock else ManualClock(now.wall_ms, now.boot_ms, now.boot_id)
            done = _types(Typist(copy, own, dict(env)), command)
        waits = words[0] in _WAITS or (words[0] == "claim" and "--wait" in words)
        accepted = done.code in ((0, 1) if waits else (0,))
        line = {"test": test, "command": command, "accepted": accepted, "said": done.err}
        with open(os.environ[FILE], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _copied(clone: Path, folder: Path) -> Path | None:
    """A copy of a clone beside one of its remote; None where that has no path, or is none."""
    try:
        remote = git(clone, "remote", "get-url", "origin").removeprefix("file://")
    except GitFailed:
        return None
    if not os.path.isabs(remote) or not (clone / ".git").is_dir() or not os.path.isdir(remote):
        return None
    shutil.copytree(remote, folder / "remote", symlinks=True)
    shutil.copytree(clone, folder / "clone", symlinks=True)
    git(folder / "clone", "remote", "set-url", "origin", str(folder / "remote"))
    return folder / "clone"


def _said(out: str, err: str) -> tuple[str, ...]:
    """The commands that an answer says to type next, to people and to programs."""
    told = list(Typed("", 0, out, err).hints)
    try:
        document = json.loads(out)
    except ValueError:
        return tuple(told)
    return (*told, *(document.get("next", ()) if isinstance(document, dict) else ()))


def _after(owner: type, name: str, heard: Callable[[Any, Any, Mapping[str, Any]], None]) -> None:
    """Have something done with what a method answered, and with how it was called."""
    plain = getattr(owner, name)

    @wraps(plain)
    def method(self: Any, *args: Any, **how: Any) -> Any:
        answer = plain(self, *args, **how)
        heard(self, answer, how)
        return answer

    setattr(owner, name, method)


def _typist(at: Typist, typed: Typed, how: Mapping[str, Any]) -> None:
    hear(at.clone, at.clock, {**at.env, **(how.get("env") or {})}, _said(typed.out, typed.err))


def _desk(at: Desk, done: subprocess.CompletedProcess[str], how: Mapping[str, Any]) -> None:
    hear(at.clone, None, {**at.env, **(how.get("env") or {})}, _said(done.stdout, done.stderr))


def _person(at: Person, done: subprocess.CompletedProcess[str], how: Mapping[str, Any]) -> None:
    told = done.stderr.replace("gitlease: hint: ", "hint: ")  # as a hook says it
    hear(at.root, None, {**at.env, **(how.get("env") or {})}, _said(done.stdout, told))


def _agent(agent: Agent, answer: str, _how: Mapping[str, Any]) -> None:
    at = agent.at
    hear(at.clone, at.clock, {**at.env, **agent.terminal}, commands_in(answer))


def pytest_configure(config: pytest.Config) -> None:
    """Stand behind them."""
    _after(Typist, "types", _typist)
    _after(Desk, "ask", _desk)
    _after(Person, "run", _person)
    _after(Person, "gitlease", _person)
    _after(Agent, "sends", _agent)
