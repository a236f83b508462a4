"""What hooks do along with a commit: tasks are claimed, leases named and renewed, losses told."""

from __future__ import annotations

import shutil
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
    blocks,
    goes_on,
    script,
    task_text,
)
from support.running import until
from support.session import LeaseService
from support.snapshots import check_words

from gitlease.core import parse_resource
from gitlease.git import Notes

pytestmark = [pytest.mark.one_in(3), pytest.mark.sampled(4)]

STARTED = task_text("F002", status="in_progress")
SLOW = pytest.mark.slow
DUE = 6 * MINUTE  # more than a third of the usual 15 minutes
F002 = "tasks/F002.md"


# --- a commit that starts a task ------------------------------------------------------------------


def test_a_task_that_was_started_in_a_run_is_committed_by_its_person(pair: Pair) -> None:
    done = pair.jo.gitlease("start", "F002", "--session", "cursor:c1")
    assert done.returncode == 0, done.stderr
    pair.jo.git("add", F002)
    goes_on(pair.jo.commit(), "warning: tasks/F002.md is held by")
    assert pair.leases()["F002"].session == "cursor:c1"


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


def test_the_next_commit_of_a_started_task_has_the_same_lease(pair: Pair) -> None:
    pair.jo.put(F002, STARTED)
    pair.jo.commit()
    first, ledger = pair.leases()["F002"], pair.ledger()
    pair.jo.git("add", F002)
    goes_on(pair.jo.commit())
    assert pair.ledger() == ledger
    assert pair.leases()["F002"].lease_id == first.lease_id
    assert pair.jo.trailers() == ["F002 token=1"]
    assert f"assigned: [{JO}]" in pair.jo.git("show", f"HEAD:{F002}")


def test_a_task_that_one_holds_already_is_started_by_the_same_lease(pair: Pair) -> None:
    held = pair.jo.claim("F002")
    pair.jo.put(F002, task_text("F002", status="in_progress", assigned=f"[{JO}]"))
    goes_on(pair.jo.commit())
    lease = pair.leases()["F002"]
    assert (lease.lease_id, lease.token) == (held.lease_id, held.token)


def test_a_run_claims_for_itself_and_other_runs_do_not_start_it_again(pair: Pair) -> None:
    pair.jo.put(F002, STARTED)
    pair.jo.commit(env={"GITLEASE_SESSION": "build-7"})
    assert pair.leases()["F002"].session == "build-7"
    pair.jo.git("reset", "-q", "--hard", "HEAD^")
    pair.jo.put(F002, STARTED)
    said = blocks(pair.jo.commit(env={"GITLEASE_SESSION": "build-8"}), holder=JO)
    assert "session build-7" in said


def test_a_task_that_others_may_be_told_of_is_claimed_though_nobody_holds_anything(
    pair: Pair,
) -> None:
    """The idle marker lets commits pass without a look; one that starts a task is none of these."""
    pair.jo.put("docs/guide.md")
    pair.jo.commit()
    pair.jo.put("docs/guide.md")
    pair.calls()
    goes_on(pair.jo.commit())
    assert pair.calls() == []
    pair.jo.put(F002, STARTED)
    goes_on(pair.jo.commit(), "claimed F002")
    assert "F002" in pair.leases()


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


def test_a_lease_is_named_below_the_message(mine: Pair) -> None:
    goes_on(mine.jo.commit("-m", "limit logins", "-m", "Because."))
    check_words(named(mine.jo, "F001 token=1"))


@pytest.mark.parametrize("text", ["subject", "subject\n\nbody\n\n\n", "\n\nsubject"])
def test_a_lease_is_named_in_a_message_from_a_file(mine: Pair, tmp_path: Path, text: str) -> None:
    (tmp_path / "message").write_text(text)
    goes_on(mine.jo.commit("-F", str(tmp_path / "message")))
    assert named(mine.jo, "F001 token=1").startswith("subject\n\n")


@pytest.mark.parametrize(
    ("words", "char"),
    [
        ([], "#"),
        ([], ";"),
        ([], "auto"),
        pytest.param(["-v"], "#", marks=SLOW),
        (["-v"], ";"),
        pytest.param(["--cleanup=scissors"], ";", marks=SLOW),
        (["-v", "--cleanup=scissors"], "#"),
        pytest.param(["--cleanup=strip"], "#", marks=SLOW),
        (["-c", "HEAD"], "#"),
        (["-s"], "#"),
        (["-e", "-m", "more"], "#"),
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


def test_a_lease_is_named_below_a_template(mine: Pair, tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.write_text("Why:\n\n# say more\nIssue: none\n")
    mine.jo.git("config", "commit.template", str(template))
    goes_on(mine.jo.run("commit", "-q", env=editor(tmp_path)))
    message = named(mine.jo, "F001 token=1")
    assert message.startswith("subject\nWhy:\n\n")
    assert "say more" not in message


def test_a_lease_is_named_beside_a_sign_off(mine: Pair) -> None:
    goes_on(mine.jo.commit("-s", "-m", "subject"))
    lines = named(mine.jo, "F001 token=1").splitlines()
    assert sorted(lines[2:4]) == ["Gitlease: F001 token=1", "Signed-off-by: Jo <jo@example.com>"]
    assert lines[:2] == ["subject", ""]


def test_what_the_check_is_not_asked_about_is_named_all_the_same(mine: Pair) -> None:
    goes_on(mine.jo.commit("--no-verify", "-m", "subject"))
    named(mine.jo, "F001 token=1")


def amend(jo: Person, *words: str, **env: str) -> None:
    goes_on(jo.run("commit", "-q", *words, env=env))


def by_alias(jo: Person, tmp_path: Path) -> None:
    jo.git("config", "alias.again", "commit -q --amend --no-edit")
    goes_on(jo.run("again"))


def by_shell_alias(jo: Person, tmp_path: Path) -> None:
    jo.git("config", "alias.again", '!git commit -q --amend -m "$1" #')
    goes_on(jo.run("again", "better"))


AMENDING: list[Callable[[Person, Path], None]] = [
    lambda jo, _: amend(jo, "--amend", "--no-edit"),
    lambda jo, _: amend(jo, "--amend", "-m", "better"),
    lambda jo, _: amend(jo, "--amen", "-m", "better"),
    lambda jo, _: amend(jo, "-m", "better", "--amend", "--no-verify"),
    lambda jo, _: amend(jo, "--amend", "--reset-author", "-C", "HEAD"),
    lambda jo, tmp: amend(jo, "--amend", **editor(tmp, "better")),
    lambda jo, _: amend(jo, "--amend", GIT_EDITOR="true"),
    by_alias,
    by_shell_alias,
]


def also(number: int) -> object:
    """One that the default run leaves out."""
    return pytest.param(AMENDING[number], marks=SLOW)


@pytest.mark.parametrize("again", [*AMENDING[:2], *AMENDING[5:8], *map(also, (2, 3, 4, 8))])
def test_an_amended_commit_names_its_lease_once(
    mine: Pair, tmp_path: Path, again: Callable[[Person, Path], None]
) -> None:
    """Though nothing is staged any more: what is amended counts in full."""
    mine.jo.commit("-m", "subject\n\nbody")
    again(mine.jo, tmp_path)
    named(mine.jo, "F001 token=1")


@pytest.mark.parametrize("again", [*AMENDING[:2], AMENDING[5], *map(also, (3, 4, 6, 7, 8))])
def test_after_another_claim_the_old_token_is_replaced(
    mine: Pair, tmp_path: Path, again: Callable[[Person, Path], None]
) -> None:
    mine.jo.commit("-m", "subject\n\nbody\n\nFixes: #7")
    mine.jo.release("F001")
    token = mine.jo.claim("F001").token
    assert token > 1
    again(mine.jo, tmp_path)
    named(mine.jo, f"F001 token={token}")


def test_a_plain_commit_after_one_of_a_lease_does_not_name_it(mine: Pair) -> None:
    """What the commit before touched is none of its change."""
    mine.jo.commit()
    mine.jo.put("docs/guide.md")
    goes_on(mine.jo.commit("-m", "a word of --amend in the message"))
    named(mine.jo)


def sides(pair: Pair) -> None:
    """The same line of a file of jo's changed on main and on side; main is checked out."""
    pair.jo.git("reset", "-q", "--hard")
    pair.jo.git("switch", "-q", "-c", "side")
    pair.jo.put("src/api/login.py", "side\n" + CODE)
    pair.jo.git("commit", "-qm", "side")
    pair.jo.git("switch", "-q", "main")
    pair.jo.put("src/api/login.py", "main\n" + CODE)
    pair.jo.git("commit", "-qm", "main")


@pytest.mark.parametrize(
    "how", ["-m", pytest.param("--no-edit", marks=SLOW), "editor", "merge --continue"]
)
def test_a_merge_that_is_resolved_within_a_lease_names_it_once(
    mine: Pair, tmp_path: Path, how: str
) -> None:
    sides(mine)
    assert mine.jo.run("merge", "-q", "side").returncode == 1
    mine.jo.put("src/api/login.py", "both\n" + CODE)
    if how == "merge --continue":
        goes_on(mine.jo.run("merge", "--continue", env={"GIT_EDITOR": "true"}))
    elif how == "editor":
        goes_on(mine.jo.run("commit", "-q", env=editor(tmp_path)))
    else:
        goes_on(mine.jo.run("commit", "-q", *([how, "both"] if how == "-m" else [how])))
    assert len(mine.jo.git("log", "-1", "--format=%P").split()) == 2
    named(mine.jo, "F001 token=1")


def test_a_merge_that_brings_only_what_was_made_names_nothing(mine: Pair) -> None:
    mine.jo.commit()
    mine.kim.saves("docs/guide.md")
    mine.kim.git("push", "-q", "origin", "main")
    goes_on(mine.jo.run("pull", "-q", "--no-rebase", "--no-edit"))
    assert len(mine.jo.git("log", "-1", "--format=%P").split()) == 2
    named(mine.jo)


@pytest.mark.parametrize("how", ["editor", pytest.param("-m", marks=SLOW), "--no-edit"])
def test_a_squashed_merge_names_its_lease_once(mine: Pair, tmp_path: Path, how: str) -> None:
    mine.jo.git("switch", "-q", "-c", "side")
    for _ in range(2):
        mine.jo.commit()
        mine.jo.put("src/api/login.py")
    mine.jo.commit()
    mine.jo.git("switch", "-q", "main")
    mine.jo.git("merge", "-q", "--squash", "side")
    words = {"editor": [], "-m": ["-m", "all"], "--no-edit": ["--no-edit"]}[how]
    goes_on(mine.jo.run("commit", "-q", *words, env=editor(tmp_path)))
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


@pytest.mark.parametrize("kind", ["fixup", pytest.param("amend:HEAD", marks=SLOW), "squash"])
def test_a_commit_that_mends_another_goes_into_it_with_one_name(
    mine: Pair, tmp_path: Path, kind: str
) -> None:
    mine.jo.commit("-m", "one")
    mine.jo.put("src/api/login.py")
    word = "--squash=HEAD" if kind == "squash" else "--fixup=HEAD"
    word = "--fixup=amend:HEAD" if kind.startswith("amend") else word
    goes_on(mine.jo.run("commit", "-q", word, env={"GIT_EDITOR": "true"}))
    named(mine.jo, "F001 token=1")
    env = {"GIT_SEQUENCE_EDITOR": "true", "GIT_EDITOR": "true"}
    goes_on(mine.jo.run("rebase", "-q", "-i", "--autosquash", "origin/main", env=env))
    assert len(mine.jo.git("rev-list", "origin/main..").split()) == 1
    named(mine.jo, "F001 token=1")


def test_a_reworded_commit_keeps_its_one_name(mine: Pair, tmp_path: Path) -> None:
    mine.jo.commit("-m", "one")
    mine.jo.put("docs/guide.md")
    mine.jo.commit("-m", "two")
    todo = script(tmp_path / "todo", 'sed -i "s/^pick/reword/" "$1"\n')
    env = {"GIT_SEQUENCE_EDITOR": todo, **editor(tmp_path, "new")}
    goes_on(mine.jo.run("rebase", "-q", "-i", "origin/main", env=env))
    named(mine.jo)
    assert mine.jo.trailers("HEAD^") == ["F001 token=1"]


@pytest.mark.parametrize("verb", ["cherry-pick", "revert"])
def test_a_picked_or_reverted_commit_names_the_lease_of_now(mine: Pair, verb: str) -> None:
    mine.jo.git("switch", "-q", "-c", "side")
    mine.jo.commit("-m", "one")
    mine.jo.release("F001")
    token = mine.jo.claim("F001").token
    if verb == "cherry-pick":
        mine.jo.git("stash", "-q")
        mine.jo.git("switch", "-q", "main")
        goes_on(mine.jo.run("cherry-pick", "side"))
    else:
        goes_on(mine.jo.run("revert", "--no-edit", "HEAD"))
    named(mine.jo, f"F001 token={token}")


@pytest.mark.parametrize(
    ("words", "char"),
    [
        ([], "#"),
        ([], ";"),
        ([], "auto"),
        (["-v"], ";"),
        (["--cleanup=scissors"], "#"),
        (["--cleanup=scissors", "-v"], "#"),
        (["--cleanup=whitespace"], "#"),
        (["-m", ""], "#"),
        (["-s"], "#"),
        (["TEMPLATE"], "#"),
        (["TEMPLATE", "--cleanup=scissors"], "#"),
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


def test_an_editor_that_fails_stops_the_commit(mine: Pair) -> None:
    before = mine.jo.head()
    assert mine.jo.run("commit", env={"GIT_EDITOR": "false"}).returncode
    assert mine.jo.head() == before


def test_a_message_may_be_no_text_at_all(mine: Pair, tmp_path: Path) -> None:
    (tmp_path / "message").write_bytes(b"caf\xe9\n\nlatin-1 \xff\n")
    words = ("-F", str(tmp_path / "message"))
    assert mine.jo.commit(*words, env={"GITLEASE_SKIP": "1"}).returncode == 0
    plain = mine.jo.git("log", "-1", "--format=%B").rstrip("\n")
    mine.jo.git("reset", "-q", "--soft", "HEAD^", env={"GITLEASE_SKIP": "1"})
    assert mine.jo.commit(*words).returncode == 0
    assert mine.jo.git("log", "-1", "--format=%B") == f"{plain}\n\nGitlease: F001 token=1\n"


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


ACTIVITY = [commits, switches, merges, amends]


@pytest.mark.parametrize("act", ACTIVITY)
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


@pytest.mark.parametrize("act", ACTIVITY)
def test_activity_starts_nothing_for_a_fresh_lease(
    pair: Pair, act: Callable[[Person], None]
) -> None:
    pair.kim.saves("README")
    pair.kim.git("push", "-q", "origin", "main")
    pair.jo.claim("F001", ago=4 * MINUTE)
    ledger = pair.ledger()
    act(pair.jo)
    assert pair.jo.beats() == 0
    assert pair.ledger() == ledger


def test_everything_that_is_held_is_renewed_by_one_push(pair: Pair) -> None:
    for name in ("F001", "F002", "docs/"):
        pair.jo.claim(name, ago=DUE)
    pair.kim.claim("src/web/", ago=DUE)
    before = LeaseService(pair.kim.at().ledger).read().revision
    commits(pair.jo)
    until(lambda: renewals(pair) == 1, "the leases are renewed")
    found = {name: lease.renewals for name, lease in pair.leases().items()}
    assert sorted(found.values()) == [0, 1, 1, 1]
    assert LeaseService(pair.kim.at().ledger).read().revision == before + 1


def test_a_busy_committer_starts_one_heartbeat(pair: Pair) -> None:
    pair.jo.claim("F001", ago=DUE)
    for number in range(4):
        pair.jo.put("docs/guide.md", f"{number}\n")
        assert pair.jo.commit().returncode == 0
    until(lambda: renewals(pair) == 1, "the lease is renewed")
    pair.jo.put("docs/guide.md", "again\n")
    commits(pair.jo)
    assert pair.jo.beats() == 1
    assert renewals(pair) == 1


def test_only_the_run_that_commits_is_kept_alive(pair: Pair) -> None:
    pair.jo.claim("F002", ago=DUE, session="build-7")
    pair.jo.claim("F001", ago=DUE, session="build-8")
    pair.jo.put("docs/guide.md")
    assert pair.jo.commit(env={"GITLEASE_SESSION": "build-8"}).returncode == 0
    until(lambda: renewals(pair) == 1, "the lease is renewed")
    assert renewals(pair, "F002") == 0


def test_what_is_not_held_starts_nothing_at_all(pair: Pair) -> None:
    commits(pair.jo)
    assert pair.calls() == ["pre-commit"]
    commits(pair.jo)
    assert pair.calls() == []


def revoked(pair: Pair) -> str:
    """kim ends jo's lease behind jo's back."""
    kim = LeaseService(pair.kim.at().ledger)
    kim.set_policy({"admins": KIM})
    kim.revoke(parse_resource("F001"), reason="needed today")
    return f'your claim of F001 was revoked by {KIM}: "needed today"'


def test_a_lease_that_was_taken_away_is_told_once_at_the_next_commit(pair: Pair) -> None:
    pair.jo.claim("F001", ago=2 * MINUTE)
    told = revoked(pair)
    pair.jo.put("docs/guide.md")
    said = goes_on(pair.jo.commit(), told)
    assert said.count("revoked") == 1
    pair.jo.put("docs/guide.md")
    goes_on(pair.jo.commit())


@pytest.mark.parametrize("by", ["commit", "list", "switch"])
def test_what_the_heartbeat_finds_is_told_once_by_what_comes_next(pair: Pair, by: str) -> None:
    """The clone's own knowledge is young enough for the commit: the heartbeat learns the rest."""
    pair.jo.git("config", "lease.guardMaxAge", "1h")
    pair.jo.claim("F001", ago=DUE)
    told = revoked(pair)
    pair.jo.put("docs/guide.md")
    goes_on(pair.jo.commit())
    words = Notes(str(pair.jo.private))
    until(lambda: bool(words.of("words")), "something is left to be said")

    def next_one() -> str:
        pair.jo.put("docs/guide.md")
        if by == "list":
            return pair.jo.gitlease("list").stderr
        if by == "switch":
            return pair.jo.run("switch", "-q", "-C", "side").stderr
        return goes_on_anyhow(pair.jo)

    assert next_one().count(told) == 1
    assert "F001" not in next_one()


def goes_on_anyhow(one: Person) -> str:
    done = one.commit()
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_lease_that_ran_out_is_told_once_and_not_taken_again(pair: Pair) -> None:
    pair.jo.claim("F001", ago=20 * MINUTE)
    ledger = pair.ledger()
    pair.jo.put("src/api/login.py")
    said = goes_on(pair.jo.commit(), "your lease of F001 expired at ", "gitlease claim F001")
    assert said.count("expired at") == 1
    assert pair.jo.trailers() == []
    pair.jo.put("src/api/login.py")
    goes_on(pair.jo.commit())
    assert pair.jo.beats() == 0
    assert pair.ledger() == ledger


def test_a_heartbeat_that_fails_says_so_later_and_stops_nothing(pair: Pair) -> None:
    pair.jo.git("config", "lease.guardMaxAge", "1h")
    pair.jo.claim("F001", ago=DUE)
    pair.remote.rename(pair.remote.with_suffix(".away"))
    commits(pair.jo)
    words = Notes(str(pair.jo.private))
    until(lambda: bool(words.of("words")), "something is left to be said")
    pair.jo.put("docs/guide.md")
    check_words(goes_on_anyhow(pair.jo))


def test_a_linked_work_tree_renews_what_its_own_run_holds(pair: Pair, tmp_path: Path) -> None:
    linked = Person("jo", tmp_path / "linked", pair.jo.env)
    pair.jo.git("worktree", "add", "-q", "-b", "side", str(linked.root))
    linked.claim("F001", ago=DUE)
    commits(pair.jo)
    assert pair.jo.beats() == 0
    commits(linked)
    until(lambda: renewals(pair) == 1, "the lease is renewed")


def test_git_dir_in_the_environment_does_not_mislead_the_heartbeat(
    pair: Pair, tmp_path: Path
) -> None:
    pair.jo.claim("F001", ago=DUE)
    pair.jo.put("docs/guide.md")
    moved = pair.jo.root.with_name("moved.git")
    shutil.move(pair.jo.root / ".git", moved)
    env = {"GIT_DIR": str(moved), "GIT_WORK_TREE": str(pair.jo.root)}
    done = pair.jo.run("commit", "-qm", "work", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    until(lambda: renewals(pair) == 1, "the lease is renewed")


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


def test_a_pull_calls_nothing_while_nothing_is_held(pair: Pair) -> None:
    pair.kim.gitlease("list")
    pair.kim.run("commit", "-q", "--allow-empty", "-m", "makes the markers")
    for pull in ("--no-rebase", "--rebase"):
        pair.jo.saves("docs/guide.md")
        pair.jo.git("push", "-q", "origin", "HEAD:main", env={"GITLEASE_SKIP": "1"})
        pair.calls()
        pair.kim.git("pull", "-q", pull, "origin", "main")
        assert not {*pair.calls()} & {"post-merge", "post-rewrite"}


# --- another tool takes the hooks -----------------------------------------------------------------


@pytest.mark.parametrize("verb", [("claim", "x", "--any"), ("brief",)])
def test_hooks_that_died_are_told_once(pair: Pair, verb: tuple[str, ...]) -> None:
    dead = "core.hooksPath is .husky/_"
    assert dead not in pair.jo.gitlease(*verb).stderr
    pair.jo.git("config", "core.hooksPath", ".husky/_")
    assert [dead in pair.jo.gitlease(*verb).stderr for _ in range(2)] == [True, False]
    pair.jo.git("config", "core.hooksPath", ".git/hooks")
    assert "core.hooksPath" not in pair.jo.gitlease(*verb).stderr
