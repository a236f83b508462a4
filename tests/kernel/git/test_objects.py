"""git's objects are read alike with and without git, and never beyond what was asked for."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from support.repos import commit_file, git, make_repository

from gitlease.kernel.git.objects import (
    BLOB,
    COMMIT,
    DROPPED,
    TREE,
    Absent,
    GitObjects,
    OtherKind,
    PipedObjects,
    PipedRefs,
    TooLarge,
    objects_of,
    read_tree,
)
from gitlease.kernel.git.repository import discover
from gitlease.kernel.git.run import clean_environment
from gitlease.kernel.store.libgit import LibgitObjects


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = make_repository(tmp_path / "repo")
    commit_file(made, "a", "small")
    (made / "link").symlink_to("a")
    git(made, "add", "link")
    git(made, "commit", "-q", "-m", "link")
    return made


@pytest.fixture(params=["clone", "piped", "libgit", "packed"])
def objects(root: Path, request: pytest.FixtureRequest) -> GitObjects:
    repository = discover(str(root))
    if request.param == "packed":
        git(root, "repack", "-q", "-a", "-d")
        git(root, "prune-packed")
    if request.param == "clone":
        return objects_of(repository)
    if request.param == "piped":
        return PipedObjects(repository.git_dir, os.environ)
    return LibgitObjects(repository.git_dir)


def test_an_object_is_read_up_to_its_limit(root: Path, objects: GitObjects) -> None:
    blob, commit = git(root, "rev-parse", "HEAD:a"), git(root, "rev-parse", "HEAD")
    assert objects.read(blob, BLOB, 5) == b"small"
    assert objects.read(commit, COMMIT, 1_000).startswith(b"tree ")
    with pytest.raises(TooLarge):
        objects.read(blob, BLOB, 4)
    with pytest.raises(OtherKind):
        objects.read(blob, TREE, 5)
    for odd in ("1" * 40, "x", "", blob[:39], f"{blob}0", "../" * 14):
        with pytest.raises(Absent):
            objects.read(odd, BLOB, 5)
    assert objects.read(blob, BLOB, 5) == b"small"


def test_a_tree_has_names_modes_and_ids(root: Path, objects: GitObjects) -> None:
    found = read_tree(objects, git(root, "rev-parse", "HEAD^{tree}"), 1_000)
    assert [(x.name, x.mode) for x in found] == [("a", 0o100644), ("link", 0o120000)]
    assert [x.id for x in found] == [git(root, "rev-parse", f"HEAD:{n}") for n in ("a", "link")]


def test_one_process_answers_whatever_is_lacking_or_too_large(root: Path) -> None:
    (root / "large").write_bytes(bytes(DROPPED + 1))
    git(root, "add", ".")
    small, large = (git(root, "rev-parse", f":{name}") for name in ("a", "large"))
    objects = objects_of(discover(str(root)))
    started = set()
    for _ in range(3):
        for odd in ("1" * 40, small):
            with pytest.raises((Absent, TooLarge)):
                objects.read(odd, BLOB, 4)
        assert objects.read(small, BLOB, 5) == b"small"
        started.add(objects._process)
    assert len(started) == 1
    with pytest.raises(TooLarge):
        objects.read(large, BLOB, 5)
    assert objects._process is None, "its rest is left alone, since reading it takes longer"
    assert objects.read(small, BLOB, 5) == b"small"


@pytest.fixture
def numbered(root: Path) -> dict[str, bytes]:
    """Some blobs of a repository, by their ids."""
    for number in range(40):
        (root / f"n{number}").write_text(f"{number}")
    git(root, "add", ".")
    return {git(root, "rev-parse", f":n{n}"): b"%d" % n for n in range(40)}


def test_what_a_broken_off_question_left_is_no_answer(
    root: Path, numbered: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, answer = PipedObjects(discover(str(root)).git_dir, os.environ), PipedObjects._answer

    def interrupted(self: PipedObjects, process: Popen[bytes], id: str, *more: Any) -> bytes:
        assert process.stdin is not None
        process.stdin.write(id.encode() + b"\n")
        process.stdin.flush()
        raise KeyboardInterrupt

    first, *others = numbered
    for _ in range(2):
        monkeypatch.setattr(PipedObjects, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            objects.read(first, BLOB, 10)
        monkeypatch.setattr(PipedObjects, "_answer", answer)
        assert {id: objects.read(id, BLOB, 10) for id in others} == {
            id: numbered[id] for id in others
        }


def test_an_answer_to_another_question_is_believed_by_nobody(
    root: Path, numbered: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, (first, second, *_) = PipedObjects(discover(str(root)).git_dir, os.environ), numbered
    monkeypatch.setattr(PipedObjects, "_answer", lambda *_: numbered[second])
    with pytest.raises(Absent):
        objects.read(first, BLOB, 10)


def test_a_signal_is_not_lost_while_a_reader_is_finalised(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops what a signal raises in ``__del__``, so that has to wait for nothing."""
    objects, lost, wait = objects_of(discover(str(root))), list[object](), Popen.wait
    assert objects.named("HEAD:a", BLOB, 9) == b"small"
    process = objects._process
    assert process is not None

    def interrupted(*_: object) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    monkeypatch.setattr(Popen, "wait", interrupted)
    del objects
    monkeypatch.setattr(Popen, "wait", wait)
    assert not lost
    assert objects_of(discover(str(root))).named("HEAD:a", BLOB, 9) == b"small"
    assert process.wait() == -signal.SIGKILL


def test_threads_and_a_fork_get_their_own_answers(root: Path, numbered: dict[str, bytes]) -> None:
    objects = PipedObjects(discover(str(root)).git_dir, os.environ)

    def right(_: int) -> bool:
        return all(objects.read(id, BLOB, 10) == data for id, data in numbered.items())

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(right, range(12)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads are gone
        child = os.fork()
    if not child:
        os._exit(0 if right(0) else 1)
    assert right(0)
    assert os.waitpid(child, 0)[1] == 0
    assert right(0)


def test_a_git_that_was_killed_meanwhile_says_nothing_of_an_object(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "a.git")
    path = tmp_path / "a.git"
    id = git(path, "hash-object", "-w", "--stdin", input="text")
    objects = PipedObjects(str(path), clean_environment(os.environ))
    assert objects.read(id, BLOB, 10) == b"text"
    running = objects._process
    assert running is not None
    running.kill()
    running.wait()
    assert objects.read(id, BLOB, 10) == b"text"
    refs = PipedRefs(str(path), clean_environment(os.environ))
    refs.set({"refs/tags/one": id})
    running = refs._process
    assert running is not None
    running.kill()
    running.wait()
    refs.set({"refs/tags/one": None})
    assert not objects.has("refs/tags/one")
