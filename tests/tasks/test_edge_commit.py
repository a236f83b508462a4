"""Edges as commits of their own, in every state that a work tree and its index may be in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from support.fences import clean_env
from support.repos import assert_untouched, git, make_repository, run_git, snapshot
from support.snapshots import check_words, raises
from support.task_trees import tasks_like

from gitlease.kernel.git.repository import discover
from gitlease.kernel.git.run import GitResult
from gitlease.kernel.git.run import run_git as run_real_git
from gitlease.kernel.ledger.ports import TaskChange
from gitlease.kernel.rules.edge import EdgeEdit
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.resources import name_resource
from gitlease.tasks import edge_commit
from gitlease.tasks.edge_commit import check_commit, commit_edges
from gitlease.tasks.edit import edit_task

ROOT = Path(__file__).parents[2]
FILE = "tasks/F001.md"
JO = "jo@example.com"
TASKS = tasks_like("tasks/**/*.md")


def text(name: str = "F001", body: str = "Work.\n") -> str:
    return f"---\nid: {name}\nstatus: todo # yet\nassigned: []\n---\n\n{body}"


def change(
    name: str = "F001",
    file: str | None = None,
    edit: EdgeEdit | None = None,
    message: str | None = None,
) -> TaskChange:
    return TaskChange(
        resource=name_resource(name),
        file=file or f"tasks/{name}.md",
        edit=edit or EdgeEdit(add=JO),
        message=message or f"assign {name} to {JO}",
    )


@dataclass
class Clone:
    """A work tree with task files, and both halves of an edge in it."""

    root: Path

    def git(self, *words: str, input: str | None = None) -> str:
        return git(self.root, *words, input=input)

    def write(self, file: str, content: str, *, commit: bool = False) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
        if commit:
            self.git("add", "--", f":(literal){file}")
            self.git("commit", "-q", "-m", "a task")

    def read(self, file: str = FILE) -> str:
        return (self.root / file).read_bytes().decode()

    def in_tree(self, *changes: TaskChange) -> None:
        """Edit the files of the work tree, as is done before the edges are committed."""
        for one in changes or (change(),):
            path = self.root / one.file
            data = edit_task(path.read_bytes(), file=one.file, tasks=TASKS, edit=one.edit)
            path.write_bytes(data)

    def check(self, *changes: TaskChange) -> None:
        check_commit(discover(str(self.root)), TASKS, changes or (change(),))

    def commit(self, *changes: TaskChange) -> str | None:
        return commit_edges(discover(str(self.root)), TASKS, changes or (change(),))

    def claim(self, *changes: TaskChange) -> str | None:
        self.check(*changes)
        self.in_tree(*changes)
        return self.commit(*changes)

    def state(self) -> dict[str, bytes]:
        """Everything but objects, which nobody sees before a ref has them."""
        found = snapshot(self.root)
        return {name: found[name] for name in found if not name.startswith("git/objects")}

    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def count(self) -> int:
        return int(self.git("rev-list", "--count", "HEAD"))

    def status(self) -> str:
        return self.git("status", "--porcelain", "-z")

    def lines(self, commit: str = "HEAD") -> list[str]:
        """The lines that a commit takes out and puts in."""
        return edited(self.git("show", "--format=", "-U0", commit))

    def unstaged(self) -> list[str]:
        return edited(self.git("diff", "-U0"))

    def staged(self) -> list[str]:
        return edited(self.git("diff", "--cached", "-U0"))

    def files(self, commit: str = "HEAD") -> list[str]:
        return self.git("show", "--format=", "--name-only", "-z", commit).split("\0")[:-1]

    def refused(self, *changes: TaskChange) -> Invalid:
        """The refusal of check and commit alike, which change nothing."""
        before = self.state()
        with pytest.raises(Invalid) as checked:
            self.check(*changes)
        with pytest.raises(Invalid) as committed:
            self.commit(*changes)
        assert_untouched(before, self.state())
        assert str(checked.value) == str(committed.value)
        assert checked.value.hints
        return checked.value


def edited(diff: str) -> list[str]:
    """The lines of a diff that are taken out and put in."""
    lines = diff.splitlines()
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


EDGE = ["-assigned: []", f"+assigned: [{JO}]"]


def make(root: Path, *options: str) -> Clone:
    clone = Clone(make_repository(root, *options))
    clone.write("src/a.txt", "one\n")
    clone.write("tasks/F002.md", text("F002"))
    clone.write(FILE, text())
    clone.git("add", ".")
    clone.git("commit", "-q", "-m", "start")
    return clone


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A clean work tree with two tasks."""
    return make(tmp_path / "clone")


# --- what is committed, and what stays ----------------------------------------------------------


def test_a_clean_tree_is_clean_afterwards(clone: Clone) -> None:
    old = clone.head()
    new = clone.claim()
    assert new == clone.head()
    assert clone.git("rev-parse", "HEAD^") == old
    assert (clone.files(), clone.lines()) == ([FILE], EDGE)
    # Not even by its times does the file look changed.
    assert run_git(clone.root, "diff-index", "--quiet", "HEAD").returncode == 0
    assert clone.status() == ""
    clone.git("fsck", "--strict")
    assert clone.git("show", "-s", "--format=%an <%ae> %cn <%ce>|%B") == (
        f"Jo <{JO}> Jo <{JO}>|assign F001 to {JO}\n"
    )
    assert clone.git("reflog", "-1", "--format=%gs", "main").endswith(f"assign F001 to {JO}")
    clone.claim(change(edit=EdgeEdit(remove=(JO,)), message="release F001"))
    assert clone.git("rev-parse", "HEAD^{tree}") == clone.git("rev-parse", "HEAD~2^{tree}")


def test_an_edge_that_head_has_makes_no_commit(clone: Clone) -> None:
    first = clone.claim()
    before = snapshot(clone.root)
    assert clone.commit() is None
    clone.check()
    assert commit_edges(discover(str(clone.root)), TASKS, ()) is None
    assert_untouched(before, snapshot(clone.root))
    assert clone.head() == first


@pytest.mark.nightly
def test_what_is_staged_and_changed_elsewhere_stays(clone: Clone) -> None:
    clone.write("src/a.txt", "staged\n")
    clone.write("src/new.txt", "new\n")
    clone.git("add", "src")
    clone.git("rm", "-q", "tasks/F002.md")
    clone.write("src/a.txt", "changed\n")
    clone.write("untracked", "x\n")
    before = (clone.status(), clone.git("diff"), clone.git("diff", "--cached"))
    clone.claim()
    assert (clone.status(), clone.git("diff"), clone.git("diff", "--cached")) == before
    assert (clone.files(), clone.lines()) == ([FILE], EDGE)


@pytest.mark.slow
def test_three_versions_of_one_file_stay_three(clone: Clone) -> None:
    clone.write(FILE, text(body="Staged work.\n"))
    clone.git("add", FILE)
    clone.write(FILE, text(body="Changed work.\n"))
    before = clone.status()
    clone.claim()
    assert clone.status() == before == f"MM {FILE}\0"
    assert clone.lines() == EDGE
    check_words(clone.staged())
    check_words(clone.unstaged())


# --- several files, folders, modes, names -------------------------------------------------------


def test_several_files_are_one_commit(clone: Clone) -> None:
    deep = "tasks/a/b/c/F003.md"
    clone.write(deep, text("F003"), commit=True)
    clone.write("top.md", text("F004"), commit=True)
    old = clone.count()
    changes = (change(), change("F002"), change("F003", deep), change("F004", "top.md"))
    clone.claim(*changes)
    assert clone.count() == old + 1
    assert sorted(clone.files()) == sorted([FILE, "tasks/F002.md", deep, "top.md"])
    assert sorted(clone.lines()) == sorted(EDGE * 4)
    assert clone.status() == ""
    subject, empty, *body = clone.git("show", "-s", "--format=%B").splitlines()
    assert (subject, empty) == ("assign 4 tasks", "")
    assert body[:4] == [f"- assign F00{n} to {JO}" for n in (1, 2, 3, 4)]
    clone.git("fsck", "--strict")


@pytest.mark.slow
def test_the_message_is_utf_8_on_its_line_whatever_the_user_has(clone: Clone) -> None:
    clone.git("config", "i18n.commitEncoding", "ISO-8859-1")
    clone.claim(change(message="assign\nF001\r\n\nto  @jö"))
    raw = clone.git("-c", "i18n.logOutputEncoding=UTF-8", "cat-file", "commit", "HEAD")
    assert raw.endswith("\n\nassign F001 to @jö")
    assert "encoding" not in raw


@pytest.mark.nightly
def test_an_executable_file_stays_executable(clone: Clone) -> None:
    (clone.root / FILE).chmod(0o755)
    clone.git("commit", "-q", "-a", "-m", "mode")
    clone.claim()
    assert clone.git("ls-tree", "HEAD", FILE).startswith("100755 ")
    assert clone.git("ls-files", "-s", FILE).startswith("100755 ")
    assert clone.status() == ""


NAMES = ["with spaces.md", "ünïcödé-日本.md", "-dash.md", ":(top)magic.md", "line\nbreak.md"]
if sys.platform == "linux":
    NAMES += [os.fsdecode(b"latin-\xe9.md")]
NAMES += ["quote\"s'.md", "comma,1,2.md", "star*[x]?.md", "$(touch pwned).md", "a/-b/:c/d e.md"]


def test_odd_names_of_files(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kind of patterns the user has git take names for."""
    changes = [change(f"F1{n}", f"tasks/{name}") for n, name in enumerate(NAMES)]
    for one in changes:
        clone.write(one.file, text(str(one.resource)), commit=True)
    for name in ("ICASE", "GLOB"):
        monkeypatch.setenv(f"GIT_{name}_PATHSPECS", "1")
    clone.claim(*changes)
    assert sorted(clone.files()) == sorted(one.file for one in changes)
    assert clone.status() == ""
    clone.write(NAMES[4], text("F009"))
    assert clone.refused(change("F009", NAMES[4])).message.isprintable()


# --- shapes of repositories ---------------------------------------------------------------------


@pytest.mark.slow
def test_a_linked_work_tree_has_its_own_branch_and_index(clone: Clone, tmp_path: Path) -> None:
    clone.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    linked = Clone(tmp_path / "linked")
    linked.write("src/a.txt", "staged\n")
    linked.git("add", "src/a.txt")
    old = clone.head()
    new = linked.claim()
    assert (linked.head(), clone.head()) == (new, old)
    assert linked.git("rev-parse", "side") == new
    assert linked.lines() == EDGE
    assert (linked.status(), clone.status()) == ("M  src/a.txt\0", "")


@pytest.mark.slow
def test_a_sparse_checkout_with_a_sparse_index(clone: Clone) -> None:
    clone.git("sparse-checkout", "init", "--cone", "--sparse-index")
    clone.git("sparse-checkout", "set", "src")
    assert not (clone.root / FILE).exists()
    assert clone.commit()
    assert clone.lines() == EDGE
    assert clone.status() == ""
    assert not (clone.root / FILE).exists()
    clone.git("sparse-checkout", "disable")
    assert EDGE[1][1:] in clone.read()


def test_line_ends_are_converted_as_git_does(clone: Clone) -> None:
    clone.git("config", "core.autocrlf", "true")
    (clone.root / FILE).unlink()
    clone.git("checkout", "-q", "--", FILE)
    assert "\r\n" in clone.read()
    clone.claim()
    assert clone.lines() == EDGE
    assert clone.status() == ""


def test_no_hook_runs(clone: Clone, tmp_path: Path) -> None:
    folder, ran = clone.root / ".git/hooks", tmp_path / "ran"
    folder.mkdir(exist_ok=True)
    names = ["pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "post-rewrite"]
    for name in [*names, "reference-transaction", "post-index-change", "pre-auto-gc"]:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >>'{ran}'\nexit 1\n")
        (folder / name).chmod(0o755)
    clone.claim()
    assert not ran.exists()
    assert clone.status() == ""


@pytest.mark.slow
def test_only_few_processes_are_started(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Sequence[str]] = []
    before_each(monkeypatch, calls.append)
    clone.check()
    assert len(calls) == 5
    clone.commit()
    assert len(calls) == 5 + 12


def test_a_commit_is_signed_when_the_user_signs_commits(clone: Clone, tmp_path: Path) -> None:
    program = tmp_path / "signer"
    program.write_text(
        "#!/bin/sh\ncat >/dev/null\necho '[GNUPG:] SIG_CREATED x' >&2\n"
        "printf -- '-----BEGIN PGP SIGNATURE-----\\nx\\n-----END PGP SIGNATURE-----\\n'\n"
    )
    program.chmod(0o755)
    clone.git("config", "gpg.program", str(program))
    clone.git("config", "commit.gpgSign", "yes")
    clone.claim()
    assert "gpgsig -----BEGIN PGP SIGNATURE" in clone.git("cat-file", "commit", "HEAD")
    assert clone.status() == ""


@pytest.mark.slow
def test_a_signature_that_fails_leaves_branch_and_index(clone: Clone, tmp_path: Path) -> None:
    program = tmp_path / "signer"
    program.write_text("#!/bin/sh\necho no key >&2\nexit 2\n")
    program.chmod(0o755)
    clone.git("config", "gpg.program", str(program))
    clone.git("config", "commit.gpgSign", "1")
    old = (clone.head(), clone.git("ls-files", "-s"))
    with raises(Invalid):
        clone.commit()
    assert (clone.head(), clone.git("ls-files", "-s")) == old
    clone.git("config", "commit.gpgSign", "off")
    assert clone.commit()


@pytest.mark.nightly
def test_without_a_name_there_is_no_commit(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_NAME", "<>")  # nothing is left of it
    before = clone.state()
    for act in (clone.check, clone.commit):
        with raises(Invalid):
            act()
    assert_untouched(before, clone.state())


# --- refusals -----------------------------------------------------------------------------------


def test_a_head_without_a_branch_or_a_commit_is_refused(clone: Clone) -> None:
    clone.git("checkout", "-q", "--detach")
    check_words(clone.refused().message)
    clone.git("checkout", "-q", "--orphan", "new")
    check_words(clone.refused().message)


def conflicting(clone: Clone) -> str:
    """A branch that conflicts with the current one in a file that is no task; its name."""
    clone.git("checkout", "-q", "-b", "other")
    clone.write("src/a.txt", "theirs\n", commit=True)
    clone.git("checkout", "-q", "main")
    clone.write("src/a.txt", "ours\n", commit=True)
    return "other"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("merge",), "a merge"),
        (("cherry-pick",), "a cherry-pick"),
        (("rebase", "--merge"), "a rebase"),
        (("rebase", "--apply"), "a rebase"),
    ],
)
def test_what_is_half_done_is_not_disturbed(
    clone: Clone, words: tuple[str, ...], what: str
) -> None:
    branch = conflicting(clone)
    assert run_git(clone.root, *words, branch).returncode == 1
    refusal = clone.refused()
    assert refusal.message.startswith(what)
    check_words(refusal.message)


def test_a_file_that_is_not_committed_is_refused(clone: Clone) -> None:
    clone.write("tasks/F003.md", text("F003"))
    refusal = clone.refused(change(), change("F003"))
    check_words(refusal.message)
    assert refusal.resource == "F003"
    check_words(refusal.hints)
    clone.git("add", "-N", "tasks/F003.md")
    check_words(clone.refused(change("F003")).message)
    clone.git("add", "tasks/F003.md")
    check_words(clone.refused(change("F003")).message)


@pytest.mark.slow
def test_a_file_that_is_staged_for_removal_or_has_a_conflict_is_refused(clone: Clone) -> None:
    blob = clone.git("rev-parse", f"HEAD:{FILE}")
    stages = "".join(f"100644 {blob} {stage}\t{FILE}\n" for stage in (1, 2, 3))
    clone.git("rm", "-q", "--cached", FILE)
    check_words(clone.refused().message)
    clone.git("update-index", "--index-info", input=stages)
    check_words(clone.refused().message)


@pytest.mark.nightly
def test_a_conflict_elsewhere_does_not_matter(clone: Clone) -> None:
    """As after a stash that did not apply: nothing is in progress then."""
    clone.write("src/a.txt", "stashed\n")
    clone.git("stash", "-q")
    clone.write("src/a.txt", "ours\n", commit=True)
    assert run_git(clone.root, "stash", "pop", "-q").returncode == 1
    before = clone.git("ls-files", "-u")
    clone.claim()
    assert (clone.files(), clone.lines()) == ([FILE], EDGE)
    assert before == clone.git("ls-files", "-u") != ""


def test_a_link_is_refused(clone: Clone) -> None:
    (clone.root / FILE).unlink()
    (clone.root / FILE).symlink_to("F002.md")
    clone.git("add", FILE)
    check_words(clone.refused().message)
    clone.git("commit", "-q", "-m", "link")
    check_words(clone.refused().message)


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["---\nid: F001\nassigned: [\n---\n", text("F999")])
def test_a_version_that_cannot_be_edited_is_named(clone: Clone, broken: str) -> None:
    clone.write(FILE, broken)
    clone.git("add", FILE)
    refusal = clone.refused()
    assert refusal.message.startswith(f"{FILE}:")
    check_words(refusal.message)
    clone.git("commit", "-q", "-m", "broken")
    clone.write(FILE, text())
    clone.git("add", FILE)
    check_words(clone.refused().message)


HOOK = """\
#!/bin/sh
exec {python} -c '
from test_edge_commit import *
try:
    commit_edges(discover("."), TASKS, (change(),))
except Invalid as error:
    print(error)
' >>{log} 2>&1
"""


@pytest.mark.nightly
@pytest.mark.parametrize("words", [(), ("src/a.txt",)])
def test_a_real_commit_is_not_broken_by_its_own_hook(
    clone: Clone, words: tuple[str, ...], tmp_path: Path
) -> None:
    hook, log = clone.root / ".git/hooks/pre-commit", tmp_path / "log"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK.format(python=sys.executable, log=log))
    hook.chmod(0o755)
    clone.write("src/a.txt", "two\n")
    if not words:
        clone.git("add", "src/a.txt")
    git(clone.root, "commit", "-q", "-m", "with a hook", *words, env=python_path())
    check_words(log.read_text())
    assert clone.files() == ["src/a.txt"]
    assert clone.status() == ""


def python_path() -> dict[str, str]:
    places = (ROOT, ROOT / "tests", ROOT / "tests/tasks", *sys.path)
    return {"PYTHONPATH": os.pathsep.join(map(str, places))}


# --- others at work -----------------------------------------------------------------------------


def test_a_locked_index_is_waited_for_or_nothing_is_committed(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = clone.root / ".git/index.lock"
    clone.in_tree()
    lock.touch()
    with monkeypatch.context() as patch:
        patch.setattr(edge_commit, "PATIENCE", 0.0)
        check_words(clone.refused().message)
    clock = SimpleNamespace(
        monotonic=lambda: 0.0, time=lambda: 0.0, sleep=lambda _seconds: lock.unlink()
    )
    monkeypatch.setattr(edge_commit, "time", clock)
    clone.check()
    lock.touch()
    assert clone.commit()
    assert clone.status() == ""


@pytest.mark.slow
def test_a_branch_that_moved_meanwhile_keeps_both_commits(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[int] = []

    def race(words: Sequence[str]) -> None:
        if "update-ref" in words and len(raced) < 3:
            raced.append(1)
            tree, head = "HEAD^{tree}", clone.head()
            new = clone.git("commit-tree", "-p", head, "-m", f"race {len(raced)}", tree)
            clone.git("update-ref", "refs/heads/main", new)

    before_each(monkeypatch, race)
    clone.in_tree()
    assert clone.commit() == clone.head()
    subjects = clone.git("log", "--format=%s").splitlines()
    assert subjects == [f"assign F001 to {JO}", "race 3", "race 2", "race 1", "start"]
    assert clone.lines() == EDGE
    assert clone.status() == ""


@pytest.mark.nightly
def test_a_branch_that_moved_while_a_signature_was_made_is_noticed_before_staging(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is staged too early, another's commit would take along."""
    staged: list[str] = []

    def race(words: Sequence[str]) -> None:
        if "commit-tree" in words and len(staged) < 2:
            clone.write("src/a.txt", f"{len(staged)}\n", commit=True)
            staged.append(clone.git("diff", "HEAD^", "--name-only"))

    before_each(monkeypatch, race)
    clone.in_tree()
    assert clone.commit()
    assert [set(names.splitlines()) for names in staged] == [{"src/a.txt", FILE}] * 2
    assert clone.files("HEAD^") == ["src/a.txt"]
    assert (clone.files(), clone.lines()) == ([FILE], EDGE)


RACER = """\
import sys
from test_edge_commit import *
sys.stdin.read(1)
for number in range(5):
    name = f"F{sys.argv[1]}{number}"
    clone = Clone(Path("."))
    clone.in_tree(change(name))
    assert commit_edges(discover("."), TASKS, (change(name),))
"""


@pytest.mark.slow
def test_processes_that_race_lose_no_edge(clone: Clone) -> None:
    names = [f"F{worker}{number}" for worker in (1, 2, 3) for number in range(5)]
    for name in names:
        clone.write(f"tasks/{name}.md", text(name))
    clone.git("add", ".")
    clone.git("commit", "-q", "-m", "many")
    how = {"cwd": clone.root, "env": clean_env(python_path()), "stdin": subprocess.PIPE}
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, str(worker)], **how)  # type: ignore[call-overload]
        for worker in (1, 2, 3)
    ]
    for racer in racers:
        racer.communicate(b"x", timeout=60)
        assert racer.returncode == 0
    assert clone.count() == 2 + len(names)
    assert clone.status() == ""
    for name in names:
        assert JO in clone.git("show", f"HEAD:tasks/{name}.md")
    clone.git("fsck", "--strict")


class Killed(BaseException):
    """In place of a kill."""


def before_each(monkeypatch: pytest.MonkeyPatch, act: Callable[[Sequence[str]], None]) -> None:
    """Do something before each run of git."""

    def run(words: Sequence[str], **options: object) -> GitResult:
        act(words)
        return run_real_git(words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(edge_commit, "run_git", run)


@pytest.mark.slow
def test_after_a_kill_at_any_step_it_is_completed_by_the_same_again(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone.write(FILE, text(body="Staged work.\n"))
    clone.git("add", FILE)
    both = change(), change("F002")
    clone.in_tree(*both)
    start, index = clone.head(), (clone.root / ".git/index").read_bytes()
    for step in range(12):
        with monkeypatch.context() as patch:
            before_each(patch, Mock(side_effect=[None] * step + [Killed]))
            with pytest.raises(Killed):
                clone.commit(*both)
        clone.commit(*both)
        assert clone.count() == 2
        assert sorted(clone.lines()) == sorted(EDGE * 2)
        assert clone.status() == f"M  {FILE}\0"
        check_words(clone.staged())
        clone.git("update-ref", "refs/heads/main", start)
        (clone.root / ".git/index").write_bytes(index)
    assert not list((clone.root / ".git/gitlease").glob("edge-*/"))


@pytest.mark.slow
def test_a_state_folder_that_cannot_be_used_is_told(clone: Clone) -> None:
    (clone.root / ".git/gitlease").touch()
    with raises(Invalid):
        clone.commit()
