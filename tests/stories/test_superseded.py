"""Commits of a lease that a later one superseded: refused alike at every door, every time.

Each refusal is asked for three times in a row: being told of a loss changes no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hooked import WAYS_AROUND, Pair, Person
from support.remotes import Servers
from support.repos import git
from support.served import Host, serve

from gitlease.check.opening import CheckContext
from gitlease.kernel.ledger import acts
from gitlease.kernel.rules.errors import GitleaseError, LeaseLost
from gitlease.kernel.rules.resources import parse_resource
from gitlease.landing.fenced_push import PushAnswer
from gitlease.landing.landing import LandOptions
from gitlease.landing.opening import open_push
from gitlease.landing.plan import PushRequest

pytestmark = pytest.mark.slow

API, LOGIN, PAGE = "src/api/", "src/api/login.py", "src/web/page.py"
THRICE = range(3)
SUPERSEDED = ["token-superseded"]


def works(one: Person, name: str = LOGIN, *, token: int = 0, resource: str = "src/api") -> str:
    """Commit a change past every hook, with the trailer that the hooks write for a token."""
    more = f"\n\nGitlease: {resource} token={token}\n" if token else ""
    return one.saves(name, message=f"work{more}")


def pushes(one: Person, *, override: str = "") -> PushAnswer:
    """Push HEAD to main by ``gitlease push``."""
    request = PushRequest(remote="origin", refspecs=("HEAD:main",), hooks=False)
    return open_push(one.at()).push(request, override=override)


def checks(one: Person) -> list[str]:
    """The errors of ``gitlease check`` for what main lacks."""
    desk = CheckContext(str(one.root), environ={})
    found = desk.service(desk.choose("origin/main..HEAD")).check().findings
    return [x.rule.id for x in found if x.level.value == "error"]


def releases(one: Person, session: str | None = None) -> None:
    acts.release(one.at(session=session).ledger, [parse_resource(API)])


@pytest.fixture
def begun(pair: Pair) -> Pair:
    """jo committed on src/api under token 1, and no longer holds it."""
    assert pair.jo.claim(API).token == 1
    works(pair.jo, token=1)
    releases(pair.jo)
    return pair


@pytest.fixture
def lost(begun: Pair) -> Pair:
    """Then kim had it, with token 2; nobody holds anything now."""
    assert begun.kim.claim(API).token == 2
    releases(begun.kim)
    return begun


@pytest.mark.default
def test_push_refuses_it_each_time(lost: Pair) -> None:
    before = lost.on_remote("main")
    for _ in THRICE:
        with pytest.raises(LeaseLost) as refused:
            pushes(lost.jo)
        assert refused.value.resource == "src/api"
        assert "kim@example.com was granted it later, with token 2" in refused.value.message
        lost.jo.at().ledger.store.fetch("global")
    assert lost.on_remote("main") == before


def test_plain_git_push_refuses_it_each_time(lost: Pair) -> None:
    before = lost.on_remote("main")
    for _ in THRICE:
        done = lost.jo.run("push", "-q", "origin", "HEAD:main")
        assert done.returncode == 1, done.stderr
        assert "was made under token 1 of src/api, and kim@example.com" in done.stderr
        assert not WAYS_AROUND.search(done.stderr), done.stderr
    assert lost.on_remote("main") == before


def test_land_refuses_it_each_time(lost: Pair) -> None:
    """With the task that the branch is for, which is held."""
    before, head = lost.on_remote("main"), lost.jo.head()
    lost.jo.claim("F002")
    lost.jo.git("checkout", "-q", "--", ".")
    for _ in THRICE:
        with pytest.raises(LeaseLost) as refused:
            lost.jo.at().land(parse_resource("F002"), LandOptions(hooks=False))
        assert "token 1 of src/api" in refused.value.message
    assert (lost.on_remote("main"), lost.jo.head()) == (before, head)


def test_check_finds_it_each_time(lost: Pair) -> None:
    for _ in THRICE:
        assert checks(lost.jo) == SUPERSEDED


def test_another_lease_of_the_same_person_supersedes_as_well(begun: Pair) -> None:
    begun.jo.claim(API, session="other")
    releases(begun.jo, session="other")
    for _ in THRICE:
        with pytest.raises(LeaseLost):
            pushes(begun.jo)
        assert checks(begun.jo) == SUPERSEDED


def test_a_revoked_lease_lands_nothing_either(pair: Pair) -> None:
    pair.jo.claim(API)
    works(pair.jo, token=1)
    for words in (
        ("config", "--ledger", "admins", pair.kim.email),
        ("revoke", API, "--reason", "x"),
    ):
        done = pair.kim.gitlease(*words)
        assert done.returncode == 0, done.stderr
    for _ in THRICE:
        with pytest.raises(LeaseLost, match="revoked"):
            pushes(pair.jo)
        assert checks(pair.jo) == SUPERSEDED


def test_nothing_is_superseded_until_somebody_else_is_granted_it(begun: Pair) -> None:
    """The work of a lease that was released lands, whatever this clone believed last."""
    assert checks(begun.jo) == []
    assert pushes(begun.jo).status == "pushed"
    assert begun.on_remote("main") == begun.jo.head()


def test_a_release_from_elsewhere_is_the_same_before_and_after_it_is_told(pair: Pair) -> None:
    """A commit without a trailer is only judged by what others hold."""
    pair.jo.claim(API)
    pair.jo.git("clone", "-q", str(pair.remote), str(pair.base / "elsewhere"))
    elsewhere = Person("jo", pair.base / "elsewhere")
    elsewhere.git("config", "user.email", pair.jo.email)
    works(pair.jo)
    releases(elsewhere)
    answer = pushes(pair.jo)
    assert not answer.fenced
    assert any("you no longer hold src/api" in text for text in answer.warnings)
    works(pair.jo)
    assert not pushes(pair.jo).fenced


def test_a_commit_without_a_trailer_is_refused_again_once_it_was(pair: Pair) -> None:
    """By what this clone noted when it still believed that it held the lease."""
    pair.jo.claim(API)
    works(pair.jo)
    pair.jo.git("clone", "-q", str(pair.remote), str(pair.base / "elsewhere"))
    elsewhere = Person("jo", pair.base / "elsewhere")
    elsewhere.git("config", "user.email", pair.jo.email)
    releases(elsewhere)
    pair.kim.claim(API)
    releases(pair.kim)
    for _ in THRICE:
        with pytest.raises(LeaseLost):
            pushes(pair.jo)
        assert pair.jo.run("push", "-q", "origin", "HEAD:main").returncode == 1
    pair.jo.claim(API)
    assert pushes(pair.jo).fenced


def test_whoever_holds_it_again_vouches_for_it(lost: Pair) -> None:
    assert lost.jo.claim(API).token == 3
    (lease,) = pushes(lost.jo).leases
    assert lease.token == 3


def test_a_successor_lands_the_work_of_a_predecessor(lost: Pair) -> None:
    """Handed over on a branch: kim holds it now, and jo's commits are in what she pushes."""
    lost.jo.git("push", "-q", "--no-verify", "origin", "HEAD:work")
    lost.kim.git("pull", "-q", "origin", "work")
    done = lost.kim.run("push", "-q", "origin", "HEAD:main")
    assert done.returncode == 1, done.stderr
    assert checks(lost.kim) == SUPERSEDED
    assert lost.kim.claim(API).token == 3
    works(lost.kim, token=3)
    assert checks(lost.kim) == []
    done = lost.kim.run("push", "-q", "origin", "HEAD:main")
    assert done.returncode == 0, done.stderr


def test_the_latest_token_on_a_descendant_vouches_for_what_is_below_it(begun: Pair) -> None:
    """As after several runs, each with a lease of its own; an older commit beside it does not."""
    begun.jo.claim(API)
    works(begun.jo, token=2)
    releases(begun.jo)
    assert checks(begun.jo) == []
    begun.jo.git("switch", "-q", "-c", "beside", "origin/main")
    works(begun.jo, "src/api/limits.py", token=1)
    begun.jo.git("merge", "-q", "--no-edit", "--no-verify", "main")
    assert checks(begun.jo) == SUPERSEDED
    begun.jo.git("switch", "-q", "main")
    assert pushes(begun.jo).status == "pushed"


def test_a_token_of_a_stranger_vouches_for_nothing(lost: Pair) -> None:
    works(lost.jo, token=2)  # kim's
    with pytest.raises(LeaseLost):
        pushes(lost.jo)
    assert "token-superseded" in checks(lost.jo)


def test_finished_work_may_be_pushed_by_whoever_finished_it(pair: Pair) -> None:
    pair.jo.claim("F002")
    works(pair.jo, PAGE, token=1, resource="F002")
    pair.jo.release("F002")
    pair.jo.claim("F002")
    acts.complete(pair.jo.at().ledger, parse_resource("F002"), commit=False)
    assert checks(pair.jo) == []
    assert pushes(pair.jo).status == "pushed"


def test_what_has_landed_is_not_judged_again(begun: Pair) -> None:
    pushes(begun.jo)
    begun.kim.claim(API)
    releases(begun.kim)
    works(begun.jo, PAGE)
    assert checks(begun.jo) == []
    assert pushes(begun.jo).status == "pushed"
    begun.jo.git("push", "-q", "--no-verify", "origin", "HEAD:side")
    begun.kim.git("pull", "-q", "origin", "side")
    begun.kim.git("update-ref", "refs/remotes/origin/main", "HEAD~2")  # it has not fetched
    done = begun.kim.run("push", "-q", "origin", "HEAD:main")
    assert done.returncode == 0, done.stderr


def test_an_override_is_recorded_and_holds_at_every_door(lost: Pair) -> None:
    assert pushes(lost.jo, override="kim agreed").status == "pushed"
    head = lost.jo.head()
    assert lost.on_remote("main") == head
    (event,) = (x for x in lost.jo.at().ledger.store.history("global", 9) if x.kind == "noted")
    assert (event.by, event.resource) == (lost.jo.email, "src/api")
    assert f"{head}: kim agreed" in (event.detail or "")
    lost.jo.git("update-ref", "refs/remotes/origin/main", "HEAD~1")
    assert checks(lost.jo) == []


@pytest.mark.default
def test_an_override_that_overrides_nothing_is_not_recorded(pair: Pair) -> None:
    pair.jo.claim(API)
    works(pair.jo, token=1)
    assert pushes(pair.jo, override="in doubt").fenced
    assert all(x.kind != "noted" for x in pair.jo.at().ledger.store.history("global", 9))


# --- on the server --------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path, servers: Servers) -> Iterator[Host]:
    with serve("path", tmp_path, servers) as found:
        jo = found.person("jo")
        for name in (LOGIN, PAGE):
            jo.put(name, "text\n")
        jo.git("commit", "-q", "-m", "begin")
        jo.git("push", "-q", "origin", "HEAD:main")
        found.install()
        yield found


def test_the_server_refuses_it_each_time(host: Host) -> None:
    jo, kim = host.person("jo"), host.person("kim")
    jo.claim(API)
    works(jo, token=1)
    jo.release(API)
    kim.claim(API)
    kim.release(API)
    before = host.tip("refs/heads/main")
    for ref in ("main", "topic", "main"):
        done = jo.run("push", "-q", "origin", f"HEAD:{ref}")
        assert done.returncode == 1, done.stderr
        assert "gitlease: refused (superseded): commit " in done.stderr
        assert not WAYS_AROUND.search(done.stderr), done.stderr
    assert host.tip("refs/heads/main") == before
    jo.claim(API)
    done = jo.run("push", "-q", "origin", "HEAD:main")
    assert done.returncode == 0, done.stderr


def test_the_server_lets_a_recorded_override_pass(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    jo, kim = host.person("jo"), host.person("kim")
    jo.claim(API)
    works(jo, token=1)
    jo.release(API)
    kim.claim(API)
    kim.release(API)
    for name, value in jo.env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(GitleaseError):
        pushes(jo)
    pushes(jo, override="kim agreed")
    assert host.tip("refs/heads/main") == jo.head()


def test_a_takeover_on_the_command_line_is_exit_3_three_times(lost: Pair) -> None:
    for _ in THRICE:
        done = lost.jo.gitlease("push", "origin", "HEAD:main")
        assert done.returncode == 3, done.stderr
        assert re.search("^hint: whoever holds src/api vouches", done.stderr, re.MULTILINE)
    done = lost.jo.gitlease("push", "--override", "kim agreed", "origin", "HEAD:main")
    assert done.returncode == 0, done.stderr
    assert git(lost.remote, "rev-parse", "main").strip() == lost.jo.head()
