"""Who speaks: the holder, and the session from the first source that names one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.repos import git, make_repository
from support.snapshots import check_words, raises

from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.errors import Invalid, UsageError
from gitlease.kernel.settings import identity
from gitlease.kernel.settings.identity import Identity, resolve_identity

CLAUDE = "5b0c2d1e-7f3a-4c55-9a1b-0123456789ab"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository of jo@example.com with one commit on main."""
    root = tmp_path / "repo"
    make_repository(root)
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    return root


def resolve(
    repo: Path,
    environ: dict[str, str] | None = None,
    flag: str | None = None,
    no_session: bool = False,
) -> Identity:
    return resolve_identity(
        discover(str(repo)), environ=environ or {}, session_flag=flag, no_session=no_session
    )


# The holder


def test_holder_is_the_email_of_git(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "short_host", lambda: "laptop")
    found = resolve(repo, {"GIT_AUTHOR_EMAIL": "other@example.com", "EMAIL": "other@example.com"})
    assert found.actor.holder == "jo@example.com"
    check_words(found.holder_source)
    assert ((found.actor.host or "").partition(":")[0], found.actor.branch) == ("laptop", "main")


def test_an_email_that_no_record_can_keep_is_refused(repo: Path) -> None:
    for email in ("x" * 254, "jö@例え.jp", "no-at-sign"):
        git(repo, "config", "user.email", f" {email} ")
        assert resolve(repo).actor.holder == email
    for odd in ("  ", "jo doe@example.com", "jo\t@example.com", "jo\u202e@x", "x" * 255, None):
        git(repo, "config", *(["user.email", odd] if odd else ["--unset", "user.email"]))
        with raises(Invalid) as raised:
            resolve(repo)
        assert raised.value.message.isprintable()
        assert raised.value.hints == ("git config user.email you@example.com",)
    with (repo / ".git" / "config").open("ab") as file:
        file.write(b"[user]\n\temail = j\xff@example.com\n")
    with raises(Invalid):
        resolve(repo)


# The session

LADDER = [
    # value, source, explicit
    ("s-flag", "flag --session", True),
    ("s-env", "environment GITLEASE_SESSION", True),
    ("s-git", "git config (local: .git/config) lease.session", False),
    ("codex:0199a213", "environment CODEX_THREAD_ID", False),
    ("claude:5b0c2d1e", "environment CLAUDE_CODE_SESSION_ID", False),
    ("cursor:f00dcafe", "environment CURSOR_TRACE_ID", False),
    (None, "none", False),
]
VARIABLES = {
    1: ("GITLEASE_SESSION", "s-env"),
    3: ("CODEX_THREAD_ID", "0199a213-81c0-4800-8aa1-bbab2a035a53"),
    4: ("CLAUDE_CODE_SESSION_ID", CLAUDE),
    5: ("CURSOR_TRACE_ID", "f00dcafef00dcafe"),
}


@pytest.mark.parametrize("blank", [False, True], ids=["absent", "empty"])
@pytest.mark.parametrize("strongest", range(len(LADDER)))
def test_first_source_that_names_a_session(repo: Path, strongest: int, blank: bool) -> None:
    """Each source beats all below it; one above that is absent or empty says nothing."""
    environ = {
        name: value if level >= strongest else ""
        for level, (name, value) in VARIABLES.items()
        if blank or level >= strongest
    }
    if blank or strongest <= 2:
        git(repo, "config", "lease.session", "s-git" if strongest <= 2 else "")
    flag = "s-flag" if strongest == 0 else ("" if blank else None)
    found = resolve(repo, environ, flag)
    session, source, explicit = LADDER[strongest]
    assert (found.actor.session, found.session_source) == (session, source)
    assert found.actor.session_explicit is explicit


def test_linked_work_tree_is_a_session(repo: Path, tmp_path: Path) -> None:
    for name in ("side", "n" * 200, "a\u202eb"):
        git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / name))
        session = resolve(tmp_path / name).actor.session
        assert session is not None
        assert session.isprintable()
        assert len(session) <= 128
    found = resolve(tmp_path / "side")
    assert found.actor.session == f"worktree:side-{discover(str(repo)).clone_id}"
    check_words(found.session_source)
    assert (found.actor.session_explicit, found.actor.branch) == (False, None)
    assert resolve(repo).actor.session is None


def test_agents_started_in_the_same_minute_differ(repo: Path) -> None:
    """Such numbers begin with the time: their first eight digits are the same for a minute."""
    one, other = "0199a213-81c0-7800-8aa1-bbab2a035a53", "0199a213-9f12-7a31-b2c3-1f2e3d4c5b6a"
    sessions = [resolve(repo, {"CODEX_THREAD_ID": n}).actor.session for n in (one, other)]
    assert sessions == ["codex:2a035a53", "codex:3d4c5b6a"]


def test_a_sign_of_an_agent_is_no_session(repo: Path) -> None:
    signs = "CLAUDECODE CLAUDE_CODE_CHILD_SESSION CODEX_SANDBOX CURSOR_AGENT GEMINI_CLI AI_AGENT"
    assert resolve(repo, dict.fromkeys(signs.split(), "1")).actor.session is None
    assert resolve(repo, {"CURSOR_TRACE_ID": "abc"}).actor.session == "cursor:abc"


def test_no_session_is_the_person_speaking(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", str(tmp_path / "side"))
    git(repo, "config", "lease.session", "s-git")
    environ = {"GITLEASE_SESSION": "s-env", "CLAUDE_CODE_SESSION_ID": CLAUDE}
    for flag in (None, ""):
        found = resolve(tmp_path / "side", environ, flag, no_session=True)
        assert (found.actor.session, found.session_source) == (None, "flag --no-session")
        assert found.actor.session_explicit is False


@pytest.mark.parametrize("session", ["a\x07b", "x" * 129, "  "])
def test_bad_session(repo: Path, session: str) -> None:
    assert resolve(repo, flag="x" * 128).actor.session == "x" * 128
    with raises(UsageError):
        resolve(repo, flag=session)
    for odd in ({"GITLEASE_SESSION": session}, {"CURSOR_TRACE_ID": f"a\x1b{session}"}):
        with raises(Invalid):
            resolve(repo, odd)
    git(repo, "config", "lease.session", session)
    with raises(Invalid):
        resolve(repo)
