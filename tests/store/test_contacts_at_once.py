"""Two processes of a clone that make, or replace, its copy of a ledger at the same moment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.fences import clean_env
from support.ledgers import door
from support.repos import git
from support.running import ROOT

pytestmark = pytest.mark.default

WORKER = """\
import json, sys
import gitlease
for line in sys.stdin:
    try:
        with gitlease.open(sys.argv[1]) as leases:
            found = sorted(x.resource for x in leases.list())
    except Exception as error:
        found = [repr(error)]
    print(json.dumps(found), flush=True)
"""
HELD = ["one", "three", "two"]


class Workers:
    """Processes that all list the leases of one clone, as soon as they are told to."""

    def __init__(self, clone: Path, number: int, stack: ExitStack) -> None:
        words = [sys.executable, "-c", WORKER, str(clone)]
        pipe = subprocess.PIPE
        env = clean_env({"PYTHONPATH": ROOT})
        self._processes = [
            stack.enter_context(
                subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe, text=True)
            )
            for _ in range(number)
        ]

    def list(self) -> list[list[str]]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [json.loads(x.stdout.readline()) for x in self._processes if x.stdout is not None]

    def end(self) -> None:
        for process in self._processes:
            process.kill()


@contextmanager
def workers(clone: Path, number: int) -> Iterator[Workers]:
    with ExitStack() as stack:
        made = Workers(clone, number, stack)
        stack.callback(made.end)
        yield made


def forget(private: Path) -> None:
    """Leave the clone as one that has never met the ledger."""
    shutil.rmtree(private)


def damage(private: Path) -> None:
    """Leave the copy without any object, for a clone that knows the ledger's head."""
    objects = private / "store.git/objects"
    shutil.rmtree(objects)
    objects.mkdir()


@pytest.mark.parametrize("harm", [forget, damage])
@pytest.mark.parametrize("rounds", [6, pytest.param(300, marks=pytest.mark.nightly)])
def test_contacts_at_once_all_read_the_whole_ledger(
    clones: Callable[..., list[Path]], harm: Callable[[Path], None], rounds: int
) -> None:
    (ada,) = clones(1)
    with door(ada) as leases:
        for name in HELD:
            leases.claim(name)
    private = ada / ".git/gitlease"
    with workers(ada, 2) as both:
        for number in range(rounds):
            harm(private)
            assert both.list() == [HELD, HELD], f"in round {number}"
            git(private / "store.git", "fsck", "--connectivity-only")
        names = {x.name for x in private.iterdir()}
    assert not [x for x in names if x.endswith((".tmp", ".damaged"))], names
