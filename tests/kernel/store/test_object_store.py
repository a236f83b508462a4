"""Both ways to read and write a store's objects keep one contract, and git has the same objects."""

from __future__ import annotations

import faulthandler
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pygit2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.repos import git

from gitlease.kernel.git import objects as git_objects
from gitlease.kernel.git.objects import (
    BLOB,
    COMMIT,
    SHA1,
    SHA256,
    TREE,
    Absent,
    OtherKind,
    TooLarge,
)
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.moves.operations import Barrier
from gitlease.kernel.rules.moves.transitions import Applied, StepRecord
from gitlease.kernel.store import private_store
from gitlease.kernel.store.libgit import FEW, LibgitObjects
from gitlease.kernel.store.object_store import ObjectStore, open_objects
from gitlease.kernel.store.plumbing import PlumbingObjects
from gitlease.kernel.store.private_store import make_bare
from gitlease.kernel.store.records import write_message
from gitlease.kernel.store.tree import commit_bytes, read_commit

WAYS: dict[str, tuple[Callable[[str], ObjectStore], int]] = {
    "libgit": (LibgitObjects, SHA1),
    "plumbing": (lambda path: PlumbingObjects(path, SHA1), SHA1),
    "plumbing of SHA-256": (lambda path: PlumbingObjects(path, SHA256), SHA256),
}
LIMIT = 60  # seconds: libgit2 would read some damaged objects for ever


class Store:
    """A store on disk, and objects by which it was written, or a fresh look at it."""

    def __init__(self, path: Path, way: str) -> None:
        self.path = path
        self._of, self.id_bytes = WAYS[way]
        make_bare(str(path), self.id_bytes)
        self.objects = self.again()

    def again(self) -> ObjectStore:
        return self._of(str(self.path))

    def git(self, *words: str) -> str:
        return git(self.path, *words)

    def file_of(self, id: str) -> Path:
        return self.path / "objects" / id[:2] / id[2:]


@pytest.fixture(params=WAYS)
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    # By a thread of its own: libgit2 would hold on to the interpreter, and no signal be handled.
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    yield Store(tmp_path / "store.git", request.param)
    faulthandler.cancel_dump_traceback_later()


def tree_of(ids: Iterable[str]) -> list[bytes]:
    return [b"100644 f%03d\0" % n + bytes.fromhex(id) for n, id in enumerate(ids)]


def commit_of(tree: str, message: str = "x") -> bytes:
    return f"tree {tree}\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\n{message}".encode()


def written(store: Store, number: int) -> dict[str, bytes]:
    """Blobs that a step writes, with a tree that has them all."""
    blobs = dict[str, bytes]()
    with store.objects.together() as new:
        for n in range(number):
            data = b"%d of %d " % (n, number) * (1, 2, 100, 5_000)[n % 4]
            blobs[new.write(BLOB, data)] = data
        tree = new.write(TREE, b"".join(tree_of(blobs)))
        new.write(COMMIT, commit_of(tree))
    return blobs


def test_git_has_what_was_written(store: Store, tmp_path: Path) -> None:
    objects = store.objects
    for data in (b"", b"hello\n", os.urandom(100_000)):
        id = objects.write(BLOB, data)
        assert store.git("cat-file", "-s", id) == str(len(data))
        assert objects.read(id, BLOB, len(data)) == data
        (tmp_path / "data").write_bytes(data)
        assert store.git("hash-object", str(tmp_path / "data")) == id
    commit = objects.write(COMMIT, commit_of(objects.write(TREE, b"")))
    objects.set_refs({"refs/heads/main": commit})
    assert store.git("fsck", "--strict", "--no-dangling") == ""


def test_each_way_reads_what_the_other_wrote(tmp_path: Path) -> None:
    stores = [Store(tmp_path / "store.git", way) for way in ("libgit", "plumbing")]
    ids = list[str]()
    for one in stores:
        for number in (3, FEW + 1):
            ids += written(one, number)
        for other in stores:
            assert all(other.objects.read(id, BLOB, 100_000) for id in ids)


def test_what_git_packed_is_read_however_much_it_is(store: Store) -> None:
    ids = written(store, 128)
    whole = store.objects.write(TREE, b"".join(tree_of(ids)))
    store.git("update-ref", "refs/tags/all", whole)
    store.git("repack", "-q", "-a", "-d")
    store.git("prune-packed", "-q")
    assert not store.file_of(next(iter(ids))).exists()
    for objects in (store.objects, store.again()):
        assert {id: objects.read(id, BLOB, len(data)) for id, data in ids.items()} == ids
        later = objects.write(BLOB, b"later")
        assert objects.read(later, BLOB, 10) == b"later"


@pytest.mark.parametrize("number", [3, FEW + 1])
def test_a_step_of_any_size_is_what_git_reads(store: Store, number: int) -> None:
    is_pack = isinstance(store.objects, LibgitObjects) and number > FEW
    for _ in range(2):  # once more, what is there already
        ids = written(store, number)
        assert len(list(store.path.glob("objects/pack/*.pack"))) == is_pack
    names = [x for x in (store.path / "objects").rglob("*") if x.is_file()]
    assert len(names) == (2 if is_pack else number + 2), "and nothing is left over"
    assert not list((store.path / "objects").glob("tmp_*"))
    for found in (store.objects, store.again()):
        assert {id: found.read(id, BLOB, len(data)) for id, data in ids.items()} == ids
        with pytest.raises(OtherKind):
            found.read(next(iter(ids)), TREE, 100)
        with pytest.raises(TooLarge):
            found.read(list(ids)[2], BLOB, 100)
    for index in store.path.glob("objects/pack/*.idx"):
        store.git("verify-pack", str(index))
    assert store.git("fsck", "--strict", "--no-dangling") == ""


def test_objects_that_this_git_would_refuse_are_written(store: Store) -> None:
    """A ledger has what others pushed there, and goes on all the same."""
    blob = store.objects.write(BLOB, b"x")
    odd = b"".join(b"100644 %s\0" % name + bytes.fromhex(blob) for name in (b"z", b"a", b".git"))
    assert store.objects.read(store.objects.write(TREE, odd), TREE, 1_000) == odd
    commit = store.objects.write(COMMIT, b"tree x\nno commit")
    assert store.objects.read(commit, COMMIT, 100) == b"tree x\nno commit"


# --- damage -----------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_objects, "ANSWERED", 0.5)


@pytest.mark.usefixtures("impatient")
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
def test_what_is_spoilt_is_absent(store: Store, spoilt: Callable[[bytes], bytes]) -> None:
    file = store.file_of(id := store.objects.write(BLOB, b"small"))
    data = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(spoilt(data))
    for objects in (store.objects, store.again()):
        with pytest.raises(Absent):
            objects.read(id, BLOB, 100)
    other = store.objects.write(BLOB, b"other one")
    assert store.objects.read(other, BLOB, 100) == b"other one"


def test_a_cut_object_is_absent_wherever_it_ends(store: Store) -> None:
    file = store.file_of(id := store.objects.write(BLOB, os.urandom(9_000)))
    data = file.read_bytes()
    file.chmod(0o644)
    for size in (1, 2, 10, 100, 4_000, 8_999, len(data) - 1):
        file.write_bytes(data[:size])
        with pytest.raises(Absent):
            store.objects.read(id, BLOB, 10_000)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda x: os.symlink("/dev/zero", x)])
def test_what_is_no_file_is_not_waited_for(store: Store, make: Callable[[Path], None]) -> None:
    file = store.file_of(id := store.objects.write(BLOB, b"small"))
    file.unlink()
    make(file)
    with pytest.raises(Absent):
        store.objects.read(id, BLOB, 100)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes(x ^ 255 for x in data[len(data) // 2 :])


@pytest.mark.parametrize(
    "spoil", [cut, flipped, lambda _: b"", None], ids=["cut", "flipped", "empty", "gone"]
)
@pytest.mark.parametrize("ending", [".pack", ".idx"])
def test_what_a_damaged_pack_lacks_is_absent(
    store: Store, spoil: Callable[[bytes], bytes] | None, ending: str
) -> None:
    ids = written(store, 60)
    store.git("update-ref", "refs/tags/all", store.objects.write(TREE, b"".join(tree_of(ids))))
    store.git("repack", "-q", "-a", "-d")
    store.git("prune-packed", "-q")
    [file] = store.path.glob(f"objects/pack/*{ending}")
    data = file.read_bytes()
    file.unlink()
    if spoil is not None:
        file.write_bytes(spoil(data))
    lost, objects = 0, store.again()
    for id in ids:
        try:
            assert objects.read(id, BLOB, 100_000) == ids[id]
        except Absent:
            lost += 1
    assert lost
    other = objects.write(BLOB, b"other one")
    assert objects.read(other, BLOB, 100) == b"other one"


def test_a_limit_holds_for_what_unfolds_without_measure(store: Store) -> None:
    id = store.objects.write(BLOB, bytes(5_000_000))
    for _ in range(2):
        with pytest.raises(TooLarge):
            store.objects.read(id, BLOB, 1_000)
        with pytest.raises(OtherKind):
            store.objects.read(id, TREE, 1_000)
        store.git("update-ref", "refs/tags/large", id)
        store.git("repack", "-q", "-a", "-d")


def test_what_is_there_already_stays_young(store: Store) -> None:
    file = store.file_of(id := store.objects.write(BLOB, b"old"))
    os.utime(file, (1, 1))
    assert store.objects.write(BLOB, b"old") == id
    assert file.stat().st_mtime > 1


def test_packs_that_git_joins_meanwhile_are_read_on(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.git", "libgit")
    ids = dict[str, bytes]()
    for number in range(FEW + 1, FEW + 6):
        ids |= written(store, number)
        assert store.objects.read(next(iter(ids)), BLOB, 100_000)
    store.git("repack", "--geometric=2", "-d", "-q")
    assert len(list(store.path.glob("objects/pack/*.pack"))) < 5
    assert {id: store.objects.read(id, BLOB, len(data)) for id, data in ids.items()} == ids


def test_a_store_that_is_gone_is_told_as_that(store: Store) -> None:
    moved = store.path.rename(store.path.with_name("elsewhere"))
    for number in (1, FEW + 1):
        with pytest.raises(FileNotFoundError):
            written(store, number)
    with pytest.raises(OSError, match="refs"):
        store.objects.set_refs({"refs/heads/main": "1" * 2 * store.id_bytes})
    assert moved.is_dir()
    assert not store.path.exists()


# --- refs -------------------------------------------------------------------------------------


def test_refs_move_together_or_not_at_all(store: Store) -> None:
    first, second = (
        store.objects.write(COMMIT, commit_of(store.objects.write(TREE, b""), x)) for x in "ab"
    )
    objects = store.objects
    assert objects.ref("refs/known/x/global") is None
    objects.set_refs({"refs/known/x/global": first, "refs/fetched/1": second})
    assert [objects.ref(x) for x in ("refs/known/x/global", "refs/fetched/1")] == [first, second]
    objects.set_refs({"refs/known/x/global": second, "refs/fetched/1": None})
    assert [objects.ref(x) for x in ("refs/known/x/global", "refs/fetched/1")] == [second, None]
    with pytest.raises(OSError, match="refs"):
        objects.set_refs({"refs/known/x/global": first, "refs/fetched/1": "2" * len(first)})
    assert store.again().ref("refs/known/x/global") == second
    objects.set_refs({"refs/known/x/global": first})
    assert store.git("for-each-ref", "--format=%(objectname) %(refname)") == (
        f"{first} refs/known/x/global"
    )


def test_a_ref_may_name_what_is_no_commit(store: Store) -> None:
    blob = store.objects.write(BLOB, bytes(2_000_000))
    store.git("update-ref", "refs/fetched/1", blob)
    assert store.objects.ref("refs/fetched/1") == blob


@pytest.mark.parametrize(("age", "moves"), [(3_600, True), (1, False)])
@pytest.mark.parametrize("lock", ["refs/known/x/global.lock", "packed-refs.lock"])
def test_the_lock_of_a_killed_git_is_removed_once_it_is_old(
    store: Store, lock: str, age: int, moves: bool
) -> None:
    name = "refs/known/x/global"
    first, second = (
        store.objects.write(COMMIT, commit_of(store.objects.write(TREE, b""), x)) for x in "ab"
    )
    store.objects.set_refs({name: first, "refs/fetched/1": first})
    (store.path / lock).touch()
    then = time.time() - age
    os.utime(store.path / lock, (then, then))
    if moves:
        store.objects.set_refs({name: second, "refs/fetched/1": None})
    else:
        with pytest.raises(OSError, match="refs"):
            store.objects.set_refs({name: second, "refs/fetched/1": None})
    assert store.objects.ref(name) == (second if moves else first)
    assert (store.path / lock).exists() is not moves


# --- which of them ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_bytes", "brief", "other", "expected"),
    [
        (SHA1, False, False, LibgitObjects),
        (SHA1, True, False, PlumbingObjects),
        (SHA256, False, False, PlumbingObjects),
        (SHA1, False, True, PlumbingObjects),
    ],
    ids=["long-lived", "brief", "sha256", "another's"],
)
def test_which_way_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    id_bytes: int,
    brief: bool,
    other: bool,
    expected: type,
) -> None:
    make_bare(str(tmp_path / "store.git"), id_bytes)
    if other:
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    assert type(open_objects(str(tmp_path / "store.git"), id_bytes, brief=brief)) is expected


@pytest.mark.parametrize(("much", "expected"), [(0, LibgitObjects), (10**6, PlumbingObjects)])
def test_what_a_first_contact_brought_much_of_is_read_by_libgit2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, much: int, expected: type
) -> None:
    monkeypatch.setattr(private_store, "MUCH", much)
    written(Store(tmp_path / "store.git", "libgit"), FEW + 1)
    store = private_store.PrivateStore(str(tmp_path / "store.git"), brief=True)
    assert type(store.objects) is PlumbingObjects
    store.filled()
    assert type(store.objects) is expected


# --- commits ----------------------------------------------------------------------------------


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
    objects = Store(tmp_path / "store.git", "plumbing").objects
    assert read_commit(objects, objects.write(COMMIT, data)) is None
    assert read_commit(objects, objects.write(BLOB, data)) is None


def test_a_commit_is_read_as_it_was_written(tmp_path: Path) -> None:
    objects = Store(tmp_path / "store.git", "plumbing").objects
    tree, one, other = "1" * 40, "2" * 40, "3" * 40
    head = f"tree {tree}\nparent {one}\nparent {other}\nauthor a b <a> 1 +0100\n"
    data = f"{head}committer c <c> 1234567890 -0800\ngpgsig x\n y\n\nfirst\n\nlast \xff".encode(
        "latin-1"
    )
    found = read_commit(objects, objects.write(COMMIT, data))
    assert found is not None
    assert (found.tree_id, found.parent_ids, found.time) == (tree, (one, other), 1_234_567_890)
    assert found.message == "first\n\nlast \ufffd"
