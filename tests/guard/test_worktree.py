"""Messages of commits: our trailers are written in, and nobody else's bytes are touched."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.repos import commit_file, git, make_repository
from support.snapshots import check_words, raises
from support.task_trees import HINDERED, tasks_like

from gitlease.core import Invalid
from gitlease.git import discover
from gitlease.git import message as message_module
from gitlease.guard import HookWorktree

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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"subject\n", b"subject\n\n" + LINE),
        (b"subject", b"subject\n\n" + LINE),
        (b"subject\n\nbody", b"subject\n\nbody\n\n" + LINE),
        (b"subject\n\nbody\n\n", b"subject\n\nbody\n\n" + LINE),
        (b"subject\n\n" + SIGNED, b"subject\n\n" + SIGNED + LINE),
        (b"subject\n\n" + SIGNED.rstrip(), b"subject\n\n" + SIGNED + LINE),
        (b"subject\n\nbody: of text\nand more\n", b"subject\n\nbody: of text\nand more\n\n" + LINE),
        (b"subject\n\nbody\n---\nmore\n", b"subject\n\nbody\n---\nmore\n\n" + LINE),
        (b"subject\n\n---\n\n" + SIGNED, b"subject\n\n---\n\n" + SIGNED + LINE),
        (b"subject\n\n" + LINE, b"subject\n\n" + LINE),
        (b"subject\n\n" + SIGNED + LINE, b"subject\n\n" + SIGNED + LINE),
        (b"subject\n\n" + LINE + SIGNED, b"subject\n\n" + LINE + SIGNED),
        (b"caf\xe9 \xff\n", b"caf\xe9 \xff\n\n" + LINE),
        (b"fixup! subject\n", b"fixup! subject\n\n" + LINE),
    ],
)
def test_a_trailer_ends_the_message_once(messages: Messages, before: bytes, after: bytes) -> None:
    assert messages.named(before) == after
    assert messages.named(after) == after


@pytest.mark.parametrize("before", [b"", b"\n", b"\n" + ADVICE, b"\n" + ADVICE + DIFF])
def test_an_empty_message_leaves_the_first_line_to_the_subject(
    messages: Messages, before: bytes
) -> None:
    after = messages.named(before)
    assert after.startswith(b"\n")
    assert after.count(LINE) == 1
    assert after.endswith(before.lstrip(b"\n"))
    messages.file.write_bytes(b"subject" + after)
    assert messages.trailers() == [f"Gitlease: {F001}"]


@pytest.mark.parametrize("above", [b"subject\n\n", b"subject\n\nbody\n\n", b"subject\n\n" + SIGNED])
@pytest.mark.parametrize("below", [ADVICE, b"\n" + ADVICE, CUT, DIFF, ADVICE + DIFF])
def test_what_git_takes_away_stays_below(messages: Messages, above: bytes, below: bytes) -> None:
    after = messages.named(above + below)
    head, found, _ = after.partition(LINE)
    assert found
    assert head == above
    assert after.endswith(below.lstrip(b"\n"))


@pytest.mark.parametrize("char", [";", "%", "@", "!"])
def test_another_comment_character(messages: Messages, char: str) -> None:
    messages.config("core.commentChar", char)
    advice = ADVICE.replace(b"#", char.encode())
    cut = DIFF.replace(b"# ", char.encode() + b" ")
    for below in (advice, cut, advice + cut):
        after = messages.named(b"subject\n\n" + below)
        assert after.startswith(b"subject\n\n" + LINE)
        assert after[len(b"subject\n\n" + LINE) :].lstrip(b"\n") == below
    assert messages.named(b"subject\n\n#1 is fixed\n").startswith(b"subject\n\n#1 is fixed\n\nGitl")


def test_where_no_editor_is_started_a_line_with_a_hash_is_no_comment(messages: Messages) -> None:
    """Git keeps it then, and tells its hooks so by an editor called ``:``."""
    text = b"subject\n\n#1 is fixed\n"
    assert messages.named(text).startswith(b"subject\n\n" + LINE)
    messages.environ["GIT_EDITOR"] = ":"
    assert messages.named(text) == text + b"\n" + LINE
    assert messages.ended(b"#1 is fixed\n" + LINE) == b"#1 is fixed\n" + LINE


@pytest.mark.parametrize("cleanup", ["verbatim", "whitespace", "scissors"])
def test_where_comments_are_kept_they_belong_to_the_text(messages: Messages, cleanup: str) -> None:
    """With scissors only what stands below them goes."""
    messages.config("commit.cleanup", cleanup)
    text = b"subject\n\n#1 is fixed\n"
    below = DIFF if cleanup == "scissors" else b""
    after = messages.named(text + below)
    assert after.startswith(text + b"\n" + LINE)
    assert messages.ended(b"#1 is fixed\n" + LINE + below) == b"#1 is fixed\n" + LINE + below


def test_a_comment_character_that_git_chooses_is_not_every_one(messages: Messages) -> None:
    """``auto`` is the first of them that begins no line of the message."""
    messages.config("core.commentChar", "auto")
    text = b"@kim did this\n\n:tada: at last\n"
    assert messages.named(text + b"\n" + ADVICE).startswith(text + b"\n" + LINE)
    assert messages.ended(b"@kim did this\n" + LINE + ADVICE).startswith(b"@kim did this\n")


def test_line_ends_of_windows_are_kept(messages: Messages) -> None:
    after = messages.named(b"subject\r\n\r\nbody\r\n")
    assert after.startswith(b"subject\r\n\r\nbody\r\n")
    assert re.sub(rb"\r?\n", b"\n", after) == b"subject\n\nbody\n\n" + LINE
    assert messages.named(after) == after
    old = b"subject\r\n\r\nGitlease: F001 token=7\r\n"
    after = messages.named(old)
    assert b"token=7" not in after
    assert after.count(b"Gitlease: F001 token=42") == 1


def test_a_trailer_of_others_keeps_its_line_end(messages: Messages) -> None:
    after = messages.named(b"subject\r\n\r\nSigned-off-by: Jo <jo@example.com>\r\n")
    assert b"Signed-off-by: Jo <jo@example.com>\r\n" in after


def test_several_leases_each_once_and_in_their_order(messages: Messages) -> None:
    trailers = ("F001 token=1", "F002 token=2 scope=backend", "src/my docs/** token=3 layer=team")
    after = messages.named(b"subject\n", *trailers)
    assert after == b"subject\n\n" + b"".join(f"Gitlease: {t}\n".encode() for t in trailers)
    assert messages.named(after, *trailers) == after
    assert messages.named(after, *reversed(trailers)) == after


@pytest.mark.parametrize(
    "resource", ["a=b", "päth/ö", '"quoted"', "a:b", "#1", "-x", "$(touch hacked)", "a  b", "%s"]
)
def test_odd_names_are_written_as_they_are(messages: Messages, resource: str) -> None:
    after = messages.named(b"subject\n", f"{resource} token=1")
    assert after == b"subject\n\n" + f"Gitlease: {resource} token=1\n".encode()
    again = messages.named(after, f"{resource} token=2")
    assert again == b"subject\n\n" + f"Gitlease: {resource} token=2\n".encode()
    assert not (messages.root / "hacked").exists()


# --- older ones -----------------------------------------------------------------------------------


def test_an_older_token_of_the_same_lease_is_replaced(messages: Messages) -> None:
    old = b"subject\n\n" + SIGNED + b"Gitlease: F001 token=7\nReviewed-by: Kim\n"
    assert messages.named(old) == b"subject\n\n" + SIGNED + b"Reviewed-by: Kim\n" + LINE
    twice = b"subject\n\nGitlease: F001 token=7\nGitlease: F001 token=8\n"
    assert messages.named(twice) == b"subject\n\n" + LINE


@pytest.mark.parametrize(
    "other",
    [
        b"Gitlease: F002 token=7\n",
        b"Gitlease: F0011 token=7\n",
        b"Gitlease: F001 token=7 scope=backend\n",
        b"Gitlease: F001 token=7 layer=team\n",
        b"Gitlease: src/** token=42\n",
        b"Gitlease: free text\n",
        b"Gitlease: F001\n",
        b"Not-Gitlease: F001 token=7\n",
    ],
)
def test_what_others_say_is_kept(messages: Messages, other: bytes) -> None:
    assert messages.named(b"subject\n\n" + other) == b"subject\n\n" + other + LINE


def test_a_lease_of_a_part_is_another_one(messages: Messages) -> None:
    old = b"subject\n\nGitlease: F001 token=1 scope=a\nGitlease: F001 token=2 scope=b\n"
    after = messages.named(old, "F001 token=9 scope=b")
    assert after == (b"subject\n\nGitlease: F001 token=1 scope=a\nGitlease: F001 token=9 scope=b\n")


def test_prose_that_speaks_of_a_lease_is_kept(messages: Messages) -> None:
    text = b"subject\n\nIt said\n  Gitlease: F001 token=7\nand Gitlease: F001 token=8 too.\n"
    assert messages.named(text) == text + b"\n" + LINE


# --- the user's own settings ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trailer.separators", "#"),
        ("trailer.where", "start"),
        ("trailer.ifexists", "doNothing"),
        ("trailer.ifexists", "replace"),
        ("trailer.ifmissing", "doNothing"),
        ("trailer.gitlease.where", "start"),
        ("trailer.gitlease.ifexists", "replace"),
        ("trailer.gitlease.ifexists", "doNothing"),
        ("trailer.gitlease.ifmissing", "doNothing"),
        ("trailer.gitlease.key", "Other: "),
        ("trailer.g.key", "Gitlease-Other: "),
        ("trailer.gitlease.command", "echo hacked"),
        ("trailer.gitlease.cmd", "echo hacked"),
    ],
)
def test_the_users_own_settings_of_trailers_change_nothing(
    messages: Messages, key: str, value: str
) -> None:
    messages.config(key, value)
    before = b"subject\n\n" + SIGNED + b"Gitlease: F002 token=1\n"
    assert messages.named(before) == before + LINE


@pytest.mark.parametrize("kind", ["command", "cmd"])
def test_no_trailer_of_the_users_own_is_added_on_the_way(messages: Messages, kind: str) -> None:
    """Git would run the command of every trailer that the user has set up."""
    messages.config("trailer.sign.key", "Signed-off-by: ")
    messages.config("trailer.sign.ifexists", "add")
    messages.config(f"trailer.sign.{kind}", "echo Eve")
    assert messages.named(b"subject\n") == b"subject\n\n" + LINE


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


def test_a_message_of_megabytes_is_no_trouble(messages: Messages) -> None:
    text = b"subject\n\n" + b"a line of text that is as long as lines are\n" * 50_000
    assert messages.named(text) == text + b"\n" + LINE


def test_bytes_that_are_no_text_do_no_harm(messages: Messages) -> None:
    """Git refuses a message with NUL anyway: nothing before it may be lost, and nothing fail."""
    after = messages.named(b"sub\0ject\n\nbody\xff\n")
    assert after.startswith(b"sub")
    messages.ended(b"\0\n")


def test_a_message_that_is_no_file_is_refused(messages: Messages, tmp_path: Path) -> None:
    def set_in(name: str) -> None:
        messages.worktree.set_trailers(name, [F001])

    def end(name: str) -> None:
        messages.worktree.empty_if_bare(name)

    for act in (set_in, end):
        with raises(Invalid):
            act(str(tmp_path / "missing"))
        with raises(Invalid):
            act(str(tmp_path))
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with raises(Invalid):
            act(str(pipe))
        pipe.unlink()
        with raises(Invalid):
            act(str(tmp_path / "no" / "folder"))


@HINDERED
def test_a_message_that_cannot_be_written_is_refused(messages: Messages) -> None:
    messages.file.write_bytes(b"subject\n\nGitlease: F001 token=1\n")
    messages.file.chmod(0o400)
    with raises(Invalid):
        messages.worktree.set_trailers(str(messages.file), [F001])


def test_a_name_that_begins_with_a_dash_is_a_file(
    messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(messages.root)
    Path("-m").write_bytes(b"subject\n")
    messages.worktree.set_trailers("-m", [F001])
    assert Path("-m").read_bytes() == b"subject\n\n" + LINE


def test_nothing_is_left_beside_the_message(messages: Messages) -> None:
    before = sorted(os.listdir(messages.file.parent))
    messages.named(b"subject\n\nGitlease: F001 token=1\n")
    assert sorted(os.listdir(messages.file.parent)) == sorted([*before, messages.file.name])


# --- a message into which nobody wrote anything ---------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        b"\n" + LINE,
        LINE,
        LINE.rstrip(),
        b"\n" + LINE + ADVICE,
        b"\n\n" + LINE + b"\n" + ADVICE + DIFF,
        LINE + b"Gitlease: a b/** token=1 scope=x layer=team\n",
        b"\r\nGitlease: F001 token=42\r\n",
        b"  \n" + LINE + b" \t\n",
        # Git itself takes a sign-off for no message.
        b"\n" + SIGNED + LINE + ADVICE,
        b"\n" + LINE + SIGNED,
    ],
)
def test_nothing_but_trailers_is_made_empty(messages: Messages, message: bytes) -> None:
    assert messages.ended(message) == b""


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\n\n",
        ADVICE,
        b"subject\n\n" + LINE,
        b"subject\n\n" + LINE + ADVICE,
        b"Gitlease: F001\n",
        b" " + LINE,
        LINE + b"body\n",
        b"Gitlease: F001 token=x\n",
        CUT + LINE,
    ],
)
def test_whatever_somebody_wrote_stays(messages: Messages, message: bytes) -> None:
    assert messages.ended(message) == message


@pytest.mark.parametrize("char", [";", "auto"])
def test_comments_with_another_character_say_nothing(messages: Messages, char: str) -> None:
    messages.config("core.commentChar", char)
    assert messages.ended(LINE + ADVICE.replace(b"#", b";")) == b""
    assert messages.ended(LINE + DIFF.replace(b"# ", b"; ")) == b""
    if char == ";":
        assert messages.ended(b"# a subject\n" + LINE) == b"# a subject\n" + LINE


@pytest.mark.parametrize("string", ["//", "#!"])
def test_comments_with_a_string_of_their_own_say_nothing(messages: Messages, string: str) -> None:
    """``core.commentString`` is git's newer name, from 2.45 on, and may have several letters."""
    version = git(messages.root, "version").split()[2].split(".")
    if (int(version[0]), int(version[1])) < (2, 45):
        pytest.skip("this git knows one character only")
    messages.config("core.commentString", string)
    assert messages.ended(LINE + ADVICE.replace(b"#", string.encode())) == b""


@pytest.mark.parametrize("cleanup", ["verbatim", "whitespace", "Verbatim"])
def test_where_comments_belong_to_the_message_nothing_is_emptied(
    messages: Messages, cleanup: str
) -> None:
    messages.config("commit.cleanup", cleanup)
    assert messages.ended(LINE + ADVICE) == LINE + ADVICE


@pytest.mark.parametrize("cleanup", ["strip", "scissors", "default"])
def test_where_they_do_not_it_is(messages: Messages, cleanup: str) -> None:
    messages.config("commit.cleanup", cleanup)
    assert messages.ended(b"\n" + LINE + DIFF) == b""


@pytest.mark.parametrize("template", [b"Why:\n", b"\n\nWhy:\n", b"Why: x\n# How to write it\n"])
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
    messages.worktree.set_trailers(
        str(messages.file), ["F001 token=42"], stale=["F002 token=2", "F004 token=1"]
    )
    assert (
        messages.file.read_bytes() == b"docs\n\nGitlease: F003 token=1\nGitlease: F001 token=42\n"
    )
    messages.worktree.set_trailers(str(messages.file), [], stale=["F001 token=42"])
    assert messages.file.read_bytes() == b"docs\n\nGitlease: F003 token=1\n"


@pytest.mark.parametrize("scope", ['"my scope: x=y"', '"a \\\\ \\" b"', "plain"])
def test_a_scope_of_several_words_is_named_once(messages: Messages, scope: str) -> None:
    once = messages.named(b"subject\n", f"F001 token=4 scope={scope} layer=night")
    assert messages.named(once, f"F001 token=4 scope={scope} layer=night") == once
    again = messages.named(once, f"F001 token=5 scope={scope} layer=night")
    assert again == once.replace(b"token=4", b"token=5")


# --- pushes ---------------------------------------------------------------------------------------


def test_a_push_of_too_many_commits_says_which_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = Messages(tmp_path / "repo")
    tip = [commit_file(messages.root, name, "x\n") for name in ("a", "b", "c")][-1]
    lines = [f"x {tip} refs/heads/{name} {'0' * 40}" for name in ("one", "two")]
    work = messages.worktree.pushed(lines, "origin")
    assert ([x.path for x in work.touched], work.warnings) == (["c", "b", "a"], ())
    monkeypatch.setattr("gitlease.git.pushes.MAX_COMMITS", 2)
    work = messages.worktree.pushed(lines, "origin")
    assert [x.path for x in work.touched] == ["c", "b"]
    said = "refs/heads/{}: only the newest 2 commits were checked"
    assert work.warnings == (said.format("one"), said.format("two"))
    lost = git(messages.root, "rev-list", "-2", tip).split()
    taken = messages.worktree.brought([], "origin", lost, cut=True)
    assert [x.path for x in taken.lost] == [x.path for x in taken.touched] == ["c", "b"]
    check_words(taken.warnings)
