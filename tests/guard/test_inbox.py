"""What work in the background leaves to be said: taken once, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.fences import clean_env
from support.snapshots import check_words
from support.task_trees import HINDERED

from gitlease.guard import COMMIT, MOST, MOST_FILES, InboxFolder
from gitlease.guard.notes import FOLDER, LONGEST

ROOT = Path(__file__).parents[2]
TAKER = """\
import sys
import time
from gitlease.guard.notes import InboxFolder
words = InboxFolder(sys.argv[1], "jo@example.com", None)
print("ready", flush=True)
for _ in sys.stdin:
    print("|".join(words.take()), flush=True)
"""


@pytest.fixture
def words(tmp_path: Path) -> InboxFolder:
    return InboxFolder(str(tmp_path), "jo@example.com", None)


def folder_of(tmp_path: Path) -> Path:
    """The folder of the only run that anything was left for."""
    (found,) = (tmp_path / FOLDER).iterdir()
    return found


def test_what_is_left_is_taken_once_and_in_order(words: InboxFolder) -> None:
    assert words.take() == ()
    words.leave(["first", "second: größe"])
    words.leave(["third"])
    assert words.take() == ("first", "second: größe", "third")
    assert words.take() == ()


def test_the_same_words_are_said_once(words: InboxFolder) -> None:
    words.leave(["again", "other"])
    words.leave(["again"])
    assert words.take() == ("again", "other")


def test_each_run_has_its_own(tmp_path: Path) -> None:
    person = InboxFolder(str(tmp_path), "jo@example.com", None)
    run = InboxFolder(str(tmp_path), "jo@example.com", "ci")
    other = InboxFolder(str(tmp_path), "kim@example.com", None)
    run.leave(["to the run"])
    assert (person.take(), other.take()) == ((), ())
    assert run.take() == ("to the run",)


@pytest.mark.parametrize("session", ["../../up", "a/b", "\ud800", "x" * 10_000, "\0", ""])
def test_no_name_of_a_run_leads_elsewhere(tmp_path: Path, session: str) -> None:
    run = InboxFolder(str(tmp_path / "in"), "../jo\0@example.com", session)
    run.leave(["here"])
    assert [x.name for x in tmp_path.iterdir()] == ["in"]
    assert run.take() == ("here",)


def test_words_take_the_marker_away_so_that_the_next_hook_looks(
    tmp_path: Path, words: InboxFolder
) -> None:
    (tmp_path / COMMIT).write_text("x")
    words.leave([])
    assert (tmp_path / COMMIT).exists()
    words.leave(["x"])
    assert not (tmp_path / COMMIT).exists()


def test_where_nothing_was_ever_left_nothing_is_made(tmp_path: Path, words: InboxFolder) -> None:
    assert words.take() == ()
    words.leave([])
    assert list(tmp_path.iterdir()) == []


# --- limits ---------------------------------------------------------------------------------------


def test_only_so_much_is_told_at_once_and_the_newest_of_it(words: InboxFolder) -> None:
    for start in range(0, 3 * MOST, MOST):
        words.leave([f"{n}" for n in range(start, start + MOST)])
    assert words.take() == tuple(f"{n}" for n in range(2 * MOST, 3 * MOST))
    assert words.take() == ()


def test_more_than_that_is_not_left_at_once(tmp_path: Path, words: InboxFolder) -> None:
    words.leave([f"{n}" for n in range(MOST + 5)])
    assert len(list(folder_of(tmp_path).iterdir())) == MOST


def test_a_long_line_is_cut(words: InboxFolder) -> None:
    words.leave(["ü" * (LONGEST + 5)])
    assert words.take() == ("ü" * LONGEST,)


def test_a_folder_that_grew_without_end_is_emptied_bit_by_bit(
    tmp_path: Path, words: InboxFolder
) -> None:
    words.leave(["x"])
    folder = folder_of(tmp_path)
    for n in range(MOST_FILES + 10):
        (folder / f"{n:05d}").write_text(f"{n}")
    assert len(words.take()) == MOST
    assert len(list(folder.iterdir())) == 11
    words.take()
    assert list(folder.iterdir()) == []


# --- odd files ------------------------------------------------------------------------------------


def test_odd_files_are_passed_over(tmp_path: Path, words: InboxFolder) -> None:
    words.leave(["x"])
    folder = folder_of(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("not to be told")
    (folder / "0-link").symlink_to(secret)
    (folder / "0-gone").symlink_to(tmp_path / "gone")
    (folder / "0-folder").mkdir()
    os.mkfifo(folder / "0-pipe")
    (folder / ".half.tmp").write_text("half of a li")
    assert words.take() == ("x",)
    assert words.take() == ()
    assert secret.read_text() == "not to be told"


def test_what_is_no_text_is_told_as_far_as_it_goes(tmp_path: Path, words: InboxFolder) -> None:
    words.leave(["x"])
    folder = folder_of(tmp_path)
    (folder / "9-bytes").write_bytes(b"caf\xe9")
    assert words.take() == ("x", "caf\ufffd")


def test_a_huge_file_is_not_told_in_full(tmp_path: Path, words: InboxFolder) -> None:
    words.leave(["x"])
    with (folder_of(tmp_path) / "9-huge").open("wb") as opened:
        opened.truncate(10**9)
    assert len(words.take()[-1]) <= 4 * LONGEST + 1
    assert words.take() == ()


def test_an_empty_file_says_nothing(tmp_path: Path, words: InboxFolder) -> None:
    """What a lost write left is no line."""
    words.leave(["x"])
    (folder_of(tmp_path) / "9-empty").touch()
    assert words.take() == ("x",)


def test_a_surrogate_is_left_all_the_same(words: InboxFolder) -> None:
    words.leave(["\udcff.md is held", "and more"])
    check_words(words.take())


@pytest.mark.parametrize("where", ["", FOLDER])
def test_a_file_in_the_way_of_the_folder_is_no_failure(tmp_path: Path, where: str) -> None:
    private = tmp_path / "gitlease"
    if where:
        private.mkdir()
    (private / where if where else private).write_text("a file is in the way")
    words = InboxFolder(str(private), "jo@example.com", None)
    words.leave(["x", "y"])
    assert words.take() == ()


@HINDERED
def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, words: InboxFolder) -> None:
    words.leave(["x"])
    folder = folder_of(tmp_path)
    folder.chmod(0o500)
    try:
        words.leave(["y"])
        assert words.take() == ()  # or it would be told at every hook from now on
    finally:
        folder.chmod(0o700)
    assert words.take() == ("x",)


def test_two_processes_take_each_word_once(tmp_path: Path, words: InboxFolder) -> None:
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


def test_what_nobody_came_back_for_goes_after_a_month(tmp_path: Path) -> None:
    names = ("gone", "late", "here")
    gone, late, here = (InboxFolder(str(tmp_path), "jo@example.com", name) for name in names)
    gone.leave(["old"])
    late.leave(["older than a day"])
    for run in (tmp_path / FOLDER).iterdir():
        days = 31 if (run / next(x.name for x in run.iterdir())).read_text() == "old" else 2
        then = time.time() - days * 86_400
        for file in run.iterdir():
            os.utime(file, (then, then))
        os.utime(run, (then, then))
    here.leave(["new"])
    here.leave(["newer"])
    assert late.take() == ("older than a day",)
    assert gone.take() == ()
    assert here.take() == ("new", "newer")
