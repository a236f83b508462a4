"""Two clones and a bare remote: what ``gitlease push`` lands, and what it never does.

S5: a holder that lost its lease lands nothing under it. S10: nothing of the repository changes but
what git's own push changes.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.faults import duplicate, lose_answer, replay
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
from support.snapshots import raises

from gitlease.cli.app import run
from gitlease.kernel.rules.errors import (
    Denied,
    GitleaseError,
    LeaseHeld,
    LeaseLost,
    Unavailable,
    UnknownOutcome,
    UsageError,
)
from gitlease.landing.fenced_push import PushAnswer, PushRefused
from gitlease.landing.opening import open_push
from gitlease.landing.plan import PushRequest
from gitlease.library.leases import Leases

pytestmark = pytest.mark.slow

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
        seconds: float = 60.0,
        at: Path | None = None,
        **how: Any,
    ) -> PushAnswer:
        opened = workspace(at or self.root, clock=self.clock)
        wish = PushRequest(remote=words[0] if words else None, refspecs=words[1:], **how)
        return open_push(opened, seconds=seconds).push(wish, tell=self.told.append)

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
    remote.open_to(monkeypatch)
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


@pytest.mark.default("path")
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


@pytest.mark.default("path")
def test_a_lease_that_was_taken_over_lands_nothing(any_stage: Stage) -> None:
    any_stage.jo.commits()
    Leases(workspace(any_stage.elsewhere, clock=any_stage.jo.clock)).release(API)
    any_stage.kim.leases.claim(API, any=True)
    before, ledger = any_stage.main, any_stage.ledger
    with raises(LeaseLost):
        any_stage.jo.push()
    assert (any_stage.main, any_stage.ledger) == (before, ledger)


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


@pytest.mark.default
def test_a_takeover_while_one_s_own_hooks_run_refuses_it(stage: Stage) -> None:
    before = stage.main
    stage.jo.commits()
    stage.jo.hook(stage.taken_over())
    with pytest.raises(LeaseLost):
        stage.jo.push()
    assert stage.main == before


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_a_server_that_refuses_the_work_leaves_the_lease(stage: Stage) -> None:
    script(stage.remote.bare / "hooks" / "update", f'[ "$1" != {MAIN} ]\n')
    stage.jo.commits()
    before, ledger = stage.main, stage.ledger
    with pytest.raises(PushRefused, match="hook declined") as caught:
        stage.jo.push()
    assert (stage.main, stage.ledger) == (before, ledger)
    assert [(x.ref, x.became.value) for x in caught.value.refs] == [(MAIN, "rejected")]


def test_gitlease_s_own_hook_leaves_the_judging_to_the_push(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(stage.jo.root)
    assert run(["hooks", "install"]) == 0
    program, log = stage.tmp / "program", stage.tmp / "calls"
    command = shlex.join([sys.executable, "-P", "-m", "gitlease"])
    script(program, f'echo "$1 $2" >>{log}\nexec {command} "$@"\n')
    (stage.jo.root / ".git" / "gitlease" / "program").write_text(f"{program}\n")
    stage.jo.commits()
    before = stage.remote.connections()
    stage.jo.push()
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
    assert stage.jo.push("origin", "topic", upstream=True).fenced
    assert tip(stage.remote.bare, "refs/heads/topic") == made
    assert stage.jo.git("rev-parse", "--abbrev-ref", "topic@{upstream}") == "origin/topic"


@pytest.mark.nightly
def test_branches_and_tags_together(stage: Stage) -> None:
    made = stage.jo.commits()
    stage.jo.git("tag", "-a", "-m", "one", "v1")
    stage.jo.git("branch", "side")
    stage.jo.git("push", "-q", "origin", "main~1:refs/heads/old")
    done = stage.jo.push("origin", "main", "side", ":old", choosing=("--tags",))
    assert {x.ref: x.became.value for x in done.refs} == {
        MAIN: "updated",
        "refs/heads/side": "created",
        "refs/heads/old": "deleted",
        "refs/tags/v1": "created",
    }
    assert tip(stage.remote.bare, "refs/tags/v1") == stage.jo.git("rev-parse", "v1")
    assert tip(stage.remote.bare, "refs/heads/side") == made
    assert stage.jo.push(choosing=("--tags",)).status == "up_to_date"


def test_a_shallow_clone(stage: Stage) -> None:
    for _ in range(3):
        stage.jo.commits("docs/guide.md")
    stage.jo.push()
    url = stage.remote.bare.as_uri()
    shallow = real_clone(url, stage.tmp / "shallow", "jo@example.com", "--depth=1")
    person = Person(shallow, stage.jo.clock)
    made = person.commits()
    assert [x.resource for x in person.push().leases] == ["src/api"]
    assert stage.main == made
    assert (person.root / ".git" / "shallow").exists()


def test_a_forced_push_replaces_only_what_was_seen(stage: Stage) -> None:
    stage.jo.commits()
    stage.jo.push()
    stage.jo.git("commit", "-q", "--amend", "-m", "again")
    with pytest.raises(PushRefused, match="non-fast-forward"):
        stage.jo.push()
    assert stage.jo.push(choosing=("--force",)).refs[0].became.value == "forced"
    stage.jo.git("commit", "-q", "--amend", "-m", "once more")
    stage.kim.git("pull", "-q")
    stage.kim.commits("docs/guide.md")
    stage.kim.git("push", "-q")
    there = stage.main
    with raises(PushRefused):
        stage.jo.push("origin", "main", choosing=("--force-with-lease",))
    assert stage.main == there


@pytest.mark.default
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


def test_what_the_remote_has_elsewhere_lands_under_its_lease_too(stage: Stage) -> None:
    """First under a branch of its own, later on main: the lease may be lost in between."""
    stage.jo.git("checkout", "-q", "-b", "topic")
    stage.jo.commits()
    assert stage.jo.push("origin", "topic").fenced
    Leases(workspace(stage.elsewhere, clock=stage.jo.clock)).release(API)
    stage.kim.leases.claim(API, any=True)
    before = stage.main
    for _ in range(3):  # to report the loss does not change the verdict
        with pytest.raises(LeaseLost):
            stage.jo.push("origin", "topic:main")
        stage.jo.leases.list()
    stage.jo.git("update-ref", "refs/remotes/origin/main", "topic")
    with pytest.raises(LeaseLost):
        stage.jo.push("origin", "topic:main", choosing=("--force",))
    assert stage.main == before


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


@pytest.mark.nightly
def test_what_is_not_known_here_is_not_replaced(stage: Stage) -> None:
    stage.jo.commits()
    stage.jo.push()
    before = stage.main
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
    stage.jo.git("remote", "add", "mirror", stage.remote.url)
    stage.jo.git("config", "remote.mirror.mirror", "true")
    stage.jo.commits()
    for name in ("backup", "mirror"):
        with pytest.raises(UsageError):
            stage.jo.push(name, "main")


def test_where_git_is_told_to_push_instead_the_ledger_must_be_the_same(stage: Stage) -> None:
    """The same repository by another way is; whether it is shows in its ledger."""
    other, way = stage.tmp / "other.git", stage.tmp / "way.git"
    real_clone(stage.remote.url, other, "jo@example.com", "--bare")
    way.symlink_to(stage.remote.bare)
    stage.jo.git("config", f"url.{other}.pushInsteadOf", stage.remote.url)
    stage.jo.commits("docs/guide.md")
    assert not stage.jo.push("origin", "main").fenced
    assert tip(other, MAIN) == stage.jo.git("rev-parse", "main") != stage.main
    stage.jo.git("config", "--unset", f"url.{other}.pushInsteadOf")
    stage.jo.git("config", f"url.{way}.pushInsteadOf", stage.remote.url)
    assert stage.jo.push().status == "pushed"
    assert stage.main == stage.jo.git("rev-parse", "main")


@pytest.mark.nightly
def test_the_ledger_itself_is_not_pushed_to(stage: Stage) -> None:
    stage.jo.commits()
    ledger = stage.ledger
    for spec in ("main:refs/gitlease/global", ":refs/gitlease/global", "+main:refs/gitlease/x"):
        with raises(UsageError):
            stage.jo.push("origin", spec)
    assert stage.ledger == ledger


# --- the repository (S10) -------------------------------------------------------------------------


def test_the_repository_is_changed_as_by_git_s_own_push(stage: Stage) -> None:
    stage.jo.commits()
    before = snapshot(stage.jo.root)
    stage.jo.push()
    after = snapshot(stage.jo.root)
    changed = {x for x in after if before.get(x) != after[x]} | (before.keys() - after.keys())
    assert changed == {"git/refs/remotes/origin/main", "git/logs/refs/remotes/origin/main"}
    stage.kim.commits()
    before = snapshot(stage.kim.root)
    with pytest.raises(GitleaseError):
        stage.kim.push()
    assert_untouched(before, snapshot(stage.kim.root))


@pytest.mark.default
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


# --- as it is typed -------------------------------------------------------------------------------


def typed(person: Person, *words: str) -> list[str]:
    return ["-C", str(person.root), *words, "--json"]


@pytest.mark.nightly
def test_options_that_would_break_the_fence_are_refused(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stage.remote.connections()
    for words in (("--mirror",), ("--prune",), ("--no-atomic",), ("--receive-pack", "x")):
        assert run(typed(stage.jo, "push", *words)) == 2
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"
    assert stage.remote.connections() == before


def test_words_for_the_server_reach_it(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    git(stage.remote.bare, "config", "receive.advertisePushOptions", "true")
    log = stage.tmp / "options"
    script(stage.remote.bare / "hooks" / "pre-receive", f'echo "$GIT_PUSH_OPTION_0" >>{log}\n')
    stage.jo.commits()
    assert run(typed(stage.jo, "push", "-o", "ci.skip")) == 0
    assert log.read_text() == "ci.skip\n"
    git(stage.remote.bare, "config", "receive.advertisePushOptions", "false")
    stage.jo.commits()
    ledger = stage.ledger
    assert run(typed(stage.jo, "push", "-o", "ci.skip")) == 4
    assert stage.ledger == ledger
