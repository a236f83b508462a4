"""Work that is pushed to a server: what touches another's lease is refused, one's own lands."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.hooked import CODE, Done, task_text
from support.remotes import Servers
from support.repos import git
from support.served import REF, Host, User, serve
from support.snapshots import check_words, cleaned

from gitlease.git import SystemClock
from gitlease.guard import GuardFinding
from gitlease.server import RefMove, WorkGuard
from gitlease.server.receive import receive

pytestmark = [pytest.mark.sampled(3)]

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
def host(made: Path, tmp_path: Path, servers: Servers) -> Iterator[Host]:
    """The same, with the hook, for one test."""
    with serve("path", tmp_path, servers, copy_of=made) as found:
        found.install()
        yield found


@pytest.fixture
def jo(host: Host) -> User:
    return host.person("jo")


@pytest.fixture
def kim(host: Host) -> User:
    return host.person("kim")


def push(who: User, *words: str) -> Done:
    return who.run("push", "origin", *(words or ("HEAD:main",)))


def lands(done: Done, *said: str) -> None:
    assert done.returncode == 0, done.stderr
    for text in said:
        assert text in done.stderr, done.stderr
    assert "refused" not in done.stderr


def held(done: Done, what: str) -> None:
    assert done.returncode == 1, done.stderr
    assert re.search(rf"gitlease: refused \(held\): {what} .* jo@example.com", done.stderr)


def test_a_push_that_touches_what_another_holds_is_refused(jo: User, kim: User) -> None:
    jo.claim("src/api/")
    kim.saves("src/api/login.py", "src/web/page.py")
    done = push(kim)
    held(done, "src/api/login.py")
    check_words(cleaned(done.stderr.partition("gitlease: ")[2].splitlines()[0]))
    assert kim.run("ls-remote", "origin", "main").stdout.split()[0] != kim.head()
    jo.saves("src/api/login.py")
    lands(push(jo))
    jo.release("src/api/")
    kim.git("pull", "-q", "--no-rebase", "-X", "ours", "origin", "main")
    lands(push(kim))


def test_work_that_came_to_one_branch_is_judged_where_it_lands(jo: User, kim: User) -> None:
    kim.saves("src/api/login.py")
    lands(push(kim, "HEAD:topic"))
    jo.claim("src/api/")
    held(push(kim, "HEAD:main"), "src/api/login.py")
    jo.saves("src/web/page.py")
    lands(push(jo))
    kim.git("switch", "-q", "-c", "other", "HEAD~1")
    kim.saves("src/web/more.py")
    lands(push(kim, "HEAD:other"))
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
    holder = User("lee", jo.root, jo.env)
    lease = holder.claim("src/api/")
    assert lease.token != 9
    kim.git("fetch", "-q", "origin", "old")
    if how == "merged":
        kim.git("switch", "-q", "-C", "work", "origin/main")
        kim.git("merge", "-q", "--no-ff", "-m", "merge", "FETCH_HEAD")
        held(push(kim, "HEAD:main"), "src/api/login.py")
    else:
        held(push(kim, "FETCH_HEAD:main"), "src/api/login.py")


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


@pytest.mark.parametrize("how", ["-f", "-d"])
def test_what_another_landed_is_not_taken_away(jo: User, kim: User, how: str) -> None:
    jo.claim("src/api/")
    jo.saves("src/api/login.py")
    lands(push(jo, "HEAD:work"))
    kim.git("fetch", "-q", "origin")
    words = ("-f", "HEAD:work") if how == "-f" else ("-d", "work")
    held(kim.run("push", "origin", *words), "src/api/login.py")
    lands(push(jo))
    lands(kim.run("push", "origin", "-d", "work"))


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


def test_ones_own_commits_do_not_take_the_holders_along(jo: User, kim: User, host: Host) -> None:
    landed_by_jo(jo, kim, "work")
    kim.git("pull", "-q", "origin", "work")
    kim.saves("src/web/page.py")
    lands(push(kim, "HEAD:work", "HEAD:again"))
    lands(push(kim, "-f", "HEAD~1:work"))
    held(push(kim, ":work", ":again"), "src/api/login.py")
    held(push(kim, "-f", "HEAD~2:work", ":again"), "src/api/login.py")


def test_what_the_holder_recorded_is_the_holder_s_whoever_wrote_it(
    jo: User, kim: User, host: Host
) -> None:
    jo.saves("src/api/login.py")
    jo.git("commit", "-q", "--amend", "--no-edit", "--author", "Kim <kim@example.com>")
    jo.claim("src/api/")
    lands(push(jo, "HEAD:topic"))
    kim.git("fetch", "-q")
    held(push(kim, ":topic"), "src/api/login.py")
    held(push(kim, "-f", "HEAD:topic"), "src/api/login.py")


def test_what_one_landed_oneself_is_not_taken_from_the_default_branch(
    jo: User, kim: User, host: Host
) -> None:
    kim.saves("src/api/login.py")
    lands(push(kim))
    jo.claim("src/api/")
    held(push(kim, "-f", "HEAD~1:main"), "src/api/login.py")
    git(host.bare, "config", "receive.denyDeleteCurrent", "ignore")
    held(push(kim, ":main"), "src/api/login.py")


@pytest.mark.parametrize("what", ["HEAD:src/web/page.py", "HEAD^{tree}"])
def test_a_tag_of_no_commit_takes_nothing_away(jo: User, kim: User, what: str) -> None:
    jo.claim("src/api/")
    kim.git("tag", "odd", what)
    lands(push(kim, "refs/tags/odd"))
    lands(push(kim, ":refs/tags/odd"))


def test_whom_the_server_does_not_know_takes_nothing_back(jo: User, kim: User) -> None:
    kim.saves("src/api/login.py")
    lands(push(kim, "HEAD:topic"))
    jo.claim("src/api/")
    kim.env["GL_USER"] = "eve"
    held(push(kim, "-d", "topic"), "src/api/login.py")


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


@pytest.mark.slow
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
    lands(push(jo, "HEAD:main", "HEAD:d1", "HEAD:d2"))
    held(push(kim, "-f", f"{kim.head()}:main"), "src/api/login.py")
    lands(push(jo, "-f", "HEAD~1:main"))
    held(push(kim, ":d1", ":d2"), "src/api/login.py")
    lands(push(kim, ":d1"))


def test_what_is_deleted_must_have_landed_before(jo: User, kim: User) -> None:
    """Of a push that does both git may carry out the deletion alone."""
    landed = landed_by_jo(jo, kim, "d1")
    done = push(kim, ":d1", f"{landed}:main")
    held(done, "src/api/login.py")
    check_words(re.findall("gitlease: hint: .*[^ ]", done.stderr))
    lands(push(kim, f"{landed}:main"))
    lands(push(kim, ":d1"))


def test_a_ref_that_cannot_come_to_be_keeps_nothing(jo: User, kim: User, host: Host) -> None:
    landed = landed_by_jo(jo, kim, "d1")
    held(push(kim, ":d1", f"{landed}:refs/heads/main/x"), "src/api/login.py")
    held(push(kim, ":d1", f"{landed}:refs/heads/d1/x"), "src/api/login.py")
    kim.saves("src/web/page.py")
    lands(push(kim, "HEAD:refs/heads/own"))
    git(host.bare, "config", "receive.denyNonFastForwards", "true")
    held(push(kim, "-f", ":d1", f"{landed}:own"), "src/api/login.py")
    assert host.tip("refs/heads/d1") == landed


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


@pytest.mark.parametrize("prefix", ["refs/heads/main", "refs/heads/Leases", "refs/heads/leases"])
def test_a_prefix_that_comes_later_keeps_nobody_from_work(
    host: Host, jo: User, kim: User, prefix: str
) -> None:
    lands(push(jo, "HEAD:refs/heads/leases/x"))
    jo.put(".gitlease.yaml", f"lease: {{ref_prefix: {prefix}}}\n")
    jo.git("commit", "-q", "-m", "where the ledger does not lie")
    lands(push(jo))
    kim.git("pull", "-q", "--rebase")
    kim.saves("src/web/page.py")
    for ref in ("HEAD:main", "HEAD:refs/heads/leases/x"):
        done = push(kim, ref)
        assert done.returncode == 0, done.stderr
        refused = "may be where people work"  # such a file is no settings file at all
        assert (refused if prefix.endswith("main") else "not judged there") in done.stderr


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "words",
    [("HEAD:side",), ("HEAD:refs/other/side",), ("HEAD:refs/tags/v1",), ("HEAD:a", "HEAD:b")],
    ids=["branch", "other ref", "tag", "two branches"],
)
def test_work_is_judged_whatever_ref_it_comes_to(
    words: tuple[str, ...], jo: User, kim: User
) -> None:
    jo.claim("src/api/")
    kim.saves("src/api/login.py")
    held(push(kim, *words), "src/api/login.py")


@pytest.mark.slow
def test_of_several_refs_none_moves_when_one_is_refused(host: Host, jo: User, kim: User) -> None:
    jo.claim("src/api/")
    kim.saves("src/web/page.py")
    kim.git("branch", "fine")
    kim.saves("src/api/login.py")
    held(push(kim, "fine", "HEAD:main"), "src/api/login.py")
    assert host.tip("refs/heads/fine") == ""


def test_a_task_is_guarded_with_its_file_and_its_paths(jo: User, kim: User) -> None:
    jo.claim("F001", paths=("src/api",))
    jo.claim("F002")
    kim.saves("tasks/F002.md")
    held(push(kim), "tasks/F002.md")
    kim.git("reset", "-q", "--hard", "HEAD~1")
    kim.saves("src/api/login.py")
    held(push(kim), "src/api/login.py")


@pytest.mark.slow
def test_a_merge_of_work_that_is_there_already_is_nobodys(jo: User, kim: User) -> None:
    kim.saves("src/web/page.py")
    jo.claim("src/api/")
    jo.saves("src/api/login.py")
    lands(push(jo))
    kim.git("pull", "-q", "--no-rebase", "origin", "main")
    lands(push(kim))


@pytest.mark.slow
def test_what_ran_out_is_only_pointed_out(jo: User, kim: User, host: Host) -> None:
    git(host.bare, "config", "gitlease.mode", "warn")
    jo.claim("src/api/", ago=3_600, ttl=60)
    git(host.bare, "config", "gitlease.mode", "block")
    kim.saves("src/api/login.py")
    lands(push(kim), "warning: src/api/login.py is held by jo@example.com")


def test_mode_warn_accepts_and_says(jo: User, kim: User, host: Host) -> None:
    jo.claim("src/api/")
    host.install(mode="warn")
    kim.saves("src/api/login.py")
    done = push(kim)
    assert done.returncode == 0
    check_words(cleaned("\n".join(re.findall("gitlease: .*[^ ]", done.stderr))))
    deleted = kim.run("push", "origin", ":refs/gitlease/global")
    assert deleted.returncode == 0
    check_words(re.findall("gitlease: .*[^ ]", deleted.stderr))


def test_whom_the_server_does_not_know_holds_nothing(jo: User, kim: User) -> None:
    jo.claim("src/api/")
    kim.env["GL_USER"] = "eve"
    kim.saves("src/web/page.py")
    lands(push(kim), "eve is not an email")
    kim.saves("src/api/login.py")
    held(push(kim), "src/api/login.py")


def test_without_an_identity_work_is_not_judged(jo: User, kim: User, host: Host) -> None:
    jo.claim("src/api/")
    git(host.bare, "config", "--unset", "gitlease.identity")
    kim.saves("src/api/login.py")
    lands(push(kim))


def test_a_fenced_push_is_judged_by_the_ledger_that_comes_with_it(jo: User, kim: User) -> None:
    kim.claim("src/api/")
    kim.saves("src/api/login.py")
    done = kim.gitlease("push")
    assert done.returncode == 0, done.stderr
    assert jo.run("ls-remote", "origin", "main").stdout.split()[0] == kim.head()


@pytest.mark.slow
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
    "completed": "tasks: {completed: [tasks/]}\n",
    "statuses": "tasks: {statuses: {todo: [a], in_progress: [b], done: [todo, in-progress]}}\n",
    "prefix": "lease: {ref_prefix: refs/other}\n",
    "layer": "lease: {layer: other}\n",
    "broken": "tasks: [\n",
    "unreadable": "colour: red\n",
    "gone": None,
}


@pytest.mark.parametrize("how", SETTINGS)
def test_settings_take_the_guard_from_no_live_lease(jo: User, kim: User, how: str) -> None:
    """S7: neither at once, nor in two pushes."""
    if how in ("gone", "broken"):
        kim.put(".gitlease.yaml", "tasks: {files: ['work/**/*.md']}\n")
        kim.git("mv", "tasks", "work")
        kim.git("commit", "-q", "-m", "settings")
        lands(push(kim))
        jo.git("pull", "-q")
    folder = "work" if how in ("gone", "broken") else "tasks"
    jo.claim("F002")
    text = SETTINGS[how]
    if text is None:
        kim.git("rm", "-q", ".gitlease.yaml")
    else:
        kim.put(".gitlease.yaml", text)
    kim.git("commit", "-q", "-m", "settings")
    done = push(kim)
    assert done.returncode == 1, done.stderr
    assert "refused refs/heads/main (settings): .gitlease.yaml " in done.stderr
    assert "F002" in done.stderr
    kim.saves(f"{folder}/F002.md")
    held(push(kim, "HEAD:topic"), f"{folder}/F002.md")
    jo.release("F002")
    lands(push(kim))


@pytest.mark.slow
def test_settings_that_cannot_be_read_are_pointed_out(jo: User, kim: User) -> None:
    jo.claim("src/api/")
    jo.put(".gitlease.yaml", "colour: red\n")
    jo.git("commit", "-q", "-m", "settings")
    lands(push(jo))
    kim.git("pull", "-q", "origin", "main")
    kim.saves("src/web/page.py")
    lands(push(kim), "unknown key colour", "tasks are looked for in the default places")
