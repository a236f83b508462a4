"""A server that judges every push: what is illegal is refused by name, what is legal lands."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pygit2
import pytest
from support.fences import clean_env
from support.forge import JO, KIM, Draft, Forge, objects_in, objects_of
from support.hooked import Person, task_text
from support.illegal import (
    HOUR,
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
from support.running import until
from support.served import REF, Host, serve

from gitlease.core import (
    MAX_STEP,
    Acknowledge,
    Actor,
    Assignee,
    Bind,
    Complete,
    DropRecord,
    EndSession,
    Extend,
    Grant,
    Lease,
    LeaveTicket,
    Park,
    Release,
    Renew,
    Restore,
    Retire,
    Retirement,
    RunOut,
    State,
    TakeTicket,
    Ticket,
    Unavailable,
    Unbind,
    parse_resource,
)
from gitlease.faces.cli import run
from gitlease.git import SystemClock
from gitlease.server import PushVerdict
from gitlease.server.receive import receive
from gitlease.store import CacheDamaged, read_ledger

pytestmark = [pytest.mark.sampled(2)]

NOTHING = "0" * 40
KINDS = ("http", "ssh")


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
def hosts(
    scene: Path, tmp_path_factory: pytest.TempPathFactory, servers: Servers
) -> Iterator[dict[str, Host]]:
    """The same on real servers with their hook; nothing that is refused changes them."""
    made: dict[str, Host] = {}
    stack = []
    for kind in KINDS:
        context = serve(kind, tmp_path_factory.mktemp(kind), servers, copy_of=scene)
        host = context.__enter__()
        stack.append(context)
        host.install()
        made[kind] = host
    yield made
    for context in stack:
        context.__exit__(None, None, None)


# --- what is illegal ----------------------------------------------------------------------------


@pytest.mark.one_in(3)
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


def refused_for(host: Host, name: str, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "kim.git", host.bare)
    bad = ILLEGAL[name](forge)
    before = host.tip(bad.ref), objects_of(host.bare)
    done = forge.push(host.url("kim"), bad.new, bad.ref, env=host.env("kim"))
    assert done.returncode == 1, done.stderr
    assert f"gitlease: refused {bad.ref} ({bad.rule}): " in done.stderr
    assert (host.tip(bad.ref), objects_of(host.bare)) == before, "it left something behind"


@pytest.mark.one_in(35)
@pytest.mark.nightly(10)  # the hook judges as above, whatever brings the push
@pytest.mark.parametrize("name", list(ILLEGAL))
def test_a_push_of_it_over_http_is_refused(
    name: str, hosts: dict[str, Host], tmp_path: Path
) -> None:
    refused_for(hosts["http"], name, tmp_path)


@pytest.mark.one_in(200)
@pytest.mark.nightly(20)
@pytest.mark.parametrize("name", list(ILLEGAL))
def test_a_push_of_it_over_ssh_is_refused(
    name: str, hosts: dict[str, Host], tmp_path: Path
) -> None:
    refused_for(hosts["ssh"], name, tmp_path)


# --- what is legal ------------------------------------------------------------------------------

F002 = parse_resource("F002")


def many(f: Forge) -> Draft:
    return f.honest(*(claim(KIM, f"M{number}") for number in range(MAX_STEP)))


def many_released(f: Forge) -> Draft:
    names = [f"M{number}" for number in range(MAX_STEP)]
    first = f.write(f.honest(*(claim(KIM, name) for name in names)))
    return f.honest(*(release(KIM, name) for name in names), base=first)


def replaced_renewal(f: Forge) -> Draft:
    return f.honest(renew(), replaces=True)


def several_steps(f: Forge) -> Draft:
    first = f.write(f.honest(renew(), replaces=True))
    second = f.write(f.honest(claim(), base=first))
    return f.honest(note(KIM, "F100"), barrier(), base=second)


def some_refused(f: Forge) -> Draft:
    """A batch of which one operation is refused, which its ring tells."""
    return f.honest(renew(), claim(KIM, "F001"), barrier(), together=False)


def bound_by_a_run() -> Bind:
    return Bind(id=fresh(), actor=replace(KIM, session="run-1"), resources=(F002,))


def unbound(f: Forge) -> Draft:
    base = f.write(f.honest(bound_by_a_run()))
    grant = grant_of(f.ledger(base).leases_of(F002)[0])
    return f.honest(Unbind(id=fresh(), actor=KIM, grants=(grant,)), base=base)


def run_out(f: Forge) -> Draft:
    """Of one lease with an edge, and of one without."""
    run = replace(KIM, session="a")
    base = f.write(f.honest(claim(run, "F100", edge=True), claim(run, "F101")))
    found = [f.ledger(base).leases_of(parse_resource(name))[0] for name in ("F100", "F101")]
    op = RunOut(id=fresh(), actor=run, grants=tuple(map(grant_of, found)), note="bye")
    return f.honest(op, base=base)


LEGAL: dict[str, Callable[[Forge], Draft]] = {
    "claim": lambda f: f.honest(claim(reason="why not", paths=("docs/", "lib/*.txt"))),
    "claim of several": lambda f: f.honest(claim(), claim(KIM, "lib/x"), claim(KIM, "F101")),
    "claim of very many": many,
    "release of very many": many_released,
    "renewal by a claim": lambda f: f.honest(claim(KIM, "F002", paths=("docs/",), edge=True)),
    "takeover of what lapsed": lambda f: f.honest(claim(KIM, "F004")),
    "takeover of an edge": lambda f: f.honest(claim(KIM, "F005", takeover=True, reason="gone")),
    "takeover of what was abandoned": lambda f: f.honest(claim(KIM, "F009", abandoned=True)),
    "takeover of edges in the task file": lambda f: f.honest(
        claim(
            KIM,
            takeover=True,
            reason="gone",
            assigned=(
                Assignee("@x", ("x@example.com",)),
                Assignee("team", ("y@example.com", "z@example.com")),
                Assignee("nobody"),
            ),
        )
    ),
    "claim of what was completed": lambda f: f.honest(claim(KIM, "F006", reopen=True)),
    "renewal": lambda f: f.honest(renew()),
    "renewal in the place of a renewal": replaced_renewal,
    "renewal of all that is held": lambda f: f.honest(Renew(id=fresh(), actor=KIM)),
    "renewal of grants": lambda f: f.honest(
        Renew(id=fresh(), actor=KIM, grants=(grant_of(f.lease("F002")),), ttl=HOUR)
    ),
    "renewal by a session": lambda f: f.honest(renew(replace(KIM, session="a"))),
    "renewal that binds": lambda f: f.honest(
        renew(replace(KIM, session="a", session_explicit=True))
    ),
    "extension": lambda f: f.honest(
        Extend(id=fresh(), actor=KIM, resource=F002, seconds=100 * HOUR)
    ),
    "release": lambda f: f.honest(release(KIM, "F002")),
    "release with a note": lambda f: f.honest(
        Release(id=fresh(), actor=KIM, resource=F002, note="half done\n\ttests red")
    ),
    "note of a release of nothing": lambda f: f.honest(
        Release(id=fresh(), actor=KIM, resource=parse_resource("F404"), note="nothing to do")
    ),
    "completion": lambda f: f.honest(
        Complete(id=fresh(), actor=KIM, resource=F002, lease_id=fresh())
    ),
    "completion of what nobody held": lambda f: f.honest(
        Complete(id=fresh(), actor=KIM, resource=parse_resource("F103"), lease_id=fresh())
    ),
    "park": lambda f: f.honest(
        Park(id=fresh(), actor=KIM, resource=F002, seconds=HOUR, reason="lunch", note="back soon")
    ),
    "end of a session": lambda f: f.honest(
        EndSession(
            id=fresh(),
            actor=KIM,
            grants=(grant_of(f.lease("F007")), grant_of(f.lease("F002"))),
            note="bye",
        )
    ),
    "end of a session that parks": lambda f: f.honest(
        EndSession(id=fresh(), actor=KIM, grants=(grant_of(f.lease("F002")),), park=True)
    ),
    "end of a session that keeps edges": run_out,
    "bind": lambda f: f.honest(bound_by_a_run()),
    "unbind": unbound,
    "note": lambda f: f.honest(note(KIM, "F001")),
    "revocation by an admin": lambda f: f.honest(revoke(JO, "F002"), actor=JO),
    "retirement": lambda f: f.honest(
        Retire(
            id=fresh(),
            actor=KIM,
            items=tuple(
                Retirement(
                    resource=parse_resource(name),
                    reason="nobody works on it",
                    grants=(grant_of(f.lease(name)),),
                    assigned=True,
                    unassigned=(Assignee("jo", (JO.holder,)), Assignee("@x", ("x@example.com",))),
                    note="was left lying",
                )
                for name in ("F004", "F005")
            ),
        )
    ),
    "policy of an admin": lambda f: f.honest(
        policy(JO, ttl_max="2h", admins="jo@example.com, kim@example.com"), actor=JO
    ),
    "acknowledgement": lambda f: f.honest(
        Acknowledge(
            id=fresh(), actor=JO, notices=tuple(n.id for n in f.ledger().notices(JO.holder))
        ),
        actor=JO,
    ),
    "ticket": lambda f: f.honest(wait_for("F001", "src/")),
    "ticket left": lambda f: f.honest(
        LeaveTicket(id=fresh(), actor=JO, resources=(F002,), ticket="jo-waits"), actor=JO
    ),
    "claim by a ticket": lambda f: f.honest(
        claim(KIM, "F103", ticket="kim-waits", passing=0),
        base=f.write(f.honest(wait_for("F103"))),
    ),
    "barrier": lambda f: f.honest(barrier()),
    "an admin's going on after a rollback": lambda f: f.honest(
        Restore(id=fresh(), actor=JO, above=f.ledger().header.token + 9), actor=JO
    ),
    "step of which a part was refused": some_refused,
    "several steps": several_steps,
    "new ledger": lambda f: f.first(claim()),
    "new ledger with its policy": lambda f: f.first(policy(KIM, admins=KIM.holder, skew="30s")),
}


def wait_for(*names: str) -> TakeTicket:
    resources = tuple(map(parse_resource, names))
    until = SystemClock().now().wall_ms + HOUR * 1_000
    return TakeTicket(id=fresh(), actor=KIM, resources=resources, ticket="kim-waits", until=until)


def grant_of(lease: Lease) -> Grant:
    return Grant(lease.resource, lease.scope, lease.session, lease.lease_id, lease.token)


def judged(forge: Forge, made: str, ref: str = REF, user: str = "kim") -> PushVerdict:
    """What the server says of a push that is in quarantine."""
    line = f"{forge.tip(ref) or NOTHING} {made or NOTHING} {ref}\n".encode()
    environ = forge.environ(GL_USER=user)
    return receive(line, environ=environ, clock=SystemClock(), directory=str(forge.server))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", list(LEGAL))
def test_what_is_legal_is_accepted(name: str, scene: Path, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "own.git", scene)
    draft = LEGAL[name](forge)
    ref = REF if draft.base else "refs/gitlease/new"
    verdict = judged(forge, forge.write(draft), ref, "jo" if draft.actor == JO else "kim")
    assert not verdict.refusals, verdict.refusals
    assert not verdict.blocked


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


def test_whoever_is_nobody_here_changes_no_ledger(scene: Path, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "own.git", scene)
    made = forge.write(forge.honest(claim()))
    for user in ("", "eve", "kim@example.com.evil.org"):
        verdict = judged(forge, made, user=user)
        assert verdict.blocked
        assert [refusal.rule for refusal in verdict.refusals] == ["identity"]
    assert not judged(forge, made, user="Kim@Example.com").blocked, "an email needs no mapping"


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (Unavailable("git does not answer"), "fault"),
        (CacheDamaged("an object is lost"), "fault"),
        (ZeroDivisionError("oh"), "fault"),
        (MemoryError(), "too-large"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, BaseException) else None,
)
def test_what_cannot_be_judged_is_not_accepted(
    fault: BaseException,
    rule: str,
    scene: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def judge(*_: object) -> None:
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


def test_where_renewals_append_none_replaces_another(scene: Path, tmp_path: Path) -> None:
    server = tmp_path / "server.git"
    shutil.copytree(scene, server)
    forge = Forge(tmp_path / "own.git", server)
    appending = forge.write(forge.honest(policy(JO, history="append"), actor=JO))
    assert forge.push(str(server), appending).returncode == 0
    assert forge.push(str(server), forge.write(forge.honest(renew()))).returncode == 0
    assert not judged(forge, forge.write(forge.honest(renew()))).blocked
    replacing = forge.write(forge.honest(renew(), replaces=True))
    assert [r.rule for r in judged(forge, replacing).refusals] == ["history"]


# --- two people with their clones ---------------------------------------------------------------


def speaks(
    person: Person, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """The command line of one of them, in this process; the JSON that it answers."""

    def say(*words: str, status: int = 0) -> dict[str, Any]:
        for key, value in person.env.items():
            monkeypatch.setenv(key, value)
        end = run([words[0], "-C", str(person.root), "--json", *words[1:]])
        said = capsys.readouterr()
        assert end == status, (words, end, said.out, said.err)
        found: dict[str, Any] = json.loads(said.out)
        return found

    return say


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["http", pytest.param("ssh", marks=pytest.mark.slow)])
def test_every_verb_of_a_client_is_accepted(
    kind: str,
    tmp_path: Path,
    servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serve(kind, tmp_path, servers) as host:
        host.install()
        jo, kim = host.person("jo"), host.person("kim")
        jo_says, kim_says = (speaks(x, monkeypatch, capsys) for x in (jo, kim))
        jo.put("tasks/F001.md", task_text("F001"))
        jo.put("tasks/F002.md", task_text("F002"))
        jo.git("commit", "-q", "-m", "tasks")
        jo.git("push", "-q", "origin", "main")
        kim.git("pull", "-q", "origin", "main")

        jo_says("init")
        jo_says("config", "--ledger", "ttl_max", "4h")
        jo_says("claim", "F001", "--reason", "limits", "--path", "src/api")
        jo_says("renew", "F001")
        jo_says("renew", "--all")
        jo_says("extend", "F001", "1h")
        jo_says("note", "F001", "mind the gap")
        assert kim_says("claim", "F001", status=1)["error"]["code"] == "held"
        assert kim_says("claim", "src/api/x.py", status=1)["error"]["code"] == "held"
        assert kim_says("next", "--claim")["lease"]["resource"] == "F002"
        kim_says("park", "F002", "--for", "1h")
        kim_says("claim", "F002")
        kim_says("set", "F002", "todo")
        kim_says("start", "F002")
        jo_says("note", "F002", "mind the step", "--to-holder")
        kim_says("done", "F002")
        jo_says("park", "F001")
        jo_says("claim", "F001")
        jo_says("release", "F001", "--note", "half done")
        assert kim_says("claim", "F001")["lease"]["token"] > 0
        jo_says("config", "--ledger", "admins", "jo@example.com")
        kim_says("config", "--ledger", "skew", "5s", status=6)
        jo_says("revoke", "F001", "--reason", "holiday")
        kim_says("list")  # it is told, and acknowledged with the next change
        kim_says("claim", "port-8080", "port-8081", "--any", "--scope", "ui")
        kim_says("release", "port-8080", "port-8081")
        assert host.tip() != ""
        assert len(kim_says("log")["events"]) > 15


@pytest.mark.slow
def test_a_run_and_those_who_wait_for_it_are_accepted(tmp_path: Path, servers: Servers) -> None:
    with serve("path", tmp_path, servers) as host:
        host.install()
        jo, kim = host.person("jo"), host.person("kim")
        gate = tmp_path / "gate"
        words = ("run", "deploy", "--any", "--ttl", "10s", "--")
        waits = f"until [ -e {shlex.quote(str(gate))} ]; do sleep 0.05; done"
        with start(jo, *words, "sh", "-c", waits) as running:
            until(lambda: "deploy" in leases_on(host), "jo runs")
            with start(kim, "claim", "deploy", "--any", "--wait", "60s") as waiting:
                until(lambda: bool(waiting_on(host, "deploy")), "kim stands in line")
                gate.touch()
                assert running.wait(30) == 0
                assert waiting.wait(60) == 0
        assert leases_on(host) == {"deploy": kim.email}
        assert not waiting_on(host, "deploy")


def start(person: Person, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "gitlease", *words],
        cwd=person.root,
        env=clean_env(person.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def leases_on(host: Host) -> dict[str, str]:
    """Who holds what on the server."""
    repo = pygit2.Repository(str(host.bare))
    tip = host.tip()
    ledger = read_ledger(objects_in(repo), tip) if tip else None
    every = ledger.every_lease() if ledger else []
    return {x.resource.text: x.holder for x in every if x.state is State.ACTIVE}


def waiting_on(host: Host, name: str) -> tuple[Ticket, ...]:
    repo = pygit2.Repository(str(host.bare))
    return read_ledger(objects_in(repo), host.tip()).tickets(parse_resource(name))
