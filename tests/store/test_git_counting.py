"""Counted, not timed: connections, pushes, objects, commits. And nothing needs manual repair."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.fences import clean_env
from support.ledgers import (
    REF,
    door,
    header_of,
    make_lease,
    read_files,
    set_tip,
    text_of,
    tip,
    workspace,
    write_ledger,
)
from support.remotes import Remote
from support.repos import common_dir, git, run_git
from support.session import LeaseService
from support.snapshots import check_words, raises
from support.workers import Workers

from gitlease.core import (
    Denied,
    GitleaseError,
    Invalid,
    LeaseHeld,
    Rollback,
    Unavailable,
    parse_resource,
)
from gitlease.engine import settle_landed
from gitlease.faces.library import Leases
from gitlease.store import transport, tree

pytestmark = [pytest.mark.one_in(3), pytest.mark.sampled(4)]

Clones = Callable[..., list[Path]]
ROOT = Path(__file__).parents[2]


def reach(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """What every git process of this test needs, to be counted and let in."""
    for name, value in remote.env.items():
        monkeypatch.setenv(name, value)


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
    leases = door(clones(1)[0])
    start = remote.services()
    leases.claim("F000")
    assert since(remote, start) == ["upload-pack", "receive-pack"]  # the first contact: two
    for change in (
        lambda: leases.claim("F001"),
        lambda: leases.claim("F001"),
        lambda: leases.renew("F001"),
        lambda: leases.renew("F001"),
        lambda: leases.extend("F001", "2h"),
        lambda: leases.claim("src/**"),
        lambda: leases.note("F001", "half done"),
        lambda: leases.claim_all(["F002", "F003", "docs/*.md"]),
        lambda: leases.renew_all(),
        lambda: leases.release("F001"),
        lambda: leases.done("F002"),
    ):
        before = remote.services()
        change()
        assert since(remote, before) == ["receive-pack"]


def test_a_new_process_goes_on_where_the_last_one_was(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(path_remote, monkeypatch)
    clone, clock = clones(1)[0], ManualClock()
    door(clone, clock=clock).claim("F001")
    before = path_remote.services()
    door(clone, clock=clock).renew("F001")
    door(clone, clock=clock).release("F001")
    assert since(path_remote, before) == ["receive-pack", "receive-pack"]


def test_what_needs_no_answer_asks_nobody(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(path_remote, monkeypatch)
    leases = door(clones(1)[0])
    leases.claim("F001")
    before = path_remote.services()
    assert [x.resource for x in leases.list(cached=True)] == ["F001"]
    with pytest.raises(GitleaseError):
        leases.claim("F002", ttl="1m1x")
    with pytest.raises(GitleaseError):
        leases.claim("not a name")
    assert since(path_remote, before) == []


def test_a_refusal_asks_once_and_never_pushes(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(path_remote, monkeypatch)
    one, two = (door(clone) for clone in clones(2))
    one.claim("F001")
    two.list()
    before = path_remote.services()
    with pytest.raises(LeaseHeld):
        two.claim("F001")
    assert since(path_remote, before) == ["upload-pack"]


def test_a_lost_race_costs_a_push_a_fetch_and_a_push(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(path_remote, monkeypatch)
    one, two = (door(clone) for clone in clones(2))
    one.claim("F001")
    two.list()
    one.claim("F002")
    before = path_remote.services()
    two.claim("F003")
    assert since(path_remote, before) == ["receive-pack", "upload-pack", "receive-pack"]


def test_renewing_fifty_leases_is_one_push(
    remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(remote, monkeypatch)
    leases = door(clones(1)[0])
    leases.claim_all([f"F{n:03d}" for n in range(50)])
    before = remote.services()
    assert len(leases.renew_all()) == 50
    assert since(remote, before) == ["receive-pack"]


def test_more_leases_of_one_holder_than_the_ring_has_room_for(
    path_remote: Remote, clones: Clones
) -> None:
    one, two = (door(clone) for clone in clones(2))
    for first in range(0, 300, 60):
        one.claim_all([f"F{n:03d}" for n in range(first, first + 60)])
    assert len(two.list()) == 300
    assert len(one.renew_all()) == 300
    assert len(LeaseService(two._ledger).log(limit=1000).events) >= 200


# --- objects ------------------------------------------------------------------------------------


MANY = 2_000  # leases, several in each folder of 256


def grow(bare: Path, number: int) -> None:
    """A ledger of so many leases, written at once."""
    write_ledger(bare, [make_lease(f"T{n:05d}", token=n + 1, ttl=28_000) for n in range(number)])


def loose(bare: Path) -> int:
    """How many loose objects a repository has."""
    return int(git(bare, "count-objects").split()[0])


def new_objects(bare: Path, action: Callable[[], object]) -> int:
    """How many objects arrive at the remote with an action; a small push is unpacked there."""
    git(bare, "config", "receive.unpackLimit", "100000")
    before = loose(bare)
    action()
    return loose(bare) - before


@pytest.mark.parametrize("number", [10, MANY])
def test_a_change_writes_the_same_few_objects_however_many_leases(
    number: int, path_remote: Remote, clones: Clones
) -> None:
    """Five: commit, root, folder, fan, record, and the header; a release leaves out the record."""
    bare = path_remote.bare
    grow(bare, number)
    leases = door(clones(1)[0])
    leases.list()
    assert new_objects(bare, lambda: leases.claim("F001")) == 6
    assert new_objects(bare, lambda: leases.renew("F001")) == 6
    assert new_objects(bare, lambda: leases.release("F001")) <= 5
    assert len(leases.list()) == number


def test_a_claim_reads_no_more_records_with_many_leases(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(path_remote.bare, MANY)
    read = []
    real = tree.read_file

    def counting(objects: Any, entry: Any, limit: int) -> bytes:
        read.append(entry)
        return real(objects, entry, limit)

    monkeypatch.setattr(tree, "read_file", counting)
    leases = door(clones(1)[0])
    leases.claim("F001")
    leases.renew("F001")
    leases.release("F001")
    assert len(read) < 40


# --- history ------------------------------------------------------------------------------------


def test_thirty_heartbeats_leave_one_commit(path_remote: Remote, clones: Clones) -> None:
    clock = ManualClock()
    leases = door(clones(1)[0], clock=clock)
    leases.claim("F001", ttl="15m")
    decisions = depth(path_remote.bare)
    for _ in range(30):
        clock.advance(300)
        leases.renew("F001")
    assert depth(path_remote.bare) == decisions + 1
    leases.claim("F002")
    assert depth(path_remote.bare) == decisions + 2  # what is built on a renewal keeps it
    leases.renew_all()
    leases.renew_all()
    leases.release("F001")
    assert depth(path_remote.bare) == decisions + 4
    assert header_of(path_remote.bare).revision == 1 + 30 + 1 + 2 + 1
    kinds = [event.kind for event in LeaseService(leases._ledger).log().events]
    assert kinds.count("released") == 1
    assert kinds.count("claimed") == 2


def test_heartbeats_of_two_holders_replace_each_other(path_remote: Remote, clones: Clones) -> None:
    clock = ManualClock()
    one, two = (door(clone, clock=clock) for clone in clones(2))
    one.claim("F001")
    two.claim("F002")
    before = depth(path_remote.bare)
    for _ in range(5):
        one.renew("F001")
        two.renew("F002")
    assert depth(path_remote.bare) == before + 1
    assert one.show("F002")[0].renewals == 5
    assert two.show("F001")[0].renewals == 5


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


def test_a_server_that_refuses_replacement_gets_appends_and_is_remembered(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(path_remote, monkeypatch)
    hook(path_remote.bare, NO_REPLACEMENT)
    clone, clock = clones(1)[0], ManualClock()
    leases = door(clone, clock=clock)
    leases.claim("F001")
    for n in range(1, 4):
        assert leases.renew("F001").renewals == n
    assert depth(path_remote.bare) == 4
    before = path_remote.services()
    door(clone, clock=clock).renew("F001")
    assert since(path_remote, before) == ["receive-pack"]
    assert depth(path_remote.bare) == 5


def test_a_server_that_is_closed_for_a_while_is_not_remembered_as_one_that_appends(
    path_remote: Remote, clones: Clones
) -> None:
    """A refusal of everything says nothing of replacements."""
    leases = door(clones(1)[0])
    leases.claim("F001")
    leases.renew("F001")
    closed = hook(path_remote.bare, NO_LEDGER)
    with pytest.raises(Denied):
        leases.renew("F001")
    closed.unlink()
    before = depth(path_remote.bare)
    for _ in range(4):
        leases.renew("F001")
    assert depth(path_remote.bare) <= before + 1


def test_a_branch_as_ledger_where_branches_are_not_rewritten(
    path_remote: Remote, clones: Clones
) -> None:
    git(path_remote.bare, "config", "receive.denyNonFastForwards", "true")
    git(path_remote.bare, "config", "receive.denyDeletes", "true")
    clone = clones(1)[0]
    git(clone, "config", "lease.refPrefix", "refs/heads/gitlease")
    leases = door(clone)
    leases.claim("F001")
    for n in range(1, 4):
        assert leases.renew("F001").renewals == n
    assert int(git(path_remote.bare, "rev-list", "--count", "refs/heads/gitlease/global")) == 4


def test_a_branch_under_a_branch_of_that_name(path_remote: Remote, clones: Clones) -> None:
    """refs/heads/gitlease is in the way of refs/heads/gitlease/global: refused in words."""
    git(path_remote.bare, "branch", "gitlease", "main")
    clone = clones(1)[0]
    git(clone, "config", "lease.refPrefix", "refs/heads/gitlease")
    with pytest.raises(GitleaseError) as raised:
        door(clone, patience=3.0).claim("F001")
    assert raised.value.code in ("denied", "unavailable", "invalid")


# --- refusals of the remote ---------------------------------------------------------------------


def test_a_protected_ref_is_denied_and_leaves_no_lease(
    remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(remote, monkeypatch)
    hook(remote.bare, NO_LEDGER)
    one, two = (door(clone) for clone in clones(2))
    with raises(Denied):
        one.claim("F001")
    assert tip(remote.bare) == ""
    assert two.list() == ()
    (remote.bare / "hooks" / "pre-receive").unlink()
    assert two.claim("F001").mine
    with pytest.raises(LeaseHeld):
        one.claim("F001")
    assert one.warnings == () or "had reached" not in " ".join(one.warnings)


def test_many_refusals_do_not_pile_up(path_remote: Remote, clones: Clones) -> None:
    """What was refused for certain needs no room for ever."""
    clone = clones(1)[0]
    closed = hook(path_remote.bare, NO_LEDGER)
    for _ in range(5):
        with pytest.raises(Denied):
            door(clone).claim("F001")
    closed.unlink()
    leases = door(clone)
    leases.claim("F002")
    leases.claim("F003")
    folder = state_file(clone, "pending")
    assert not folder.exists() or list(folder.iterdir()) == []


@pytest.mark.parametrize("key", ["uploadpack.hideRefs", "receive.hideRefs", "transfer.hideRefs"])
def test_a_remote_that_hides_its_ledger(key: str, path_remote: Remote, clones: Clones) -> None:
    """Refused in words, for certain, and never two winners."""
    one, two = clones(2)
    git(path_remote.bare, "config", key, "refs/gitlease")
    winners, codes = [], set()
    for clone in (one, two, one, two):
        try:
            winners.append(door(clone, patience=5.0).claim("F001").holder)
        except GitleaseError as refusal:
            codes.add(refusal.code)
    assert codes <= {"denied", "invalid", "unavailable", "rollback"}
    assert len(set(winners)) <= 1
    git(path_remote.bare, "config", "--unset", key)
    assert {x.holder for x in door(two).list()} == set(winners)


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
    assert [x.resource for x in leases.list(cached=True)] == ["F001"]


def test_a_stale_lock_on_the_server_is_named(path_remote: Remote, clones: Clones) -> None:
    leases = door(clones(1)[0], patience=3.0)
    leases.claim("F001")
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


def rewind(bare: Path) -> str:
    """Force the ref back by one commit; where it was."""
    was = tip(bare)
    set_tip(bare, git(bare, "rev-parse", f"{REF}^"))
    return was


def test_a_rollback_is_reported_and_never_believed(path_remote: Remote, clones: Clones) -> None:
    clone, other = clones(2)
    clock = ManualClock()
    leases = door(clone, clock=clock)
    leases.claim("F001")
    leases.claim("F002")
    was = rewind(path_remote.bare)
    forced = tip(path_remote.bare)
    for action in (
        leases.list,
        lambda: leases.claim("F003"),
        lambda: leases.renew("F002"),
        lambda: leases.release("F001"),
    ):
        with pytest.raises(Rollback) as raised:
            action()
        assert raised.value.code == "rollback"
    assert tip(path_remote.bare) == forced
    with pytest.raises(Rollback):
        door(clone, clock=clock).list()
    set_tip(path_remote.bare, was)
    assert {x.resource for x in door(clone, clock=clock).list()} == {"F001", "F002"}
    assert door(other, clock=clock).list() != ()


def test_a_rollback_that_has_grown_again_is_another_history(
    path_remote: Remote, clones: Clones
) -> None:
    """The same revision with another id: someone wrote on top of what was rolled back."""
    one, two = clones(2)
    mine, other = door(one), door(two)
    mine.claim("F001")
    mine.claim("F002")
    rewind(path_remote.bare)
    other.claim("F002")
    assert header_of(path_remote.bare).revision == 2
    with pytest.raises(Rollback):
        mine.list()
    with pytest.raises(Rollback):
        mine.renew("F002")


def test_a_deleted_ref_is_reported_until_it_is_confirmed(
    path_remote: Remote, clones: Clones
) -> None:
    clone = clones(1)[0]
    leases = door(clone)
    leases.claim("F001")
    git(path_remote.bare, "update-ref", "-d", REF)
    for action in (leases.list, lambda: leases.claim("F002"), lambda: leases.renew("F001")):
        with pytest.raises(Rollback):
            action()
    assert tip(path_remote.bare) == ""
    LeaseService(workspace(clone).ledger).confirm()
    assert leases.list() == ()
    assert leases.claim("F002").mine


def test_another_ledger_in_its_place(path_remote: Remote, clones: Clones) -> None:
    one, two = clones(2)
    leases = door(one)
    leases.claim("F001")
    git(path_remote.bare, "update-ref", "-d", REF)
    door(two).claim("F001")
    for action in (leases.list, lambda: leases.renew("F001"), lambda: leases.claim("F002")):
        with pytest.raises(Rollback):
            action()
    LeaseService(workspace(one).ledger).confirm()
    with pytest.raises(LeaseHeld):
        leases.claim("F001")


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
    with pytest.raises(Rollback):  # there is no remote: the local ledger is another one
        door(clone).claim("F002")
    with pytest.raises(Rollback):
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


def test_a_remote_added_to_a_local_ledger(tmp_path: Path) -> None:
    clone, bare = tmp_path / "repo", tmp_path / "bare.git"
    git(tmp_path, "init", "-q", str(clone))
    git(tmp_path, "init", "-q", "--bare", str(bare))
    git(clone, "config", "user.email", "jo@example.com")
    leases = door(clone)
    leases.claim("F001")
    assert any("local" in line for line in leases.warnings)
    git(clone, "remote", "add", "origin", str(bare))
    with pytest.raises(Rollback):
        door(clone).claim("F002")
    LeaseService(workspace(clone).ledger).confirm()
    assert door(clone).claim("F001").mine


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


def test_layers_do_not_block_each_other(path_remote: Remote, clones: Clones) -> None:
    one, two = clones(2)
    assert door(one, layer="team-a").claim("F001").mine
    assert door(two, layer="team-b").claim("F001").mine
    assert door(two).claim("F001").mine
    with pytest.raises(LeaseHeld):
        door(two, layer="TEAM-A").claim("F001")
    refs = git(path_remote.bare, "for-each-ref", "--format=%(refname)", "refs/gitlease/")
    assert set(refs.split()) == {"refs/gitlease/team-a", "refs/gitlease/team-b", REF}


# --- damage in the clone ------------------------------------------------------------------------


def drop_objects(store: Path) -> None:
    for folder in (store / "objects").iterdir():
        if len(folder.name) == 2 or folder.name == "pack":
            shutil.rmtree(folder)
    (store / "objects" / "pack").mkdir()


def drop_kind(kind: str) -> Callable[[Path], None]:
    def drop(store: Path) -> None:
        listed = git(store, "cat-file", "--batch-all-objects", "--batch-check")
        for line in listed.splitlines():
            oid, found, _ = line.split()
            if found == kind:
                (store / "objects" / oid[:2] / oid[2:]).unlink(missing_ok=True)

    return drop


def spoil_objects(store: Path) -> None:
    for file in (store / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o644)
            file.write_bytes(file.read_bytes()[:10])


def no_store(store: Path) -> None:
    shutil.rmtree(store)


def file_instead(store: Path) -> None:
    shutil.rmtree(store)
    store.write_text("not a folder")


def emptied(name: str) -> Callable[[Path], None]:
    def empty(store: Path) -> None:
        (store / name).write_text("")

    return empty


def garbage(name: str) -> Callable[[Path], None]:
    def spoil(store: Path) -> None:
        (store / name).write_bytes(b"\0\xff[[[garbage" * 50)

    return spoil


def removed(name: str) -> Callable[[Path], None]:
    def remove(store: Path) -> None:
        target = store / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return remove


def bad_refs(store: Path) -> None:
    for file in (store / "refs").rglob("*"):
        if file.is_file():
            file.write_text("garbage")


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


def alternates(store: Path) -> None:
    (store / "objects" / "info" / "alternates").write_text("/nowhere\n")


def shallow(store: Path) -> None:
    (store / "shallow").write_text("1" * 40 + "\n")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "no store": no_store,
    "a file instead": file_instead,
    "no objects": drop_objects,
    "no commits": drop_kind("commit"),
    "no trees": drop_kind("tree"),
    "no blobs": drop_kind("blob"),
    "objects cut short": spoil_objects,
    "no config": removed("config"),
    "config empty": emptied("config"),
    "config garbage": garbage("config"),
    "no HEAD": removed("HEAD"),
    "HEAD empty": emptied("HEAD"),
    "HEAD garbage": garbage("HEAD"),
    "no refs": removed("refs"),
    "refs garbage": bad_refs,
    "refs dangling": dangling_refs,
    "no objects folder": removed("objects"),
    "packed-refs garbage": garbage("packed-refs"),
    "locks left behind": locks,
    "shallow": shallow,
    "alternates to nowhere": alternates,
}


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


@pytest.mark.parametrize("name", ["no objects", "no blobs", "objects cut short"])
def test_a_lost_state_that_was_replaced_since_is_no_refusal(
    name: str, path_remote: Remote, clones: Clones
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
    DAMAGE[name](own(two) / "store.git")
    leases = door(two, clock=clock)
    assert [x.resource for x in leases.renew_all()] == ["F002"]
    with pytest.raises(LeaseHeld):
        leases.claim("F001")
    assert {x.resource for x in leases.list()} == {"F001", "F002"}


@pytest.mark.parametrize("name", ["no store", "no objects", "no blobs", "objects cut short"])
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

    monkeypatch.setattr("gitlease.store.transport.push_refs", harmful)
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


@pytest.mark.slow
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


STATES: dict[str, bytes] = {
    "empty": b"",
    "garbage": b"\0\xff garbage",
    "cut short": b'{"ledger_id": "x", "version": "',
    "list": b"[1, 2]",
    "number": b"7",
    "text": b'"x"',
    "empty object": b"{}",
    "deep": b"[" * 100_000,
    "wrong types": b'{"ledger_id": 1, "version": 2, "revision": "x"}',
}
CHANGES: dict[str, dict[str, object]] = {
    "version not hex": {"version": "zz"},
    "version short": {"version": "abcd"},
    "sighted list": {"sighted": [1]},
    "sighted text": {"sighted": {"x": "y"}},
    "received text": {"received": "now"},
    "received infinite": {"received": [1e999, 1e999]},
    "received none": {"received": None},
    "boot_id number": {"boot_id": 7},
}


def still_works(clone: Path, clock: ManualClock) -> None:
    leases = door(clone, clock=clock)
    assert leases.renew("F001").renewals == 1
    assert leases.claim("F003").mine
    assert {x.resource for x in leases.list()} == {"F001", "F003"}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("file", ["known.json", "notes.json", "pending/1.json"])
def test_a_damaged_state_file(file: str, name: str, path_remote: Remote, clones: Clones) -> None:
    clone, clock = clones(1)[0], ManualClock()
    door(clone, clock=clock).claim("F001")
    target = state_file(clone, file)
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(STATES[name])
    still_works(clone, clock)


def test_the_loss_of_what_was_known_is_reported_once(path_remote: Remote, clones: Clones) -> None:
    clone = clones(1)[0]
    door(clone).claim("F001")
    state_file(clone).write_text("{")
    for reported in (True, False):
        leases = door(clone)
        leases.list()
        assert any("was damaged" in x for x in leases.warnings) is reported


@pytest.mark.parametrize("name", CHANGES)
def test_a_state_file_with_odd_values(name: str, path_remote: Remote, clones: Clones) -> None:
    clone, clock = clones(1)[0], ManualClock()
    door(clone, clock=clock).claim("F001")
    target = state_file(clone)
    target.write_text(json.dumps({**json.loads(target.read_text()), **CHANGES[name]}))
    still_works(clone, clock)


@pytest.mark.parametrize(
    "pending",
    [
        {"process": 10**30},
        {"process": -5},
        {"process": "me"},
        {"process": 0, "operations": "abc"},
        {"process": 0, "operations": []},
        {"process": 0, "operations": ["../../known"], "version": "zz"},
        {"process": 0, "base_revision": 10**30},
    ],
)
def test_an_odd_pending_file(
    pending: dict[str, object], path_remote: Remote, clones: Clones
) -> None:
    clone, clock = clones(1)[0], ManualClock()
    door(clone, clock=clock).claim("F001")
    target = state_file(clone, "pending/x.json")
    target.parent.mkdir(exist_ok=True)
    whole = {
        "process": 0,
        "operations": ["x"],
        "layer": "global",
        "expected": "",
        "base_revision": 0,
        "version": "1" * 40,
        "what": "claim of F001",
        "at": None,
        "resources": [],
        "decision": True,
    }
    target.write_text(json.dumps(whole | pending))
    still_works(clone, clock)


def test_a_state_folder_that_cannot_be_written(path_remote: Remote, clones: Clones) -> None:
    """Said in words, before anything is sent."""
    clone = clones(1)[0]
    own(clone).mkdir(exist_ok=True)
    (own(clone) / "state").write_text("in the way")
    with pytest.raises(Invalid):
        door(clone).claim("F001")
    assert tip(path_remote.bare) == ""


# --- a kill at every step -----------------------------------------------------------------------


STEPS = [
    "gitlease.store.private_store:make_bare",
    "gitlease.store.transport:fetch_ref",
    "gitlease.store.git_ledger:RefLedgerStore.learn",
    "gitlease.store.state:StateFolder.save",
    "gitlease.store.transport:GitRefs.keep",
    "gitlease.store.tree:write_step",
    "gitlease.store.tree:commit_bytes",
    "gitlease.store.state:StateFolder.add_pending",
    "gitlease.store.transport:push_refs",
    "gitlease.store.git_ledger:RefLedgerStore.adopt",
    "gitlease.store.state:StateFolder.remove_pending",
    "gitlease.store.private_store:PrivateStore.tidy",
]
KILLED = """
import importlib, os, sys
import gitlease
module, _, name = sys.argv[2].partition(":")
home = importlib.import_module(module)
*path, last = name.split(".")
for part in path:
    home = getattr(home, part)
real, left = getattr(home, last), [int(sys.argv[4])]
def deadly(*args, **options):
    left[0] -= 1
    if sys.argv[3] == "before" and left[0] < 0:
        os._exit(9)
    found = real(*args, **options)
    if left[0] < 0:
        os._exit(9)
    return found
setattr(home, last, deadly)
gitlease.open(sys.argv[1]).claim("F001")
os._exit(0)
"""


def child(clone: Path, *words: str, script: str = KILLED) -> int:
    """A process of the clone; its exit status."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(clone), *words],
        env={**clean_env(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 9), done.stderr.decode()
    return done.returncode


@pytest.mark.nightly(3)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(
            step, id=step.rpartition(":")[2], marks=() if number % 5 == 0 else pytest.mark.slow
        )
        for number, step in enumerate(STEPS)
    ],
)
def test_a_kill_at_any_step_needs_no_repair(
    step: str, when: str, path_remote: Remote, clones: Clones
) -> None:
    """At the first contact and later on: the next command goes on, and tells of what landed."""
    clone, other = clones(2)
    clock = ManualClock(wall_ms=int(time.time() * 1_000))
    for known in (False, True):
        code = child(clone, step, when, "0")
        landed = (
            any("/f001-" in file for file in read_files(path_remote.bare))
            if tip(path_remote.bare)
            else False
        )
        mine = door(clone, clock=clock)
        assert mine.claim("F002").mine
        told = " ".join(mine.warnings)
        if code == 9 and "had reached" in told:
            assert landed
        if landed:
            with pytest.raises(LeaseHeld):
                door(other, clock=clock).claim("F001")
        else:
            assert door(other, clock=clock).claim("F001").mine
            door(other, clock=clock).release("F001")
        assert mine.claim("F001").mine
        mine.release("F001")
        mine.release("F002")
        assert list(state_file(clone, "pending").iterdir()) == []
        assert code == 9 or known or step.endswith(("tidy", "make_bare"))


def test_a_kill_after_the_push_is_told_at_the_next_command(
    path_remote: Remote, clones: Clones
) -> None:
    clone = clones(1)[0]
    assert child(clone, "gitlease.store.git_ledger:RefLedgerStore.adopt", "before", "0") == 9
    leases = door(clone, clock=ManualClock(wall_ms=int(time.time() * 1_000)))
    leases.note("F002", "next")
    check_words(leases.warnings)
    leases.note("F002", "and once only")
    check_words(leases.warnings)


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
            process.wait(10)
        os.killpg(process.pid, 9) if process.poll() is None else None
        process.wait(10)
        (store / "refs" / "fetched").mkdir(exist_ok=True)
        (store / "refs" / "fetched" / f"killed-{n}.lock").touch()
        (store / "objects" / "pack" / f"tmp_pack_{n}").write_bytes(b"PACK")
        assert len(door(one, clock=clock).list()) == n + 2
        assert door(one, clock=clock).renew("F001").renewals == n + 1


def test_the_record_in_the_ref_is_readable_by_a_person(path_remote: Remote, clones: Clones) -> None:
    leases: Leases = door(clones(1)[0])
    leases.claim("F001", reason="rate limits: no, really")
    (file,) = [f for f in read_files(path_remote.bare) if f.startswith("leases/")]
    text = text_of(path_remote.bare, file)
    assert "resource: F001" in text
    assert 'reason: "rate limits: no, really"' in text
    assert parse_resource("F001").text in git(path_remote.bare, "log", "-1", "--format=%s", REF)


def test_landed_work_is_looked_for_among_own_leases(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(path_remote.bare, MANY)
    jo, kim = clones(2)
    leases = door(jo)
    leases.claim("F001")
    settle_landed(leases._ledger)
    door(kim).claim("F002")
    leases.renew("F001")
    read = []
    real = tree.read_file

    def counting(objects: Any, entry: Any, limit: int) -> bytes:
        read.append(entry)
        return real(objects, entry, limit)

    monkeypatch.setattr(tree, "read_file", counting)
    settle_landed(leases._ledger)
    assert len(read) < 40
