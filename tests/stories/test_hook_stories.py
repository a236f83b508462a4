"""What hooks do along with a commit: tasks are claimed, leases named and renewed, losses told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.hooked import (
    CODE,
    JO,
    KIM,
    MINUTE,
    Pair,
    Person,
    goes_on,
    script,
    task_text,
)
from support.running import until
from support.session import LeaseService
from support.snapshots import check_words

from gitlease.kernel.git.files import Notes
from gitlease.kernel.rules.resources import parse_resource

pytestmark = pytest.mark.slow

STARTED = task_text("F002", status="in_progress")
DUE = 6 * MINUTE  # more than a third of the usual 15 minutes
F002 = "tasks/F002.md"


def test_a_commit_that_starts_a_task_claims_it(pair: Pair) -> None:
    pair.jo.put(F002, STARTED)
    said = goes_on(pair.jo.commit(), "claimed F002, because this commit starts it")
    check_words(said)
    lease = pair.leases()["F002"]
    assert (lease.holder, lease.state, lease.token, lease.assigned) == (JO, "active", 1, True)
    assert pair.jo.git("status", "--porcelain") == f" M {F002}"
    assert f"assigned: [{JO}]" in (pair.jo.root / F002).read_text()
    assert pair.jo.git("show", f"HEAD:{F002}") + "\n" == STARTED
    assert pair.jo.trailers() == ["F002 token=1"]
    ledger = pair.ledger()
    pair.jo.git("add", F002)
    goes_on(pair.jo.commit())
    assert pair.ledger() == ledger
    assert pair.jo.trailers() == ["F002 token=1"]


# --- the message ----------------------------------------------------------------------------------


@pytest.fixture
def mine(pair: Pair) -> Pair:
    """jo holds F001, and with it src/api; a change there is staged."""
    pair.jo.claim("F001")
    pair.jo.put("src/api/login.py")
    pair.jo.git("config", "rebase.autoStash", "true")  # the assignee in the task's file
    return pair


def named(one: Person, *trailers: str) -> str:
    """That the newest commit names these leases, each once; its message."""
    message = one.message()
    assert one.trailers() == list(trailers), message
    raw = [line.rstrip("\r") for line in message.splitlines() if line.startswith("Gitlease:")]
    assert raw == [f"Gitlease: {text}" for text in trailers], message
    return message


def editor(tmp_path: Path, subject: str = "subject") -> dict[str, str]:
    """An editor that writes a subject above what it is given, and keeps what it was given."""
    text = f'cp "$1" {tmp_path}/given; {{ echo "{subject}"; cat {tmp_path}/given; }} >"$1"\n'
    return {"GIT_EDITOR": script(tmp_path / "editor", text)}


@pytest.mark.nightly
def test_a_lease_is_named_below_the_message(mine: Pair) -> None:
    goes_on(mine.jo.commit("-m", "limit logins", "-m", "Because."))
    check_words(named(mine.jo, "F001 token=1"))


@pytest.mark.parametrize(
    ("words", "char"),
    [
        ([], "#"),
        ([], "auto"),
        (["-v"], ";"),
        (["-v", "--cleanup=scissors"], "#"),
    ],
)
def test_a_lease_is_named_in_what_the_editor_shows(
    mine: Pair, tmp_path: Path, words: list[str], char: str
) -> None:
    mine.jo.git("config", "core.commentChar", char)
    env = editor(tmp_path)
    goes_on(mine.jo.run("commit", "-q", *words, env=env))
    assert "Gitlease: F001 token=1" in (tmp_path / "given").read_text()
    message = named(mine.jo, "F001 token=1")
    assert message.startswith("subject\n")
    assert "Changes to be committed" not in message
    assert "diff --git" not in message


@pytest.mark.parametrize("how", ["--no-edit", "editor", "alias"])
def test_an_amended_commit_names_its_lease_once_by_the_newest_token(
    mine: Pair, tmp_path: Path, how: str
) -> None:
    mine.jo.commit("-m", "subject\n\nbody\n\nFixes: #7")
    mine.jo.release("F001")
    token = mine.jo.claim("F001").token
    assert token > 1
    env = editor(tmp_path, "better") if how == "editor" else None
    mine.jo.git("config", "alias.again", '!git commit -q --amend -m "$1" #')
    words = {"--no-edit": ["commit", "-q", "--amend", "--no-edit"], "alias": ["again", "better"]}
    goes_on(mine.jo.run(*words.get(how, ["commit", "-q", "--amend"]), env=env))
    named(mine.jo, f"F001 token={token}")


def test_a_merge_that_is_resolved_within_a_lease_names_it_once(mine: Pair) -> None:
    mine.jo.git("reset", "-q", "--hard")
    mine.jo.git("switch", "-q", "-c", "side")
    for text in ("side", "main"):
        if text == "main":
            mine.jo.git("switch", "-q", "main")
        mine.jo.put("src/api/login.py", f"{text}\n{CODE}")
        mine.jo.git("commit", "-qm", text)
    assert mine.jo.run("merge", "-q", "side").returncode == 1
    mine.jo.put("src/api/login.py", "both\n" + CODE)
    goes_on(mine.jo.run("merge", "--continue", env={"GIT_EDITOR": "true"}))
    assert len(mine.jo.git("log", "-1", "--format=%P").split()) == 2
    named(mine.jo, "F001 token=1")


@pytest.mark.nightly
def test_a_squashed_merge_names_its_lease_once(mine: Pair, tmp_path: Path) -> None:
    mine.jo.git("switch", "-q", "-c", "side")
    for _ in range(2):
        mine.jo.commit()
        mine.jo.put("src/api/login.py")
    mine.jo.commit()
    mine.jo.git("switch", "-q", "main")
    mine.jo.git("merge", "-q", "--squash", "side")
    goes_on(mine.jo.run("commit", "-q", env=editor(tmp_path)))
    named(mine.jo, "F001 token=1")


def test_commits_squashed_by_a_rebase_name_their_lease_once(mine: Pair, tmp_path: Path) -> None:
    mine.jo.commit("-m", "one")
    for number in range(3):
        mine.jo.put("src/api/login.py")
        mine.jo.commit("-m", f"{number}")
    todo = script(tmp_path / "todo", 'sed -i "2,\\$s/^pick/squash/" "$1"\n')
    env = {"GIT_SEQUENCE_EDITOR": todo, "GIT_EDITOR": "true"}
    goes_on(mine.jo.run("rebase", "-q", "-i", "origin/main", env=env))
    assert len(mine.jo.git("rev-list", "origin/main..").split()) == 1
    assert mine.jo.trailers() == ["F001 token=1"]
    named(mine.jo, "F001 token=1")


@pytest.mark.parametrize(
    ("words", "char"),
    [
        ([], "auto"),
        (["-v"], ";"),
        (["-s", "--cleanup=scissors", "-v"], "#"),
        (["-m", ""], "#"),
        (["TEMPLATE"], "#"),
        (["--allow-empty-message", "-m", ""], "#"),
    ],
)
def test_an_empty_message_is_as_empty_as_without_us(
    mine: Pair, tmp_path: Path, words: list[str], char: str
) -> None:
    template = tmp_path / "template"
    template.write_text(f"Why:\n{char} more\n")
    if "TEMPLATE" in words:
        mine.jo.git("config", "commit.template", str(template))
        words = words[1:]
    mine.jo.git("config", "core.commentChar", char)
    before = mine.jo.head()
    plain = mine.jo.run("commit", *words, env={"GIT_EDITOR": "true", "GITLEASE_SKIP": "1"})
    if not plain.returncode:  # git itself takes it
        mine.jo.git("reset", "-q", "--soft", before, env={"GITLEASE_SKIP": "1"})
    done = mine.jo.run("commit", *words, env={"GIT_EDITOR": "true"})
    assert done.returncode == plain.returncode, (plain.stderr, done.stderr, mine.jo.message())
    assert (mine.jo.head() == before) == bool(plain.returncode)


# --- what follows a commit ------------------------------------------------------------------------


def renewals(pair: Pair, name: str = "F001") -> int:
    return pair.leases()[name].renewals


def commits(jo: Person) -> None:
    jo.put("docs/guide.md")
    assert jo.commit().returncode == 0


def switches(jo: Person) -> None:
    jo.git("stash", "-q")
    assert jo.run("switch", "-q", "-c", "side").returncode == 0


def merges(jo: Person) -> None:
    assert jo.run("pull", "-q", "--ff-only").returncode == 0


def amends(jo: Person) -> None:
    assert jo.commit("--amend", "-m", "begin again").returncode == 0


@pytest.mark.parametrize("act", [commits, switches, merges, amends])
def test_activity_renews_a_lease_whose_third_is_gone(
    pair: Pair, act: Callable[[Person], None]
) -> None:
    pair.kim.saves("README")
    pair.kim.git("push", "-q", "origin", "main")
    held = pair.jo.claim("F001", ago=DUE)
    ledger = pair.ledger()
    act(pair.jo)
    until(lambda: pair.ledger() != ledger, "the lease is renewed")
    lease = pair.leases()["F001"]
    assert (lease.lease_id, lease.token, lease.renewals) == (held.lease_id, held.token, 1)
    assert lease.expires_in > 14 * MINUTE
    assert pair.jo.beats() == 1


@pytest.mark.nightly
def test_what_the_heartbeat_finds_is_told_once_by_what_comes_next(pair: Pair) -> None:
    """The clone's own knowledge is young enough for the commit: the heartbeat learns the rest."""
    pair.jo.git("config", "lease.guardMaxAge", "1h")
    pair.jo.claim("F001", ago=DUE)
    kim = LeaseService(pair.kim.at().ledger)
    kim.set_policy({"admins": KIM})
    kim.revoke(parse_resource("F001"), reason="needed today")
    notice = f'your claim of F001 was revoked by {KIM}: "needed today"'
    pair.jo.put("docs/guide.md")
    goes_on(pair.jo.commit())
    words = Notes(str(pair.jo.private))
    until(lambda: bool(words.of("words")), "something is left to be said")

    pair.jo.put("docs/guide.md")
    nexts = [pair.jo.gitlease("list").stderr, pair.jo.commit().stderr]
    assert [x.count(notice) for x in nexts] == [1, 0]


@pytest.mark.parametrize("by", ["merge", "rebase"])
def test_a_pull_of_landed_work_ends_its_lease(pair: Pair, by: str) -> None:
    pair.kim.claim("F002", ago=MINUTE)
    pair.kim.git("checkout", "-q", "--", F002)
    if by == "rebase":
        pair.kim.saves("docs/guide.md")
    pair.jo.put(F002, task_text("F002", status="done"))
    skip = {"GITLEASE_SKIP": "1"}
    pair.jo.git("commit", "-qm", "done", env=skip)
    pair.jo.git("push", "-q", "origin", "HEAD:main", env=skip)
    pair.calls()
    pair.kim.git("pull", "-q", f"--{'no-rebase' if by == 'merge' else by}", "origin", "main")
    until(lambda: pair.leases()["F002"].state == "completed", "the end of the lease")


def test_hooks_that_died_are_told_once(pair: Pair) -> None:
    verb = ("claim", "x", "--any")
    dead = "core.hooksPath is .husky/_"
    assert dead not in pair.jo.gitlease(*verb).stderr
    pair.jo.git("config", "core.hooksPath", ".husky/_")
    assert [dead in pair.jo.gitlease(*verb).stderr for _ in range(2)] == [True, False]
    pair.jo.git("config", "core.hooksPath", ".git/hooks")
    assert "core.hooksPath" not in pair.jo.gitlease(*verb).stderr
