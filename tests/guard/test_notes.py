"""The notes of a clone, and what they leave to be said: none is lost, whoever else writes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.fences import clean_env

from gitlease.guard.notes import COMMIT, LONGEST, MOST, NotedInbox, ask_is_due, has_traces
from gitlease.kernel.git import files
from gitlease.kernel.git.files import LOCK, MOST_NOTES, NOTES, Notes

ROOT = Path(__file__).parents[2]
PROCESSES = 32
# A process that has read the notes forks others, which all write one at once: at the end of a pipe.
WRITERS = f"""\
import os
import sys
from gitlease.kernel.git.files import Notes
notes = Notes(sys.argv[1])
notes.put("rows", "first", 0, at=0)
start, begin = os.pipe()
for number in range({PROCESSES}):
    if os.fork() == 0:
        os.close(begin)
        os.read(start, 1)
        notes.put("rows", str(number), number, at=number)
        os._exit(0)
os.close(begin)
failed = [os.wait()[1] for _ in range({PROCESSES})]
sys.exit(any(failed))
"""
WITHOUT_LOCKS = """\
import errno
import fcntl
def flock(descriptor, operation):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = flock
"""
KILLED = """\
import os
import signal
import sys
from gitlease.kernel.git.files import Notes
def killed(source, target):
    if target == sys.argv[1] + "/notes.json":
        os.kill(os.getpid(), signal.SIGKILL)
    real(source, target)
real, os.replace = os.replace, killed
Notes(sys.argv[1]).put("rows", "killed", 1, at=1)
"""


def run(script: str, folder: Path) -> int:
    words = [sys.executable, "-c", script, str(folder)]
    env = {**clean_env(), "PYTHONPATH": str(ROOT)}
    return subprocess.run(words, env=env, check=False, timeout=120).returncode


def no_locks(_descriptor: int, _operation: int) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "no locks"])
def test_of_many_processes_at_once_each_keeps_its_note(tmp_path: Path, locks: bool) -> None:
    assert run(WRITERS if locks else f"{WITHOUT_LOCKS}{WRITERS}", tmp_path) == 0
    rows = {key: value for key, (_, value) in Notes(str(tmp_path)).of("rows").items()}
    assert rows == {"first": 0, **{str(number): number for number in range(PROCESSES)}}
    assert {x.name for x in tmp_path.iterdir()} == {NOTES, LOCK}


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "no locks"])
def test_a_kill_before_the_file_is_replaced_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.05)
    notes = Notes(str(tmp_path))
    notes.put("rows", "before", 0, at=0)
    assert run(KILLED if locks else f"{WITHOUT_LOCKS}{KILLED}", tmp_path) == -signal.SIGKILL
    assert [*notes.of("rows")] == ["before"]
    if not locks:
        monkeypatch.setattr(fcntl, "flock", no_locks)
    notes.put("rows", "after", 2, at=2)
    assert [*notes.of("rows")] == ["before", "after"]
    notes.put("rows", "later", 3, at=3)
    assert not (tmp_path / f"{LOCK}.tmp").exists()


def test_what_is_written_beside_a_process_that_has_the_lock_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped, say, and others did not wait for it any longer."""
    monkeypatch.setattr(files, "PATIENCE", 0.05)
    notes = Notes(str(tmp_path))
    others = ["one", "two"]

    def change(tables: dict[str, files.Table]) -> None:
        tables["rows"]["own"] = 1, 1
        if others:
            notes.put("rows", others.pop(), 2, at=2)

    assert notes.change(change)
    assert {*notes.of("rows")} == {"own", "one", "two"}


def test_on_a_full_disk_the_notes_of_before_stay(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path))
    notes.put("rows", "before", 0, at=0)
    before, limit = (tmp_path / NOTES).read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limit[1]))
    try:
        assert not notes.change(lambda tables: tables["rows"].update(more=(1, "x" * 1_000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert (tmp_path / NOTES).read_bytes() == before
    assert {x.name for x in tmp_path.iterdir()} == {NOTES, LOCK}
    assert json.loads(before) == {"rows": {"before": [0, 0]}}


def test_that_the_remote_was_asked_is_no_trace_of_use(tmp_path: Path) -> None:
    private = tmp_path / "gitlease"
    private.mkdir()
    assert has_traces(str(tmp_path))
    assert ask_is_due(str(tmp_path), every=60, now=1_000)
    assert not has_traces(str(tmp_path))
    Notes(str(private)).put("rows", "any", 1, at=1)
    assert has_traces(str(tmp_path))


@pytest.fixture
def words(tmp_path: Path) -> NotedInbox:
    return NotedInbox(str(tmp_path), "jo@example.com", None)


def test_words_are_taken_once_and_in_order(tmp_path: Path, words: NotedInbox) -> None:
    assert words.take() == ()
    words.leave([])
    assert list(tmp_path.iterdir()) == [], "where nothing was ever left nothing is made"
    words.leave(["first", "second: größe"])
    words.leave(["third", "first", "\udcff.md"])
    assert words.take() == ("first", "second: größe", "third", "?.md")
    assert words.take() == ()


def test_each_run_has_words_of_its_own(tmp_path: Path) -> None:
    person = NotedInbox(str(tmp_path), "jo@example.com", None)
    run = NotedInbox(str(tmp_path), "jo@example.com", "ci")
    other = NotedInbox(str(tmp_path), "kim@example.com", None)
    run.leave(["to the run"])
    assert (person.take(), other.take()) == ((), ())
    assert run.take() == ("to the run",)


def test_words_take_the_marker_away_so_that_the_next_hook_looks(
    tmp_path: Path, words: NotedInbox
) -> None:
    (tmp_path / COMMIT).write_text("x")
    words.leave([])
    assert (tmp_path / COMMIT).exists()
    words.leave(["x"])
    assert not (tmp_path / COMMIT).exists()


def test_words_and_runs_are_bounded_and_the_newest_stay(tmp_path: Path, words: NotedInbox) -> None:
    for start in range(0, 3 * MOST, MOST):
        words.leave([f"{n}" for n in range(start, start + MOST)])
    assert words.take() == tuple(f"{n}" for n in range(2 * MOST, 3 * MOST))
    words.leave(["ü" * (LONGEST + 5)])
    assert words.take() == ("ü" * LONGEST,)
    runs = [NotedInbox(str(tmp_path), "jo@example.com", f"{n}") for n in range(MOST_NOTES + 1)]
    for run in runs:
        run.leave(["x"])
    assert [run.take() for run in (runs[0], runs[1], runs[-1])] == [(), ("x",), ("x",)]


@pytest.mark.parametrize(
    "data",
    [
        *("", "{", "[]", "[" * 100_000, "\0"),
        *('{"words": 1}', '{"words": {"jo@example.com\\u0000": 1}}'),
        *('{"words": {"jo@example.com\\u0000": ["x", ["x"]]}}',),
        *('{"words": {"jo@example.com\\u0000": [1, {"a": 1}]}}',),
        *('{"words": {"jo@example.com\\u0000": [1, [1, null, "\\n"]]}}',),
    ],
)
def test_damaged_notes_are_none_and_written_anew(
    tmp_path: Path, words: NotedInbox, data: str
) -> None:
    (tmp_path / NOTES).write_text(data)
    assert words.take() == ()
    words.leave(["x"])
    assert words.take() == ("x",)


@pytest.mark.parametrize("where", ["", LOCK])
def test_a_file_in_the_way_of_the_folder_is_no_failure(tmp_path: Path, where: str) -> None:
    private = tmp_path / "gitlease"
    if where:
        (private / where).mkdir(parents=True)
    else:
        private.write_text("a file is in the way")
    words = NotedInbox(str(private), "jo@example.com", None)
    words.leave(["x", "y"])
    assert words.take() == (("x", "y") if where else ())
