"""A server that judges every push: what is illegal is refused by name, what is legal lands."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.forge import JO, KIM, Draft, Forge, objects_of
from support.hooked import task_text
from support.illegal import (
    ILLEGAL,
    barrier,
    claim,
    fresh,
    make_scene,
    note,
    policy,
    release,
    renew,
    revoke,
)
from support.remotes import Servers, new_bare
from support.repos import git
from support.served import REF, Host, serve

from gitlease.kernel.git.run import SystemClock
from gitlease.kernel.rules.errors import Unavailable
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.ledger import MAX_STEP
from gitlease.kernel.rules.moves.operations import DropRecord, Release, Restore
from gitlease.kernel.rules.resources import parse_resource
from gitlease.server.receive import PushVerdict, receive

pytestmark = pytest.mark.slow

NOTHING = "0" * 40


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare repository with a ledger in which jo and kim have leases, and no hook yet."""
    base = tmp_path_factory.mktemp("scene")
    bare = new_bare(base / "scene.git")
    make_scene(bare, base / "author.git")
    git(bare, "config", "gitlease.identity", "GL_USER")
    git(bare, "config", "gitlease.jo.holder", JO.holder)
    git(bare, "config", "gitlease.kim.holder", "kim@example.com")
    return bare


@pytest.fixture(scope="module")
def http_host(
    scene: Path, tmp_path_factory: pytest.TempPathFactory, servers: Servers
) -> Iterator[Host]:
    """The same on a real server with its hook; nothing that is refused changes it."""
    with serve("http", tmp_path_factory.mktemp("http"), servers, copy_of=scene) as host:
        host.install()
        yield host


# --- what is illegal ----------------------------------------------------------------------------


@pytest.mark.default(
    "ledgers_in_other_letters",
    "token_lowered",
    "signature_beyond_measure",
    "deletion",
    "decision_in_the_place_of_a_renewal",
)
@pytest.mark.parametrize("name", list(ILLEGAL))
def test_what_is_illegal_is_refused_with_its_rule(name: str, scene: Path, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "kim.git", scene)
    bad = ILLEGAL[name](forge)
    verdict = judged(forge, bad.new, bad.ref)
    assert verdict.blocked
    assert [refusal.rule for refusal in verdict.refusals] == [bad.rule], verdict.refusals
    (refusal,) = verdict.refusals
    assert refusal.ref == bad.ref
    assert "\n" not in refusal.message
    assert refusal.message.isprintable()
    assert "skew=" not in refusal.message, "values are shown in words"


@pytest.mark.parametrize("name", list(ILLEGAL)[::35])  # the hook judges as above
def test_a_push_of_it_over_http_is_refused(name: str, http_host: Host, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "kim.git", http_host.bare)
    bad = ILLEGAL[name](forge)
    before = http_host.tip(bad.ref), objects_of(http_host.bare)
    done = forge.push(http_host.url("kim"), bad.new, bad.ref, env=http_host.env("kim"))
    assert done.returncode == 1, done.stderr
    assert f"gitlease: refused {bad.ref} ({bad.rule}): " in done.stderr
    after = http_host.tip(bad.ref), objects_of(http_host.bare)
    assert after == before, "it left something behind"


# --- what is legal ------------------------------------------------------------------------------

F002 = parse_resource("F002")


def many(f: Forge) -> Draft:
    return f.honest(*(claim(KIM, f"M{number}") for number in range(MAX_STEP)))


def many_released(f: Forge) -> Draft:
    names = [f"M{number}" for number in range(MAX_STEP)]
    first = f.write(f.honest(*(claim(KIM, name) for name in names)))
    return f.honest(*(release(KIM, name) for name in names), base=first)


def several_steps(f: Forge) -> Draft:
    first = f.write(f.honest(renew(), replaces=True))
    second = f.write(f.honest(claim(), base=first))
    return f.honest(note(KIM, "F100"), barrier(), base=second)


def some_refused(f: Forge) -> Draft:
    """A batch of which one operation is refused, which its ring tells."""
    return f.honest(renew(), claim(KIM, "F001"), barrier(), together=False)


# That each move of the table is legal, and stays so over whole lives, is shown in tests/core.
LEGAL: dict[str, Callable[[Forge], Draft]] = {
    "claim of very many": many,
    "release of very many": many_released,
    "takeover of an edge": lambda f: f.honest(claim(KIM, "F005", takeover=True, reason="gone")),
    "renewal": lambda f: f.honest(renew()),
    "renewal in the place of a renewal": lambda f: f.honest(renew(), replaces=True),
    "release with a note": lambda f: f.honest(
        Release(id=fresh(), actor=KIM, resource=F002, note="half done\n\ttests red")
    ),
    "revocation by an admin": lambda f: f.honest(revoke(JO, "F002"), actor=JO),
    "an admin's going on after a rollback": lambda f: f.honest(
        Restore(id=fresh(), actor=JO, above=f.ledger().header.token + 9), actor=JO
    ),
    "step of which a part was refused": some_refused,
    "several steps": several_steps,
    "new ledger": lambda f: f.first(claim()),
    "new ledger with its policy": lambda f: f.first(policy(KIM, admins=KIM.holder, skew="30s")),
}


def judged(forge: Forge, made: str, ref: str = REF, user: str = "kim") -> PushVerdict:
    """What the server says of a push that is in quarantine."""
    line = f"{forge.tip(ref) or NOTHING} {made or NOTHING} {ref}\n".encode()
    environ = forge.environ(GL_USER=user)
    return receive(line, environ=environ, clock=SystemClock(), directory=str(forge.server))


@pytest.mark.default("release with a note")
@pytest.mark.parametrize("name", list(LEGAL))
def test_what_is_legal_is_accepted(name: str, scene: Path, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "own.git", scene)
    draft = LEGAL[name](forge)
    ref = REF if draft.base else "refs/gitlease/new"
    verdict = judged(forge, forge.write(draft), ref, "jo" if draft.actor == JO else "kim")
    assert not verdict.blocked, verdict.refusals


def test_a_damaged_record_is_dropped_by_an_admin_alone(scene: Path, tmp_path: Path) -> None:
    server = tmp_path / "server.git"
    shutil.copytree(scene, server)
    forge = Forge(tmp_path / "own.git", server)
    path = "leases/00/f999-0000000000000000.yaml"
    damaged = forge.write(replace(forge.honest(barrier()), files={path: b"neither this nor that"}))
    assert forge.push(str(server), damaged).returncode == 0

    def drop(who: Actor) -> Draft:
        op = DropRecord(id=fresh(), actor=JO, file=path, reason="damaged")
        return forge.honest(op, actor=who).told(by=who.holder).of(who)

    assert [r.rule for r in judged(forge, forge.write(drop(KIM))).refusals] == ["policy"]
    assert not judged(forge, forge.write(drop(JO)), user="jo").refusals
    gone = replace(forge.honest(barrier()), files={path: None})
    assert [r.rule for r in judged(forge, forge.write(gone)).refusals] == ["unexplained"]


@pytest.mark.nightly
def test_whoever_is_nobody_here_changes_no_ledger(scene: Path, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "own.git", scene)
    made = forge.write(forge.honest(claim()))
    for user in ("", "eve", "kim@example.com.evil.org"):
        verdict = judged(forge, made, user=user)
        assert verdict.blocked
        assert [refusal.rule for refusal in verdict.refusals] == ["identity"]
    assert not judged(forge, made, user="Kim@Example.com").blocked, "an email needs no mapping"


@pytest.mark.default
@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (Unavailable("git does not answer"), "fault"),
        (ZeroDivisionError("oh"), "fault"),
        (MemoryError(), "too-large"),
    ],
)
def test_what_cannot_be_judged_is_not_accepted(
    fault: BaseException,
    rule: str,
    scene: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def judge(*_: object, **__: object) -> None:
        raise fault

    forge = Forge(tmp_path / "own.git", scene)
    made = forge.write(forge.honest(claim()))
    assert not judged(forge, made).blocked
    monkeypatch.setattr("gitlease.server.receive.judge_ledger", judge)
    verdict = judged(forge, made)
    assert verdict.blocked
    assert [refusal.rule for refusal in verdict.refusals] == [rule]


def test_without_an_identity_everything_but_who_pushes_is_judged(
    scene: Path, tmp_path: Path
) -> None:
    server = tmp_path / "server.git"
    shutil.copytree(scene, server)
    git(server, "config", "--unset", "gitlease.identity")
    forge = Forge(tmp_path / "own.git", server)
    assert not judged(forge, forge.write(forge.honest(claim()))).blocked
    spoken_for = forge.honest(claim(JO, "F200"), actor=JO)
    assert not judged(forge, forge.write(spoken_for)).blocked
    taken = forge.honest(claim(KIM, "F001"), unseen=["F001"])
    assert [r.rule for r in judged(forge, forge.write(taken)).refusals] == ["held"]


# --- two people with their clones ---------------------------------------------------------------


VERBS = """
jo 0 init
jo 0 config --ledger ttl_max 4h
jo 0 claim F001 --reason limits --path src/api
jo 0 renew --all
jo 0 extend F001 1h
jo 0 note F001 gap
kim 1 claim src/api/x.py
kim 0 next --claim
kim 0 release F002 --keep --note later
kim 0 claim F002
kim 0 set F002 todo
kim 0 start F002
jo 0 note F002 step --to-holder
kim 0 done F002
jo 0 release F001 --note half
kim 0 claim F001
jo 0 config --ledger admins jo@example.com
kim 6 config --ledger skew 5s
jo 0 revoke F001 --reason holiday
kim 0 claim port-8080 port-8081 --any --scope ui
kim 0 release port-8080 port-8081
"""


def test_every_verb_of_a_client_is_accepted(tmp_path: Path, servers: Servers) -> None:
    with serve("path", tmp_path, servers) as host:
        host.install()
        people = {name: host.person(name) for name in ("jo", "kim")}
        people["jo"].put("tasks/F001.md", task_text("F001"))
        people["jo"].put("tasks/F002.md", task_text("F002"))
        people["jo"].git("commit", "-q", "-m", "tasks")
        people["jo"].git("push", "-q", "origin", "main")
        people["kim"].git("pull", "-q", "origin", "main")
        for who, status, *words in map(str.split, VERBS.split("\n")[1:-1]):
            done = people[who].gitlease(*words)
            assert done.returncode == int(status), (words, done.stdout, done.stderr)
        assert host.tip() != ""
