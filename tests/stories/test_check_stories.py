"""The check of commits on real histories: jo and kim, their remote, and a clone that only reads."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.remotes import Remote
from support.repos import assert_untouched, commit_file, copy_repository, git, real_clone, snapshot
from support.running import Desk
from support.session import LeaseService
from support.snapshots import check_words

from gitlease.check.commits import CiContext, read_context
from gitlease.check.opening import CheckContext
from gitlease.check.rules import CheckResult
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.errors import Invalid, NotFound, Unavailable, UsageError
from gitlease.kernel.rules.resources import parse_resource
from gitlease.verbs.findings import Finding, Level
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.slow

NOON = 1_795_176_000  # 2026-11-20T12:00:00Z, in seconds
MINUTE, HOUR = 60, 3_600
JO, KIM = "jo@example.com", "kim@example.com"
TASK = "---\nid: {0}\ntitle: work on {0}\nstatus: todo\nassigned: []\n{1}---\ntext\n"
FILES = {
    "src/api/login.py": "login\n" * 9,
    "src/web/page.py": "page\n" * 9,
    "docs/guide.md": "guide\n" * 9,
    "tasks/F001.md": TASK.format("F001", "paths: [src/api]\n"),
    "tasks/F002.md": TASK.format("F002", ""),
}


@dataclass
class Clone:
    """One person's clone, with a clock that is theirs. ``now`` counts from noon, in seconds."""

    root: Path
    email: str
    now: float = 0

    def git(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        return git(self.root, *words, env=env)

    def clock(self) -> ManualClock:
        wall = round((NOON + self.now) * 1_000)
        return ManualClock(wall_ms=wall, boot_ms=round(self.now * 1_000) + 10**9)

    def dates(self) -> dict[str, str]:
        date = f"@{round(NOON + self.now)} +0000"
        return {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}

    def at(self, now: float) -> Clone:
        self.now = now
        return self

    def commit(self, *names: str, message: str = "work") -> str:
        """Change files and commit them, past every hook; the commit's id."""
        for name in names:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{self.email} at {self.now}\n")
            self.git("add", "--", name)
        self.git("commit", "-q", "--no-verify", "-m", message, env=self.dates())
        return self.git("rev-parse", "HEAD")

    def claim(self, name: str, **options: Any) -> None:
        """Claim, and leave the task files as they are: what is tested is what commits do."""
        opened = open_workspace(str(self.root), clock=self.clock(), environ={})
        LeaseService(opened.ledger).claim(
            [parse_resource(name)], ClaimOptions(any_name=True, **options)
        )
        self.git("checkout", "-q", "--", ".")

    def release(self, name: str) -> None:
        opened = open_workspace(str(self.root), clock=self.clock(), environ={})
        LeaseService(opened.ledger).release([parse_resource(name)])
        self.git("checkout", "-q", "--", ".")

    def check(
        self, words: str | None = None, *, environ: Mapping[str, str] | None = None
    ) -> CheckResult:
        desk = CheckContext(str(self.root), environ=environ or {}, clock=self.clock())
        return desk.service(desk.choose(words)).check()


@dataclass
class World:
    base: Path
    bare: Path
    jo: Clone
    kim: Clone

    def fresh(self, *words: str) -> Clone:
        """A clone of whoever runs the checks: it has no ``user.email``."""
        path = self.base / "ci"
        git(self.base, "clone", "-q", *words, self.bare.as_uri(), str(path))
        return Clone(path, "", now=max(self.jo.now, self.kim.now))

    def settle(self, text: str) -> None:
        """The settings of the project, on its main branch; everybody knows that."""
        jo = self.jo
        branch = jo.git("symbolic-ref", "--short", "HEAD")
        jo.git("checkout", "-q", "main")
        (jo.root / ".gitlease.yaml").write_text(text)
        jo.git("add", ".gitlease.yaml")
        jo.commit(message="settings")
        jo.git("push", "-q", "origin", "main")
        jo.git("checkout", "-q", branch)
        for one in (jo, self.kim):
            one.git("fetch", "-q")

    def pushed(self, person: Clone, *, branch: str = "topic", force: bool = False) -> str:
        person.git("push", "-q", *(["--force"] if force else []), "origin", f"HEAD:{branch}")
        return person.git("rev-parse", "HEAD")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    base = tmp_path_factory.mktemp("world")
    bare = base / "remote.git"
    git(base, "init", "-q", "--bare", "-b", "main", str(bare))
    people = []
    for name in ("jo", "kim"):
        root = base / name
        people.append(Clone(real_clone(bare, root, f"{name}@example.com"), f"{name}@example.com"))
    jo, kim = people
    for name, text in FILES.items():
        path = jo.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    jo.git("add", ".")
    jo.at(-10 * HOUR).commit(message="begin")
    jo.git("push", "-q", "origin", "HEAD:main")
    for one in people:
        one.git("fetch", "-q")
        one.git("checkout", "-q", "-B", "main", "origin/main")
        one.git("remote", "set-head", "origin", "main")
        one.git("checkout", "-q", "-b", "topic")
    return World(base, bare, jo, kim)


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    found = []
    shutil.copytree(made.bare, tmp_path / "remote.git")
    for one in (made.jo, made.kim):
        root = tmp_path / one.root.name
        copy_repository(one.root, root, {str(made.base): str(tmp_path)})
        found.append(Clone(root, one.email))
    return World(tmp_path, tmp_path / "remote.git", found[0], found[1])


def rules(checked: CheckResult) -> list[tuple[str, str]]:
    return [(one.rule.id, one.level.value) for one in checked.findings]


def only(checked: CheckResult) -> Finding:
    (found,) = checked.findings
    return found


UNPROVEN = ("held-unproven", "warning")
NOW, MAYBE = ("held-now", "error"), ("held-now", "warning")
NO_LEDGER = ("no-ledger", "warning")


@pytest.mark.default
def test_work_from_before_a_lease_that_was_merged_during_it_is_found(world: World) -> None:
    """Under whatever name: its author holds nothing, and no date of its own tells."""
    jo, kim = world.jo, world.kim
    jo.git("config", "user.email", "nobody@example.com")
    old = jo.at(-HOUR).commit("src/api/login.py")
    jo.git("push", "-q", "origin", "HEAD:early")
    jo.git("config", "user.email", JO)
    kim.at(0).claim("F001")
    jo.git("checkout", "-q", "-B", "topic", "origin/main")
    jo.at(MINUTE).git("merge", "-q", "--no-ff", "-m", "early", "origin/early", env=jo.dates())
    checked = jo.at(2 * MINUTE).check()
    assert rules(checked) == [NOW]
    assert only(checked).commit == old
    kim.at(3 * MINUTE).release("F001")
    assert rules(jo.at(5 * MINUTE).check()) == []
    jo.git("reset", "-q", "--hard", "HEAD~1")
    jo.at(4 * MINUTE).git("merge", "-q", "--no-ff", "-m", "early", "origin/early", env=jo.dates())
    assert rules(jo.at(5 * MINUTE).check()) == []


@pytest.mark.nightly
def test_odd_dates_are_not_believed(world: World) -> None:
    world.kim.claim("F001")
    world.jo.at(MINUTE).commit("src/api/login.py")
    tree = world.jo.git("rev-parse", "HEAD^{tree}")
    head = world.jo.git("rev-parse", "HEAD~1")
    text = f"tree {tree}\nparent {head}\nauthor x <{JO}> soon\ncommitter x <{JO}> never\n\nodd\n"
    odd = git(
        world.jo.root, "hash-object", "--literally", "-t", "commit", "-w", "--stdin", input=text
    )
    world.jo.git("update-ref", "refs/heads/odd", odd)
    checked = world.jo.check("origin/main..odd")
    assert rules(checked) == [NOW]
    check_words(only(checked).evidence)


def test_a_mailmap_counts_as_it_was_before_the_commits(world: World) -> None:
    jo, kim = world.jo, world.kim
    kim.claim("F001")
    kim.git("config", "user.email", "kim@home.example")
    kim.at(MINUTE).commit("src/api/login.py")
    for person, expected in ((kim, [NOW]), (jo, [UNPROVEN])):
        if person is jo:
            jo.git("checkout", "-q", "main")
        (person.root / ".mailmap").write_text(f"Kim <{KIM}> <kim@home.example>\n")
        person.git("add", ".mailmap")
        person.commit(message="a mailmap")
        if person is jo:
            jo.git("push", "-q", "origin", "main")
            kim.git("fetch", "-q")
        kim.git("config", "user.email", KIM)
        assert rules(kim.check()) == expected, "one that comes along proves nothing"
        kim.git("config", "user.email", "kim@home.example")


# --- continuous integration -----------------------------------------------------------------------


def github(world: World, kind: str, event: Mapping[str, Any], **more: str) -> dict[str, str]:
    path = world.base / "event.json"
    path.write_text(json.dumps({"repository": {"default_branch": "main"}, **event}))
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": kind,
        "GITHUB_EVENT_PATH": str(path),
        **more,
    }


def pull(head: str, base: str, *, commits: int = 1) -> dict[str, Any]:
    return {
        "action": "synchronize",
        "number": 7,
        "sender": {"login": "jo"},
        "pull_request": {
            "number": 7,
            "commits": commits,
            "user": {"login": "jo"},
            "base": {"ref": "main", "sha": base},
            "head": {"ref": "topic", "sha": head},
        },
    }


def test_a_shallow_clone_gets_what_it_lacks_beside_it(world: World) -> None:
    world.kim.claim("F001")
    world.jo.at(MINUTE).commit("docs/guide.md")
    world.jo.commit("src/api/login.py")
    world.jo.commit("docs/guide.md")
    head, base = world.pushed(world.jo), world.jo.git("rev-parse", "main")
    clone = world.fresh("--depth=1", "--branch=topic")
    clone.git("checkout", "-q", "--detach")
    before = snapshot(clone.root)
    environ = github(world, "pull_request", pull(head, base, commits=3))
    checked = clone.at(2 * MINUTE).check(environ=environ)
    assert checked.commits == 3
    check_words(checked.shown)
    assert rules(checked) == [NOW]
    assert_untouched(before, snapshot(clone.root))


@pytest.mark.nightly
def test_a_shallow_clone_with_nowhere_to_ask_says_what_is_missing(world: World) -> None:
    world.jo.commit("docs/guide.md")
    head, base = world.pushed(world.jo), world.jo.git("rev-parse", "main")
    clone = world.fresh("--depth=1", "--branch=topic")
    clone.git("remote", "remove", "origin")
    with pytest.raises(NotFound) as refused:
        clone.check(environ=github(world, "pull_request", pull(head, base)))
    assert any("fetch-depth: 0" in hint for hint in refused.value.hints)


def test_old_commits_of_a_long_main_are_not_taken_for_new_ones(world: World) -> None:
    """A shallow clone cuts off the way from the base to where the branch left it."""
    jo = world.jo
    old = jo.git("rev-parse", "main")
    jo.at(MINUTE).commit("docs/guide.md", message="on a branch from long ago")
    head = world.pushed(jo)
    jo.git("checkout", "-q", "main")
    for number in range(12):
        jo.at(number * HOUR).commit("src/web/page.py", message=f"main goes on {number}")
    jo.git("push", "-q", "origin", "main")
    base = jo.git("rev-parse", "main")
    clone = world.fresh("--depth=1")
    for depth in (2, 3, 5):
        clone.git("fetch", "-q", f"--depth={depth}", "origin", head, base)
        checked = clone.check(environ=github(world, "pull_request", pull(head, base)))
        assert checked.commits == 1, (depth, old)


def test_a_push_is_checked_from_where_the_branch_was(world: World) -> None:
    world.kim.claim("F001")
    before = world.jo.at(MINUTE).commit("src/api/login.py", message="checked before")
    after = world.jo.commit("src/api/login.py", message="new")
    world.pushed(world.jo)
    clone = world.fresh().at(2 * MINUTE)
    event = {"ref": "refs/heads/topic", "before": before, "after": after, "commits": [{}]}
    checked = clone.check(environ=github(world, "push", event))
    assert checked.commits == 1
    check_words(checked.shown)
    new = clone.check(environ=github(world, "push", event | {"before": "0" * 40}))
    assert new.commits == 2
    by_kim = event | {"pusher": {"name": "kim", "email": KIM}}
    assert rules(clone.check(environ=github(world, "push", by_kim))) == []
    gone = clone.check(environ=github(world, "push", event | {"deleted": True}))
    assert gone.commits == 0


@pytest.mark.nightly
def test_a_forced_push_is_checked_although_its_base_is_not_in_the_clone(world: World) -> None:
    world.kim.claim("F001")
    world.jo.at(MINUTE).commit("docs/guide.md", message="old")
    old = world.pushed(world.jo)
    world.jo.git("reset", "-q", "--hard", "main")
    world.jo.commit("src/api/login.py", message="new")
    new = world.pushed(world.jo, force=True)
    clone = world.fresh().at(2 * MINUTE)
    event = {"ref": "refs/heads/topic", "before": old, "after": new, "forced": True}
    checked = clone.check(environ=github(world, "push", event))
    assert (checked.commits, rules(checked)) == (1, [NOW])
    nowhere = event | {"before": "12" * 20}
    checked = clone.check(environ=github(world, "push", nowhere))
    assert (checked.commits, rules(checked)) == (1, [NOW])
    check_words(checked.warnings)


def test_gitlab_says_it_in_variables(world: World) -> None:
    world.kim.claim("F001")
    world.jo.at(MINUTE).commit("src/api/login.py")
    head, base = world.pushed(world.jo), world.jo.git("rev-parse", "main")
    environ = {
        "GITLAB_CI": "true",
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_MERGE_REQUEST_IID": "12",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        "CI_COMMIT_SHA": head,
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "CI_COMMIT_BEFORE_SHA": "0" * 40,
        "GITLAB_USER_EMAIL": JO,
    }
    clone = world.fresh("--depth=1", "--branch=topic").at(2 * MINUTE)
    checked = clone.check(environ=environ)
    assert rules(checked) == [NOW]
    found = only(checked)
    assert (found.level, found.holder, found.resource) == (Level.ERROR, KIM, "F001")
    assert (found.file, found.line, found.commit) == ("tasks/F001.md", 5, head)
    check_words(checked.shown)
    by_kim = clone.check(environ=environ | {"GITLAB_USER_EMAIL": KIM})
    assert rules(by_kim) == [MAYBE]
    check_words(only(by_kim).message)


def test_an_event_that_cannot_be_read_is_said_and_the_branch_is_checked(world: World) -> None:
    world.kim.claim("F001")
    world.jo.at(MINUTE).commit("src/api/login.py")
    environ = github(world, "pull_request", {}, GITHUB_BASE_REF="main")
    Path(environ["GITHUB_EVENT_PATH"]).write_text("[" * 100_000)
    checked = world.jo.check(environ=environ)
    assert (checked.shown, rules(checked)) == ("origin/main..HEAD", [NOW])
    check_words(checked.warnings)


@pytest.mark.nightly
def test_what_an_event_says_is_taken_for_no_more_than_it_looks_like(world: World) -> None:
    bad = pull("HEAD", "--upload-pack=touch x")
    bad["number"] = bad["pull_request"]["number"] = "7/../../heads/main"
    bad["pull_request"]["base"]["ref"] = "--upload-pack=touch x"
    bad["pull_request"]["user"] = ["not a user"]
    asked = read_context(github(world, "pull_request", bad))
    assert (asked.base, asked.head, asked.head_ref, asked.base_branch) == ("", "", "", "")
    assert asked.logins == ("jo",)
    for name in ("a..b", "a b", "/a", "a.lock", "a@{b", "", "-", "a*"):
        bad["pull_request"]["base"]["ref"] = name
        assert read_context(github(world, "pull_request", bad)).base_branch == "", name
    bad["pull_request"]["base"]["ref"] = "release/1.2-x"
    assert read_context(github(world, "pull_request", bad)).base_branch == "release/1.2-x"
    assert read_context({}) == CiContext()


# --- what cannot be checked -----------------------------------------------------------------------


def test_a_bad_range_is_a_usage_error_before_anything_is_asked(world: World) -> None:
    shutil.rmtree(world.bare)
    for words in ("nowhere..HEAD", "-x..HEAD", "HEAD..--all", "a..b..c", "^HEAD", "x\ny", "..HEAD"):
        with pytest.raises(UsageError):
            world.jo.check(words)


def test_no_ledger_is_a_warning_and_a_remote_that_cannot_be_read_is_never_a_pass(
    world: World,
) -> None:
    world.jo.commit("src/api/login.py")
    assert rules(world.jo.check()) == [NO_LEDGER]
    shutil.move(world.bare, world.base / "away")
    with pytest.raises(Unavailable):
        world.jo.check()


@pytest.mark.nightly
def test_without_an_email_and_with_a_token_in_the_url_it_reads_and_tells_nothing_of_it(
    world: World, http_remote: Remote
) -> None:
    git(world.jo.root, "push", "-q", "-f", http_remote.url, "HEAD:refs/heads/main")
    world.jo.git("remote", "set-url", "origin", http_remote.url)
    world.kim.git("remote", "set-url", "origin", http_remote.url)
    world.jo.git("fetch", "-q")
    world.kim.claim("F001")
    world.jo.at(MINUTE).commit("src/api/login.py")
    secret = http_remote.url.replace("://", "://x-access-token:ghs_secret@")
    world.jo.git("remote", "set-url", "origin", secret)
    world.jo.git("config", "--unset", "user.email")
    before, services = snapshot(world.jo.root), http_remote.services()
    checked = world.jo.check()
    assert rules(checked) == [NOW]
    assert http_remote.services()[len(services) :] == ["upload-pack"], "one connection"
    assert "secret" not in repr(checked)
    assert_untouched(before, snapshot(world.jo.root))


def test_hostile_names_do_no_harm(world: World) -> None:
    name = b"src/api/a\n::error::b\xff`|<b>]]>%0A.py"
    (world.jo.root / "src/api").mkdir(parents=True, exist_ok=True)
    with open(os.path.join(os.fsencode(world.jo.root), name), "wb") as file:
        file.write(b"x\n")
    world.kim.claim("F001")
    world.jo.git("add", ".")
    world.jo.at(MINUTE).commit(message="::error::\x1b[31mred\n\nGitlease: a\x1bb token=1")
    found = world.jo.check()
    assert rules(found) == [NOW, ("trailer-unreadable", "warning")]
    for one in found.findings:
        assert one.message.isprintable()
        assert all(text.isprintable() for text in one.evidence)


def spoiled(world: World, text: str, *, at: float) -> None:
    """Push a ledger in which the record with paths is something else."""
    ref, tree = "refs/gitlease/global", world.base / "spoilt"
    git(world.bare, "worktree", "add", "-q", "--detach", str(tree), ref)
    (record,) = (tree / "paths").rglob("*.yaml")
    record.write_text(text, encoding="utf-8")
    who = ("-c", f"user.email={KIM}", "-c", "user.name=k")
    date = f"@{round(NOON + at)} +0000"
    env = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    git(tree, *who, "commit", "-qam", "spoil", env=env)
    git(world.bare, "update-ref", ref, git(tree, "rev-parse", "HEAD"))


@pytest.mark.default
def test_a_spoilt_record_is_said_and_is_no_pass(world: World) -> None:
    world.kim.claim("F001")
    world.jo.at(MINUTE).commit("src/api/login.py")
    spoiled(world, "{{{", at=2 * MINUTE)
    checked = world.jo.at(3 * MINUTE).check()
    assert (rules(checked), len(checked.unread), checked.passed) == ([], 1, False)


# --- who judges -----------------------------------------------------------------------------------

OTHER = {
    "people": 'people: {jo@example.com: "@kim", kim@example.com: "@kim"}\n',
    "layer": "lease: {layer: nobodys}\n",
    "broken": "lease: [\n",
}


@pytest.mark.default("layer")
@pytest.mark.nightly
@pytest.mark.parametrize("name", OTHER)
def test_a_pull_request_does_not_decide_how_it_is_judged(world: World, name: str) -> None:
    world.kim.claim("F001")
    jo = world.jo.at(MINUTE)
    jo.commit("src/api/login.py")
    jo.commit("tasks/F001.md")
    (jo.root / ".gitlease.yaml").write_text(OTHER[name])
    jo.git("add", ".gitlease.yaml")
    jo.commit(message="settings")
    head, base = world.pushed(jo), jo.git("rev-parse", "main")
    words = ["--depth=1"] if name == "broken" else []
    clone = world.fresh(*words, "--branch=topic")
    clone.git("checkout", "-q", "--detach")
    checked = clone.check(environ=github(world, "pull_request", pull(head, base, commits=3)))
    assert rules(checked) == [NOW, NOW]
    check_words(checked.warnings)
    if name != "broken":
        assert rules(jo.check()) == [NOW, NOW]


def test_the_settings_that_were_there_before_judge(world: World) -> None:
    world.settle("check: {trailer: true}\n")
    world.jo.git("rebase", "-q", "origin/main")
    world.jo.git("rm", "-q", ".gitlease.yaml")
    world.jo.commit("docs/guide.md")
    checked = world.jo.check()
    assert ("no-trailer", "error") in rules(checked)
    world.jo.git("config", "lease.layer", "team")
    check_words(world.jo.check().findings[-1].message)


def test_settings_that_cannot_be_read_where_the_range_begins_are_no_pass(world: World) -> None:
    world.settle("lease: [\n")
    world.jo.commit("docs/guide.md")
    with pytest.raises(Invalid, match=r"\.gitlease\.yaml:[12]: .* \(in [0-9a-f]{10}\)"):
        world.jo.check()


@pytest.mark.parametrize("encoding", ["UTF-16", "no-such-encoding"])
def test_commit_encoding_of_any_kind_is_pushed_and_checked(
    clones: Callable[..., list[Path]], path_remote: Remote, encoding: str
) -> None:
    (ada,) = clones(1)
    git(ada, "config", "i18n.commitEncoding", encoding)
    commit_file(ada, "tasks/T1.md", "---\nid: T1\nstatus: todo\n---\n", "schön")
    desk = Desk(ada)
    assert desk.document("claim", "T1", "--commit")["status"] == "claimed"
    assert desk.document("push", "origin", "HEAD")["leases"]
    assert desk.document("check", "HEAD~1..HEAD")["violations"] == []
