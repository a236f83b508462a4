"""What work in the background leaves to be said: taken once, and never in the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.fences import clean_env
from support.task_trees import HINDERED

from gitlease.git import LOCK, MOST_NOTES, NOTES
from gitlease.guard import COMMIT, MOST, NotedInbox
from gitlease.guard.notes import LONGEST

ROOT = Path(__file__).parents[2]
TAKER = """\
import sys
import time
from gitlease.guard.notes import NotedInbox
words = NotedInbox(sys.argv[1], "jo@example.com", None)
print("ready", flush=True)
for _ in sys.stdin:
    print("|".join(words.take()), flush=True)
"""


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


@pytest.mark.parametrize("session", ["../../up", "\ud800", "x" * 10_000, "\0"])
def test_no_name_of_a_run_leads_elsewhere(tmp_path: Path, session: str) -> None:
    run = NotedInbox(str(tmp_path / "in"), "../jo\0@example.com", session)
    run.leave(["here"])
    assert [x.name for x in tmp_path.iterdir()] == ["in"]
    assert run.take() == ("here",)


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


@HINDERED
def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, words: NotedInbox) -> None:
    words.leave(["x"])
    tmp_path.chmod(0o500)
    try:
        words.leave(["y"])
        assert words.take() == ()  # or it would be told at every hook from now on
    finally:
        tmp_path.chmod(0o700)
    assert words.take() == ("x",)


def test_two_processes_take_each_word_once(tmp_path: Path, words: NotedInbox) -> None:
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", TAKER, str(tmp_path)],
            env={**clean_env(), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        streams = []
        for taker in takers:
            assert taker.stdin is not None
            assert taker.stdout is not None
            assert taker.stdout.readline() == "ready\n"
            streams.append((taker.stdin, taker.stdout))
        for round_ in range(30):
            left = [f"{round_}-{n}" for n in range(MOST)]
            words.leave(left)
            for to, _ in streams:
                to.write("\n")
                to.flush()
            taken = [text for _, of in streams for text in of.readline().strip().split("|") if text]
            assert sorted(taken) == sorted(left)
    finally:
        for taker in takers:
            taker.communicate(timeout=30)
