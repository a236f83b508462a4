"""The bytes of formats 2 and 4 are frozen: the same operations give the same commits, for ever.

A changed id here is a changed format: other versions of gitlease would no longer come to the same.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pygit2
import pytest
from kernel.rules.values import at
from support.commands import run_gitlease
from support.forge import objects_in
from support.ledgers import REF, Entry, door, read_files, write_commit
from support.ledgers import write_tree as write_files
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import ROOT
from support.snapshots import check_words

from gitlease.kernel.rules.edge import Assignee
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Actor, Moment
from gitlease.kernel.rules.ledger import FORMAT
from gitlease.kernel.rules.moves.operations import (
    Acknowledge,
    AddNote,
    Barrier,
    Claim,
    Complete,
    Create,
    EndSession,
    Extend,
    Grant,
    LeaveTicket,
    Operation,
    Park,
    Pick,
    Release,
    Renew,
    Retire,
    Retirement,
    Revoke,
    SetPolicy,
    TakeTicket,
)
from gitlease.kernel.rules.moves.transitions import create, decide
from gitlease.kernel.rules.policy import EDGES
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.tree import read_ledger, write_step

JO = Actor("jo@example.com", host="laptop", branch="main")
CI = Actor("jo@example.com", session="ci-7", session_explicit=True, host="runner")
KIM = Actor("Kim@example.com", host="desk")
F001, SRC, GLOB = (parse_resource(x) for x in ("F001", "src/auth/", "docs/*/[a-c]?.md"))

Steps = tuple[tuple[float, tuple[Operation, ...]], ...]
STEPS: Steps = (
    (0, (Claim(id="01", actor=JO, resource=F001, lease_id="n1", reason="why – not", edge=True),)),
    (1, (SetPolicy(id="02", actor=JO, changes=(("admins", JO.holder), ("skew", "5s"))),)),
    (2, (Claim(id="03", actor=CI, resource=SRC, lease_id="n2", scope="api", ttl=60),
         Claim(id="04", actor=CI, resource=GLOB, lease_id="n3", paths=("lib/x", "a b")))),
    (3, (AddNote(id="05", actor=KIM, resource=F001, text="two\n\tlines"),)),
    (4, (Renew(id="06", actor=JO, resource=F001, ttl=1_800),)),
    (5, (Renew(id="07", actor=CI),)),
    (6, (Extend(id="08", actor=CI, resource=GLOB, seconds=10**6),)),
    (7, (TakeTicket(id="09", actor=KIM, resources=(F001, SRC), ticket="t1",
                    until=at(10**4).wall_ms),)),
    (8, (Park(id="10", actor=CI, resource=GLOB, seconds=500, note="later"),)),
    (9, (LeaveTicket(id="11", actor=KIM, resources=(F001,), ticket="t1"),)),
    (200, (Claim(id="12", actor=KIM, resource=SRC, lease_id="n4", ticket="t1", passing=0,
                 assigned=(Assignee("@x", ("x@example.com",)),), takeover=True, reason="gone"),)),
    (201, (Revoke(id="13", actor=JO, resource=SRC, reason="stuck"),)),
    (202, (Complete(id="14", actor=JO, resource=F001, lease_id="n5"),)),
    (203, (Pick(id="15", actor=JO, claims=(
        Claim(id="15", actor=JO, resource=F001, lease_id="n6"),
        Claim(id="15", actor=JO, resource=parse_resource("F002"), lease_id="n7"))),)),
    (204, (EndSession(id="16", actor=JO, note="bye", grants=(
        Grant(parse_resource("F002"), "*", None, "n7", 6),)),)),
    (40_000, (Retire(id="17", actor=KIM, items=(
        Retirement(resource=GLOB, reason="old", grants=(Grant(GLOB, "*", None, "n3", 3),)),)),)),
    (40_001, (Acknowledge(id="18", actor=KIM, notices=("13-n4",)),)),
    (40_002, (Barrier(id="19", actor=KIM),
              Release(id="20", actor=KIM, resource=F001, note="fine"))),
)  # fmt: skip

COMMITS = (
    "f4db54eb64c5b9cb",
    "d65f276aeb9d5cba",
    "36abca972c8b83dd",
    "ee3a832978f1886c",
    "2534716d8e8d8989",
    "226fa8868691ecea",
    "eff3a04fc29a82b3",
    "6f1b714e111d6861",
    "d39ef34d31155edc",
    "fe940f19934063c9",
    "68ec47590586a4e4",
    "665f23a39634300e",
    "d5880231b8feed80",
    "529e6b67e9fcc06b",
    "287222be82948f94",
    "40c1180dce8afded",
    "c36cdc0c13d56eca",
    "09378431c11fb143",
)


# What raises the ledger to format 4, and that it stays there.
PICKED: Steps = (
    (0, (Claim(id="01", actor=CI, resource=F001, lease_id="n1", edge=True, picked=True),)),
    (1, (Renew(id="02", actor=CI), Claim(id="03", actor=JO, resource=SRC, lease_id="n2"))),
    (2, (Claim(id="04", actor=CI, resource=F001, lease_id="n3", edge=True),)),
)  # fmt: skip
HASTY: Steps = (
    (0, (SetPolicy(id="01", actor=JO, changes=(("ttl_max", "10m"), (EDGES, "10m"))),)),
    (1, (SetPolicy(id="02", actor=JO, changes=((EDGES, "7d"),)),)),
)
NEWER = (
    (PICKED, ("74da485034843e33", "ebcbcf116bdf271a", "1358d37ea3cb777c")),
    (HASTY, ("f6d16e4ee5708d2e", "43b3680a3052e9c6")),
)


def written(folder: Path, steps: Steps = STEPS) -> list[str]:
    git(folder, "init", "-q", "--bare", "golden.git")
    repo = pygit2.Repository(str(folder / "golden.git"))
    ledger = create(Create(id="00", actor=JO, ledger_id="led9e4", policy=DEFAULT_POLICY))
    commits = list[str]()
    for seconds, operations in steps:
        moment = Moment(now=at(seconds))
        decided = decide(ledger, operations, moment)
        assert decided.applied.changed, operations
        tip = commits[-1] if commits else ""
        commits.append(write_step(objects_in(repo), decided, tip, replace_tip=False)[0])
        ledger = read_ledger(objects_in(repo), commits[-1])
    return commits


def test_the_bytes_of_the_format_are_frozen(tmp_path: Path) -> None:
    assert FORMAT == 2
    assert tuple(commit[:16] for commit in written(tmp_path)) == COMMITS


@pytest.mark.parametrize(("steps", "commits"), NEWER)
def test_format_4_is_frozen_and_only_used_where_needed(
    steps: Steps, commits: Sequence[str], tmp_path: Path
) -> None:
    made = written(tmp_path, steps)
    assert tuple(commit[:16] for commit in made) == commits
    bare = tmp_path / "golden.git"
    formats = [git(bare, "show", f"{x}:ledger.yaml").splitlines()[0] for x in made]
    assert set(formats) == {"format: 4"}


BEFORE = "cf484204"  # the last version that knows formats up to 3


def unpack(version: str, folder: Path) -> None:
    """Put the product as it was in a commit into ``folder / "old"``."""
    words = ["git", "-C", ROOT, "archive", "--prefix=old/", version, "gitlease"]
    found = subprocess.run(words, capture_output=True, check=False)
    if found.returncode:
        pytest.skip("this history does not have that version")
    subprocess.run(["tar", "-x", "-C", folder], input=found.stdout, check=True)


@pytest.mark.slow
def test_version_before_says_that_a_newer_one_is_needed(
    clones: Callable[..., Sequence[Path]], tmp_path: Path
) -> None:
    """Side by side: it works on the ledger until format 4 is used, and refuses it whole then."""
    unpack(BEFORE, tmp_path)
    one, two = clones(2)
    for clone in (one, two):
        commit_file(clone, "tasks/F001.md", "---\nid: F001\nstatus: todo\n---\n", "a task")

    def before(*words: str) -> subprocess.CompletedProcess[str]:
        return run_gitlease(words, two, {"PYTHONPATH": str(tmp_path / "old")})

    door(one).claim("F002", any=True)
    assert before("claim", "F003", "--any").returncode == 0
    ran = run_gitlease(("run", "--next", "--", "true"), one, {"PYTHONPATH": ROOT})
    assert ran.returncode == 0, ran
    late = before("claim", "F004", "--any")
    assert (late.returncode, "format 4" in late.stderr) == (7, True)
    check_words(late.stderr)


@pytest.fixture
def old_ledger(path_remote: Remote, clones: Callable[..., Sequence[Path]]) -> tuple[Path, ...]:
    """Two clones, whose ledger was written by a gitlease that knew format 1 only."""
    made = tuple(clones(2))
    door(made[0]).claim("F001")
    bare = path_remote.bare
    new = git(bare, "show", f"{REF}:ledger.yaml").splitlines(keepends=True)
    old = "".join(line for line in new if not line.startswith("digest:"))
    files: dict[str, bytes | Entry] = dict(read_files(bare))
    files["ledger.yaml"] = old.replace("format: 2\n", "format: 1\n").encode()
    git(bare, "update-ref", REF, write_commit(bare, write_files(bare, files)))
    shutil.rmtree(made[0] / ".git" / "gitlease")
    return made


def test_an_older_format_is_read_and_raised_by_the_first_change(
    old_ledger: tuple[Path, ...], path_remote: Remote
) -> None:
    one, two = old_ledger
    (kept,) = door(two).list()
    assert (kept.resource, kept.token) == ("F001", 1)
    assert b"format: 1\n" in header_of(path_remote.bare)
    assert door(two).claim("F002").token == 2
    assert b"format: 2\n" in header_of(path_remote.bare)
    assert b"\ndigest: " in header_of(path_remote.bare)
    assert door(one).renew("F001").token == 1
    assert {x.resource for x in door(one).list()} == {"F001", "F002"}


def header_of(bare: Path) -> bytes:
    return git(bare, "show", f"{REF}:ledger.yaml").encode()
