"""A client that lies about what refs are now gains nothing by it, nor does one that git half obeys.

What is pushed comes line by line from the client. What refs are is what the server has.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from support.fences import clean_env
from support.forge import KIM, Forge
from support.hooked import CODE, script
from support.illegal import barrier, claim, policy, revoke
from support.raw_push import ZERO, Answer, Line, push_raw
from support.remotes import Servers
from support.repos import git, run_git
from support.served import REF, Host, User, serve

pytestmark = pytest.mark.slow

NONE = "1" * 40  # an id that no object has
API, WEB = "src/api/login.py", "src/web/page.py"
MAIN, FEATURE = "refs/heads/main", "refs/heads/feature"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Path:
    """jo holds src/api, and has landed work on it on main and, later, on feature."""
    with serve("path", tmp_path_factory.mktemp("lies"), servers) as host:
        jo = host.person("jo")
        jo.put(API, CODE)
        jo.put(WEB, CODE)
        jo.git("commit", "-q", "-m", "begin")
        jo.git("push", "-q", "origin", "main")
        jo.claim("docs/")
        jo.claim("src/api/")
        jo.saves(API)
        jo.git("push", "-q", "origin", "main")
        jo.saves(API)
        jo.git("push", "-q", "origin", "HEAD:feature")
        return host.bare


@pytest.fixture
def kim(host: Host) -> User:
    """kim has everything that the server has, and a commit of her own that touches src/api."""
    kim = host.person("kim")
    kim.git("fetch", "-q", "origin", "refs/*:refs/theirs/*")
    kim.saves(API)
    return kim


@pytest.fixture
def forge(host: Host, tmp_path: Path) -> Forge:
    return Forge(tmp_path / "forge.git", host.bare, actor=KIM)


def send(host: Host, objects: Path, *lines: Line, atomic: bool = False) -> Answer:
    return push_raw(host.bare, lines, objects, env={"GL_USER": "kim"}, atomic=atomic)


def refs_of(host: Host) -> dict[str, str]:
    lines = git(host.bare, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split(" ") for line in lines)


# --- the ledger -----------------------------------------------------------------------------------


@pytest.mark.default
def test_what_is_held_still_counts_where_git_refuses_the_step_that_ends_it(
    host: Host, kim: User, forge: Forge
) -> None:
    """kim is an admin, and the ledger is locked when her revocation of jo's lease comes."""
    admin = forge.write(forge.honest(policy(KIM, admins=KIM.holder)))
    assert forge.push(str(host.bare), admin, env={"GL_USER": "kim"}).returncode == 0
    revoked = forge.write(forge.honest(revoke(KIM, "src/api/")))
    kim.git("fetch", "-q", str(forge.path), f"+{revoked}:refs/made")
    (host.bare / f"{REF}.lock").touch()
    before = refs_of(host)
    done = kim.run("push", "origin", f"{revoked}:{REF}", "HEAD:main")
    assert done.returncode == 1
    assert refs_of(host) == before
    assert f"refused (held): {API} " in done.stderr
    (host.bare / f"{REF}.lock").unlink()
    assert kim.run("push", "origin", f"{revoked}:{REF}").returncode == 0
    assert kim.run("push", "origin", "HEAD:main").returncode == 0


# --- work -----------------------------------------------------------------------------------------


@pytest.mark.default
@pytest.mark.parametrize("told", [ZERO, NONE])
def test_a_branch_is_not_deleted_past_the_hook(host: Host, kim: User, told: str) -> None:
    before = refs_of(host)
    answer = send(host, kim.root, (told, ZERO, FEATURE))
    assert refs_of(host) == before, answer
    assert f"refused {FEATURE} (stale): " in answer.said


def test_a_ref_that_is_named_twice_is_refused(host: Host, kim: User) -> None:
    before = refs_of(host)
    landed = before[FEATURE]
    keep = "refs/heads/keep"
    answer = send(
        host, kim.root, (ZERO, landed, keep), (landed, ZERO, keep), (landed, ZERO, FEATURE)
    )
    assert refs_of(host) == before, answer
    assert "refused" in answer.said


@pytest.mark.nightly
@pytest.mark.parametrize("refuses", ["update hook", "hidden"])
def test_a_ref_that_is_refused_afterwards_keeps_nothing(
    host: Host, kim: User, refuses: str
) -> None:
    if refuses == "update hook":
        script(host.bare / "hooks" / "update", '[ "$1" != refs/heads/keep ]\n')
    else:
        git(host.bare, "config", "receive.hideRefs", "refs/heads/keep")
    before = refs_of(host)
    done = kim.run("push", "origin", ":feature", f"{before[FEATURE]}:refs/heads/keep")
    assert done.returncode == 1
    assert refs_of(host) == before
    assert f"refused (held): {API} " in done.stderr


def test_a_ref_that_keeps_it_either_way_keeps_it(host: Host, kim: User) -> None:
    """main has it already and only moves on: whether git moves it or not nothing is lost."""
    jo = host.person("jo")
    landed = refs_of(host)[FEATURE]
    jo.git("fetch", "-q", "origin")
    jo.git("push", "-q", "origin", f"{landed}:main")
    kim.git("fetch", "-q", "origin")
    kim.git("reset", "-q", "--hard", landed)
    kim.saves(WEB)
    done = kim.run("push", "origin", ":feature", "HEAD:main")
    assert done.returncode == 0, done.stderr


@pytest.mark.default
def test_who_pushes_to_what_has_moved_on_is_told_so(host: Host, kim: User) -> None:
    before = refs_of(host)
    past = git(host.bare, "rev-parse", f"{MAIN}~1")
    kim.git("reset", "-q", "--hard", past)
    new = kim.saves(WEB)
    answer = send(host, kim.root, (past, new, MAIN))
    assert refs_of(host) == before
    assert "(stale)" in answer.said


# --- lies of every kind ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(10, 40))]
)
def test_no_lie_about_any_old_id_gains_anything(
    host: Host, kim: User, forge: Forge, seed: int
) -> None:
    dice = random.Random(seed)
    base = git(host.bare, "rev-parse", f"{MAIN}~1")
    kim.git("branch", "-q", "fine", base)
    own = kim.head()
    past, now = forge.parents(forge.tip())[0], forge.tip()
    ledgers = [
        forge.write(forge.first(barrier())),
        forge.write(forge.honest(claim(KIM, "F100"), base=past)),
        past,
    ]
    for number, one in enumerate(ledgers):
        kim.git("fetch", "-q", str(forge.path), f"+{one}:refs/made/{number}")
    first = refs_of(host)
    works = [ZERO, base, own, first[MAIN], first[FEATURE]]
    names = [MAIN, FEATURE, "refs/heads/keep", "refs/heads/x/y", "refs/tags/v1"]
    for _ in range(6):
        before = refs_of(host)
        lines = []
        for ref in dice.sample([REF, *names], dice.randint(1, 4)):
            told = dice.choice([ZERO, NONE, base, past, now, before.get(ref, ZERO), first[FEATURE]])
            new = dice.choice(ledgers if ref == REF else works)
            lines.append((told, new, ref))
        answer = send(host, kim.root, *lines, atomic=dice.random() < 0.3)
        after = refs_of(host)
        what = (seed, lines, answer)
        assert after[REF] == now, what
        for landed in (first[MAIN], first[FEATURE]):
            has = ("for-each-ref", f"--contains={landed}", "--format=%(refname)", "refs/heads")
            assert git(host.bare, *has), what
        kept = ("merge-base", "--is-ancestor", first[MAIN], MAIN)
        assert run_git(host.bare, *kept).returncode == 0, what
        assert own not in after.values(), what


@pytest.mark.nightly
def test_who_loses_a_race_against_another_decides_again(host: Host, kim: User) -> None:
    """What is stale for the server is no refusal of what was asked for."""
    jo = host.person("jo")
    words = (sys.executable, "-P", "-m", "gitlease", "claim", "--any")
    names = [(who, f"{who.name}-{number}") for number in range(3) for who in (jo, kim)]
    running = [
        subprocess.Popen(
            [*words, name],
            cwd=who.root,
            env=clean_env(who.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for who, name in names
    ]
    for one in running:
        _, said = one.communicate(timeout=60)
        assert one.returncode == 0, said
    tree = git(host.bare, "ls-tree", "-r", "--name-only", REF)
    assert all(name in tree for _, name in names), tree
