"""Stale claims in real clones: found by the ledger and real commits, and released one by one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.remotes import Remote
from support.repos import assert_untouched, git, real_clone, snapshot
from support.session import LeaseService
from support.snapshots import check_words
from support.stale import KIM, RELEASE, Story, task_text

from gitlease.check import CheckResult
from gitlease.core import Finding, parse_resource
from gitlease.engine import ClaimOptions
from gitlease.wiring import open_staleness, write_default_settings

pytestmark = [pytest.mark.one_in(2), pytest.mark.sampled(3)]

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "backlog-md"
F001 = parse_resource("F001")

Clones = Callable[..., list[Path]]


@pytest.fixture
def story(path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(clones(2), path_remote, monkeypatch)


def words(found: CheckResult) -> list[str]:
    return [f"{f.rule.id} {f.resource}" for f in found.findings]


def only(found: CheckResult) -> Finding:
    (finding,) = found.findings
    return finding


# --- found --------------------------------------------------------------------------------------


def test_a_claim_that_nobody_works_on_is_found_with_who_and_since_when(story: Story) -> None:
    made = story.kim_takes()
    assert words(story.find()) == []
    story.days(7)
    assert words(story.find()) == []
    story.days(0.1)
    finding = only(story.find())
    assert (finding.rule.id, finding.holder, finding.file) == ("stale-edge", KIM, "tasks/F001.md")
    check_words(finding.message)
    check_words([x.replace(made[:10], "COMMIT") for x in finding.evidence])
    text = (story.jo / "tasks/F001.md").read_text().splitlines()
    assert finding.line is not None
    assert text[finding.line - 1].startswith("assigned:")


def test_looking_costs_one_connection_and_leaves_the_clone_as_it_is(story: Story) -> None:
    story.kim_takes()
    story.days(8)
    before = snapshot(story.jo)
    with story.counted() as said:
        assert len(story.find().findings) == 1
    assert said == {"pushes": 0, "fetches": 1, "commits": 0}
    assert_untouched(before, snapshot(story.jo))


def test_nightly_check_of_normal_work_finds_nothing(story: Story) -> None:
    kim, jo = (LeaseService(story.at(x).ledger) for x in (story.kim, story.jo))
    story.put(story.jo, ".gitlease.yaml", "stale: {after: 10s}\n")
    nightly = story.kim.parent / "nightly"

    def found() -> list[str]:
        if not nightly.exists():
            real_clone(story.remote.url, nightly, "ci@example.com")
        git(nightly, "pull", "-q")
        return words(story.find(nightly))

    kim.claim([F001])  # the edit of its file is neither committed nor pushed
    assert found() == []
    jo.claim([parse_resource("F002")], ClaimOptions(commit=True))
    story.send(story.jo)
    assert found() == []
    jo.complete(parse_resource("F002"))
    assert found() == []
    story.commit(story.jo, "done", "-a")
    story.send(story.jo)
    kim.release([F001])
    assert found() == []


def test_a_live_lease_is_told_of_only_where_no_branch_has_its_edge(story: Story) -> None:
    git(story.kim, "switch", "-qc", "topic")
    kim = LeaseService(story.at(story.kim).ledger)
    kim.claim([F001], ClaimOptions(commit=True))
    assert words(story.find()) == []
    for _ in range(2):
        story.clock.advance(600)
        kim.renew([F001])
    assert words(story.find()) == ["lease-without-edge F001"]
    story.send(story.kim, "topic")
    git(story.jo, "fetch", "-q", "origin")
    assert words(story.find()) == []


def test_in_a_shallow_clone_nothing_is_called_stale_and_that_is_said(
    story: Story, tmp_path: Path
) -> None:
    story.kim_takes()
    story.days(8)
    story.put(story.jo, "README", "x")
    story.commit(story.jo, "something else")
    story.send(story.jo)
    clone, url = tmp_path / "ci", f"file://{story.remote.bare}"
    real_clone(url, clone, "ci@example.com", "--depth=1", env=story.env())
    git(clone, "switch", "-q", "--detach")
    found = story.find(clone)
    assert found.findings == ()
    check_words(found.unread[0])
    git(clone, "fetch", "-q", "--unshallow", env=story.env())
    assert words(story.find(clone)) == ["stale-edge F001"]


def kim_works_on_a_branch(story: Story) -> None:
    """kim holds F001, longer than an edge may be on its way, and has it on a branch only."""
    git(story.kim, "switch", "-qc", "topic")
    kim = LeaseService(story.at(story.kim).ledger)
    kim.claim([F001], ClaimOptions(commit=True))
    for _ in range(2):
        story.clock.advance(600)
        kim.renew([F001])
    story.send(story.kim, "topic")


def narrow_clone(story: Story, place: Path) -> Path:
    """A clone of main only."""
    url = f"file://{story.remote.bare}"
    return real_clone(url, place, "ci@example.com", "--single-branch", env=story.env())


ALL = "+refs/heads/*:refs/remotes/origin/*"


def test_a_lease_whose_branch_is_missing_here_is_no_finding(story: Story, tmp_path: Path) -> None:
    kim_works_on_a_branch(story)
    clone = narrow_clone(story, tmp_path / "ci")
    before = snapshot(clone)
    with story.counted() as said:
        found = story.find(clone)
    assert (said["fetches"], said["pushes"]) == (2, 0)
    assert_untouched(before, snapshot(clone))
    assert (found.findings, found._actions) == ((), ())
    check_words(found.unread)
    git(clone, "fetch", "-q", "origin", ALL, env=story.env())
    found = story.find(clone)
    assert (found.findings, found.unread) == ((), ())


def test_a_branch_that_went_on_since_it_was_fetched_is_missing_too(
    story: Story, tmp_path: Path
) -> None:
    git(story.kim, "push", "-q", "origin", "HEAD:topic", env=story.env())
    clone = narrow_clone(story, tmp_path / "ci")
    git(clone, "fetch", "-q", "origin", ALL, env=story.env())
    kim_works_on_a_branch(story)
    (said,) = story.find(clone).unread
    check_words(said)


def test_a_clone_of_one_branch_that_asks_no_remote_cannot_know(
    story: Story, tmp_path: Path
) -> None:
    kim_works_on_a_branch(story)
    clone = narrow_clone(story, tmp_path / "ci")
    story.find(clone)
    with story.counted() as said:
        found = open_staleness(story.at(clone)).find(cached=True)
    assert said["fetches"] == 0
    assert found.findings == ()
    check_words(found.unread[0])


def test_in_continuous_integration_every_clone_asks(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    kim_works_on_a_branch(story)
    assert words(story.find()) == ["lease-without-edge F001"]  # jo has not fetched since
    monkeypatch.setenv("CI", "true")
    found = story.find()
    assert found.findings == ()
    check_words(found.unread[0])
    git(story.jo, "fetch", "-q", "origin", env=story.env())
    found = story.find()
    assert (found.findings, found.unread) == ((), ())


def test_task_files_that_a_sparse_checkout_leaves_out_are_no_pass(
    story: Story, tmp_path: Path
) -> None:
    story.kim_takes()
    story.days(8)
    clone = tmp_path / "sparse"
    url = f"file://{story.remote.bare}"
    real_clone(url, clone, "ci@example.com", env=story.env())
    git(clone, "sparse-checkout", "set", "src")
    before = snapshot(clone)
    found = story.find(clone)
    assert_untouched(before, snapshot(clone))
    assert (words(found), found._actions) == ([], ())
    check_words(found.unread)
    git(clone, "sparse-checkout", "add", "tasks")
    found = story.find(clone)
    assert (words(found), found.unread) == (["stale-edge F001"], ())


def test_contents_that_a_partial_clone_lacks_are_no_pass(story: Story, tmp_path: Path) -> None:
    git(story.remote.bare, "config", "uploadpack.allowFilter", "true")
    story.kim_takes()
    story.put(story.kim, "tasks/F001.md", task_text("F001", KIM) + "A word.\n")
    story.commit(story.kim, "a word")
    story.send(story.kim)
    story.days(8)
    clone, url = tmp_path / "partial", f"file://{story.remote.bare}"
    real_clone(url, clone, "ci@example.com", "--filter=blob:none", env=story.env())
    found = story.find(clone)
    assert (words(found), found.warnings) == ([], ())
    check_words(found.unread)
    git(clone, "fetch", "-q", "--refetch", "--no-filter", "origin", env=story.env())
    found = story.find(clone)
    assert (words(found), found.unread) == (["stale-edge F001"], ())


# --- released ------------------------------------------------------------------------------------


def test_a_push_and_a_commit_release_each_and_nothing_else_changes(story: Story) -> None:
    story.kim_takes("F001")
    story.kim_takes("F002")
    LeaseService(story.at(story.kim).ledger).claim(
        [parse_resource("deploy")], ClaimOptions(any_name=True)
    )
    story.days(8)
    story.put(story.jo, "README", "staged\n")
    (story.jo / "src").mkdir()
    (story.jo / "src/new.py").write_text("untracked\n")
    dirty = story.jo / "tasks/F001.md"
    dirty.write_text(dirty.read_text() + "Not committed.\n")
    found = story.find()
    with story.counted() as said:
        fixed = story.fix(found=found)
    assert said == {"pushes": 3, "fetches": 0, "commits": 2}
    assert [f.resource for f in fixed.fixed] == ["F001", "F002", "deploy"]
    assert fixed.commit == git(story.jo, "rev-parse", "HEAD")
    messages = git(story.jo, "log", "-2", "--format=%s").splitlines()
    assert messages == [f"unassign F00{n} from {KIM}: idle since 2027-01-15" for n in (2, 1)]
    names = git(story.jo, "show", "--name-only", "--format=").split()
    assert names == ["tasks/F002.md"]
    assert git(story.jo, "diff", "--cached", "--name-only") == "README"
    assert git(story.jo, "diff", "--name-only") == "tasks/F001.md"
    assert dirty.read_text() == task_text("F001") + "Not committed.\n"
    assert (story.jo / "src/new.py").read_text() == "untracked\n"
    with story.counted() as said:
        again = story.fix()
    assert (said["pushes"], said["commits"], again.leases) == (0, 0, ())


def test_records_that_cannot_be_read_are_no_pass(story: Story, tmp_path: Path) -> None:
    story.kim_takes("F001")
    ref, tree = "refs/gitlease/global", tmp_path / "spoilt"
    git(story.remote.bare, "worktree", "add", "-q", "--detach", str(tree), ref)
    next(x for top in ("leases", "paths") for x in (tree / top).rglob("*.yaml")).write_text("{{{")
    git(tree, "-c", "user.email=x@y.z", "-c", "user.name=x", "commit", "-qam", "x", env=story.env())
    git(story.remote.bare, "update-ref", ref, git(tree, "rev-parse", "HEAD"))
    check_words(story.find().unread)


def test_without_a_branch_to_commit_on_the_edges_stay_and_plain_leases_go(story: Story) -> None:
    story.kim_takes("F001")
    LeaseService(story.at(story.kim).ledger).claim(
        [parse_resource("deploy")], ClaimOptions(any_name=True)
    )
    story.days(8)
    git(story.jo, "switch", "-q", "--detach")
    fixed = story.fix()
    assert [f.resource for f in fixed.fixed] == ["deploy"]
    assert [f.resource for f in fixed.findings] == ["F001"]
    check_words(fixed.findings[0].evidence[-1])
    assert git(story.jo, "status", "--porcelain") == ""
    fixed = story.fix(commit=False)
    assert [f.resource for f in fixed.fixed] == ["F001"]
    assert git(story.jo, "diff", "--name-only") == "tasks/F001.md"
    assert "assigned: []" in (story.jo / "tasks/F001.md").read_text()


def test_an_edit_that_could_not_be_committed_is_not_called_fixed(story: Story) -> None:
    story.kim_takes("F001")
    LeaseService(story.at(story.kim).ledger).claim(
        [parse_resource("deploy")], ClaimOptions(any_name=True)
    )
    story.days(8)
    git(story.jo, "config", "commit.gpgsign", "true")
    git(story.jo, "config", "gpg.program", "/bin/false")
    fixed = story.fix()
    assert ([f.resource for f in fixed.fixed], fixed.commit) == (["deploy"], None)
    (left,) = fixed.findings
    why = left.evidence[-1].removeprefix("not fixed: ")
    check_words(why)
    assert fixed.undone == (why,)
    assert git(story.jo, "status", "--porcelain", "--", "tasks") == " M tasks/F001.md"
    git(story.jo, "config", "--unset", "commit.gpgsign")
    (step,) = left.next_steps
    subprocess.run(["/bin/sh", "-c", step], cwd=story.jo, check=True, capture_output=True)
    assert git(story.jo, "status", "--porcelain", "--", "tasks") == ""
    assert words(story.find()) == []


# --- real data, and much of it --------------------------------------------------------------------


def test_real_tasks_of_backlog_md(story: Story) -> None:
    if not DATA.is_dir():
        pytest.skip(f"there are no real task files in {DATA}")
    git(story.jo, "rm", "-qr", "tasks", ".gitlease.yaml")
    shutil.copytree(DATA / "backlog", story.jo / "backlog")
    written = write_default_settings(story.at(story.jo).repository)
    assert written is not None
    settings = Path(written[0])
    settings.write_text(settings.read_text() + RELEASE)
    git(story.jo, "add", "-A")
    story.commit(story.jo, "real tasks")
    story.days(30)
    story.put(story.jo, "README", "x")
    story.commit(story.jo, "later", email="alex-agent@example.com")
    tasks = story.at(story.jo).ledger.edges.files.read()
    open_tasks = [t for t in tasks.tasks if t.assigned and not t.is_done]
    found = story.find()
    stale = [f for f in found.findings if f.rule.id == "stale-edge"]
    assert {f.resource for f in stale} == {t.resource.text for t in open_tasks}
    assert len(stale) == sum(len(t.assigned) for t in open_tasks)
    unknown = {f.resource for f in found.findings if f.rule.id == "unknown-assignee"}
    assert unknown == {
        t.resource.text for t in open_tasks if any(n != "@alex-agent" for n in t.assigned)
    }
    before = git(story.jo, "rev-parse", "HEAD")
    with story.counted() as said:
        fixed = story.fix(found=found)
    assert (said["pushes"], said["commits"]) == (len(stale), len(stale))
    assert len([f for f in fixed.fixed if f.rule.id == "stale-edge"]) == len(stale)
    assert not [f for f in story.find().findings if f.rule.id == "stale-edge"]
    changed = git(story.jo, "diff", "--numstat", before).splitlines()
    assert len(changed) == len(open_tasks)


@pytest.mark.parametrize("count", [400, pytest.param(5_000, marks=pytest.mark.slow)])
def test_thousands_of_tasks_take_no_more_processes_and_connections_than_one(
    story: Story, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(count):
        path = story.jo / f"tasks/T{number:04}.md"
        path.write_text(task_text(f"T{number:04}", KIM), encoding="utf-8")
    git(story.jo, "add", "-A")
    story.commit(story.jo, "many")
    story.days(8)
    stale = open_staleness(story.at(story.jo))
    started: list[Any] = []
    real = subprocess.Popen

    def counting(words: Any, **more: Any) -> Any:
        started.append(words)
        return real(words, **more)

    with story.counted() as said, monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", counting)
        found = stale.find()
        processes = len(started)
    assert len([f for f in found.findings if f.rule.id == "stale-edge"]) == count
    assert said == {"pushes": 0, "fetches": 1, "commits": 0}
    assert processes <= 14
