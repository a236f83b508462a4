"""What work in the background leaves to be said: taken once, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitlease.git import LOCK, MOST_NOTES, NOTES
from gitlease.guard import COMMIT, MOST, NotedInbox
from gitlease.guard.notes import LONGEST


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
