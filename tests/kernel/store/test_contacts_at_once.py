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

from gitlease.kernel.store.private_store import PrivateStore
from gitlease.kernel.store.storage import CopyLost

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


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
def test_store_that_was_replaced_while_objects_came_is_noticed(tmp_path: Path, fails: bool) -> None:
    store, other = (PrivateStore(str(tmp_path / "store.git")) for _ in range(2))
    store.ready()
    with store.in_use():
        other.ready()

    def replace_it() -> None:
        with store.in_use():
            other.delete()
            other.ready()
            if fails:
                raise FileNotFoundError("the folder was renamed")

    with pytest.raises(CopyLost):
        replace_it()


# A remote's git-upload-pack that has the store replaced once it sends what the old one lacks.
REPLACES = """\
#!{python}
import os, subprocess, sys
from gitlease.kernel.store.private_store import PrivateStore
served = subprocess.Popen(["git-upload-pack", *sys.argv[1:]], stdout=subprocess.PIPE)
while data := os.read(served.stdout.fileno(), 65536):
    if b"PACK" in data and not os.path.exists({once!r}):
        open({once!r}, "x").close()
        store = PrivateStore({store!r})
        store.ready()
        store.delete()
        store.ready()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
sys.exit(served.wait())
"""


def test_fetch_into_a_store_that_is_replaced_meanwhile_reads_all(
    clones: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has negotiated on the old store, so it brings only half of the ledger into the new one."""
    ada, bob = clones(2)
    with door(ada) as mine, door(bob) as theirs:
        mine.claim("one")
        theirs.claim("two")
    store, once = ada / ".git/gitlease/store.git", tmp_path / "once"
    script = tmp_path / "upload-pack"
    terms = {"python": sys.executable, "store": str(store), "once": str(once)}
    script.write_text(REPLACES.format(**terms))
    script.chmod(0o755)
    git(ada, "config", "remote.origin.uploadpack", str(script))
    monkeypatch.setenv("PYTHONPATH", ROOT)
    with door(ada) as mine:
        assert sorted(x.resource for x in mine.list()) == ["one", "two"]
        assert once.exists(), "nothing was replaced"
        assert mine.claim("three").mine
        assert sorted(x.resource for x in mine.list()) == HELD
    git(store, "fsck", "--connectivity-only")
