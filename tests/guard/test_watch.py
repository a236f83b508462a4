"""What the guard keeps in files between two hooks: of use when sound, and no harm otherwise."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kernel.rules.values import JO, KIM, lease
from support.clock import ManualClock
from support.fences import clean_env
from support.repos import git

from gitlease.guard.notes import (
    ACTIVITY,
    COMMIT,
    LONGEST_MARKER,
    MESSAGE,
    NOW,
    SETTLED_NS,
    SINCE,
    WHO,
    IdleMarker,
    Origin,
    drop_idle_marker,
    origin_of,
)
from gitlease.guard.reports import CachedLedger, Unreachable
from gitlease.guard.service import FACTS, FAILURE, WatchFolder
from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.lease import Lease, Margins, Policy, Rule, Sighting
from gitlease.kernel.rules.lease_rows import LeaseRows, row_of
from gitlease.kernel.store.records import lease_file
from gitlease.kernel.store.state import ROWS_FILE, KeptLeases, Known, StateFolder, store_leases

HEAD, OTHER = "a" * 40, "b" * 40
NOTHING = {"global": ""}
ORIGIN = Origin(":me:", (), 1_700_000_000_000_000_000)
JUNK = [b"", b"null", b"[1, 2]", b"{}", b'"x"', b"17", b"1e999", b'{"form', b"\xff"]
JUNK.append(b"[" * 100_000)


class Place:
    """The private folder of a clone, with the state of one layer."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, ManualClock()
        self.watch = self.watching()

    def watching(self, **origin: Any) -> WatchFolder:
        """What the guard keeps, made from settings that were read at another moment, say."""
        return WatchFolder(str(self.root), self.state, self.clock, replace(ORIGIN, **origin))

    def state(self, layer: str) -> str:
        return str(self.root / "state" / "default" / layer)

    @property
    def file(self) -> Path:
        return Path(self.state("global"), ROWS_FILE)

    @property
    def marker(self) -> Path:
        return self.root / COMMIT

    @property
    def markers(self) -> dict[str, int]:
        """The markers with their ends, in seconds from now."""
        now = self.clock.now().wall_ms // 1_000
        found = {x.name: int(x.stat().st_mtime) - now for x in self.root.glob("idle-*")}
        return {name: ends for name, ends in found.items() if name not in (SINCE, NOW)}

    def idle(self, clear: int = 60, renew: int = 0, held: int = 0, *below: str) -> IdleMarker:
        """What a shim may know; times in seconds from now, 0 for never."""
        now = self.clock.now().wall_ms // 1_000
        until = [seconds and seconds + now for seconds in (clear, renew, held)]
        return IdleMarker(until[0], until[1], until[2], bool(below), below)

    def knows(self, version: str, revision: int = 1) -> None:
        """A head was received now."""
        now = self.clock.now()
        StateFolder(self.state("global")).save(
            Known(ledger_id="ledger-1", version=version, revision=revision, received=now, base=now)
        )

    def keeps(self, *leases: Lease, version: str = HEAD) -> CachedLedger:
        now = self.clock.now()
        watched = CachedLedger(
            layer="global",
            version=version,
            received=now,
            policy=Policy(skew=61, drift=3, grace=7, rule=Rule.WALL, ttl_max=7_200),
            leases=LeaseRows(row_of(x, lease_file(x)) for x in leases),
        )
        store_leases(self.state("global"), KeptLeases(version, "c" * 40, watched.leases))
        self.watch.save(watched)
        return watched


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "gitlease")


def some_leases() -> list[Lease]:
    whole = lease(holder=KIM, resource="src/größe/**", paths=("docs/", "a b"), edge=True)
    bound = replace(lease(holder=JO, resource="F001", scope="backend"), session="ci", reason="x\ny")
    strict = Margins(skew=1, drift=2, grace=3, rule=Rule.WALL)
    return [whole, bound, replace(lease(resource="F002", margins=strict), host=None, branch=None)]


# --- kept leases ----------------------------------------------------------------------------------


def test_what_is_kept_comes_back_as_it_was(place: Place) -> None:
    place.knows(HEAD)
    leases = some_leases()
    kept = place.keeps(*leases)
    for watch in (place.watch, place.watching()):  # by this process, and by the next one
        known = watch.load("global")
        assert known == kept
        assert known is not None
        assert list(known.leases) == leases
        assert known.seen(leases[0]) == Sighting(at=kept.received, changed=False)
    place.clock.advance(30)
    place.knows(HEAD)
    known = place.watch.load("global")
    assert known is not None
    assert known.received == place.clock.now(), "the last contact with the remote"


def test_nothing_is_of_use_that_is_not_known_to_be_current(place: Place) -> None:
    assert place.watch.load("global") is None
    kept = place.keeps(version="")
    assert place.watch.load("global") == kept, "that there is no ledger, until there is one"
    assert place.watch.load("team") is None
    place.clock.reboot()
    assert place.watch.load("global") is None
    place.knows(HEAD)
    assert place.watch.load("global") is None
    place.keeps(*some_leases())
    assert place.watch.load("global") is not None
    place.knows(OTHER, revision=2)
    assert place.watch.load("global") is None
    StateFolder(place.state("global")).forget()
    assert place.watch.load("global") is None
    place.knows(HEAD)
    for spoil in (place.clock.reboot, lambda: place.clock.skew(-5)):
        place.keeps(*some_leases())
        place.knows(HEAD)
        place.keeps(*some_leases())
        spoil()
        assert place.watch.load("global") is None


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_file_or_state_is_as_good_as_none(place: Place) -> None:
    for junk in JUNK:
        place.knows(HEAD)
        kept = place.keeps(*some_leases())
        assert place.watch.load("global") == kept
        sound = place.file.read_bytes()
        for data in (junk, sound[:-1], sound.replace(b"F001", b"F003")):
            place.file.write_bytes(data)
            assert place.watching().load("global") is None
        place.file.write_bytes(sound)
        Path(place.state("global"), FACTS).write_bytes(junk)
        assert place.watch.load("global") is None
        place.watch.save(kept)
        assert place.watching().load("global") == kept
        Path(place.state("global"), "known.json").write_bytes(junk)
        assert place.watch.load("global") is None
        place.watch.set_unreachable(Unreachable(place.clock.now(), "x"))
        Path(place.state(""), FAILURE).write_bytes(junk)
        assert place.watch.unreachable() is None


# What the version before the rows of today kept there, of an older gitlease beside this one.
OLDER_ROWS = """\
19d9f8e3 765
{"layer": "global", "version": "f46b1089f46dc7eda698ba1bb57444e0dcd56dee", "received": \
{"wall_ms": 1795775151162, "boot_ms": 5627711, "boot_id": "f1e7910b-9a4b-412f-af68-20e77a5521f0"}, \
"policy": {"ttl_max": 28800, "ttl_min": 10, "skew": 60, "drift": 10000, "grace": 5, "rule": \
"wall", "admins": [], "history": "replace", "keep_completed": 2592000, "park_max": 86400, \
"abandoned_after": 604800, "issues": "none"}, "damage": [], "notices": [], "doubt": ""}
paths/85/src-85d79420afb69505.yaml\tbob@x.y\t\t/src\t[{"text":"path:src","key":"path:src"},"*",\
"bob@x.y",null,"active",40,900,1795775145190,1795775145190,1795776045190,0,[],"mine","vm:24864",\
"main",false,"5a818e0f2062c0b5d231","b87b006a8dd6ca4a0738",\
{"skew":60,"drift":10000,"grace":5,"rule":"wall"},false,false]
"""


def test_rows_of_an_older_version_are_read_again_from_the_ledger(place: Place) -> None:
    head = "f46b1089f46dc7eda698ba1bb57444e0dcd56dee"
    place.knows(head)
    kept = place.keeps(*some_leases(), version=head)
    assert place.watching().load("global") == kept
    place.file.write_text(OLDER_ROWS, encoding="utf-8")
    assert place.watching().load("global") is None
    assert place.file.read_text(encoding="utf-8") == OLDER_ROWS, "the older one may still use it"
    again = place.keeps(*some_leases(), version=head)
    assert place.watching().load("global") == again


def test_where_nothing_can_be_kept_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "gitlease").write_text("a file is in the way")
    place = Place(tmp_path / "gitlease")
    place.keeps(*some_leases())
    place.watch.set_idle_marker(place.idle(), NOTHING)
    place.watch.set_unreachable(Unreachable(place.clock.now(), "x"))
    assert place.watch.load("global") is None
    assert place.watch.unreachable() is None
    drop_idle_marker(str(place.root))


# --- the idle marker ------------------------------------------------------------------------------


def test_each_marker_is_dated_to_its_end(place: Place) -> None:
    free = {MESSAGE: LONGEST_MARKER, ACTIVITY: LONGEST_MARKER}
    for idle, markers in (
        (place.idle(), {COMMIT: 60, **free}),
        (place.idle(0), free),
        (place.idle(-5), free),
        (place.idle(60, 300, 900), {COMMIT: 60, ACTIVITY: 300}),
        (place.idle(0, -10, 900), {ACTIVITY: -10}),
    ):
        place.watch.set_idle_marker(idle, NOTHING)
        assert place.markers == markers
        assert not list(place.root.glob("*.tmp"))


def test_a_marker_names_whom_it_was_made_for_and_what_from(place: Place) -> None:
    """It is a little older than the settings: what changed at that moment may not be in it."""
    for read_at in (ORIGIN.read_at, ORIGIN.read_at + 10**9):
        place.watching(read_at=read_at).set_idle_marker(place.idle(), NOTHING)
        assert (place.root / SINCE).stat().st_mtime_ns == read_at - SETTLED_NS
    made = place.watching(who=".my  home:.größe ", files=("/etc/gitconfig", "/a b"))
    made.set_idle_marker(place.idle(60, 30, 90), NOTHING)
    lines = [".my  home:.größe ", "/etc/gitconfig", "/a b", "", ""]
    for name in (COMMIT, ACTIVITY):
        assert (place.root / name).read_text(encoding="utf-8").split("\n") == lines
    made.set_idle_marker(place.idle(60, 0, 0, "tasks", "größe/a b"), NOTHING)
    places = [":(top,literal,icase)tasks", ":(top,literal,icase)größe/a b", ""]
    assert place.marker.read_text(encoding="utf-8").split("\n") == [*lines[:4], *places]
    for odd in ("a\nb", "tasks\r", "../x", ""):
        made.set_idle_marker(place.idle(60, 0, 0, "tasks", odd), NOTHING)
        assert sorted(place.markers) == [ACTIVITY, MESSAGE], odd
    place.watching(who=None).set_idle_marker(place.idle(), NOTHING)
    assert place.markers == {}, "where whom it is for cannot be written"


def test_the_origin_is_what_the_environment_says_and_every_file_that_git_reads(
    tmp_path: Path,
) -> None:
    repo, far = tmp_path / "repo", tmp_path / "far settings"
    git(tmp_path, "init", "-q", str(repo))
    (repo / ".git" / "near").write_text("[user]\n\temail = jo@example.com\n")
    far.write_text(f"[include]\n\tpath = {repo}/.git/none\n[user]\n\tname = Jo\n")
    for path in ("near", str(far)):
        git(repo, "config", "--add", "include.path", path)
    before = time.time_ns()
    (repo / "deep").mkdir()
    found = origin_of(discover(str(repo / "deep")), clean_env({"GITLEASE_LAYER": "a b"}))
    assert found.read_at >= before
    home, settings = clean_env()["HOME"], clean_env()["GIT_CONFIG_GLOBAL"]
    here = {f"{repo}/.git/config", f"{repo}/.git/near", str(far), ".gitlease.yaml"}
    assert {*found.files} == here | {f"{home}/.gitconfig", f"{home}/.config/git/config", settings}
    assert found.who == f"{home}::{settings}::1::a b:"
    for odd in ("/a\nb", "/\udcff", "/\x1b"):
        assert origin_of(discover(str(repo)), {"HOME": odd}).who is None
    for url, known in (("https://jo:secret@example.com", False), ("https://example.com", True)):
        assert (origin_of(discover(str(repo)), {WHO[-1]: url}).who is not None) == known
    assert origin_of(discover(str(repo)), {"GIT_CONFIG_COUNT": "1"}).who is None


def test_no_marker_is_left_by_what_was_known_before_the_head_moved(place: Place) -> None:
    place.knows(OTHER, revision=2)
    for known, stays in (
        ({"global": OTHER}, True),
        ({"global": HEAD}, False),
        ({"global": ""}, False),
        ({"global": OTHER, "team": ""}, True),
        ({"global": OTHER, "team": HEAD}, False),
    ):
        place.watch.set_idle_marker(place.idle(), known)
        assert place.marker.exists() is stays


def test_whoever_moves_the_head_takes_the_marker_away(place: Place) -> None:
    place.knows(HEAD)
    place.watch.set_idle_marker(place.idle(), {"global": HEAD})
    now = place.clock.now()
    folder = StateFolder(place.state("global"), on_move=lambda: drop_idle_marker(str(place.root)))
    known = Known(ledger_id="ledger-1", version=HEAD, revision=1, received=now, base=now)
    folder.save(known)
    assert place.marker.exists()  # the head is the same
    folder.save(replace(known, version=OTHER, revision=2))
    assert not place.marker.exists()
    place.watch.set_idle_marker(place.idle(), {"global": OTHER})
    folder.forget()
    assert not place.marker.exists()


# --- a remote that was not reached ----------------------------------------------------------------


def test_a_failure_is_remembered_until_the_remote_was_reached(place: Place) -> None:
    assert place.watch.unreachable() is None
    failure = Unreachable(place.clock.now(), "no answer within 5s")
    place.watch.set_unreachable(failure)
    assert place.watch.unreachable() == failure
    place.watch.set_unreachable(None)
    assert place.watch.unreachable() is None
