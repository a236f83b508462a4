"""Messages of commits: our trailers are written in, and nobody else's bytes are touched."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.repos import commit_file, git, make_repository
from support.snapshots import check_words, raises
from support.task_trees import tasks_like

from gitlease.guard import message as message_module
from gitlease.guard.hooks import HookWorktree
from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.errors import Invalid

F001 = "F001 token=42"
LINE = b"Gitlease: F001 token=42\n"
SIGNED = b"Signed-off-by: Jo <jo@example.com>\n"
ADVICE = b"# Please enter the commit message for your changes.\n#\n# On branch main\n"
CUT = b"# ------------------------ >8 ------------------------\n"
DIFF = (
    CUT
    + b"# Do not modify or remove the line above.\ndiff --git a/a b/a\n+Gitlease: F001 token=1\n"
)


class Messages:
    """A repository, and the message of a commit that is made in it."""

    def __init__(self, root: Path) -> None:
        self.root = make_repository(root)
        self.file = self.root / ".git" / "COMMIT_EDITMSG"
        self.environ: dict[str, str] = {}

    @property
    def worktree(self) -> HookWorktree:
        repository = discover(str(self.root))
        return HookWorktree(
            repository,
            tasks_like(),
            environ=self.environ,
            ref_prefix="refs/gitlease",
            shared="origin",
        )

    def config(self, key: str, value: str) -> None:
        git(self.root, "config", key, value)

    def named(self, message: bytes, *trailers: str) -> bytes:
        """The message with trailers set in it."""
        self.file.write_bytes(message)
        self.worktree.set_trailers(str(self.file), trailers or (F001,))
        after = self.file.read_bytes()
        return after.rstrip(b"\n") + b"\n"  # git takes blank lines at the end away

    def ended(self, message: bytes) -> bytes:
        """The message as it is handed to git at its end."""
        self.file.write_bytes(message)
        self.worktree.empty_if_bare(str(self.file))
        return self.file.read_bytes()

    def trailers(self) -> list[str]:
        """What git itself takes for trailers of the message, without comments."""
        text = git(self.root, "interpret-trailers", "--parse", "--no-divider", str(self.file))
        return text.splitlines()


@pytest.fixture
def messages(tmp_path: Path) -> Messages:
    return Messages(tmp_path / "repo")


# --- where the trailers go ------------------------------------------------------------------------

CRLF = b"subject\r\n\r\nGitlease: F001 token=7\r\nSigned-off-by: Jo\r\n"
OTHERS = b"Gitlease: F002 token=7|Gitlease: F0011 token=7|Gitlease: F001 token=7 scope=backend"
OTHERS += b"|Gitlease: F001 token=7 layer=team|Gitlease: free text|Not-Gitlease: F001 token=7"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"subject", b"subject\n\n" + LINE),
        (b"subject\n\nbody\n\n", b"subject\n\nbody\n\n" + LINE),
        (b"subject\n\n" + SIGNED.rstrip(), b"subject\n\n" + SIGNED + LINE),
        (b"subject\n\nbody: of text\nand more\n", b"subject\n\nbody: of text\nand more\n\n" + LINE),
        (b"subject\n\n---\n\n" + SIGNED, b"subject\n\n---\n\n" + SIGNED + LINE),
        (b"subject\n\n" + LINE + SIGNED, b"subject\n\n" + LINE + SIGNED),
        (b"caf\xe9 \xff\n", b"caf\xe9 \xff\n\n" + LINE),
        (b"subject\n\nGitlease: F001 token=7\n" + SIGNED, b"subject\n\n" + SIGNED + LINE),
        (b"subject\n\nGitlease: F001 token=7\nGitlease: F001 token=8\n", b"subject\n\n" + LINE),
        (
            b"subject\n\nIt said\n  Gitlease: F001 token=7\nand more\n",
            b"subject\n\nIt said\n  Gitlease: F001 token=7\nand more\n\n" + LINE,
        ),
    ],
)
def test_a_trailer_ends_the_message_once(messages: Messages, before: bytes, after: bytes) -> None:
    assert messages.named(before) == after
    assert messages.named(after) == after


@pytest.mark.parametrize("other", OTHERS.split(b"|"))
def test_trailers_of_other_leases_are_kept(messages: Messages, other: bytes) -> None:
    other = b"subject\n\n" + other + b"\n"
    assert messages.named(other) == other + LINE


@pytest.mark.parametrize("before", [b"", b"\n" + ADVICE + DIFF])
def test_an_empty_message_leaves_the_first_line_to_the_subject(
    messages: Messages, before: bytes
) -> None:
    after = messages.named(before)
    assert after.startswith(b"\n")
    assert after.count(LINE) == 1
    assert after.endswith(before.lstrip(b"\n"))
    messages.file.write_bytes(b"subject" + after)
    assert messages.trailers() == [f"Gitlease: {F001}"]


@pytest.mark.parametrize("below", [b"\n" + ADVICE, CUT, ADVICE + DIFF])
def test_what_git_takes_away_stays_below(messages: Messages, below: bytes) -> None:
    for above in (b"subject\n\nbody\n\n", b"subject\n\n" + SIGNED):
        after = messages.named(above + below)
        assert after.startswith(above + LINE)
        assert after.endswith(below.lstrip(b"\n"))


def test_another_comment_character(messages: Messages) -> None:
    messages.config("core.commentChar", "%")
    advice, cut = ADVICE.replace(b"#", b"%"), DIFF.replace(b"# ", b"% ")
    for below in (advice, cut, advice + cut):
        after = messages.named(b"subject\n\n" + below)
        assert after.startswith(b"subject\n\n" + LINE)
        assert after[len(b"subject\n\n" + LINE) :].lstrip(b"\n") == below
        assert messages.ended(LINE + below) == b""
    assert messages.named(b"subject\n\n#1 is fixed\n").startswith(b"subject\n\n#1 is fixed\n\nGitl")
    assert messages.ended(b"# a subject\n" + LINE) == b"# a subject\n" + LINE


def test_where_no_editor_is_started_a_line_with_a_hash_is_no_comment(messages: Messages) -> None:
    """Git keeps it then, and tells its hooks so by an editor called ``:``."""
    text = b"subject\n\n#1 is fixed\n"
    assert messages.named(text).startswith(b"subject\n\n" + LINE)
    messages.environ["GIT_EDITOR"] = ":"
    assert messages.named(text) == text + b"\n" + LINE
    assert messages.ended(b"#1 is fixed\n" + LINE) == b"#1 is fixed\n" + LINE
    messages.config("commit.cleanup", "strip")
    assert messages.ended(b"#1 is fixed\n" + LINE) == b""


@pytest.mark.parametrize("cleanup", ["verbatim", "whitespace", "scissors"])
def test_where_comments_are_kept_they_belong_to_the_text(messages: Messages, cleanup: str) -> None:
    """With scissors only what stands below them goes."""
    messages.config("commit.cleanup", cleanup)
    text = b"subject\n\n#1 is fixed\n"
    below = DIFF if cleanup == "scissors" else b""
    after = messages.named(text + below)
    assert after.startswith(text + b"\n" + LINE)
    assert messages.ended(b"#1 is fixed\n" + LINE + below) == b"#1 is fixed\n" + LINE + below
    if cleanup != "scissors":
        assert messages.ended(LINE + ADVICE) == LINE + ADVICE


def test_a_comment_character_that_git_chooses_is_not_every_one(messages: Messages) -> None:
    """``auto`` is the first of them that begins no line of the message."""
    messages.config("core.commentChar", "auto")
    text = b"@kim did this\n\n:tada: at last\n"
    assert messages.named(text + b"\n" + ADVICE).startswith(text + b"\n" + LINE)
    assert messages.ended(b"@kim did this\n" + LINE + ADVICE).startswith(b"@kim did this\n")
    assert messages.ended(LINE + ADVICE.replace(b"#", b";")) == b""


def test_line_ends_of_windows_are_kept(messages: Messages) -> None:
    after = messages.named(CRLF)
    assert after.startswith(b"subject\r\n\r\nSigned-off-by: Jo\r\n")
    assert re.sub(rb"\r?\n", b"\n", after) == b"subject\n\nSigned-off-by: Jo\n" + LINE
    assert messages.named(after) == after


def test_several_leases_each_once_and_in_their_order(messages: Messages) -> None:
    trailers = ("F001 token=1", 'F002 token=2 scope="x: y=z"', "src/my docs/** token=3 layer=team")
    after = messages.named(b"subject\n", *trailers)
    assert after == b"subject\n\n" + b"".join(f"Gitlease: {t}\n".encode() for t in trailers)
    assert messages.named(after, *reversed(trailers)) == after
    newer = messages.named(after, trailers[1].replace("token=2", "token=5"))
    assert (b"token=2" in newer, newer.count(b"F002")) == (False, 1)


# --- files that are none --------------------------------------------------------------------------


def test_a_big_message_is_refused_and_stays_as_it_is(
    messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_module, "MAX_MESSAGE", 1_000)
    fits, big = b"x" * 999 + b"\n", b"x" * 1_000 + b"\n"
    assert messages.named(fits) == fits + b"\n" + LINE
    with raises(Invalid):
        messages.named(big)
    assert messages.file.read_bytes() == big
    with raises(Invalid):
        messages.ended(big)


def test_a_message_that_is_no_file_is_refused(messages: Messages, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    tree = messages.worktree
    for act in (lambda name: tree.set_trailers(name, [F001]), tree.empty_if_bare):
        for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe"):
            with raises(Invalid):
                act(str(path))


# --- a message into which nobody wrote anything ---------------------------------------------------


def test_nothing_but_trailers_is_made_empty(messages: Messages) -> None:
    """A sign-off is no message either, for git; whatever somebody wrote stays."""
    for bare in (
        *(LINE.rstrip(), b"\n\n" + LINE + b"\n" + ADVICE + DIFF, b"  \n" + LINE + b" \t\n"),
        LINE + b"Gitlease: a b/** token=1 scope=x layer=team\n",
        *(b"\r\nGitlease: F001 token=42\r\n", b"\n" + SIGNED + LINE + ADVICE),
    ):
        assert messages.ended(bare) == b""
    for kept in (
        *(b"\n\n", ADVICE, b"\0\n", b"subject\n\n" + LINE + ADVICE, b"Gitlease: F001\n"),
        *(b" " + LINE, LINE + b"body\n", b"Gitlease: F001 token=x\n", CUT + LINE),
    ):
        assert messages.ended(kept) == kept


@pytest.mark.parametrize("template", [b"\n\nWhy:\n", b"Why: x\n# How to write it\n"])
def test_a_template_that_nobody_filled_in_says_nothing(messages: Messages, template: bytes) -> None:
    (messages.root / "template").write_bytes(template)
    messages.config("commit.template", "template")
    shown = messages.named(template + ADVICE)
    assert messages.ended(shown) == b""
    filled = shown.replace(b"Why:", b"Why: because")
    assert messages.ended(filled) == filled


def test_a_trailer_of_another_change_goes_with_an_older_one(messages: Messages) -> None:
    data = b"docs\n\nGitlease: F001 token=41\nGitlease: F002 token=2\nGitlease: F003 token=1\n"
    messages.file.write_bytes(data)
    name, stale = str(messages.file), ["F002 token=2", "F004 token=1"]
    messages.worktree.set_trailers(name, ["F001 token=42"], stale=stale)
    kept = b"docs\n\nGitlease: F003 token=1\n"
    assert messages.file.read_bytes() == kept + LINE
    messages.worktree.set_trailers(name, [], stale=["F001 token=42"])
    assert messages.file.read_bytes() == kept


# --- pushes ---------------------------------------------------------------------------------------


def test_a_push_of_too_many_commits_says_which_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = Messages(tmp_path / "repo")
    tip = [commit_file(messages.root, name, "x\n") for name in ("a", "b", "c")][-1]
    lines = [f"x {tip} refs/heads/{name} {'0' * 40}" for name in ("one", "two")]
    work = messages.worktree.pushed(lines, "origin")
    assert ([x.path for x in work.touched], work.warnings) == (["c", "b", "a"], ())
    monkeypatch.setattr("gitlease.guard.pushes.MAX_COMMITS", 2)
    work = messages.worktree.pushed(lines, "origin")
    assert [x.path for x in work.touched] == ["c", "b"]
    said = "refs/heads/{}: only the newest 2 commits were checked"
    assert work.warnings == (said.format("one"), said.format("two"))
    lost = git(messages.root, "rev-list", "-2", tip).split()
    taken = messages.worktree.brought([], "origin", lost, cut=True)
    assert [x.path for x in taken.lost] == [x.path for x in taken.touched] == ["c", "b"]
    check_words(taken.warnings)
