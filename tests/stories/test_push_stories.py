"""Two clones and a bare remote: what ``gitlease push`` lands, and what it never does.

S5: a holder that lost its lease lands nothing under it. S10: nothing of the repository changes but
what git's own push changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.faults import answer, duplicate, lose_answer, replay
from support.fences import clean_env
from support.ledgers import tip, workspace
from support.remotes import Remote
from support.repos import (
    assert_untouched,
    commit_file,
    git,
    make_clone,
    real_clone,
    snapshot,
)
from support.snapshots import check_words, raises

from gitlease.core import (
    Denied,
    GitleaseError,
    LeaseHeld,
    LeaseLost,
    Unavailable,
    UnknownOutcome,
    UsageError,
)
from gitlease.faces.cli import run
from gitlease.faces.library import Leases
from gitlease.push import UNFENCED, PushAnswer, PushRefused, PushRequest
from gitlease.wiring import open_push

pytestmark = pytest.mark.sampled(2)

MAIN = "refs/heads/main"
API = "src/api/"
LOGIN = "src/api/login.py"
ROOT = Path(__file__).parents[2]


@dataclass
class Person:
    """One person in one clone; every call is a new process of it."""

    root: Path
    clock: ManualClock
    told: list[str] = field(default_factory=list)

    @property
    def leases(self) -> Leases:
        return Leases(workspace(self.root, clock=self.clock))

    def push(
        self,
        *words: str,
        require: tuple[str, ...] = (),
        choosing: tuple[str, ...] = (),
        sending: tuple[str, ...] = (),
        upstream: bool = False,
        hooks: bool = True,
        dry_run: bool = False,
        seconds: float = 60.0,
        at: Path | None = None,
    ) -> PushAnswer:
        opened = workspace(at or self.root, clock=self.clock)
        wish = PushRequest(
            remote=words[0] if words else None,
            refspecs=words[1:],
            choosing=choosing,
            sending=sending,
            upstream=upstream,
            hooks=hooks,
        )
        leases = Leases(opened)
        return open_push(opened, seconds=seconds).push(
            wish,
            require=[leases._door.resource(word) for word in require],
            dry_run=dry_run,
            tell=self.told.append,
        )

    def commits(self, name: str = LOGIN, text: str | None = None) -> str:
        old = (self.root / name).read_text() if (self.root / name).exists() else ""
        return commit_file(self.root, name, old + (text or "a line\n"), "work")

    def git(self, *words: str) -> str:
        return git(self.root, *words)

    def hook(self, text: str, name: str = "pre-push") -> None:
        script(self.root / ".git" / "hooks" / name, text)


@dataclass
class Stage:
    """Jo and Kim, and Jo once more in another clone, who lets go of what Jo holds."""

    remote: Remote
    jo: Person
    kim: Person
    elsewhere: Path
    tmp: Path

    @property
    def main(self) -> str:
        return tip(self.remote.bare, MAIN)

    @property
    def ledger(self) -> str:
        return tip(self.remote.bare)

    def taken_over(self) -> str:
        """The commands with which Kim comes to hold what Jo held, for a hook."""
        start = f"{shlex.quote(sys.executable)} -P -m gitlease"
        env = " ".join(f"{k}={shlex.quote(v)}" for k, v in self.remote.env.items())
        return (
            f"export PYTHONPATH={shlex.quote(str(ROOT))} {env}\n"
            f"{start} -C {shlex.quote(str(self.elsewhere))} release {API} >&2\n"
            f"{start} -C {shlex.quote(str(self.kim.root))} claim {API} --any >&2\n"
        )

    def on_server(self, text: str) -> None:
        """Have the next push that the server gets, and only that, run this in its pre-receive."""
        flag = self.tmp / "once"
        flag.touch()
        script(
            self.remote.bare / "hooks" / "pre-receive",
            f"[ -f {flag} ] || exit 0\nrm {flag}\n"
            "unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES "
            "GIT_DIR GIT_PUSH_OPTION_COUNT\n" + text,
        )


def script(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
    path.chmod(0o755)


def make_stage(remote: Remote, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Jo holds src/api, and everybody has met the ledger. The clock stands still, at this time."""
    for name, value in remote.env.items():
        monkeypatch.setenv(name, value)
    import time

    clock = ManualClock(wall_ms=int(time.time() * 1_000))
    made = [
        make_clone(remote, tmp / "at" / name, f"{name.split('-')[0]}@example.com", name)
        for name in ("jo", "kim", "jo-elsewhere")
    ]
    stage = Stage(remote, Person(made[0], clock), Person(made[1], clock), made[2], tmp)
    stage.jo.leases.claim(API, any=True)
    stage.kim.leases.list()
    return stage


@pytest.fixture
def stage(path_remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return make_stage(path_remote, tmp_path, monkeypatch)


@pytest.fixture
def any_stage(remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return make_stage(remote, tmp_path, monkeypatch)


@pytest.fixture
def http(http_remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return make_stage(http_remote, tmp_path, monkeypatch)


# --- over every kind of remote --------------------------------------------------------------------


@pytest.mark.one_in(2)
def test_work_and_lease_land_together(any_stage: Stage) -> None:
    """Two connections: one in which git says what it would push, and the push."""
    jo, before = any_stage.jo, any_stage.remote.connections()
    ledger, made = any_stage.ledger, any_stage.jo.commits()
    done = jo.push()
    assert any_stage.main == made
    assert any_stage.ledger != ledger
    assert (done.status, done.fenced) == ("pushed", True)
    assert [x.renewals for x in done.leases] == [1]
    assert any_stage.remote.connections() - before == 2
    (ref,) = done.refs
    assert (ref.ref, ref.new, ref.became.value) == (MAIN, made, "updated")
    assert ref.old == git(any_stage.remote.bare, "rev-parse", f"{made}~1")
    assert jo.git("rev-parse", "origin/main") == made


@pytest.mark.one_in(2)
def test_a_lease_that_was_taken_over_lands_nothing(any_stage: Stage) -> None:
    any_stage.jo.commits()
    Leases(workspace(any_stage.elsewhere, clock=any_stage.jo.clock)).release(API)
    any_stage.kim.leases.claim(API, any=True)
    before, ledger = any_stage.main, any_stage.ledger
    with raises(LeaseLost):
        any_stage.jo.push()
    assert (any_stage.main, any_stage.ledger) == (before, ledger)


@pytest.mark.one_in(2)
def test_a_takeover_that_lands_while_the_push_does_refuses_it(any_stage: Stage) -> None:
    """Past negotiation, at the server: what is swapped there is not what it was any more."""
    before = any_stage.main
    any_stage.jo.commits()
    any_stage.on_server(any_stage.taken_over())
    with pytest.raises(LeaseLost, match=r"kim@example\.com"):
        any_stage.jo.push()
    assert any_stage.main == before
    assert [x.holder for x in any_stage.kim.leases.list()] == ["kim@example.com"]


# --- what comes in between ------------------------------------------------------------------------


def test_a_takeover_while_one_s_own_hooks_run_refuses_it(stage: Stage) -> None:
    before = stage.main
    stage.jo.commits()
    stage.jo.hook(stage.taken_over())
    with pytest.raises(LeaseLost):
        stage.jo.push()
    assert stage.main == before


def test_an_unrelated_change_in_between_lands_on_the_second_try(stage: Stage) -> None:
    """The work's objects are not sent again: the server kept them when it refused the first try."""
    log = stage.tmp / "sizes"
    stage.jo.commits(text="".join(f"{n * 7919 % 10007}\n" for n in range(30_000)))
    python = shlex.quote(sys.executable)
    stage.on_server(
        f"export PYTHONPATH={shlex.quote(str(ROOT))}\n"
        f"{python} -P -m gitlease -C {shlex.quote(str(stage.kim.root))} claim F007 --any >&2\n"
    )
    hook = stage.remote.bare / "hooks" / "pre-receive"
    size = f'du -sb "$GIT_QUARANTINE_PATH" | cut -f1 >>{log}\n'
    hook.write_text(hook.read_text().replace("#!/bin/sh\n", "#!/bin/sh\n" + size))
    before = stage.remote.connections()
    done = stage.jo.push()
    assert done.fenced
    assert stage.main == stage.jo.git("rev-parse", "main")
    assert {x.resource for x in stage.kim.leases.list()} == {"src/api", "F007"}
    first, claim, second = (int(x) for x in log.read_text().split())
    assert second < 2 * claim < first, "what is sent again is the ledger's change alone"
    assert not (stage.jo.root / ".git" / "FETCH_HEAD").exists()
    # plan, push, fetch and look, Kim's claim, negotiation, push
    assert stage.remote.connections() - before <= 8


def test_a_ref_that_another_moved_leaves_the_lease_as_it_was(stage: Stage) -> None:
    stage.kim.commits("docs/guide.md")
    stage.kim.git("push", "-q", "origin", "main")
    stage.jo.commits()
    before, ledger = stage.main, stage.ledger
    with raises(PushRefused) as caught:
        stage.jo.push()
    assert (stage.main, stage.ledger) == (before, ledger)
    assert any("git pull" in hint for hint in caught.value.hints)
    assert [(x.ref, x.became.value) for x in caught.value.refs] == [(MAIN, "rejected")]
    stage.jo.git("pull", "-q", "--rebase", "origin", "main")
    assert stage.jo.push().fenced


def test_a_ref_that_moves_at_the_server_leaves_the_lease_as_it_was(stage: Stage) -> None:
    stage.kim.commits("docs/guide.md")
    new = stage.kim.git("rev-parse", "main")
    stage.kim.git("push", "-q", "origin", "main:other")
    stage.jo.commits()
    ledger = stage.ledger
    bare = shlex.quote(str(stage.remote.bare))
    stage.on_server(f"git --git-dir={bare} update-ref {MAIN} {new}\n")
    with pytest.raises(PushRefused):
        stage.jo.push()
    assert stage.main == new
    assert stage.ledger == ledger


# --- hooks ----------------------------------------------------------------------------------------

RECORD = 'echo "args $*" >>{log}; while read line; do echo "line $line" >>{log}; done\n'


def test_one_s_own_hook_sees_the_push_as_it_was_asked_for_and_only_once(stage: Stage) -> None:
    log = stage.tmp / "seen"
    stage.jo.hook(RECORD.format(log=log) + "echo on the way; echo oh >&2\n")
    old, made = stage.main, stage.jo.commits()
    stage.jo.push()
    line = f"line {MAIN} {made} {MAIN} {old}"
    assert log.read_text().splitlines() == [f"args origin {stage.remote.url}", line]
    assert sorted(stage.jo.told) == ["oh", "on the way"]


def test_one_s_own_hook_that_refuses_leaves_everything(stage: Stage) -> None:
    stage.jo.commits()
    stage.jo.hook("echo tests are red >&2; exit 1\n")
    before, ledger = stage.main, stage.ledger
    with raises(Denied):
        stage.jo.push()
    assert (stage.main, stage.ledger) == (before, ledger)
    assert stage.jo.told == ["tests are red"]
    assert stage.jo.push(hooks=False).fenced, "the fence stays, whatever is skipped"


def test_the_hints_of_one_s_own_hook_are_passed_on_and_not_those_of_git(stage: Stage) -> None:
    said = ["tests are red", "hint: make fix", "To push anyway: --no-verify"]
    stage.jo.hook("".join(f"echo '{line}' >&2\n" for line in said) + "exit 1\n")
    stage.jo.commits()
    with raises(Denied):
        stage.jo.push()
    assert stage.jo.told == said
    stage.jo.hook("echo 'hint: all is well' >&2\n")
    stage.jo.told.clear()
    stage.kim.commits("other.txt")
    stage.kim.git("push", "-q", "origin", "main")
    with raises(PushRefused):
        stage.jo.push()
    assert stage.jo.told == ["hint: all is well"]


def test_what_a_hook_commits_is_not_pushed_along(stage: Stage) -> None:
    """As with git itself: what is pushed was looked up before."""
    made = stage.jo.commits()
    stage.jo.hook("git -c user.name=x commit -q --allow-empty -m more\n")
    stage.jo.push()
    assert stage.main == made


def test_what_git_finds_wrong_is_no_hook_s_doing(stage: Stage) -> None:
    with raises(UsageError):
        stage.jo.push("origin", "v1", choosing=("--delete",))
    stage.jo.commits("docs/guide.md")
    with raises(Denied):
        stage.jo.push(sending=("--signed=yes",))
    stage.jo.hook("echo 'error: tests are red' >&2; exit 1\n")
    stage.jo.commits()
    with raises(Denied):
        stage.jo.push()


def test_with_no_tags_there_is_nothing_to_push(stage: Stage) -> None:
    """Git says neither where it would push to nor what then."""
    ledger = stage.ledger
    for require in ((), (API,)):
        done = stage.jo.push(choosing=("--tags",), require=require)
        assert (done.status, done.refs, done.fenced) == ("up_to_date", (), False)
    assert stage.jo.told == []
    stage.jo.hook("echo Done\n")
    assert stage.jo.push(choosing=("--tags",)).status == "up_to_date"
    assert stage.ledger == ledger


def test_a_server_that_refuses_the_work_leaves_the_lease(stage: Stage) -> None:
    script(
        stage.remote.bare / "hooks" / "update",
        f'[ "$1" != {MAIN} ] || {{ echo "main is frozen" >&2; exit 1; }}\n',
    )
    stage.jo.commits()
    before, ledger = stage.main, stage.ledger
    with pytest.raises(PushRefused, match="hook declined") as caught:
        stage.jo.push()
    assert (stage.main, stage.ledger) == (before, ledger)
    [main] = [x for x in caught.value.refs if x.ref == MAIN]
    assert main.became.value == "rejected"
    assert "hook declined" in main.reason


def test_the_hints_of_a_server_s_hook_come_with_its_refusal(stage: Stage) -> None:
    hook = stage.remote.bare / "hooks" / "pre-receive"
    script(hook, "echo closed for today; echo 'hint: ask ops' >&2; echo hint: or wait; exit 1\n")
    stage.jo.commits()
    for refused in (stage.jo.push, lambda: stage.jo.leases.claim("F099", any=True)):
        with pytest.raises(Denied, match="closed for today") as caught:
            refused()
        assert set(caught.value.hints) == {"ask ops", "or wait"}
    stage.kim.commits("other.txt")
    with pytest.raises(Denied, match="closed for today") as caught:
        stage.kim.push()
    assert set(caught.value.hints) == {"ask ops", "or wait"}


def test_what_a_server_says_is_passed_on(stage: Stage) -> None:
    script(stage.remote.bare / "hooks" / "post-receive", "echo see the page of main\n")
    stage.jo.commits()
    stage.jo.push()
    assert "see the page of main" in stage.jo.told


def test_gitlease_s_own_hook_leaves_the_judging_to_the_push(stage: Stage) -> None:
    command = [sys.executable, "-P", "-m", "gitlease"]
    env = clean_env({"PYTHONPATH": str(ROOT), **stage.remote.env})
    done = subprocess.run(
        [*command, "hooks", "install"], cwd=stage.jo.root, env=env, capture_output=True, check=False
    )
    assert done.returncode == 0
    program = stage.tmp / "program"
    log = stage.tmp / "calls"
    script(program, f'echo "$1 $2" >>{log}\nexec {shlex.join(command)} "$@"\n')
    os.environ["PYTHONPATH"] = str(ROOT)
    (stage.jo.root / ".git" / "gitlease" / "program").write_text(f"{program}\n")
    stage.jo.commits()
    before = stage.remote.connections()
    try:
        stage.jo.push()
    finally:
        del os.environ["PYTHONPATH"]
    assert "hook pre-push" in log.read_text()
    assert stage.remote.connections() - before == 2


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [lose_answer, duplicate, replay])
def test_an_answer_that_is_lost_or_false_is_read_back(
    http: Stage, fault: Callable[[], object]
) -> None:
    made = http.jo.commits()
    # The first exchange is the dry run, which sends no request that a fault could meet.
    http.remote.arm(fault())  # type: ignore[arg-type]
    assert http.jo.push(seconds=20).fenced
    assert http.main == made


def test_a_remote_that_refuses_to_be_pushed_to_is_denied(http: Stage) -> None:
    http.jo.commits()
    http.remote.arm(answer(403, service="receive-pack", times=None))
    with pytest.raises(Denied):
        http.jo.push()


def test_a_remote_that_cannot_be_reached_is_unavailable(stage: Stage) -> None:
    stage.jo.commits()
    stage.remote.bare.rename(stage.tmp / "gone")
    with pytest.raises(Unavailable):
        stage.jo.push()


@pytest.mark.slow
def test_a_push_that_hangs_is_given_up_and_read_back(stage: Stage) -> None:
    """Killed in the middle of the server's work: nothing of it landed, and it can be repeated."""
    made = stage.jo.commits()
    stage.on_server("exec sleep 60\n")
    with contextlib.suppress(UnknownOutcome, Unavailable):
        stage.jo.push(seconds=2.0)
        assert stage.main == made
    assert stage.jo.push().status in ("pushed", "up_to_date")
    assert stage.main == made


def test_a_remote_without_atomic_pushes_is_refused_with_the_reason(stage: Stage) -> None:
    git(stage.remote.bare, "config", "receive.advertiseAtomic", "false")
    stage.jo.commits()
    before = stage.main
    with raises(Denied):
        stage.jo.push()
    assert stage.main == before


# --- what is pushed -------------------------------------------------------------------------------


def test_a_new_branch_with_its_upstream(stage: Stage) -> None:
    stage.jo.git("switch", "-qc", "topic")
    made = stage.jo.commits()
    with raises(UsageError):
        stage.jo.push()
    done = stage.jo.push("origin", "topic", upstream=True)
    assert tip(stage.remote.bare, "refs/heads/topic") == made
    assert done.refs[0].became.value == "created"
    assert stage.jo.git("rev-parse", "--abbrev-ref", "topic@{upstream}") == "origin/topic"
    stage.jo.commits()
    assert stage.jo.push().fenced


def test_an_upstream_that_git_is_set_to_make_is_made(stage: Stage) -> None:
    stage.jo.git("config", "push.autoSetupRemote", "true")
    stage.jo.git("switch", "-qc", "topic")
    stage.jo.commits()
    stage.jo.push()
    assert stage.jo.git("rev-parse", "--abbrev-ref", "topic@{upstream}") == "origin/topic"


def test_branches_and_tags_together(stage: Stage) -> None:
    made = stage.jo.commits()
    stage.jo.git("tag", "-a", "-m", "one", "v1")
    stage.jo.git("tag", "light")
    stage.jo.git("branch", "side")
    done = stage.jo.push("origin", "main", "side", choosing=("--tags",))
    assert {x.ref: x.became.value for x in done.refs} == {
        MAIN: "updated",
        "refs/heads/side": "created",
        "refs/tags/v1": "created",
        "refs/tags/light": "created",
    }
    assert tip(stage.remote.bare, "refs/tags/v1") == stage.jo.git("rev-parse", "v1")
    assert tip(stage.remote.bare, "refs/heads/side") == made
    stage.jo.git("tag", "-a", "-m", "two", "v2")
    stage.jo.commits()
    stage.jo.git("tag", "-a", "-m", "three", "v3")
    assert {x.ref for x in stage.jo.push(choosing=("--follow-tags",)).refs if x.moves} == {
        MAIN,
        "refs/tags/v2",
        "refs/tags/v3",
    }


def test_one_of_several_refs_that_is_rejected_keeps_all(stage: Stage) -> None:
    stage.kim.commits("docs/guide.md")
    stage.kim.git("push", "-q", "origin", "main")
    stage.jo.commits()
    stage.jo.git("branch", "side")
    with pytest.raises(PushRefused):
        stage.jo.push("origin", "main", "side")
    assert tip(stage.remote.bare, "refs/heads/side") == ""


def test_a_detached_head(stage: Stage) -> None:
    stage.jo.git("switch", "-q", "--detach")
    made = stage.jo.commits()
    with raises(UsageError):
        stage.jo.push()
    assert stage.jo.push("origin", "HEAD:refs/heads/main").fenced
    assert stage.main == made


def test_a_linked_work_tree_and_a_folder_below(stage: Stage) -> None:
    linked = stage.tmp / "linked"
    stage.jo.git("worktree", "add", "-q", "-b", "side", str(linked))
    (linked / "src" / "api").mkdir(parents=True)
    person = Person(linked, stage.jo.clock)
    made = person.commits()
    ours = stage.jo.leases.show(API)[0]
    assert ours.session is None
    done = person.push("origin", "side", at=linked / "src" / "api")
    assert tip(stage.remote.bare, "refs/heads/side") == made
    assert [x.resource for x in done.leases] == ["src/api"]


def test_a_shallow_clone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        stage.jo.commits("docs/guide.md")
    stage.jo.push()
    url = stage.remote.bare.as_uri()
    shallow = real_clone(url, stage.tmp / "shallow", "jo@example.com", "--depth=1")
    person = Person(shallow, stage.jo.clock)
    made = person.commits()
    done = person.push()
    assert stage.main == made
    assert [x.resource for x in done.leases] == ["src/api"]
    assert (person.root / ".git" / "shallow").exists()


def test_a_forced_push_replaces_only_what_was_seen(stage: Stage) -> None:
    stage.jo.commits()
    stage.jo.push()
    stage.jo.git("commit", "-q", "--amend", "-m", "again")
    with pytest.raises(PushRefused, match="non-fast-forward"):
        stage.jo.push()
    done = stage.jo.push(choosing=("--force",))
    assert done.refs[0].became.value == "forced"
    assert stage.main == stage.jo.git("rev-parse", "main")
    stage.jo.git("commit", "-q", "--amend", "-m", "once more")
    stage.kim.git("pull", "-q")
    stage.kim.commits("docs/guide.md")
    stage.kim.git("push", "-q")
    there = stage.main
    with raises(PushRefused):
        stage.jo.push("origin", "main", choosing=("--force-with-lease",))
    assert stage.main == there


def test_what_comes_to_a_forced_ref_meanwhile_is_not_replaced(stage: Stage) -> None:
    stage.jo.commits()
    stage.jo.push()
    stage.jo.git("commit", "-q", "--amend", "-m", "again")
    stage.kim.git("pull", "-q")
    stage.kim.commits("docs/guide.md")
    stage.jo.hook(f"cd {shlex.quote(str(stage.kim.root))} && git push -q origin main\n")
    with raises(PushRefused):
        stage.jo.push(choosing=("--force",))
    assert stage.main == stage.kim.git("rev-parse", "main")


def test_a_ref_can_be_deleted_along_with_it(stage: Stage) -> None:
    stage.jo.git("push", "-q", "origin", "main:old")
    made = stage.jo.commits()
    done = stage.jo.push("origin", "main", ":old")
    assert {x.ref: x.became.value for x in done.refs}["refs/heads/old"] == "deleted"
    assert (stage.main, tip(stage.remote.bare, "refs/heads/old")) == (made, "")


@pytest.mark.slow
def test_a_deletion_of_a_holder_that_lost_its_lease_is_refused(stage: Stage) -> None:
    stage.jo.git("push", "-q", "origin", "main:old")
    stage.on_server(stage.taken_over())
    with pytest.raises(LeaseLost):
        stage.jo.push("origin", ":old", require=(API,))
    assert tip(stage.remote.bare, "refs/heads/old")


def test_what_the_remote_has_elsewhere_lands_under_its_lease_too(stage: Stage) -> None:
    """First under a branch of its own, later on main: the lease may be lost in between."""
    stage.jo.git("checkout", "-q", "-b", "topic")
    stage.jo.commits()
    stage.jo.git("push", "-q", "origin", "main:side")
    assert stage.jo.push("origin", "topic").fenced
    assert stage.jo.push("origin", "topic:side").fenced
    stage.jo.push("origin", "topic~1:side", choosing=("--force",))
    Leases(workspace(stage.elsewhere, clock=stage.jo.clock)).release(API)
    stage.kim.leases.claim(API, any=True)
    before, refused = stage.main, []
    for target in ("main", "side", "main"):
        with pytest.raises((LeaseLost, LeaseHeld)) as caught:
            stage.jo.push("origin", f"topic:{target}")
        refused.append(type(caught.value))
        stage.jo.leases.list()
    assert refused == [LeaseLost, LeaseHeld, LeaseHeld]
    stage.jo.git("update-ref", "refs/remotes/origin/main", "topic")
    with pytest.raises(LeaseHeld):
        stage.jo.push("origin", "topic:main", choosing=("--force",))
    assert (stage.main, tip(stage.remote.bare, "refs/heads/side")) == (before, before)


def test_a_merge_of_main_brings_what_was_judged_there(stage: Stage) -> None:
    stage.kim.git("checkout", "-q", "-b", "topic")
    stage.kim.commits("docs/guide.md")
    stage.kim.git("push", "-q", "origin", "topic")
    stage.jo.commits()
    assert stage.jo.push().fenced
    stage.kim.git("fetch", "-q")
    stage.kim.git("merge", "-q", "--no-edit", "origin/main")
    assert stage.kim.push("origin", "topic").status == "pushed"
    assert stage.kim.push("origin", "topic:main").status == "pushed"
    stage.kim.git("checkout", "-q", "-b", "other", "topic~1")
    stage.kim.commits("docs/more.md")
    stage.kim.git("push", "-q", "origin", "other")
    stage.kim.git("rebase", "-q", "topic")
    assert stage.kim.push("origin", "other", choosing=("--force",)).status == "pushed"


def test_what_another_holds_is_not_taken_away_either(stage: Stage) -> None:
    """Neither by a forced push nor with a branch; what another ref still has is not lost."""
    stage.jo.commits()
    stage.jo.push()
    stage.jo.git("push", "-q", "origin", "main:copy")
    stage.jo.commits()
    stage.jo.push("origin", "main:topic")
    before = stage.main
    stage.kim.git("fetch", "-q")
    assert stage.kim.push("origin", ":copy").status == "pushed"
    for words in (("origin", "main~1:main"), ("origin", ":topic"), ("origin", "main~1:topic")):
        stage.kim.git("fetch", "-q", "--prune")
        stage.kim.git("reset", "-q", "--hard", "origin/main")
        with raises(LeaseHeld):
            stage.kim.push(*words, choosing=("--force",))
    assert stage.main == before
    assert stage.jo.push("origin", ":topic").status == "pushed", "one's own may be taken back"
    assert stage.jo.push("origin", "main~2:main", choosing=("--force",)).fenced


def test_what_is_not_known_here_is_not_replaced(stage: Stage) -> None:
    stage.jo.commits()
    stage.jo.push()
    before = stage.main
    with raises(Denied) as caught:
        stage.kim.push("origin", "main~0:main", choosing=("--force",))
    assert caught.value.hints == ("git fetch origin",)
    url = "https://kim:secret@example.com/r.git"
    stage.kim.git("config", "remote.origin.url", url)
    stage.kim.git("config", f"url.{stage.remote.bare}.insteadOf", url)
    with pytest.raises(Denied) as caught:
        stage.kim.push(url, "main~0:main", choosing=("--force",))
    assert caught.value.hints == ("git fetch https://example.com/r.git",)
    assert stage.main == before


# --- where it goes --------------------------------------------------------------------------------


def test_another_repository_than_the_ledger_s_is_refused(stage: Stage) -> None:
    git(stage.tmp, "init", "-q", "--bare", "backup.git")
    stage.jo.git("remote", "add", "backup", str(stage.tmp / "backup.git"))
    stage.jo.commits()
    with raises(UsageError):
        stage.jo.push("backup", "main")
    stage.jo.git("config", "branch.main.pushRemote", "backup")
    with raises(UsageError):
        stage.jo.push()
    stage.jo.git("config", "lease.remote", "backup")
    with raises(UsageError):
        stage.jo.push("origin", "main")


def test_where_git_is_told_to_push_instead_the_ledger_must_be_the_same(stage: Stage) -> None:
    """The same repository by another way is; whether it is shows in its ledger."""
    other, way = stage.tmp / "other.git", stage.tmp / "way.git"
    real_clone(stage.remote.url, other, "jo@example.com", "--bare")
    way.symlink_to(stage.remote.bare)
    stage.jo.git("config", f"url.{other}.pushInsteadOf", stage.remote.url)
    stage.jo.commits("docs/guide.md")
    unfenced = stage.jo.push("origin", "main")
    assert not unfenced.fenced
    check_words(str(unfenced.warnings))
    with raises(UsageError):
        stage.jo.push(stage.remote.url, "main")
    assert tip(other, MAIN) == stage.jo.git("rev-parse", "main") != stage.main
    stage.jo.git("config", "--unset", f"url.{other}.pushInsteadOf")
    stage.jo.git("config", f"url.{way}.pushInsteadOf", stage.remote.url)
    assert stage.jo.push().status == "pushed"
    assert stage.main == stage.jo.git("rev-parse", "main")


def test_the_url_of_the_ledger_is_as_good_as_its_name(stage: Stage) -> None:
    made = stage.jo.commits()
    assert stage.jo.push(stage.remote.url, "main").fenced
    assert stage.main == made


def test_a_local_ledger_is_refused(stage: Stage) -> None:
    opened = workspace(stage.jo.root, clock=stage.jo.clock, local=True)
    with raises(UsageError):
        open_push(opened).push(PushRequest())


def test_the_ledger_itself_is_not_pushed_to(stage: Stage) -> None:
    stage.jo.commits()
    ledger = stage.ledger
    for spec in ("main:refs/gitlease/global", ":refs/gitlease/global", "+main:refs/gitlease/x"):
        with raises(UsageError):
            stage.jo.push("origin", spec)
    assert stage.ledger == ledger


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("remote.origin.mirror", "true", "is a mirror"),
        ("remote.origin.pushurl", "/elsewhere", "several push URLs"),
    ],
)
def test_a_remote_that_pushes_more_is_refused(
    stage: Stage, key: str, value: str, said: str
) -> None:
    stage.jo.git("config", key, stage.remote.url if "url" in key else value)
    if "url" in key:
        stage.jo.git("config", "--add", key, value)
    stage.jo.commits()
    with pytest.raises(UsageError, match=said):
        stage.jo.push()


# --- the repository (S10) -------------------------------------------------------------------------


def test_the_repository_is_changed_as_by_git_s_own_push(stage: Stage) -> None:
    twin = stage.tmp / "twin"
    stage.jo.commits()
    real_clone(stage.remote.bare, stage.tmp / "other.git", "jo@example.com", "--bare")
    subprocess.run(["cp", "-a", str(stage.jo.root), str(twin)], check=True)
    git(twin, "config", "remote.origin.url", stage.remote.url)
    before = snapshot(stage.jo.root)
    stage.jo.push()
    after = snapshot(stage.jo.root)
    changed = {x for x in after if before.get(x) != after[x]} | (before.keys() - after.keys())
    ours = {"git/refs/remotes/origin/main", "git/logs/refs/remotes/origin/main"}
    assert changed == ours
    git(twin, "push", "-q", str(stage.tmp / "other.git"), "main")


def test_a_repository_that_fetches_everything_gets_no_ref_of_the_ledger(stage: Stage) -> None:
    stage.jo.git("config", "--add", "remote.origin.fetch", "+refs/*:refs/all/*")
    made = stage.jo.commits()
    before = snapshot(stage.jo.root)
    stage.jo.push()
    after = snapshot(stage.jo.root)
    assert not [x for x in after.keys() - before.keys() if "gitlease" in x]
    assert stage.jo.git("rev-parse", "origin/main") == made
    assert stage.jo.git("fsck").count("error") == 0


def test_ledgers_that_are_kept_as_branches_are_not_followed_either(stage: Stage) -> None:
    """As for a host that takes nothing but branches and tags."""
    fresh = Person(
        make_clone(stage.remote, stage.tmp / "at" / "newer", "jo@example.com", "jo"), stage.jo.clock
    )
    fresh.git("config", "lease.refPrefix", "refs/heads/leases")
    fresh.leases.claim(API, any=True)
    made = fresh.commits()
    assert fresh.push().fenced
    assert fresh.git("for-each-ref", "--format=%(refname)", "refs/remotes").split() == [
        "refs/remotes/origin/HEAD",
        "refs/remotes/origin/main",
    ]
    assert fresh.git("rev-parse", "origin/main") == made == stage.main
    with raises(UsageError):
        fresh.push("origin", "main:refs/heads/leases/global")


def test_a_clone_whose_path_has_a_colon(stage: Stage) -> None:
    odd = stage.tmp / "a:b"
    stage.jo.root.rename(odd)
    person = Person(odd, stage.jo.clock)
    made = person.commits()
    assert person.push().fenced
    assert stage.main == made


def test_a_refused_push_changes_nothing(stage: Stage) -> None:
    stage.kim.commits()
    before = snapshot(stage.kim.root)
    with pytest.raises(GitleaseError):
        stage.kim.push()
    assert_untouched(before, snapshot(stage.kim.root))


# --- as it is typed -------------------------------------------------------------------------------


def typed(person: Person, *words: str) -> list[str]:
    return ["-C", str(person.root), *words, "--json"]


def test_its_documents(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str, who: Person = stage.jo) -> tuple[int, dict[str, object]]:
        status = run(typed(who, *words))
        return status, json.loads(capsys.readouterr().out)

    made = stage.jo.commits()
    status, document = said("push")
    assert status == 0
    assert list(document)[:6] == ["schema", "ok", "command", "status", "remote", "fenced"]
    assert document["refs"] == [
        {
            "ref": MAIN,
            "source": MAIN,
            "from": git(stage.remote.bare, "rev-parse", f"{made}~1"),
            "to": made,
            "status": "updated",
            "reason": None,
        }
    ]
    assert document["lease"]["resource"] == "src/api"  # type: ignore[index]
    token = str(document["lease"]["token"])  # type: ignore[index]
    assert said("push")[1]["status"] == "up_to_date"
    assert said("fence", API, token)[1]["lease"]["token"] == int(token)  # type: ignore[index]
    status, document = said("fence", API, "999")
    assert (status, document["error"]["code"]) == (3, "lost")  # type: ignore[index]
    for bad in ("-1", "x", "0", "1.5", ""):
        assert run(typed(stage.jo, "fence", "--", API, bad)) == 2
    capsys.readouterr()
    status, document = said("push", "--require", "F999")
    assert (status, document["error"]["code"]) == (3, "lost")  # type: ignore[index]
    stage.kim.git("pull", "-q")
    stage.kim.commits()
    status, document = said("push", who=stage.kim)
    assert (status, document["error"]["code"]) == (1, "held")  # type: ignore[index]
    stage.jo.git("reset", "-q", "--hard", "HEAD~1")
    stage.jo.commits("docs/guide.md")
    status, document = said("push")
    assert (status, document["error"]["code"]) == (4, "denied")  # type: ignore[index]
    assert document["refs"][0]["status"] == "rejected"  # type: ignore[index]


@pytest.mark.parametrize(
    "words",
    [
        ("--mirror",),
        ("--prune",),
        ("--no-atomic",),
        ("--repo", "origin"),
        ("--receive-pack", "x"),
        ("--exec", "x"),
        ("--recurse-submodules", "on-demand"),
    ],
)
def test_options_that_would_break_the_fence_are_refused_with_the_reason(
    stage: Stage, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    before = stage.remote.connections()
    assert run(typed(stage.jo, "push", *words)) == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "fence" in message or "submodules" in message
    assert stage.remote.connections() == before


def test_options_take_no_value_from_the_next_word(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.jo.commits()
    stage.jo.push()
    stage.jo.git("commit", "-q", "--amend", "-m", "again")
    old = stage.main
    assert run(typed(stage.jo, "push", "--force-with-lease=main:" + "1" * 40, "origin")) == 4
    assert run(typed(stage.jo, "push", "--force-with-lease", "origin", "main")) == 0
    assert stage.main != old
    documents = [json.loads(x) for x in capsys.readouterr().out.splitlines()]
    assert documents[1]["refs"][0]["status"] == "forced"


def test_git_s_own_explanations_are_told_once(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.jo.git("switch", "-qc", "topic")
    stage.jo.commits()
    assert run(["-C", str(stage.jo.root), "push"]) == 2
    check_words(capfd.readouterr().err.splitlines())


def test_words_for_the_server_reach_it(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    git(stage.remote.bare, "config", "receive.advertisePushOptions", "true")
    script(
        stage.remote.bare / "hooks" / "pre-receive",
        f'echo "$GIT_PUSH_OPTION_0" >>{stage.tmp / "options"}\n',
    )
    stage.jo.commits()
    assert run(typed(stage.jo, "push", "-o", "ci.skip")) == 0
    assert (stage.tmp / "options").read_text() == "ci.skip\n"
    git(stage.remote.bare, "config", "receive.advertisePushOptions", "false")
    stage.jo.commits()
    ledger = stage.ledger
    capsys.readouterr()
    assert run(typed(stage.jo, "push", "-o", "ci.skip")) == 4
    said = json.loads(capsys.readouterr().out)["error"]["message"]
    check_words(said)
    assert stage.ledger == ledger


def test_words_that_settings_send_are_named_where_the_server_takes_none(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git(stage.remote.bare, "config", "receive.advertisePushOptions", "false")
    git(stage.jo.root, "config", "push.pushOption", "ci.skip")
    stage.jo.commits()
    assert run(typed(stage.jo, "push")) == 4
    said = json.loads(capsys.readouterr().out)["error"]["message"]
    check_words(said)
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'push.pushOption'=''")  # as `git -c` has it
    assert run(typed(stage.jo, "push")) == 0


def test_the_library_speaks_the_same(stage: Stage) -> None:
    made = stage.jo.commits()
    leases = stage.jo.leases
    done = leases.push("origin", "main", require=["src/api/"])
    assert (done.status, stage.main) == ("pushed", made)
    assert leases.fence("src/api/", done.leases[0].token).mine
    with pytest.raises(LeaseLost):
        leases.fence("src/api/", 77)
    with pytest.raises(UsageError):
        leases.fence("src/api/", "1")  # type: ignore[arg-type]
    stage.jo.commits("docs/guide.md")
    leases.push()
    assert UNFENCED in leases.warnings
