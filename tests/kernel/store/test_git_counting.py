"""Counted, not timed: connections, pushes, objects, commits. And nothing needs manual repair."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.fences import clean_env
from support.ledgers import (
    REF,
    door,
    make_lease,
    tip,
    workspace,
    write_ledger,
)
from support.remotes import Remote
from support.repos import common_dir, git, run_git
from support.session import LeaseService
from support.workers import Workers

from gitlease.kernel.rules.errors import (
    Denied,
    GitleaseError,
    Invalid,
    LeaseHeld,
    Rollback,
    Unavailable,
)
from gitlease.kernel.store import git_ledger, transport, tree
from gitlease.library.leases import Leases

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
ROOT = Path(__file__).parents[2]


def reach(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """What every git process of this test needs, to be counted and let in."""
    remote.open_to(monkeypatch)


def since(remote: Remote, before: list[str]) -> list[str]:
    """The services that were opened after ``before``."""
    return remote.services()[len(before) :]


def own(clone: Path) -> Path:
    """The folder of gitlease in a clone."""
    return common_dir(clone) / "gitlease"


def state_file(clone: Path, name: str = "known.json") -> Path:
    return own(clone) / "state" / "default" / "global" / name


def depth(bare: Path) -> int:
    return int(git(bare, "rev-list", "--count", REF))


# --- connections --------------------------------------------------------------------------------


def test_one_connection_for_each_uncontended_change(
    remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(remote, monkeypatch)
    (clone,) = clones(1)
    leases = door(clone)
    start = remote.services()
    leases.claim("F000")
    # The first contact has one more, and so has the first ledger of all: no other may be there.
    assert since(remote, start) == ["upload-pack", "upload-pack", "receive-pack"]
    for change in (
        lambda: leases.claim("F001"),
        lambda: leases.claim("F001"),
        lambda: leases.renew("F001"),
        lambda: leases.renew("F001"),
        lambda: leases.extend("F001", "2h"),
        lambda: leases.claim("src/**"),
        lambda: leases.note("F001", "half done"),
        lambda: leases.claim_all([f"F{n:03d}" for n in range(2, 50)]),
        lambda: leases.renew_all(),
        lambda: leases.release("F001"),
        lambda: leases.done("F002"),
        lambda: door(clone).renew("F003"),  # a new process goes on where the last one was
    ):
        before = remote.services()
        change()
        assert since(remote, before) == ["receive-pack"]


@pytest.mark.nightly
def test_refusals_and_a_lost_race_ask_no_more_than_they_must(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(path_remote, monkeypatch)
    one, two = (door(clone) for clone in clones(2))
    one.claim("F001")
    two.list()
    before = path_remote.services()
    assert [x.resource for x in two.list(cached=True)] == ["F001"]
    with pytest.raises(GitleaseError):
        two.claim("F002", ttl="1m1x")
    with pytest.raises(GitleaseError):
        two.claim("not a name")
    assert since(path_remote, before) == []
    with pytest.raises(LeaseHeld):
        two.claim("F001")
    assert since(path_remote, before) == ["upload-pack"], "it never pushes"
    one.claim("F002")
    before = path_remote.services()
    two.claim("F003")
    assert since(path_remote, before) == ["receive-pack", "upload-pack", "receive-pack"]


# --- objects ------------------------------------------------------------------------------------


MANY = 2_000  # leases, several in each folder of 256


def loose(bare: Path) -> int:
    """How many loose objects a repository has."""
    return int(git(bare, "count-objects").split()[0])


def new_objects(bare: Path, action: Callable[[], object]) -> int:
    """How many objects arrive at the remote with an action; a small push is unpacked there."""
    git(bare, "config", "receive.unpackLimit", "100000")
    before = loose(bare)
    action()
    return loose(bare) - before


def test_changes_read_and_write_the_same_few_objects_however_many_leases(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five: commit, root, folder, fan, record, and the header; a release leaves out the record."""
    bare = path_remote.bare
    write_ledger(bare, [make_lease(f"T{n:05d}", token=n + 1, ttl=28_000) for n in range(MANY)])
    read = []
    real = tree.read_file

    def counting(objects: Any, entry: Any, limit: int) -> bytes:
        read.append(entry)
        return real(objects, entry, limit)

    monkeypatch.setattr(tree, "read_file", counting)
    jo, kim = clones(2)
    leases = door(jo)
    assert new_objects(bare, lambda: leases.claim("F001")) == 6
    assert new_objects(bare, lambda: leases.renew("F001")) == 6
    assert len(read) < 40
    leases._ledger.finish_landed()
    door(kim).claim("F002")
    leases.renew("F001")
    read.clear()
    leases._ledger.finish_landed()  # which looks among its own leases only
    assert new_objects(bare, lambda: leases.release("F001")) <= 5
    assert len(read) < 40
    assert len(leases.list()) == MANY + 1


# --- history ------------------------------------------------------------------------------------


NO_REPLACEMENT = """\
#!/bin/sh
while read old new ref; do
  case $old in *[!0]*) ;; *) continue ;; esac
  git merge-base --is-ancestor $old $new || { echo "no rewriting here" >&2; exit 1; }
done
"""
NO_LEDGER = """\
#!/bin/sh
while read old new ref; do
  case $ref in refs/gitlease/*) echo "protected ref" >&2; exit 1 ;; esac
done
"""


def hook(bare: Path, text: str, name: str = "pre-receive") -> Path:
    """A hook of the server."""
    file = bare / "hooks" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


@pytest.mark.default
def test_a_server_that_refuses_replacement_gets_appends_and_is_remembered(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(path_remote, monkeypatch)
    clone, clock = clones(1)[0], ManualClock()
    leases = door(clone, clock=clock)
    leases.claim("F001")
    leases.renew("F001")
    closed = hook(path_remote.bare, NO_LEDGER)
    with pytest.raises(Denied):
        leases.renew("F001")
    closed.unlink()
    leases.renew("F001")
    assert depth(path_remote.bare) == 2, "a refusal of everything says nothing of replacements"
    hook(path_remote.bare, NO_REPLACEMENT)
    for n in range(3, 6):
        assert leases.renew("F001").renewals == n
    assert depth(path_remote.bare) == 5
    before = path_remote.services()
    door(clone, clock=clock).renew("F001")
    assert since(path_remote, before) == ["receive-pack"]
    assert depth(path_remote.bare) == 6


def test_a_branch_as_ledger_where_branches_are_not_rewritten(
    path_remote: Remote, clones: Clones
) -> None:
    git(path_remote.bare, "config", "receive.denyNonFastForwards", "true")
    git(path_remote.bare, "config", "receive.denyDeletes", "true")
    clone, other = clones(2)
    for one in (clone, other):
        git(one, "config", "lease.refPrefix", "refs/heads/gitlease")
    leases = door(clone)
    leases.claim("F001")
    for n in range(1, 4):
        assert leases.renew("F001").renewals == n
    assert int(git(path_remote.bare, "rev-list", "--count", "refs/heads/gitlease/global")) == 4
    git(path_remote.bare, "update-ref", "-d", "refs/heads/gitlease/global")
    git(path_remote.bare, "branch", "gitlease", "main")  # in the way of branches below it
    with pytest.raises(GitleaseError) as raised:
        door(other, clock=ManualClock(), patience=3.0).claim("F001")
    assert raised.value.code in ("denied", "unavailable", "invalid")


# --- refusals of the remote ---------------------------------------------------------------------


@pytest.mark.nightly
def test_a_protected_ref_is_denied_and_leaves_no_lease(path_remote: Remote, clones: Clones) -> None:
    closed = hook(path_remote.bare, NO_LEDGER)
    first, second = clones(2)
    one, two = door(first), door(second)
    for _ in range(3):
        with pytest.raises(Denied):
            one.claim("F001")
    assert tip(path_remote.bare) == ""
    assert two.list() == ()
    closed.unlink()
    assert two.claim("F001").mine
    with pytest.raises(LeaseHeld):
        one.claim("F001")
    one.claim("F002")
    assert "had reached" not in " ".join(one.warnings)
    assert list(state_file(first, "pending").iterdir()) == [], "what was refused needs no room"


@pytest.mark.parametrize("key", ["uploadpack.hideRefs", "receive.hideRefs", "transfer.hideRefs"])
def test_a_remote_that_hides_its_ledger(key: str, path_remote: Remote, clones: Clones) -> None:
    """Refused in words, for certain, and never two winners."""
    one, two = clones(2)
    git(path_remote.bare, "config", key, "refs/gitlease")
    winners, codes = [], set()
    for clone in (one, two, one, two):
        try:
            winners.append(door(clone, clock=ManualClock(), patience=5.0).claim("F001").holder)
        except GitleaseError as refusal:
            codes.add(refusal.code)
    assert codes <= {"denied", "invalid", "unavailable", "rollback"}
    assert len(set(winners)) <= 1
    git(path_remote.bare, "config", "--unset", key)
    assert {x.holder for x in door(two).list()} == set(winners)


@pytest.mark.default("path")
@pytest.mark.parametrize("kind", ["path", "http", "ssh"])
def test_an_unreachable_remote(
    kind: str, request: pytest.FixtureRequest, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote: Remote = request.getfixturevalue(f"{kind}_remote")
    reach(remote, monkeypatch)
    clone = clones(1)[0]
    door(clone).claim("F001")
    away = {
        "path": str(remote.bare) + "-gone",
        "http": "http://127.0.0.1:1/x.git",
        "ssh": "ssh://nobody@127.0.0.1:1/x.git",
    }[kind]
    git(clone, "config", "remote.origin.url", away)
    leases = door(clone)
    for action in (lambda: leases.claim("F002"), leases.list, lambda: leases.renew("F001")):
        with pytest.raises(Unavailable) as raised:
            action()
        assert raised.value.code == "unavailable"
    git(clone, "config", "remote.origin.url", remote.url)  # what is known is known of a URL
    assert [x.resource for x in door(clone).list(cached=True)] == ["F001"]


@pytest.mark.nightly
def test_a_stale_lock_on_the_server_is_named(path_remote: Remote, clones: Clones) -> None:
    leases = door(clones(1)[0], clock=ManualClock(), patience=3.0)
    leases.claim("F001")
    git(path_remote.bare, "config", "core.filesRefLockTimeout", "0")
    lock = path_remote.bare / (REF + ".lock")
    lock.touch()
    with pytest.raises(Unavailable) as raised:
        leases.claim("F002")
    text = " ".join([raised.value.message, *raised.value.hints])
    assert "lock" in text
    lock.unlink()
    assert leases.claim("F003").mine
    assert {x.resource for x in leases.list()} == {"F001", "F003"}


# --- which ledger -------------------------------------------------------------------------------


def test_a_remote_that_is_gone_renamed_or_added(
    path_remote: Remote, clones: Clones, tmp_path: Path
) -> None:
    clone = clones(1)[0]
    door(clone).claim("F001")
    git(clone, "remote", "rename", "origin", "upstream")
    assert [x.resource for x in door(clone).list()] == ["F001"]  # the same place by another name
    git(clone, "config", "lease.remote", "upstream")
    assert [x.resource for x in door(clone).list()] == ["F001"]
    git(clone, "config", "--unset", "lease.remote")
    git(clone, "remote", "remove", "upstream")
    with pytest.raises(Invalid):  # there is no remote, and the local ledger is another one
        door(clone).claim("F002")
    with pytest.raises(Invalid):
        door(clone).list()
    git(clone, "remote", "add", "origin", path_remote.url)
    assert door(clone).renew("F001").renewals == 1
    elsewhere = tmp_path / "elsewhere.git"
    git(tmp_path, "init", "-q", "--bare", str(elsewhere))
    git(clone, "config", "remote.origin.url", str(elsewhere))
    with pytest.raises(Rollback):
        door(clone).claim("F002")
    LeaseService(workspace(clone).ledger).confirm()
    assert door(clone).claim("F002").mine
    assert tip(elsewhere) != ""


def test_the_local_layer_never_leaves_the_clone(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(path_remote, monkeypatch)
    one, two = clones(2)
    before = path_remote.services()
    mine = door(one, local=True)
    mine.claim("F001")
    mine.renew("F001")
    assert mine.list()[0].layer == "local"
    assert since(path_remote, before) == []
    assert door(two, local=True).list() == ()
    assert door(one).claim("F001").layer == "global"
    assert git(path_remote.bare, "for-each-ref", "refs/gitlease/") != ""
    assert "local" not in git(path_remote.bare, "for-each-ref", "refs/gitlease/")


# --- damage in the clone ------------------------------------------------------------------------


def drop_blobs(store: Path) -> None:
    listed = git(store, "cat-file", "--batch-all-objects", "--batch-check")
    for line in listed.splitlines():
        oid, kind, _ = line.split()
        if kind == "blob":
            (store / "objects" / oid[:2] / oid[2:]).unlink(missing_ok=True)


def spoil_objects(store: Path) -> None:
    for file in (store / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o644)
            file.write_bytes(file.read_bytes()[:10])


def file_instead(store: Path) -> None:
    shutil.rmtree(store)
    store.write_text("not a folder")


def garbage(name: str) -> Callable[[Path], None]:
    def spoil(store: Path) -> None:
        (store / name).write_bytes(b"\0\xff[[[garbage" * 50)

    return spoil


def dangling_refs(store: Path) -> None:
    for file in (store / "refs").rglob("*"):
        if file.is_file():
            file.write_text("1" * 40 + "\n")


def locks(store: Path) -> None:
    for file in [*(store / "refs").rglob("*")]:
        if file.is_file():
            file.with_name(file.name + ".lock").touch()
    for name in ("config.lock", "packed-refs.lock", "HEAD.lock", "gc.pid", "shallow.lock"):
        (store / name).touch()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "no store": shutil.rmtree,
    "a file instead": file_instead,
    "no blobs": drop_blobs,
    "objects cut short": spoil_objects,
    "config garbage": garbage("config"),
    "no HEAD": lambda store: (store / "HEAD").unlink(),
    "HEAD garbage": garbage("HEAD"),
    "no refs": lambda store: shutil.rmtree(store / "refs"),
    "refs dangling": dangling_refs,
    "no objects": lambda store: shutil.rmtree(store / "objects"),
    "locks left behind": locks,
}


@pytest.mark.default("no store")
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_store_is_rebuilt_silently(
    name: str, path_remote: Remote, clones: Clones
) -> None:
    one, two = clones(2)
    clock = ManualClock()
    door(one, clock=clock).claim("F001")
    door(two, clock=clock).claim("F002")
    door(one, clock=clock).renew("F001")
    DAMAGE[name](own(one) / "store.git")
    leases = door(one, clock=clock)
    assert leases.renew("F001").renewals == 2
    with pytest.raises(LeaseHeld):
        leases.claim("F002")
    assert leases.claim("F003").mine
    assert {x.resource for x in leases.list()} == {"F001", "F002", "F003"}
    assert len(LeaseService(leases._ledger).log().events) >= 3
    git(path_remote.bare, "fsck", "--strict", "--no-dangling")


@pytest.mark.default
def test_a_lost_state_that_was_replaced_since_is_no_refusal(
    path_remote: Remote, clones: Clones
) -> None:
    """Nobody has the renewal any more that was known here: what is now is decided on instead."""
    one, two = clones(2)
    clock = ManualClock()
    door(two, clock=clock).claim("F002")
    door(one, clock=clock).claim("F001")
    door(one, clock=clock).renew("F001")
    assert len(door(two, clock=clock).list()) == 2
    known = git(path_remote.bare, "rev-parse", REF)
    door(one, clock=clock).renew("F001")
    assert run_git(path_remote.bare, "merge-base", "--is-ancestor", known, REF).returncode == 1
    DAMAGE["no blobs"](own(two) / "store.git")
    leases = door(two, clock=clock)
    assert [x.resource for x in leases.renew_all()] == ["F002"]
    with pytest.raises(LeaseHeld):
        leases.claim("F001")
    assert {x.resource for x in leases.list()} == {"F001", "F002"}


@pytest.mark.parametrize("name", ["no store", "no blobs"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_store_that_vanishes_right_at_the_push(
    when: str, name: str, path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is reported is what the ref says: no claim that holds is told as failed."""
    one, two = clones(2)
    clock = ManualClock()
    door(one, clock=clock).claim("F000")
    real, store = transport.push_refs, own(one) / "store.git"
    left = [1]

    def harmful(*args: object, **options: object) -> object:
        once = left.pop() if left else 0
        if once and when == "before":
            DAMAGE[name](store)
        pushed = real(*args, **options)  # type: ignore[arg-type]
        if once and when == "after":
            DAMAGE[name](store)
        return pushed

    monkeypatch.setattr("gitlease.kernel.store.transport.push_refs", harmful)
    leases = door(one, clock=clock)
    try:
        granted = leases.claim("F001").mine
    except GitleaseError:
        granted = False
        assert when == "after", "nothing had been sent that could have landed"
    assert not left
    held = {view.resource for view in door(two, clock=clock).list()}
    assert ("F001" in held) == granted
    assert door(one, clock=clock).claim("F001").mine
    assert {x.resource for x in door(one, clock=clock).list()} == {"F000", "F001"}


def test_a_store_that_is_damaged_again_and_again_under_eight_sessions(
    path_remote: Remote, clones: Clones
) -> None:
    """They rebuild what others are just using; each of them still gets an answer that holds."""
    clone = clones(1)[0]
    fixed = [(["-C", str(clone), "--session", f"s{n}"], path_remote.env) for n in range(8)]
    with Workers(fixed) as workers:
        assert [a.exit for a in workers.at_once([["claim", f"R{n}"] for n in range(8)])] == [0] * 8
        for name in ("no blobs", "HEAD garbage", "no objects"):
            DAMAGE[name](own(clone) / "store.git")
            answers = workers.at_once([["renew", f"R{n}"] for n in range(8)])
            assert [a.exit for a in answers] == [0] * 8, [a.document for a in answers if a.exit]
        answers = workers.all("claim", "ONE")
        assert sorted(a.exit for a in answers) == [0] + [1] * 7
    kept = [path.name for path in own(clone).iterdir()]
    assert len(kept) < 20, kept


def test_damaged_state_files_are_made_anew(path_remote: Remote, clones: Clones) -> None:
    """And the loss of what was known is reported once."""
    clone, clock = clones(1)[0], ManualClock()
    door(clone, clock=clock).claim("F001")
    state_file(clone, "pending").mkdir(exist_ok=True)
    lost = (b"\0\xff garbage", b'{"ledger_id": "x", "version": "', b"[1]", b"", None)
    for number, data in enumerate(lost):
        for name in ("known.json", "notes.json", "pending/1.json"):
            state_file(clone, name).write_bytes(data or b"")
        if data is None:
            state_file(clone, "known.json").unlink()
        for reported in (True, False):
            leases = door(clone, clock=clock)
            leases.list()
            assert any("is damaged or gone" in x for x in leases.warnings) is reported
            clock.advance(61)
            leases.list()
            assert leases.warnings == (), "a process that lives on does not say so for ever"
        assert leases.renew("F001").renewals == number + 1
        assert leases.claim("F003").mine
        assert {x.resource for x in leases.list()} == {"F001", "F003"}


@pytest.mark.default
def test_a_state_folder_that_cannot_be_written(path_remote: Remote, clones: Clones) -> None:
    """Said in words, before anything is sent."""
    clone = clones(1)[0]
    own(clone).mkdir(exist_ok=True)
    (own(clone) / "state").write_text("in the way")
    with pytest.raises(Invalid):
        door(clone).claim("F001")
    assert tip(path_remote.bare) == ""


@pytest.mark.default
def test_history_is_read_where_no_state_can_be_kept(path_remote: Remote, clones: Clones) -> None:
    one, two = clones(2)
    door(one).claim("F001")
    door(one).release("F001")
    own(two).write_text("in the way")
    assert [x.kind for x in door(two).log()] == ["released", "claimed"]
    assert (door(two).verify().commits, door(two).verify().broken) == (2, ())


# --- kills --------------------------------------------------------------------------------------


KILLED = """
import os, sys
import gitlease
from gitlease.kernel.store.git_ledger import RefLedgerStore
RefLedgerStore.adopt = lambda *args, **options: os._exit(9)
gitlease.open(sys.argv[1]).claim("F001")
"""


def test_a_kill_after_the_push_is_told_at_the_next_command(
    path_remote: Remote, clones: Clones
) -> None:
    clone = clones(1)[0]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(clone)],
        env={**clean_env(), "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 9
    leases = door(clone, clock=ManualClock(wall_ms=int(time.time() * 1_000)))
    for wanted in (True, False):
        leases.note("F002", "next")
        assert any("had reached the remote" in x for x in leases.warnings) is wanted


def test_a_killed_fetch_blocks_nothing(path_remote: Remote, clones: Clones) -> None:
    """git itself is killed, with its files half written."""
    one, two = clones(2)
    clock = ManualClock()
    door(one, clock=clock).claim("F001")
    for n in range(4):
        door(two, clock=clock).claim(f"G{n}")
        store = own(one) / "store.git"
        to = f"refs/fetched/killed-{n}"
        process = subprocess.Popen(
            ["git", f"--git-dir={store}", "fetch", "-q", str(path_remote.bare), f"+{REF}:{to}"],
            env=clean_env(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if n % 2:
            process.wait(60)
        os.killpg(process.pid, 9) if process.poll() is None else None
        process.wait(60)
        (store / "refs" / "fetched").mkdir(exist_ok=True)
        (store / "refs" / "fetched" / f"killed-{n}.lock").touch()
        (store / "objects" / "pack" / f"tmp_pack_{n}").write_bytes(b"PACK")
        assert len(door(one, clock=clock).list()) == n + 2
        assert door(one, clock=clock).renew("F001").renewals == n + 1


def objects() -> Counter[str]:
    gc.collect()
    return Counter(type(x).__name__ for x in gc.get_objects())


def test_a_process_reads_what_is_in_a_state_and_its_past_once(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway is asked for all leases and a thousand events again and again."""
    one, two = (workspace(clone) for clone in clones(2))
    for number in range(12):
        Leases(two).claim(f"F{number:03d}")
    read = Counter[str]()

    def count(name: str) -> None:
        real = vars(tree)[name]

        def counted(*args: object) -> object:
            read[name] += 1
            return real(*args)

        monkeypatch.setattr(tree, name, counted)

    def ask() -> int:
        read.clear()
        assert one.ledger.store.fetch(one.layer).ledger
        one.ledger.store.history(one.layer, 100)
        return len(one.ledger.look().leases)

    count("read_lease")
    count("events_in")
    assert (ask(), read["read_lease"], read["events_in"]) == (12, 12, 12)
    assert (ask(), read.total()) == (12, 0)
    Leases(two).claim("F012")
    assert (ask(), read["read_lease"], read["events_in"]) == (13, 1, 1)
    # What no state has any more is not kept for ever.
    monkeypatch.setattr(transport, "PARSED_KEPT", 3)
    monkeypatch.setattr(git_ledger, "EVENTS_KEPT", 30)
    for lease in Leases(two).list():
        Leases(two).release(lease.resource)
    before = objects()
    for _ in range(25):
        Leases(two).claim("F020")
        assert ask() == 1
        Leases(two).release("F020")
    grown = objects() - before
    assert grown["Lease"] < 25
    assert grown["Event"] < 25
