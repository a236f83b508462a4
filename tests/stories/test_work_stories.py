"""Pools: every task is done once or given back, whoever is killed on the way."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.documents import held_to_schema
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import LONG, Desk, desks_in, short_leases, until
from support.snapshots import check_words

from gitlease.kernel.git.branches import Branches
from gitlease.kernel.git.repository import discover, short_host

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are seen there"),
    pytest.mark.slow,
]

Clones = Callable[..., list[Path]]
TASK = "---\nid: {name}\ntitle: The {name}\nstatus: todo\nassigned: []\n---\n"
WAITS = "depends_on: [F02]\n"
COUNT = 'echo "$GITLEASE_RESOURCE" >>"$0"; '


def with_tasks(
    made: list[Path], remote: Remote, count: int, more: Mapping[str, str] | None = None
) -> None:
    """Clones whose remote has so many tasks from F01 on; ``more`` fields by the last digit."""
    (made[0] / "tasks").mkdir()
    for name in (f"F{number:02d}" for number in range(1, count + 1)):
        text = TASK.format(name=name).replace(
            "assigned", (more or {}).get(name[-1], "") + "assigned"
        )
        (made[0] / "tasks" / f"{name}.md").write_text(text, encoding="utf-8")
    git(made[0], "add", "tasks")
    git(made[0], "commit", "-q", "-m", "tasks")
    git(made[0], "push", "-q", "origin", "HEAD:main", env=remote.env)
    for clone in made[1:]:
        git(clone, "pull", "-q", "origin", "main", env=remote.env)


@pytest.fixture
def jo(path_remote: Remote, clones: Clones) -> Iterator[Desk]:
    made = clones(1)
    with_tasks(made, path_remote, 5)
    with desks_in(made) as (desk,):
        yield desk


def lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    return [held_to_schema(json.loads(line)) for line in done.stdout.splitlines()]


def statuses(clone: Path) -> dict[str, str]:
    found = {}
    for file in sorted((clone / "tasks").glob("F*.md")):
        status = next(x for x in file.read_text().splitlines() if x.startswith("status: "))
        found[file.stem] = status.removeprefix("status: ")
    return found


def test_a_pool_does_every_task_once(jo: Desk, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script = COUNT + 'test -s "$GITLEASE_BRIEF" && head -n 1 "$GITLEASE_BRIEF"'
    done = jo.ask(
        "work", "-j", "3", "--done-on-success", "--json", "--", "sh", "-c", script, str(ran)
    )
    assert done.returncode == 0, done
    events = lines(done)
    assert events[-1] == {
        "schema": 1,
        "event": "finished",
        "ok": True,
        "command": "work",
        **{"done": 5, "given_back": 0, "failed": 0, "lost": 0, "stopped": 0, "waiting": 0},
        **{"left": 0, "stranded": [], "exit": 0},
    }
    assert sorted(ran.read_text().split()) == ["F01", "F02", "F03", "F04", "F05"]
    assert set(statuses(jo.clone).values()) == {"done"}
    started = [x for x in events if x["event"] == "started"]
    assert len({x["session"] for x in started}) == 5
    assert Path(started[0]["log"]).read_text().startswith(f"# {started[0]['resource']}: The F0")
    assert jo.live() == []


@pytest.mark.nightly
def test_what_fails_is_given_back_with_a_note_and_left_alone(jo: Desk, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script = COUNT + 'echo the reason; [ "$GITLEASE_RESOURCE" != F02 ] || exit 3'
    done = jo.ask("work", "--done-on-success", "--", "sh", "-c", script, str(ran))
    assert done.returncode == 1
    assert "F02 failed after " in done.stdout
    assert done.stdout.endswith("finished: 4 done, 1 failed, 1 left; exit status 1\n")
    assert Counter(ran.read_text().split())["F02"] == 1, "it is left alone for ten minutes"
    assert statuses(jo.clone)["F02"] == "todo"
    shown = jo.document("show", "F02")
    assert shown["leases"] == []
    logs = [x["log"] for x in jo.document("dispatch", "--list")["runs"] if x["exit"] == 3]
    notes = {f"a run of it ended with 3 on {short_host()}, log {log}" for log in logs}
    assert {x["text"] for x in shown["notes"]} == notes, "the output stays here"
    assert jo.document("next", expect=1)["error"]["code"] == "nothing_left"
    assert jo.ask("claim", "F02").returncode == 0


def test_run_says_what_became_of_its_task(jo: Desk) -> None:
    check_words(jo.ask("run", "F01", "--done", "--", "true").stderr)
    check_words(jo.ask("run", "F02", "--done", "--", "sh", "-c", "exit 2").stderr)
    assert jo.ask("run", "F02", "--", "true").stderr == "", "as everybody expects"


def test_a_command_that_finishes_its_task_itself(jo: Desk) -> None:
    own = f'test $GITLEASE_RESOURCE = F03 || "{jo.words()[0]}" -m gitlease done $GITLEASE_RESOURCE'
    done = jo.ask("work", "-j", "2", "--json", "--", "sh", "-c", own)
    end = lines(done)[-1]
    assert (done.returncode, end["done"], end["given_back"]) == (0, 4, 1)


@pytest.mark.nightly
def test_what_succeeded_and_could_not_be_marked_as_done_counts_as_failed(
    jo: Desk, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    script = COUNT + '[ $(wc -l <"$0") -gt 1 ] || git checkout -q --detach'
    words = ("work", "--worktrees", "--done-on-success", "--json", "--")
    done = jo.ask(*words, "sh", "-c", script, str(ran))
    assert done.returncode == 1
    events = lines(done)
    first = next(x for x in events if x["event"] == "ended")
    assert (first["outcome"], first["exit"]) == ("failed", 0)
    check_words(first["message"])
    assert {x: events[-1][x] for x in ("done", "failed")} == {"done": 4, "failed": 1}


def begun(desk: Desk) -> list[int]:
    """The runners whose commands run, or ran."""
    runs = desk.document("dispatch", "--list")["runs"]
    return [x["pid"] for x in runs if x["command_pid"]]


def pool(desk: Desk, *words: str, count: int = 2) -> subprocess.Popen[str]:
    """A pool that works for long, once it has started so many runs."""
    started = desk.start("work", "-j", str(count), *words, "--", "sh", "-c", "sleep 30")
    until(lambda: len(begun(desk)) >= count, "the start of the runs")
    return started


def test_two_interrupts_stop_it_and_give_back(jo: Desk) -> None:
    working = pool(jo)

    def over() -> bool:
        working.send_signal(signal.SIGINT)  # two that come at once may be one
        return working.poll() is not None

    until(over, "its end")
    assert working.wait(LONG) == 130
    assert jo.live() == []
    assert set(statuses(jo.clone).values()) == {"todo"}


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="elsewhere nobody tells a child")
def test_with_a_killed_pool_its_commands_end_and_give_back(jo: Desk) -> None:
    working = pool(jo)
    working.kill()
    working.wait(LONG)
    jo.all_gone()
    assert jo.live() == []
    assert set(statuses(jo.clone).values()) == {"todo"}


def test_a_killed_runner_of_two_fails_its_task_alone(jo: Desk) -> None:
    script = 'test "$GITLEASE_RESOURCE" != F01 || sleep 30'
    working = jo.start("work", "-j", "2", "--done-on-success", "--json", "--", "sh", "-c", script)

    def runner() -> int | None:
        runs = jo.document("dispatch", "--list")["runs"]
        return next(
            (x["pid"] for x in runs if x["resources"] == ["F01"] and x["command_pid"]), None
        )

    os.kill(until(runner, "the first command"), signal.SIGKILL)
    out, _ = working.communicate(timeout=LONG)
    events = [held_to_schema(json.loads(line)) for line in out.splitlines()]
    (ended,) = (x for x in events if x["event"] == "ended" and x["resource"] == "F01")
    assert (ended["outcome"], ended["exit"]) == ("failed", None)
    check_words(ended["message"])
    assert {x: events[-1][x] for x in ("done", "failed", "ok")} == {
        "done": 4,
        "failed": 1,
        "ok": False,
    }
    assert (working.returncode, jo.live()) == (1, [])
    assert jo.document("show", "F01")["setback"]["failures"] == 1


@pytest.mark.default("work-2")
@pytest.mark.parametrize(
    ("line", "status"),
    [
        *(("work", 2), ("work --base main -- true", 2), ("work -j 0 -- true", 2)),
        *(("work --land --pr x -- true", 2), ("work --check true -- true", 2)),
        *(("work --unfenced -- true", 2), ("work --land --done-on-success -- true", 2)),
        *(("work --pr '' -- true", 2), ("work --share-log 101 -- true", 2)),
        *(("work --status -j 2", 2), ("work --status --land", 2)),
        *(("--local work --land -- true", 2), ("work --land --base HEAD -- true", 2)),
        *(("work -- no-such", 7), ("work --pr no-such -- true", 7)),
        *(("work --land --check no-such -- true", 7), ("work --land --base nowhere -- true", 7)),
        ("work --worktrees --base nowhere -- true", 7),
        *(("work --land --ttl 1s -- true", 6), ("work --worktrees --ttl 99d -- true", 6)),
    ],
)
def test_what_cannot_be_takes_no_task(jo: Desk, line: str, status: int) -> None:
    done = jo.ask(*shlex.split(line))
    assert (done.returncode, done.stdout) == (status, ""), done
    assert jo.document("list", "--all")["leases"] == []
    assert not (jo.clone.parent / f"{jo.clone.name}.worktrees").exists()


def test_base_is_fetched_although_a_work_tree_is_being_added(jo: Desk, tmp_path: Path) -> None:
    """Git writes the head of a new work tree twice; a fetch between the two fails."""
    made, tries = jo.clone / ".git" / "worktrees" / "new", tmp_path / "tries"
    made.mkdir(parents=True)
    (made / "HEAD").write_text("0" * 40 + "\n")
    (made / "commondir").write_text("../..\n")
    (made / "gitdir").write_text(f"{tmp_path}/.git\n")
    serve = tmp_path / "serve"
    serve.write_text(
        f"#!/bin/sh\necho x >>{tries}\n[ $(wc -l <{tries}) = 1 ] || "
        f'echo "ref: refs/heads/main" >{made}/HEAD\nexec git-upload-pack "$@"\n'
    )
    serve.chmod(0o755)
    git(jo.clone, "push", "-q", "origin", "HEAD:next")
    commit_file(jo.clone, "more", "more", "more")
    git(jo.clone, "push", "-q", "origin", "HEAD:next")
    git(jo.clone, "reset", "-q", "--hard", "HEAD~1")
    git(jo.clone, "config", "remote.origin.uploadpack", str(serve))
    git(jo.clone, "update-ref", "refs/remotes/origin/next", "HEAD")
    Branches(discover(str(jo.clone))).fetch("origin", "next")
    assert tries.read_text().count("x") > 1
    assert "more" in git(jo.clone, "ls-tree", "--name-only", "origin/next")


def test_task_stopped_by_name_is_not_started_again(jo: Desk) -> None:
    working = jo.start("work", "--json", "--limit", "1h", "--", "sh", "-c", "sleep 30")
    until(lambda: begun(jo), "the first command")
    jo.document("dispatch", "--stop", "F01")
    until(lambda: len(begun(jo)) > 1, "the next command")
    working.send_signal(signal.SIGTERM)
    out, _ = working.communicate(timeout=LONG)
    events = [json.loads(line) for line in out.splitlines()]
    assert [x["resource"] for x in events if x["event"] == "started"] == ["F01", "F02"]
    ends = [(x["resource"], x["outcome"]) for x in events if x["event"] == "ended"]
    assert ends[0] == ("F01", "stopped")
    assert (working.returncode, events[-1]["ok"], jo.live()) == (128 + signal.SIGTERM, False, [])


def test_command_beyond_the_limit_has_failed(jo: Desk) -> None:
    script = 'test "$GITLEASE_RESOURCE" != F01 || sleep 30'
    words = ("work", "--limit", "1s", "--done-on-success", "--json")
    done = jo.ask(*words, "--", "sh", "-c", script)
    ended = [x for x in lines(done) if x["event"] == "ended" and x["resource"] == "F01"][-1]
    assert (done.returncode, ended["outcome"]) == (1, "failed")
    assert ended["message"] == "it took longer than 1s"
    assert [lines(done)[-1][x] for x in ("done", "left", "exit")] == [4, 1, 1]
    note = jo.document("show", "F01")["notes"][-1]
    assert note["text"].endswith(f"log {ended['log']}: it took longer than 1s")


def test_lines_of_a_log_are_shared_on_request_and_clean(jo: Desk) -> None:
    script = (
        'printf "one\\ntwo\\n\\033[31mred\\033[0m\\n10%%\\r99%%\\n"; '
        'printf "https://a:secret@host/\\007\\n"; exit 3'
    )
    words = ("work", "--share-log", "3", "--budget", "1", "--", "sh", "-c", script)
    assert jo.ask(*words).returncode == 1
    (note,) = jo.document("show", "F01")["notes"]
    assert note["text"].split("\n")[1:] == ["red", "99%", "https://host/"]


def test_command_that_keeps_its_task_waits_for_a_person(jo: Desk) -> None:
    keep = " ".join([*jo.words("release", "F01"), "--keep", "--note", "which"])
    script = f'test "$GITLEASE_RESOURCE" != F01 || {{ {keep}; exit 1; }}'
    done = jo.ask("work", "--done-on-success", "--json", "--", "sh", "-c", script)
    (ended,) = (x for x in lines(done) if x["event"] == "ended" and x["resource"] == "F01")
    assert (ended["outcome"], ended["message"]) == ("waiting", "which")
    end = [lines(done)[-1][x] for x in ("done", "failed", "waiting", "left", "exit")]
    assert end == [4, 0, 1, 0, 0]
    every = jo.document("list", "--all")["leases"]
    (lease,) = (x for x in every if x["state"] != "completed")
    assert (lease["resource"], lease["state"], lease["assigned"]) == ("F01", "expired", True)
    assert jo.document("show", "F01")["setback"]["waits"]


@pytest.mark.nightly
def test_status_shows_pools_that_run_or_the_last(jo: Desk) -> None:
    none = jo.ask("work", "--status")
    assert (none.returncode, held_to_schema(jo.document("work", "--status"))["pools"]) == (0, [])
    script = 'test "$GITLEASE_RESOURCE" = F01 && exit 3; echo at work; sleep 30'
    working = jo.start("work", "-j", "2", "--budget", "3", "--", "sh", "-c", script)

    def running() -> Any:
        (pool,) = held_to_schema(jo.document("work", "--status"))["pools"]
        at_work = [x["last_line"] for x in pool["runs"]].count("at work")
        return pool if at_work == pool["totals"]["running"] == 2 else None

    until(lambda: jo.document("work", "--status")["pools"], "the pool")
    pool = until(running, "two commands at work")
    assert (pool["pid"], pool["state"], pool["jobs"]) == (working.pid, "running", 2)
    assert [x["state"] for x in pool["runs"]] == ["running", "running", "ended"]
    assert (pool["totals"]["done"], pool["totals"]["failed"]) == (0, 1)
    shown = jo.ask("work", "--status").stdout.splitlines()
    assert shown[0].startswith(f"pool {working.pid} running since ")
    assert [x.split()[:2] for x in shown[3:]] == [
        *(["F03", "running"], ["F02", "running"], ["F01", "failed"])
    ]
    working.kill()
    working.wait(LONG)
    jo.all_gone()
    (pool,) = jo.document("work", "--status")["pools"]
    assert pool["state"] == "killed"
    assert (pool["totals"]["running"], pool["totals"]["stopped"]) == (0, 2)


def test_task_of_a_dead_machine_goes_back_to_the_queue(path_remote: Remote, clones: Clones) -> None:
    """What was picked does; what was claimed by name is stranded, and the pool's end says so."""
    made = clones(2)
    with_tasks(made, path_remote, 2)
    short_leases(made[0])
    with desks_in(made) as (ada, bob):
        assert ada.ask("claim", "F02", "--ttl", "6s").returncode == 0
        dead = ada.start("run", "--next", "--ttl", "12s", "--", "sh", "-c", "sleep 90")
        until(lambda: bob.live() == ["F01"], "its claim, and the lapse of the other")
        for pid in (dead.pid, *ada.processes()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        held = lines(bob.ask("work", "--done-on-success", "--json", "--", "true"))[-1]
        assert (held["done"], held["left"], held["stranded"]) == (0, 1, ["F02"])
        until(lambda: bob.ask("next").returncode == 0, "the margin after its lapse")
        done = bob.ask("work", "--done-on-success", "--json", "--", "true")
        end = lines(done)[-1]
        assert (done.returncode, end["done"], end["stranded"]) == (1, 1, ["F02"])
        losses = ada.document("brief")["taken"]
        assert [(x["resource"], x["what"]) for x in losses] == [("F01", "taken_over")]


def test_each_task_has_a_work_tree_and_a_branch(jo: Desk) -> None:
    script = (
        'test "$GITLEASE_RESOURCE" = F02 && { touch rest; exit 1; }; '
        'echo work >"$GITLEASE_RESOURCE.txt"; git add .; git commit -qm "work"'
    )
    words = ("work", "-j", "2", "--worktrees", "--done-on-success")
    done = jo.ask(*words, "--", "sh", "-c", script)
    assert done.returncode == 1, done
    folder = Path(f"{jo.clone}.worktrees")
    assert [x.name for x in folder.iterdir()] == ["F02"], "what is not clean is kept"
    assert f"{folder}/F02 was kept: it has changes that are not committed" in done.stdout
    assert set(statuses(jo.clone).values()) == {"todo"}, "this work tree is nobody's"
    assert git(jo.clone, "status", "--porcelain") == ""
    for name in ("F01", "F03", "F04", "F05"):
        finished = git(jo.clone, "log", "--format=%s", f"origin/main..work/{name}").splitlines()
        assert finished == [f"finish {name}", "work", f"assign {name} to w1@example.com"]
        assert "status: done" in git(jo.clone, "show", f"work/{name}:tasks/{name}.md")
    assert "status: todo" in git(jo.clone, "show", "work/F02:tasks/F02.md")
    assert jo.live() == []
    (folder / "F02" / "rest").unlink()
    assert jo.ask("note", "F02", "try again").returncode == 0
    done = jo.ask(*words, "--", "sh", "-c", "true")
    assert done.returncode == 0, done
    assert list(folder.iterdir()) == []
    assert "status: done" in git(jo.clone, "show", "work/F02:tasks/F02.md")


def test_poisoned_trees_stop_no_other_task(jo: Desk) -> None:
    """A rebase in progress, a folder in the way, and a tree that its command removes."""
    script = (
        'case "$GITLEASE_RESOURCE" in F02) rm -rf "$PWD"; exit 1;; F01) '
        "git switch -qc other; echo 1 >f; git add f; git commit -qm one; git switch -q -; "
        "echo 2 >f; git add f; git commit -qm two; git rebase -q other; exit 1;; esac; sleep 1"
    )
    words = ("work", "-j", "2", "--worktrees", "--done-on-success", "--json")
    folder = Path(f"{jo.clone}.worktrees")
    (folder / "F03").mkdir(parents=True)
    (folder / "F03" / "kept").write_text("mine")
    once = jo.ask(*words, "--", "sh", "-c", script)
    end = lines(once)[-1]
    assert [once.returncode, end["done"], end["failed"]] == [1, 2, 2]
    assert end["stranded"] == ["F01", "F03"]
    held = {x["resource"]: x["state"] for x in jo.document("list")["leases"]}
    assert held == {"F01": "expired"}, "nobody waits long for a lease of what failed"
    again = jo.ask(*words, "--", "true")
    warnings = {x["message"] for x in lines(again) if x["event"] == "warning"}
    assert (again.returncode, lines(again)[-1]["stranded"]) == (1, ["F01", "F03"])
    check_words(warnings)
    assert (folder / "F03" / "kept").read_text() == "mine"


def test_tasks_that_a_checkout_cannot_take_are_stranded(jo: Desk) -> None:
    (jo.clone / ".git" / "MERGE_HEAD").write_text(git(jo.clone, "rev-parse", "HEAD"))
    done = jo.ask("work", "--commit", "--json", "--", "true")
    assert (done.returncode, len(lines(done)[-1]["stranded"])) == (1, 5)
    warnings = [x["message"] for x in lines(done) if x["event"] == "warning"]
    check_words(warnings)


def test_pool_fetches_its_base_before_each_task(path_remote: Remote, clones: Clones) -> None:
    made = clones(2)
    with_tasks(made, path_remote, 2)
    with desks_in(made) as (one, two):
        two.ask("done", "F01", "--commit")
        commit_file(two.clone, "tasks/F09.md", TASK.format(name="F09"), "one more")
        git(two.clone, "push", "-q", "origin", "HEAD:main", env=path_remote.env)
        plain = one.ask("work", "--json", "--", "true")
        behind = [x["message"] for x in lines(plain) if x["event"] == "warning"]
        check_words(behind)
        ran = lines(one.ask("work", "--worktrees", "--done-on-success", "--json", "--", "true"))
        assert [x["resource"] for x in ran if x["event"] == "started"] == ["F02", "F09"]


def test_leftovers_of_tasks_finished_elsewhere_are_removed(
    path_remote: Remote, clones: Clones
) -> None:
    made = clones(2)
    with_tasks(made, path_remote, 2)
    with desks_in(made) as (one, two):
        stay = "test $GITLEASE_RESOURCE = F01 || { echo x >own; git add own; git commit -qm own; }"
        one.ask("work", "--worktrees", "--", "sh", "-c", f"touch junk; {stay}")
        folder = Path(f"{one.clone}.worktrees")
        assert sorted(x.name for x in folder.iterdir()) == ["F01", "F02"]
        for name in ("F01", "F02"):
            (folder / name / "junk").unlink()
            two.ask("done", name, "--commit")
        git(two.clone, "push", "-q", "origin", "HEAD:main", env=path_remote.env)
        assert one.ask("work", "--worktrees", "--", "true").returncode == 0
        assert [x.name for x in folder.iterdir()] == ["F02"], "it has a commit of its own"
        assert "work/F01" not in git(one.clone, "branch", "--list")


def test_pool_below_a_hook_works_in_its_own_trees(jo: Desk) -> None:
    hook = {"GIT_DIR": str(jo.clone / ".git"), "GIT_INDEX_FILE": str(jo.clone / ".git" / "index")}
    before = git(jo.clone, "rev-parse", "HEAD")
    script = 'touch new; git add new; git commit -qm "by $(git config user.name)"'
    words = ("work", "--worktrees", "--done-on-success", "--", "sh", "-c", script)
    done = jo.ask(*words, env=hook)
    assert done.returncode == 0, done
    assert "new" in git(jo.clone, "ls-tree", "--name-only", "work/F01")
    assert git(jo.clone, "rev-parse", "HEAD") == before
    assert git(jo.clone, "status", "--porcelain") == ""


FLEET = """
tell() {
    set -- "$1" '"session_id": "agent-'"$GITLEASE_RESOURCE"'", "cwd": "'"$PWD"'"' "$2"
    case "$(echo "{$2, \\"tool_name\\": \\"Edit\\"$3}" | $AGENT "$1")" in
    *'"deny"'*) echo denied; exit 4 ;;
    esac
}
edit() { tell before-edit ', "tool_input": {"file_path": "'"$PWD/$1"'"}'; }
tell session-start ', "source": "startup"'
case "$GITLEASE_RESOURCE" in
*1) edit same; echo "$GITLEASE_RESOURCE" >same
    git add same; git commit -qm "$GITLEASE_RESOURCE is in it" ;;
*3) exit 3 ;;
*4) mkdir -p shared; edit shared/list
    grep -qsx "$GITLEASE_RESOURCE" shared/list || echo "$GITLEASE_RESOURCE" >>shared/list
    git add .; git commit -qm "work on $GITLEASE_RESOURCE" ;;
*5) test -e "$0.$GITLEASE_RESOURCE" || { touch "$0.$GITLEASE_RESOURCE"; kill -9 $$; }
    edit "$GITLEASE_RESOURCE.txt"; echo own >"$GITLEASE_RESOURCE.txt" ;;
*7) sleep 60 ;;
*9) true ;;
*) edit "$GITLEASE_RESOURCE.txt"; echo own >"$GITLEASE_RESOURCE.txt"
    git add .; git commit -qm "work on $GITLEASE_RESOURCE" ;;
esac
test -z "$(git status --porcelain '*.txt')" || { git add .; git commit -qm "late"; }
tell session-end ', "reason": "other"'
"""
SIZES = [
    ("path", 12, 2),
    ("http", 12, 2),
    pytest.param("path", 60, 4, marks=pytest.mark.nightly),
    pytest.param("http", 60, 4, marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("kind", "count", "jobs"), SIZES)
def test_fleet_lands_each_finished_task_once(
    kind: str,
    count: int,
    jobs: int,
    request: pytest.FixtureRequest,
    clones: Clones,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commands edit, fail, hang, conflict and are killed, and so is one of the two machines."""
    remote: Remote = request.getfixturevalue(f"{kind}_remote")
    remote.open_to(monkeypatch)
    *made, watcher = clones(3)
    with_tasks(made, remote, count, {"4": "paths: [shared/]\n", **dict.fromkeys("68", WAITS)})
    names, begin = sorted(statuses(made[0])), git(made[0], "rev-parse", "HEAD").strip()
    short_leases(made[0])
    script = tmp_path / "script"
    script.write_text(FLEET)
    words = ("work", "--land", "-j", str(jobs), "--ttl", "20s", "--limit", "20s", "--json")
    with desks_in(made) as desks:
        for desk in desks:
            desk.env |= {**remote.env, "AGENT": shlex.join(desk.words("agent", "claude"))}
            git(desk.clone, "config", "user.name", "Worker")

        def start(desk: Desk) -> subprocess.Popen[str]:
            return desk.start(
                *words, "--", "sh", str(script), stdout=subprocess.DEVNULL, stderr=None
            )

        def landed() -> int:
            git(watcher, "fetch", "-q", "origin", env=remote.env)
            return len(git(watcher, "log", "--format=%H", f"{begin}..origin/main").split())

        working = [start(desk) for desk in desks]
        until(lambda: landed() >= count // 6, "the first landings", limit=2 * LONG)
        for pid in (working[1].pid, *desks[1].processes()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: landed() >= count // 3, "more of them", limit=2 * LONG)
        working[1] = start(desks[1])
        for process in working:
            process.wait(5 * LONG)
        until(lambda: not [x for d in desks for x in d.live()], "the lapse of what was killed")
        last = desks[0].ask(*words, "--", "sh", str(script))
        assert last.returncode in (0, 1), last
        landed()
        git(watcher, "checkout", "-q", "--detach", "origin/main")
        done = {name for name, status in statuses(watcher).items() if status == "done"}
        sure = {name for name in names if name[-1] in "024689"}
        assert sure <= done <= {x for x in names if x[-1] not in "37"}
        log = git(watcher, "log", "--format=%s%n%b%x01", f"{begin}..origin/main").split("\x01")
        subjects = [x.split("\n")[0] for x in map(str.strip, log) if x]
        assert not [x for x in subjects if x.split()[0] in ("assign", "unassign", "finish", "set")]
        finishing = Counter(x for x in subjects if x.startswith("Finish "))
        assert set(finishing.values()) <= {1}
        assert {x.split()[1] for x in finishing} <= done
        trailers = Counter(
            line.split()[1] for x in log for line in x.splitlines() if line.startswith("Gitlease: ")
        )
        assert trailers == Counter(done), "each landed by one grant, once"
        lines = (watcher / "shared" / "list").read_text().split()
        assert Counter(lines) == Counter(x for x in done if x.endswith("4"))
        records = desks[0].document("list", "--all")["leases"]
        ended = Counter(x["resource"] for x in records if x["state"] == "completed")
        assert ended == Counter(done)
        events = desks[0].document("log", "--limit", "2000")["events"]
        assert Counter(x["resource"] for x in events if x["kind"] == "completed") == ended
        checked = desks[0].ask("check", f"{begin}..origin/main")
        assert checked.returncode == 0, checked


def test_pool_hands_branches_on_and_their_tasks_wait(jo: Desk, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = 'echo x >"$GITLEASE_RESOURCE"; git add .; git commit -qm work'
    hand = f"sh -c 'echo $GITLEASE_BRANCH $GITLEASE_BASE >>{seen}; test $GITLEASE_RESOURCE = F01'"
    words = ("work", "--budget", "2", "--json", "--pr", hand, "--", "sh", "-c", script)
    done = jo.ask(*words)
    end = {x: lines(done)[-1][x] for x in ("waiting", "failed", "done")}
    assert end == {"waiting": 1, "failed": 1, "done": 0}
    assert seen.read_text() == "work/F01 main\nwork/F02 main\n"
    git(jo.clone, "fetch", "-q", "origin")
    assert "status: done" in git(jo.clone, "show", "origin/work/F01:tasks/F01.md")
    waiting = ["F01 of w1@example.com: handed on as work/F01, for main of origin"]
    assert jo.document("check")["waiting"] == waiting
    assert jo.ask("check").stdout.splitlines()[0] == f"waiting for a person: {waiting[0]}"
    brief = jo.document("brief")
    assert [x["resource"] for x in brief["carrying"]] == ["F01"]
    (note,) = jo.document("show", "F02")["notes"]
    assert note["text"].endswith("F02 was not landed: sh ended with status 1")
    assert "status: todo" in git(jo.clone, "show", "work/F02:tasks/F02.md")  # it can be taken again
    git(jo.clone, "push", "-q", "origin", "origin/work/F01:main")
    git(jo.clone, "fetch", "-q", "origin")
    jo.ask("next")
    assert [x["state"] for x in jo.document("list", "--all")["leases"]] == ["completed"]
    assert jo.document("check")["waiting"] == []


@pytest.mark.nightly
def test_what_did_not_land_is_not_done(jo: Desk) -> None:
    done, release = (" ".join(jo.words(x)) for x in ("done", "release"))
    script = (
        'case "$GITLEASE_RESOURCE" in F01) echo x >new;; '
        f"F02) {done} F02 --commit;; F03) {release} F03;; F05) exit 1;; "
        'F04) echo x >new; git add .; git commit -qm work; echo x >"left behind";; esac'
    )
    ended = lines(jo.ask("work", "--land", "--json", "--", "sh", "-c", script))
    assert {x["resource"]: x["outcome"] for x in ended if x["event"] == "ended"} == {
        **{"F01": "failed", "F02": "failed", "F03": "given_back", "F04": "done", "F05": "failed"}
    }
    git(jo.clone, "fetch", "-q", "origin")
    files = git(jo.clone, "grep", "-l", "status: done", "origin/main", "--", "tasks")
    assert files.split() == ["origin/main:tasks/F04.md"]


@pytest.mark.parametrize("ends", ["limit", "stop"])
def test_check_that_hangs_is_ended_and_its_branch_goes_back(jo: Desk, ends: str) -> None:
    words = ["work", "--budget", "1", "--land", "--check", "sh -c 'echo ready; exec sleep 60'"]
    words += ["--limit", "1s" if ends == "limit" else "1h", "--json"]
    words += ["--", "git", "commit", "-q", "--allow-empty", "-m", "work"]
    working = jo.start(*words)
    if ends == "stop":
        until(lambda: "ready" in json.dumps(jo.document("work", "--status")), "the check")
        working.send_signal(signal.SIGTERM)
    out, _ = working.communicate(timeout=LONG)
    events = [json.loads(line) for line in out.splitlines()]
    (ended,) = (x for x in events if x["event"] == "ended")
    assert ended["outcome"] == {"limit": "failed", "stop": "stopped"}[ends]
    assert working.returncode == {"limit": 1, "stop": 128 + signal.SIGTERM}[ends]
    assert jo.live() == []
    assert "status: todo" in git(jo.clone, "show", "work/F01:tasks/F01.md")
    failures = jo.document("show", "F01")["setback"]
    assert (failures or {}).get("failures", 0) == (1 if ends == "limit" else 0)


@pytest.mark.nightly
def test_task_whose_landing_was_killed_lands_once(jo: Desk) -> None:
    work = ("--budget", "1", "--json", "--", "git", "commit", "-q", "--allow-empty", "-m", "work")
    working = jo.start("work", "--land", "--check", "sh -c 'echo ready; exec sleep 60'", *work)
    until(lambda: "ready" in json.dumps(jo.document("work", "--status")), "the check")
    os.kill(begun(jo)[0], signal.SIGKILL)
    working.communicate(timeout=LONG)
    assert "status: done" in git(jo.clone, "show", "work/F01:tasks/F01.md")
    jo.document("note", "F01", "go on")  # what failed may be taken at once
    (ended,) = (x for x in lines(jo.ask("work", "--land", *work)) if x["event"] == "ended")
    assert (ended["resource"], ended["outcome"]) == ("F01", "done")
    git(jo.clone, "fetch", "-q", "origin")
    assert git(jo.clone, "log", "--format=%B", "origin/main").count("Gitlease: F01") == 1


def test_programs_of_a_pool_are_found_from_each_work_tree(jo: Desk) -> None:
    sub = jo.clone / "sub"
    sub.mkdir()
    for path, text in (("sub/w.sh", "git commit -q --allow-empty -m work"), ("pr.sh", "exit 0")):
        (jo.clone / path).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (jo.clone / path).chmod(0o755)
    words = ("-C", str(sub), "work", "--budget", "1", "--json")
    ended = lines(jo.ask(*words, "--pr", "../pr.sh", "--", "./w.sh"))[-1]
    assert (ended["waiting"], ended["failed"]) == (1, 0)


def test_branch_of_the_remote_that_is_not_here_yet_is_landed_on(jo: Desk) -> None:
    git(jo.clone, "push", "-q", "origin", "HEAD:develop")
    git(jo.clone, "update-ref", "-d", "refs/remotes/origin/develop")
    words = ("work", "--budget", "1", "--base", "develop", "--land")
    assert jo.ask(*words, "--", "true").returncode == 0
    assert "status: done" in git(jo.clone, "show", "origin/develop:tasks/F01.md")
    assert "status: todo" in git(jo.clone, "show", "origin/main:tasks/F01.md")
