"""Errors of the file system: they name the file, and reading goes on where it can."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_gitlease
from support.ledgers import door
from support.running import Desk
from support.snapshots import check_words

from gitlease.kernel.git.files import CannotKeep
from gitlease.kernel.rules.errors import LeaseHeld

Clones = Callable[..., list[Path]]


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Make what lies below a folder unwritable, for this process and for git."""
    closed: list[str] = []
    folders: list[Path] = []
    real = os.open

    def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and any(os.fspath(path).startswith(x) for x in closed if isinstance(path, str)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *more, **named)

    def close(folder: Path) -> None:
        closed.append(str(folder))
        for each in [*folder.rglob("*"), folder]:
            if each.is_dir():
                subprocess.run(["chattr", "+i", str(each)], check=False, capture_output=True)
                folders.append(each)

    monkeypatch.setattr(os, "open", opened)
    yield close
    for each in folders:
        subprocess.run(["chattr", "-i", str(each)], check=False, capture_output=True)


def is_closed(folder: Path) -> bool:
    try:
        (folder / "probe").touch()
    except OSError:
        return True
    (folder / "probe").unlink()
    return False


def test_unwritable_store_is_read_beside(
    clones: Clones, unwritable: Callable[[Path], None]
) -> None:
    ada, bob = clones(2)
    door(ada).claim("mine")
    door(bob).claim("theirs")
    store = ada / ".git/gitlease"
    before = sorted(store.rglob("*"))
    unwritable(store)
    if not is_closed(store):
        pytest.skip("this file system makes nothing unwritable")
    assert {x.resource for x in door(ada).list()} == {"mine", "theirs"}
    with pytest.raises(CannotKeep) as refused:
        door(ada).claim("new")
    assert str(store) in refused.value.message
    check_words(refused.value.hints)
    assert sorted(store.rglob("*")) == before
    assert {x.resource for x in door(bob).list()} == {"mine", "theirs"}


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_clone_without_locks_works(
    clones: Clones, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    ada, bob = clones(2)
    (ada / "tasks").mkdir()
    (ada / "tasks/T1.md").write_text("---\nid: T1\nstatus: todo\n---\n", encoding="utf-8")

    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert door(ada).claim("T1").mine
    assert "assigned: w1@example.com" in (ada / "tasks/T1.md").read_text()
    with pytest.raises(LeaseHeld):
        door(bob).claim("T1", any=True)
    door(ada).release("T1")


def test_deleted_folder_is_named(clones: Clones) -> None:
    (ada,) = clones(1)
    gone = ada / "gone"
    gone.mkdir()
    words = ("sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *Desk(ada).words("claim", "x"))
    done = subprocess.run(
        words, cwd=gone, capture_output=True, text=True, check=False, env=_environ(ada)
    )
    assert done.returncode == 128, done
    check_words(done.stderr)


def _environ(clone: Path) -> dict[str, str]:
    return {**os.environ, **Desk(clone).env}


def test_unwritten_answer_says_whether_anything_was_sent(clones: Clones) -> None:
    (ada,) = clones(1)
    for verb, sent in (("list", "nothing was sent"), ("claim", "may have taken effect")):
        words = Desk(ada).words(verb, *(["x"] if verb == "claim" else []))
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                words,
                cwd=ada,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                env=_environ(ada),
            )
        assert (done.returncode, sent in done.stderr) == (70, True), done
    assert run_gitlease(("show", "x"), ada).returncode == 0
