"""Objects written and read without git are those that git and libgit2 write and read."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from pathlib import Path

import pygit2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.repos import git

from gitlease.core import MS, Actor, Applied, Barrier, StepRecord
from gitlease.git import BLOB, COMMIT, TREE, Absent, OtherKind, TooLarge
from gitlease.store import (
    SHA1,
    SHA256,
    LooseObjects,
    commit_bytes,
    make_bare,
    private_store,
    read_commit,
    write_message,
)

FEW, JOINED = private_store.FEW, private_store.JOINED
FORMATS = pytest.mark.parametrize("id_bytes", [SHA1, SHA256], ids=["sha1", "sha256"])


def opened(path: Path, id_bytes: int) -> LooseObjects:
    make_bare(str(path), id_bytes)
    return LooseObjects(str(path), id_bytes, os.environ)


def file_of(path: Path, id: str) -> Path:
    return path / "objects" / id[:2] / id[2:]


def tree_of(ids: Iterable[str]) -> list[bytes]:
    return [b"100644 f%03d\0" % n + bytes.fromhex(id) for n, id in enumerate(ids)]


@FORMATS
def test_git_has_what_was_written(tmp_path: Path, id_bytes: int) -> None:
    store = tmp_path / "store.git"
    objects = opened(store, id_bytes)
    for data in (b"", b"hello\n", os.urandom(100_000)):
        id = objects.write(BLOB, data)
        assert git(store, "cat-file", "-s", id) == str(len(data))
        assert objects.read(id, BLOB, len(data)) == data
        (tmp_path / "data").write_bytes(data)
        assert git(store, "hash-object", str(tmp_path / "data")) == id
    tree = objects.write(TREE, b"")
    commit = objects.write(
        COMMIT, f"tree {tree}\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx".encode()
    )
    git(store, "update-ref", "refs/heads/main", commit)
    assert git(store, "fsck", "--strict", "--no-dangling") == ""


@FORMATS
def test_what_git_packed_is_read_however_much_it_is(tmp_path: Path, id_bytes: int) -> None:
    store = tmp_path / "store.git"
    objects = opened(store, id_bytes)
    ids = {objects.write(BLOB, b"%d" % n): b"%d" % n for n in range(128)}
    git(store, "update-ref", "refs/tags/all", objects.write(TREE, b"".join(tree_of(ids))))
    git(store, "repack", "-q", "-a", "-d")
    git(store, "prune-packed", "-q")
    assert not file_of(store, next(iter(ids))).exists()
    fresh = opened(store, id_bytes)
    assert {id: fresh.read(id, BLOB, 10) for id in ids} == ids
    later = fresh.write(BLOB, b"later")
    assert fresh.read(later, BLOB, 10) == b"later"


@FORMATS
def test_what_a_step_writes_much_of_is_one_pack(tmp_path: Path, id_bytes: int) -> None:
    store = tmp_path / "store.git"
    objects = opened(store, id_bytes)
    written = dict[str, bytes]()
    for step in range(JOINED + 1):
        with objects.together() as new:
            for n in range(FEW):
                data = b"%d of %d " % (n, step) * (1, 2, 100, 5_000)[n % 4]
                written[new.write(BLOB, data)] = data
            new.write(TREE, b"".join(tree_of(list(written)[-FEW:])))
        packs = step + 1 if step + 1 < JOINED else step + 2 - JOINED
        assert len(list(store.glob("objects/pack/*.pack"))) == packs
    names = sorted(x.suffix for x in (store / "objects").rglob("*") if x.is_file())
    assert names == [".idx", ".idx", ".pack", ".pack"], "and no file of its own for any"
    fresh = opened(store, id_bytes)
    for found in (objects, fresh):
        assert {id: found.read(id, BLOB, len(data)) for id, data in written.items()} == written
        with pytest.raises(OtherKind):
            found.read(next(iter(written)), TREE, 100)
        with pytest.raises(TooLarge):
            found.read(list(written)[-1], BLOB, 100)
    for index in store.glob("objects/pack/*.idx"):
        git(store, "verify-pack", str(index))
    assert git(store, "fsck", "--strict", "--no-dangling") == ""


@FORMATS
@pytest.mark.parametrize(
    "spoilt",
    [
        lambda data: data[:-3],
        lambda data: b"",
        lambda data: b"y" + data[1:],
        lambda data: zlib.compress(b"blob 5\0other"),
        lambda data: zlib.compress(b"blob 6\0small"),
        lambda data: zlib.compress(b"blob 4\0small"),
        lambda data: zlib.compress(b"blob five\0small"),
        lambda data: zlib.compress(b"small"),
        lambda data: zlib.compress(b"b" * 10_000),
    ],
    ids=["cut", "empty", "no zlib", "other", "longer", "shorter", "no size", "no head", "no end"],
)
def test_what_is_spoilt_is_absent(tmp_path: Path, id_bytes: int, spoilt: object) -> None:
    assert callable(spoilt)
    store = tmp_path / "store.git"
    objects = opened(store, id_bytes)
    file = file_of(store, id := objects.write(BLOB, b"small"))
    data = file.read_bytes()
    file.write_bytes(spoilt(data))
    with pytest.raises(Absent):
        objects.read(id, BLOB, 100)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda x: os.symlink("/dev/zero", x)])
def test_what_is_no_file_is_never_waited_for(tmp_path: Path, make: object) -> None:
    assert callable(make)
    store = tmp_path / "store.git"
    objects = opened(store, SHA1)
    file = file_of(store, id := objects.write(BLOB, b"small"))
    file.unlink()
    make(file)
    with pytest.raises(Absent):
        objects.read(id, BLOB, 100)


def test_a_limit_holds_for_what_unfolds_without_measure(tmp_path: Path) -> None:
    store = tmp_path / "store.git"
    objects = opened(store, SHA1)
    id = objects.write(BLOB, bytes(50_000_000))
    with pytest.raises(TooLarge):
        objects.read(id, BLOB, 1_000)
    with pytest.raises(OtherKind):
        objects.read(id, TREE, 1_000)


def test_what_is_there_already_stays_young(tmp_path: Path) -> None:
    store = tmp_path / "store.git"
    objects = opened(store, SHA1)
    file = file_of(store, id := objects.write(BLOB, b"old"))
    os.utime(file, (1, 1))
    assert objects.write(BLOB, b"old") == id
    assert file.stat().st_mtime > 1


HOLDERS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)


@given(HOLDERS, st.integers(0, 4 * 10**12))
def test_a_commit_has_the_bytes_that_libgit2_gives_it(holder: str, at: int) -> None:
    record = StepRecord(at=at, operations=(Barrier(id="b", actor=Actor(holder)),))
    applied = Applied(None, (), changed=True)  # type: ignore[arg-type]
    made = commit_bytes(applied, record, REPO_TREE, [PARENT])
    email = holder.replace("<", "").replace(">", "")
    name = email.split("@", 1)[0].strip() or "gitlease"
    try:
        who = pygit2.Signature(name, email, at // MS, 0, "utf-8")
    except pygit2.GitError:
        assert b"gitlease" in made.split(b"\n")[2]  # nothing is left of it but punctuation
        return
    message = write_message((), record, renewal=applied.only_renews)
    asked = REPO.create_commit_string(who, who, message, pygit2.Oid(hex=REPO_TREE), [PARENT])
    assert made == str(asked).encode()


@pytest.fixture(scope="module", autouse=True)
def a_repository(tmp_path_factory: pytest.TempPathFactory) -> None:
    global REPO, REPO_TREE, PARENT
    REPO = pygit2.init_repository(str(tmp_path_factory.mktemp("oracle")), bare=True)
    REPO_TREE = str(REPO.TreeBuilder().write())
    who = pygit2.Signature("a", "a@b", 1, 0)
    PARENT = str(REPO.create_commit(None, who, who, "x", REPO_TREE, []))


REPO: pygit2.Repository
REPO_TREE = PARENT = ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"tree x\n\n",
        b"parent 1\n\n",
        b"tree " + b"1" * 40 + b"\nauthor a <a> 1 +0000\n\n",
        b"tree " + b"1" * 40 + b"\ncommitter a <a> x +0000\n\n",
    ],
)
def test_what_is_no_commit_is_none(tmp_path: Path, data: bytes) -> None:
    objects = opened(tmp_path / "store.git", SHA1)
    assert read_commit(objects, objects.write(COMMIT, data)) is None
    assert read_commit(objects, objects.write(BLOB, data)) is None


def test_a_commit_is_read_as_it_was_written(tmp_path: Path) -> None:
    objects = opened(tmp_path / "store.git", SHA1)
    tree, one, other = "1" * 40, "2" * 40, "3" * 40
    head = f"tree {tree}\nparent {one}\nparent {other}\nauthor a b <a> 1 +0100\n"
    data = f"{head}committer c <c> 1234567890 -0800\ngpgsig x\n y\n\nfirst\n\nlast \xff".encode(
        "latin-1"
    )
    found = read_commit(objects, objects.write(COMMIT, data))
    assert found is not None
    assert (found.tree_id, found.parent_ids, found.time) == (tree, (one, other), 1_234_567_890)
    assert found.message == "first\n\nlast \ufffd"
