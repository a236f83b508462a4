"""A permanent reproducer for each fault that use by hand once found, on real remotes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.fences import clean_env
from support.ledgers import door
from support.remotes import Remote
from support.repos import git
from support.running import Desk
from support.snapshots import check_words

from gitlease.core import LeaseHeld, Rollback, UsageError
from gitlease.git import without_secrets

pytestmark = [pytest.mark.one_in(2)]

Clones = Callable[..., Sequence[Path]]


def cli(clone: Path, *words: str, out: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gitlease", *words],
        cwd=clone,
        env=clean_env(),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        check=False,
    )


@pytest.mark.usefixtures("path_remote")
def test_a_new_lease_is_active_however_old_the_clone_is(clones: Clones) -> None:
    clock = ManualClock()
    leases = door(clones(1)[0], clock=clock)
    leases.claim("F001")
    clock.advance(3 * 3_600)
    assert leases.claim("F002").state == "active"
    assert leases.claim("F001").state == "active"


@pytest.mark.usefixtures("path_remote")
def test_a_clone_that_slept_through_the_whole_ring_decides_again(clones: Clones) -> None:
    idle, busy = clones(2)
    clock = ManualClock()
    asleep = door(idle, clock=clock)
    asleep.claim("MINE")
    awake = door(busy, clock=clock)
    for first in range(0, 400, 50):
        awake.claim_all([f"M{first + n}" for n in range(50)])
    assert asleep.claim("IDLE").mine
    with pytest.raises(LeaseHeld):
        door(idle, clock=clock).claim("M7")


def test_two_clones_without_an_origin_share_the_only_remote(
    path_remote: Remote, clones: Clones
) -> None:
    one, two = clones(2)
    for clone in (one, two):
        git(clone, "remote", "rename", "origin", "upstream")
    door(one).claim("SAME")
    with pytest.raises(LeaseHeld):
        door(two).claim("SAME")


@pytest.mark.parametrize("word", ["path:path:x", "/path:foo/bar", "Path:Path:x", "./path:d/*.py"])
@pytest.mark.usefixtures("path_remote")
def test_a_path_that_begins_like_the_prefix_harms_nobody(clones: Clones, word: str) -> None:
    one, two = clones(2)
    claimed = door(one).claim(word)
    assert door(two).claim("docs/").mine
    with pytest.raises(LeaseHeld):
        door(two).claim(claimed.resource)
    door(one).release(claimed.resource)
    assert [lease.resource for lease in door(two).list()] == ["path:docs"]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_rollback_that_was_overtaken_is_not_believed(
    path_remote: Remote, clones: Clones, steps: int
) -> None:
    """Three steps have more operations than the ledger remembers by their ids."""
    eve, dan = clones(2)
    clock = ManualClock()
    door(dan, clock=clock).list()
    door(eve, clock=clock).claim("RA")
    backup = path_remote.bare.with_suffix(".bak")
    shutil.copytree(path_remote.bare, backup)
    held = door(eve, clock=clock).claim("RB")
    shutil.rmtree(path_remote.bare)
    backup.rename(path_remote.bare)
    for step in range(steps):
        names = [f"S{step}-{number}" for number in range(60)]
        given = max(x.token for x in door(dan, clock=clock).claim_all(names))
    with pytest.raises(Rollback):
        door(eve, clock=clock).claim("RD")
    for words in (["list"], ["renew", held.resource], ["release", held.resource]):
        ran = cli(eve, *words)
        assert ran.returncode == 7, ran.stderr
        check_words(ran.stderr)
    assert cli(eve, "init", "--undo-rollback").returncode == 0
    assert {x.resource for x in door(eve, clock=clock).list()} == {"RA", "RB"}
    with pytest.raises(Rollback):
        door(dan, clock=clock).claim("RD")
    assert cli(dan, "init", "--accept-rollback").returncode == 0
    for folder in (eve, dan):
        assert door(folder, clock=clock).claim(f"RE-{folder.name}").token > given


def test_people_may_settle_on_what_a_rollback_left(path_remote: Remote, clones: Clones) -> None:
    eve, dan = clones(2)
    clock = ManualClock()
    door(eve, clock=clock).claim("RA")
    backup = git(path_remote.bare, "rev-parse", "refs/gitlease/global").strip()
    last = max(door(eve, clock=clock).claim(f"RB{n}").token for n in range(3))
    git(path_remote.bare, "update-ref", "refs/gitlease/global", backup)
    door(dan, clock=clock).claim("RC")
    assert cli(eve, "init").returncode == 7
    done = cli(eve, "init", "--accept-rollback")
    assert done.returncode == 0, done.stderr
    assert {x.resource for x in door(eve, clock=clock).list()} == {"RA", "RC"}
    for folder in (eve, dan):
        assert door(folder, clock=clock).claim(f"RD-{folder.name}").token > last


def test_the_way_back_from_a_rollback_works_for_renewals_too(
    path_remote: Remote, clones: Clones
) -> None:
    (eve,) = clones(1)
    clock = ManualClock()
    door(eve, clock=clock).claim("RA")
    door(eve, clock=clock).renew("RA")
    backup = git(path_remote.bare, "rev-parse", "refs/gitlease/global").strip()
    door(eve, clock=clock).renew("RA")
    git(path_remote.bare, "update-ref", "refs/gitlease/global", backup)
    with pytest.raises(Rollback):
        door(eve, clock=clock).list()
    assert cli(eve, "init", "--undo-rollback").returncode == 0
    assert [x.renewals for x in door(eve, clock=clock).list()] == [2]


def test_only_an_admin_undoes_a_rollback_where_there_are_admins(
    path_remote: Remote, clones: Clones
) -> None:
    eve, dan = clones(2)
    email = git(eve, "config", "user.email").strip()
    assert cli(eve, "config", "--ledger", "admins", email).returncode == 0
    backup = git(path_remote.bare, "rev-parse", "refs/gitlease/global").strip()
    for folder in (eve, dan):
        assert cli(folder, "claim", f"R-{folder.name}").returncode == 0
    git(path_remote.bare, "update-ref", "refs/gitlease/global", backup)
    for way in ("--undo-rollback", "--accept-rollback"):
        refused = cli(dan, "init", way)
        assert refused.returncode == 6, refused.stderr
        check_words(refused.stderr)
        assert f"gitlease init {way}" in refused.stderr
    assert cli(eve, "list").returncode == 7
    assert cli(eve, "init", "--undo-rollback").returncode == 0


@pytest.mark.usefixtures("path_remote")
def test_overlapping_claims_of_one_command_are_all_held(clones: Clones) -> None:
    """Also where this clone's first contact is older than the time that is asked for."""
    jo, kim = clones(2)
    clock = ManualClock()
    door(jo, clock=clock).claim("warmup", ttl="10s")
    clock.advance(1_000)
    leases = door(jo, clock=clock).claim_all(["src/auth/", "src/*/x.py"], ttl="10s")
    assert {lease.state for lease in leases} == {"active"}
    for path in ("src/auth/login.py", "src/other/x.py"):
        with pytest.raises(LeaseHeld):
            door(kim, clock=clock).claim(path)
    assert {x.resource for x in door(kim, clock=clock).list()} == {"src/auth", "src/*/x.py"}


@pytest.mark.usefixtures("path_remote")
def test_a_step_that_is_full_leaves_word_for_later(clones: Clones) -> None:
    """What a displaced holder is told is acknowledged with the next change that has room."""
    jo, kim = clones(2)
    clock = ManualClock()
    door(jo, clock=clock).claim("F001")
    clock.advance(3_600)
    door(kim, clock=clock).claim("F001")
    leases = door(jo, clock=clock)
    assert len(leases.claim_all([f"K{number}" for number in range(64)])) == 64
    assert any("F001" in warning for warning in leases.warnings)


@pytest.mark.usefixtures("path_remote")
def test_a_task_and_a_path_that_it_covers_are_claimed_together(clones: Clones) -> None:
    jo, kim = clones(2)
    task = jo / "tasks" / "T1.md"
    task.parent.mkdir()
    task.write_text("---\nid: T1\nstatus: todo\npaths: [src/auth/]\n---\n")
    clock = ManualClock()
    door(jo, clock=clock).list()
    door(jo, clock=clock).claim("warmup", any=True)
    clock.advance(1_000)
    door(jo, clock=clock).claim_all(["T1", "src/auth/login.py"])
    assert "w1@example.com" in task.read_text()
    assert {x.resource for x in door(kim, clock=clock).list()} >= {"T1", "src/auth/login.py"}
    with pytest.raises(LeaseHeld):
        door(kim, clock=clock).claim("src/auth/other.py")


@pytest.mark.parametrize(
    "url",
    [
        "https://user:SECRET@127.0.0.1:1/x.git",
        "https://u:SEC/RET@127.0.0.1:1/x.git",
        "https://u:SEC@RET@127.0.0.1:1/x.git",
        "https://127.0.0.1:1/x.git?token=SECRET",
    ],
)
@pytest.mark.usefixtures("path_remote")
def test_no_secret_of_a_url_is_ever_said(clones: Clones, url: str) -> None:
    assert "SEC" not in without_secrets(f"see {url} there")
    for words in (["list"], ["claim", "F1", "--json"], ["status", "--json"]):
        ran = cli(clones(1)[0], *words, "--remote", url)
        assert ran.returncode == 5
        assert "SEC" not in ran.stdout + ran.stderr
        assert "RET" not in ran.stdout + ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.usefixtures("path_remote")
def test_an_answer_that_cannot_be_written_is_said_in_one_line(clones: Clones) -> None:
    clone = clones(1)[0]
    with open("/dev/full", "w", encoding="utf-8") as full:
        for words in (["claim", "F1"], ["list", "--json"]):
            ran = cli(clone, *words, out=full.fileno())
            assert ran.returncode == 70
            check_words(ran.stderr)
            assert "Traceback" not in ran.stderr


@pytest.mark.usefixtures("path_remote")
def test_the_layer_of_one_clone_is_never_published(clones: Clones) -> None:
    clone = clones(1)[0]
    assert cli(clone, "claim", "F1", "--layer", "LOCAL").returncode == 2
    ran = cli(clone, "list", "--local", "--json")
    check_words(json.loads(ran.stdout)["warnings"][0])


@pytest.mark.usefixtures("path_remote")
def test_a_command_has_room_for_so_many_resources(clones: Clones) -> None:
    leases = door(clones(1)[0])
    with pytest.raises(UsageError):
        leases.claim_all([f"F{n}" for n in range(513)])
    with pytest.raises(UsageError):
        leases.claim("F1", paths="src")


@pytest.mark.usefixtures("path_remote")
def test_what_is_remembered_of_records_goes_with_them(clones: Clones) -> None:
    one, two = clones(2)
    for n in range(5):
        door(one).claim(f"F{n}")
        door(two).list()
        door(one).release(f"F{n}")
        door(two).list()
    for clone in (one, two):
        known = clone / ".git/gitlease/state/default/global/known.json"
        assert json.loads(known.read_text(encoding="utf-8"))["sighted"] == {}


@pytest.mark.usefixtures("path_remote")
def test_what_was_killed_while_it_was_written_down_is_not_a_change(clones: Clones) -> None:
    (one,) = clones(1)
    door(one).claim("F1")
    pending = one / ".git/gitlease/state/default/global/pending"
    pending.mkdir(exist_ok=True)
    half = {"process": 0, "operations": ["op-1"], "layer": "global", "expected": ""}
    half |= {"base_revision": 0, "version": "0" * 40, "what": "claim of F9"}
    (pending / "op-1.json.123.tmp").write_text(json.dumps(half), encoding="utf-8")
    for _ in range(2):
        assert "F9" not in cli(one, "list").stderr


def test_what_lies_in_a_held_folder_is_not_shown_as_free(jo: Desk, kim: Desk) -> None:
    kim.document("claim", "src/**")
    for path in ("src/zzz", "src/", "/**"):
        (shown,) = jo.document("show", path)["leases"]
        assert (shown["resource"], shown["holder"]) == ("src/**", "w2@example.com")
        assert "is free" not in jo.ask("show", path).stdout
    assert jo.document("show", "docs/x")["leases"] == []
