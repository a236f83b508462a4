"""Work that is pushed to a server: what touches another's lease is refused, one's own lands."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.hooked import CODE, Done, task_text
from support.remotes import Servers
from support.repos import git
from support.served import REF, Host, User, serve

from gitlease.kernel.git.run import SystemClock
from gitlease.kernel.rules.viewpoint import GuardFinding
from gitlease.server.receive import RefMove, receive
from gitlease.server.work import WorkGuard

pytestmark = pytest.mark.slow

FILES = {
    "src/api/login.py": CODE,
    "src/web/page.py": CODE.replace("line", "page"),
    "tasks/F001.md": task_text("F001", paths="src/api"),
    "tasks/F002.md": task_text("F002"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Path:
    """A repository with some files, tasks among them."""
    with serve("path", tmp_path_factory.mktemp("work"), servers) as host:
        jo = host.person("jo")
        for name, text in FILES.items():
            jo.put(name, text)
        jo.git("commit", "-q", "-m", "begin")
        jo.git("push", "-q", "origin", "main")
        return host.bare


@pytest.fixture
def jo(host: Host) -> User:
    return host.person("jo")


@pytest.fixture
def kim(host: Host) -> User:
    return host.person("kim")


def push(who: User, *words: str) -> Done:
    return who.run("push", "origin", *(words or ("HEAD:main",)))


def lands(done: Done) -> None:
    assert done.returncode == 0, done.stderr
    assert "refused" not in done.stderr


def held(done: Done, what: str) -> None:
    assert done.returncode == 1, done.stderr
    assert re.search(rf"gitlease: refused \(held\): {what} .* jo@example.com", done.stderr)


def test_a_push_that_touches_what_another_holds_is_refused(jo: User, kim: User) -> None:
    jo.claim("src/api/")
    kim.saves("src/api/login.py", "src/web/page.py")
    done = push(kim)
    held(done, "src/api/login.py")
    assert kim.run("ls-remote", "origin", "main").stdout.split()[0] != kim.head()
    jo.saves("src/api/login.py")
    lands(push(jo))
    jo.release("src/api/")
    kim.git("pull", "-q", "--no-rebase", "-X", "ours", "origin", "main")
    lands(push(kim))


@pytest.mark.nightly
def test_work_that_came_to_one_branch_is_judged_where_it_lands(jo: User, kim: User) -> None:
    kim.saves("src/api/login.py")
    lands(push(kim, "HEAD:topic"))
    jo.claim("src/api/")
    held(push(kim, "HEAD:main"), "src/api/login.py")
    jo.saves("src/web/page.py")
    lands(push(jo))
    kim.git("switch", "-q", "-c", "other", "HEAD~1")
    kim.git("pull", "-q", "--no-rebase", "origin", "main")
    lands(push(kim, "HEAD:other"))


@pytest.mark.parametrize("how", ["older", "merged", "invented", "claimed"])
def test_only_the_holders_work_lands_on_what_is_held(jo: User, kim: User, how: str) -> None:
    """S7: whoever wrote it, and however long ago, unless it was made under the present lease."""
    author = {"claimed": jo.email, "invented": "x@y.z"}.get(how, kim.email)
    who = kim if how in ("invented", "claimed") else jo
    who.saves("src/api/login.py", message="work\n\nGitlease: src/api token=9")
    who.git("commit", "-q", "--amend", "--no-edit", "--reset-author", env=_as(author))
    lands(push(who, "HEAD:old"))
    assert User("lee", jo.root, jo.env).claim("src/api/").token != 9
    kim.git("fetch", "-q", "origin", "old")
    if how == "merged":
        kim.git("switch", "-q", "-C", "work", "origin/main")
        kim.git("merge", "-q", "--no-ff", "-m", "merge", "FETCH_HEAD")
    held(push(kim, f"{'HEAD' if how == 'merged' else 'FETCH_HEAD'}:main"), "src/api/login.py")


def _as(email: str) -> dict[str, str]:
    names = ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL")
    return dict.fromkeys(names, email)


def test_what_was_made_under_the_present_lease_is_landed_by_anybody(jo: User, kim: User) -> None:
    landed = landed_by_jo(jo, kim, "topic")
    lands(push(kim, f"{landed}:main"))
    forged = "work\n\nGitlease: src/api token=1"
    kim.git("reset", "-q", "--hard", landed)
    kim.saves("src/api/login.py", message=forged)
    kim.git("commit", "-q", "--amend", "--no-edit", "--reset-author", env=_as(jo.email))
    held(push(kim, "HEAD:main"), "src/api/login.py")
    jo.release("src/api/")
    jo.claim("src/api/")
    jo.git("fetch", "-q")
    held(push(kim, "-f", "HEAD~2:main"), "src/api/login.py")


def test_token_that_was_guessed_before_its_grant_lands_nothing(jo: User, kim: User) -> None:
    """S7: a token is the next number, and anybody may write a trailer and a date."""
    lands(push(kim, "HEAD:other"))
    jo.claim("docs/")
    name = "work\n\nGitlease: src/api token={}"
    kim.saves("src/api/login.py", message=name.format(2))
    refused = push(kim, "HEAD:staged")
    assert refused.returncode == 1
    assert "refused (token): " in refused.stderr
    before = {"GIT_COMMITTER_DATE": f"@{int(time.time()) - 600} +0000"}
    kim.git("commit", "-q", "--amend", "--no-edit", env=before)
    lands(push(kim, "HEAD:staged"))
    assert jo.claim("src/api/").token == 2
    held(push(kim, "HEAD:main"), "src/api/login.py")


def test_ones_own_commits_may_be_taken_back_though_another_holds_what_they_touch(
    jo: User, kim: User, host: Host
) -> None:
    kim.saves("src/api/login.py")
    lands(push(kim, "HEAD:topic", "HEAD:other", "HEAD:gone"))
    kim.git("switch", "-q", "-c", "squashed", "HEAD~1")
    jo.claim("src/api/")
    lands(push(kim, "-d", "gone"))
    lands(push(kim, "-f", "HEAD:topic"))
    kim.saves("src/web/page.py")
    lands(push(kim, "-f", "HEAD:other"))
    assert host.tip("refs/heads/gone") == ""
    lands(push(kim, ":topic", ":other"))


def landed_by_jo(jo: User, kim: User, *refs: str) -> str:
    """jo lands work on what she holds, on some branches; the commit, which kim has as well."""
    lease = jo.claim("src/api/")
    jo.saves("src/api/login.py", message=f"work\n\nGitlease: src/api token={lease.token}")
    lands(push(jo, *(f"HEAD:{ref}" for ref in refs)))
    kim.git("fetch", "-q", "origin")
    return jo.head()


def test_what_another_landed_on_the_default_branch_is_not_thrown_away(
    jo: User, kim: User, host: Host
) -> None:
    landed = landed_by_jo(jo, kim, "main")
    git(host.bare, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    for ref in ("main", "refs/heads/alias"):
        held(push(kim, "-f", f"HEAD:{ref}"), "src/api/login.py")
    git(host.bare, "symbolic-ref", "-d", "refs/heads/alias")
    lands(push(kim, f"{landed}:refs/heads/copy"))
    held(push(kim, "-f", "HEAD:main"), "src/api/login.py")
    assert host.tip("refs/heads/main") == landed
    jo.saves("src/web/page.py")
    lands(push(jo))
    lands(push(jo, "-f", "HEAD~1:main"))
    lands(push(jo, "-f", "HEAD~2:main"))


@pytest.mark.nightly
def test_refs_that_go_together_keep_nothing_for_each_other(jo: User, kim: User, host: Host) -> None:
    landed = landed_by_jo(jo, kim, "d1", "d2")
    held(push(kim, ":d1", ":d2"), "src/api/login.py")
    held(push(kim, "-f", ":d1", "HEAD:d2"), "src/api/login.py")
    assert host.tip("refs/heads/d1") == host.tip("refs/heads/d2") == landed
    lands(push(kim, ":d1"))
    lands(push(kim, f"{landed}:refs/heads/d3"))
    lands(push(kim, ":d2"))
    jo.saves("src/web/page.py")
    lands(push(jo, "HEAD:main"))
    lands(push(kim, ":d3"))


def test_a_ref_that_cannot_come_to_be_keeps_nothing(jo: User, kim: User, host: Host) -> None:
    landed = landed_by_jo(jo, kim, "d1")
    held(push(kim, ":d1", f"{landed}:refs/heads/main/x"), "src/api/login.py")
    held(push(kim, ":d1", f"{landed}:refs/heads/d1/x"), "src/api/login.py")
    kim.saves("src/web/page.py")
    lands(push(kim, "HEAD:refs/heads/own"))
    git(host.bare, "config", "receive.denyNonFastForwards", "true")
    held(push(kim, "-f", ":d1", f"{landed}:own"), "src/api/login.py")
    assert host.tip("refs/heads/d1") == landed


def test_the_default_branch_of_a_namespace_is_guarded_as_well(
    jo: User, kim: User, host: Host
) -> None:
    jo.claim("src/api/")
    space = "refs/namespaces/x"
    git(host.bare, "update-ref", f"{space}/refs/gitlease/global", host.tip())
    for who in (jo, kim):
        who.env["GIT_NAMESPACE"] = "x"
    lands(push(jo))
    git(host.bare, "symbolic-ref", f"{space}/HEAD", f"{space}/refs/heads/main")
    jo.saves("src/api/login.py")
    lands(push(jo))
    held(push(kim, "-f", f"{kim.head()}:main"), "src/api/login.py")


def test_a_prefix_of_work_keeps_nobody_from_work(jo: User, kim: User) -> None:
    jo.put(".gitlease.yaml", "lease: {ref_prefix: refs/heads/leases}\n")
    jo.git("commit", "-q", "-m", "where the ledger does not lie")
    lands(push(jo, "HEAD:main", "HEAD:refs/heads/leases/x"))
    kim.git("pull", "-q", "--rebase")
    kim.saves("src/web/page.py")
    for ref in ("HEAD:main", "HEAD:refs/heads/leases/x"):
        assert push(kim, ref).returncode == 0


@pytest.mark.nightly
def test_a_prefix_that_comes_later_is_guarded_as_well(host: Host, jo: User, kim: User) -> None:
    jo.put(".gitlease.yaml", "lease: {ref_prefix: refs/heads/gitlease}\n")
    jo.git("commit", "-q", "-m", "where the ledger lies")
    lands(push(jo))
    jo.claim("src/api/")
    assert "refs/heads/gitlease/global" in git(host.bare, "for-each-ref")
    done = kim.run("push", "origin", "-d", "gitlease/global")
    assert done.returncode == 1
    assert "gitlease: refused" in done.stderr
    kim.saves("src/api/login.py")
    held(push(kim, "HEAD:topic"), "src/api/login.py")


def test_a_task_is_guarded_with_its_file_and_its_paths(jo: User, kim: User) -> None:
    jo.claim("F001", paths=("src/api",))
    for path in ("tasks/F001.md", "src/api/login.py"):
        kim.saves(path)
        held(push(kim), path)
        kim.git("reset", "-q", "--hard", "HEAD~1")


def test_who_pushes_and_the_mode_decide_what_is_judged(jo: User, kim: User, host: Host) -> None:
    jo.claim("src/api/")
    kim.saves("src/api/login.py")
    kim.env["GL_USER"] = "eve"
    held(push(kim), "src/api/login.py")
    kim.env["GL_USER"] = "kim"
    host.install(mode="warn")
    done = push(kim, "HEAD:warned")
    assert done.returncode == 0
    assert "src/api/login.py" in done.stderr
    host.install()
    git(host.bare, "config", "--unset", "gitlease.identity")
    lands(push(kim))


@pytest.mark.nightly
def test_a_fenced_push_is_judged_by_the_ledger_that_comes_with_it(jo: User, kim: User) -> None:
    kim.claim("src/api/")
    kim.saves("src/api/login.py")
    done = kim.gitlease("push")
    assert done.returncode == 0, done.stderr
    assert jo.run("ls-remote", "origin", "main").stdout.split()[0] == kim.head()


def test_a_layer_of_the_project_is_guarded_too(jo: User, kim: User) -> None:
    jo.put(".gitlease.yaml", "lease: {layer: team}\n")
    jo.git("commit", "-q", "-m", "a layer")
    lands(push(jo))
    jo.claim("src/api/", layer="team")
    jo.claim("src/web/", layer="other")
    kim.git("pull", "-q", "origin", "main")
    kim.saves("src/web/page.py")
    lands(push(kim))
    kim.saves("src/api/login.py")
    held(push(kim), "src/api/login.py")


def test_another_hook_opens_no_window(jo: User, kim: User, host: Host) -> None:
    """S5: ours judges after it, by the ledger as it is then."""
    jo.claim("F002")
    before = host.tip()
    jo.claim("src/api/")
    claimed = host.tip()
    git(host.bare, "update-ref", REF, before)
    hook = host.bare / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\nexec env -u GIT_QUARANTINE_PATH git update-ref {REF} {claimed}\n")
    hook.chmod(0o755)
    host.install()
    kim.saves("src/api/login.py")
    held(push(kim), "src/api/login.py")


def test_a_claim_that_lands_during_the_judgement_counts(
    jo: User, kim: User, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    jo.claim("F002")
    before = host.tip()
    jo.claim("src/api/")
    claimed = host.tip()
    kim.saves("src/web/more.py")
    lands(push(kim, "HEAD:topic"))
    kim.saves("src/api/login.py")
    git(host.bare, "fetch", "-q", str(kim.root), "HEAD")
    git(host.bare, "update-ref", REF, before)
    check = WorkGuard.check

    def slow(guard: WorkGuard, moves: Sequence[RefMove]) -> list[GuardFinding]:
        found = check(guard, moves)
        git(host.bare, "update-ref", REF, claimed)
        return found

    monkeypatch.setattr(WorkGuard, "check", slow)
    line = f"{host.tip('refs/heads/topic')} {kim.head()} refs/heads/topic\n"
    who = {"GL_USER": "kim"}
    told = receive(line.encode(), environ=who, clock=SystemClock(), directory=str(host.bare))
    assert told.blocked
    assert [x.rule for x in told.refusals] == ["held"]


SETTINGS = {
    "files": "tasks: {files: ['todo/**/*.md']}\n",
    "fields": "tasks: {fields: {id: ticket}}\n",
    "prefix": "lease: {ref_prefix: refs/other}\n",
    "broken": "tasks: [\n",
}


@pytest.mark.nightly
@pytest.mark.slow("files")
@pytest.mark.parametrize("how", SETTINGS)
def test_settings_take_the_guard_from_no_live_lease(jo: User, kim: User, how: str) -> None:
    """S7: neither at once, nor in two pushes."""
    folder = "tasks"
    if how == "broken":
        kim.put(".gitlease.yaml", "tasks: {files: ['work/**/*.md']}\n")
        kim.git("mv", "tasks", "work")
        kim.git("commit", "-q", "-m", "settings")
        lands(push(kim))
        jo.git("pull", "-q")
        folder = "work"
    jo.claim("F002")
    kim.put(".gitlease.yaml", SETTINGS[how])
    kim.git("commit", "-q", "-m", "settings")
    done = push(kim)
    assert done.returncode == 1, done.stderr
    assert "refused refs/heads/main (settings): .gitlease.yaml " in done.stderr
    kim.saves(f"{folder}/F002.md")
    held(push(kim, "HEAD:topic"), f"{folder}/F002.md")
    jo.release("F002")
    lands(push(kim))
