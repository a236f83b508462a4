"""``gitlease hook NAME``: what git is answered, what people are told, and never a traceback."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.commands import run_program
from support.fences import clean_env
from support.ledgers import door
from support.remotes import Remote
from support.repos import git
from support.snapshots import check_words

from gitlease.guard.entry import HOOKS, IN_BACKGROUND, SHOWN, run_hook
from gitlease.guard.hook_places import CHECKED
from gitlease.guard.opening import HookContext, open_hooks
from gitlease.kernel.git.run import SystemClock
from gitlease.kernel.rules.errors import GitleaseError, Invalid, NotARepository

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WAYS_AROUND = ("--no-verify", "-n ", "gitlease_skip", "guardmode", "guard.mode", "takeover", "off")
Clones = Callable[..., list[Path]]


class Hooked:
    """Jo's clone with something staged, and Kim's, on one clock; hooks run in this process."""

    def __init__(self, made: Sequence[Path], capsys: pytest.CaptureFixture[str]) -> None:
        (self.jo, self.kim), self.clock, self._capsys = made, ManualClock(), capsys
        self.stage("src/auth/login.py")

    def stage(self, name: str) -> None:
        file = self.jo / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x\n")
        git(self.jo, "add", "--", name)

    def context(self, **environ: str) -> HookContext:
        return open_hooks(str(self.jo), environ=environ, clock=self.clock)

    def run(self, *argv: str, opener: Callable[[], Any] | None = None) -> tuple[int, list[str]]:
        """The exit status of a hook, and the lines that it said."""
        status = run_hook(argv, opener or self.context)
        said = self._capsys.readouterr()
        assert said.out == ""
        assert "Traceback" not in said.err
        assert all(line.startswith("gitlease: ") for line in said.err.splitlines())
        return status, [line.removeprefix("gitlease: ") for line in said.err.splitlines()]


@pytest.fixture
def hooked(path_remote: Remote, clones: Clones, capsys: pytest.CaptureFixture[str]) -> Hooked:
    return Hooked(clones(2), capsys)


def failing(error: Exception) -> Callable[[], Any]:
    """A context that cannot be opened."""

    def opener() -> Any:
        raise error

    return opener


# --- statuses -------------------------------------------------------------------------------------


@pytest.mark.default
def test_the_former_hook_of_refs_refuses_no_stash(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_hook(["reference-transaction", "prepared"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.default("argv1")
@pytest.mark.parametrize("argv", [[], [""], ["no-such-hook"], ["--help"], ["pre-commit\n\x1b[2J"]])
def test_an_unknown_hook_is_bad_usage(argv: list[str], hooked: Hooked) -> None:
    status, (said,) = hooked.run(*argv)
    assert status == 2
    check_words(said)
    assert all(name in said for name in HOOKS)
    assert "beat" not in said
    assert said.isprintable()


@pytest.mark.default("pre-commit", "prepare-commit-msg", "post-commit")
@pytest.mark.parametrize("name", [*HOOKS, *IN_BACKGROUND])
def test_outside_a_repository_nothing_is_anybodys(
    name: str, hooked: Hooked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path / "plain")
    assert hooked.run(name, opener=lambda: open_hooks(".")) == (0, [])
    assert hooked.run(name, opener=failing(NotARepository("no repository"))) == (0, [])


@pytest.mark.default("pre-push")
@pytest.mark.parametrize("name", ["pre-commit", "pre-push"])
def test_bad_settings_are_said_and_stop_nothing(name: str, hooked: Hooked) -> None:
    (hooked.jo / ".gitlease.yaml").write_text("guard: {mode: blok}\n")
    status, (said, *hints) = hooked.run(name)
    assert status == 0
    check_words(said)
    assert all(hint.startswith("hint: ") for hint in hints)
    (hooked.jo / ".gitlease.yaml").write_bytes(b"\xff: [\n")
    assert hooked.run(name)[0] == 0


@pytest.mark.default("error0-pre-merge-commit", "error0-commit-msg", "error0-post-checkout")
@pytest.mark.parametrize("name", [*HOOKS, *IN_BACKGROUND])
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("first line\nsecond line\nthird"),
        RecursionError("\x1b[2J deep"),
        MemoryError(),
        OSError(28, "No space left on device"),
        Invalid("a bad file\nof two lines"),
    ],
)
def test_whatever_goes_wrong_is_one_line_and_no_obstacle(
    name: str, error: Exception, hooked: Hooked
) -> None:
    checks = {hook: f"this {what} is not checked" for hook, what in CHECKED.items()}
    status, said = hooked.run(name, "x", opener=failing(error))
    if isinstance(error, GitleaseError) and name not in checks:
        assert (status, said) == (0, [])  # every hook of a commit meets it: the first one tells
        return
    assert (status, len(said)) == (0, 1)
    assert said[0].startswith(checks.get(name, "not done") + ": ")
    assert said[0].isprintable()
    if not isinstance(error, GitleaseError):
        assert "second line" not in said[0]


@pytest.mark.parametrize("stderr", ["closed", "broken pipe"])
@pytest.mark.parametrize("settings", ["guard: {mode: blok}\n", "guard: {mode: warn}\n"])
def test_nobody_listens_and_nothing_fails(hooked: Hooked, stderr: str, settings: str) -> None:
    """A terminal, or a program, that is gone must not stop a commit that may go on."""
    door(hooked.kim, clock=SystemClock()).claim("src/auth/**")
    (hooked.jo / ".gitlease.yaml").write_text(settings)
    shell = 'exec 2>&-; exec "$@"' if stderr == "closed" else 'exec "$@"'
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        ["sh", "-c", shell, "sh", sys.executable, "-m", "gitlease", "hook", "pre-commit"],
        cwd=hooked.jo,
        env={**clean_env(), "PYTHONPATH": str(ROOT)},
        stderr=writing,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 0


# --- what is found --------------------------------------------------------------------------------


@pytest.mark.default
def test_a_finding_says_who_where_until_when_and_why_and_no_way_around(hooked: Hooked) -> None:
    door(hooked.kim, clock=hooked.clock).claim("src/auth/**", reason="new login")
    status, said = hooked.run("pre-commit")
    assert status == 1
    line, hint = said
    start = "src/auth/login.py is held by w2@example.com (lease of src/auth/**, "
    assert line.startswith(start)
    assert ") until " in line
    check_words(line)
    check_words(hint)
    assert not [way for way in WAYS_AROUND if way in " ".join(said).lower()]


@pytest.mark.nightly
def test_of_many_findings_some_are_spelt_out_and_the_rest_is_counted(hooked: Hooked) -> None:
    for n in range(SHOWN + 5):
        hooked.stage(f"src/auth/f{n:02d}.py")
    door(hooked.kim, clock=hooked.clock).claim("src/auth/**")
    status, said = hooked.run("pre-commit")
    assert status == 1
    check_words(said)


@pytest.mark.default
def test_odd_names_stay_one_printable_line(hooked: Hooked) -> None:
    hooked.stage("src/auth/a\nb\x1b[2J.py")
    (hooked.jo / os.fsdecode(b"src/auth/\xff.py")).write_text("x")
    git(hooked.jo, "add", "-A")
    door(hooked.kim, clock=hooked.clock).claim("src/auth/**")
    status, said = hooked.run("pre-commit")
    assert (status, len(said)) == (1, 4)
    assert all(line.isprintable() for line in said)


# --- pushes ---------------------------------------------------------------------------------------


def push(hooked: Hooked, monkeypatch: pytest.MonkeyPatch, data: bytes) -> tuple[int, list[str]]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return hooked.run("pre-push", "origin", "url")


def test_a_push_is_checked_by_the_lines_that_git_gives(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(hooked.jo, "commit", "-qm", "x")
    head = git(hooked.jo, "rev-parse", "HEAD")
    line = f"refs/heads/main {head} refs/heads/main {'0' * 40}\n".encode()
    assert push(hooked, monkeypatch, line) == (0, [])
    door(hooked.kim, clock=hooked.clock).claim("src/auth/**")
    status, said = push(hooked, monkeypatch, line)
    assert status == 1
    check_words(said[0])
    assert push(hooked, monkeypatch, b"") == (0, [])


@pytest.mark.default("data4")
@pytest.mark.nightly
@pytest.mark.parametrize(
    "data", [b"\n\n", b"one two\n", b"\xff\xfe \0 x y\n", b"a b c d e f g\n", b"x" * 100_000]
)
def test_odd_lines_of_a_push_are_no_obstacle(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    status, said = push(hooked, monkeypatch, data)
    assert status == 0
    assert len(said) <= 1


@pytest.mark.default("0>/dev/null")
@pytest.mark.parametrize("shut", ["<&-", "0>/dev/null"])
def test_a_push_whose_lines_cannot_be_read_is_not_checked_and_that_is_said(
    hooked: Hooked, shut: str
) -> None:
    line = [sys.executable, "-m", "gitlease", "hook", "pre-push", "origin", "x"]
    words = ["sh", "-c", f'exec "$@" {shut}', "sh", *line]
    done = run_program(words, hooked.jo, {"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 1)
    start = "gitlease: this push is not checked: cannot read git's list of refs "
    assert done.stderr.startswith(start)


# --- words and work in the background -------------------------------------------------------------


def test_what_was_left_to_be_said_is_said_once_by_the_next_hook(hooked: Hooked) -> None:
    hooked.context().inbox.leave(["your claim of F001 was revoked by kim:\nstuck\x1b[2J"])
    assert len(hooked.run("post-checkout")[1]) == 1
    assert hooked.run("pre-commit") == (0, [])


@pytest.mark.default
def test_what_the_pre_commit_framework_hides_waits_for_what_it_shows(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inside() -> HookContext:
        return hooked.context(PRE_COMMIT="1")

    def fail(_context: HookContext, _args: Sequence[str]) -> int:
        raise Invalid("no", hints=("try",))

    hooked.context().inbox.leave(["your claim of F001 was revoked"])
    monkeypatch.setitem(HOOKS, "post-merge", fail)
    for name in ("post-checkout", "post-commit", "post-merge", "post-rewrite"):
        assert hooked.run(name, opener=inside) == (0, [])
    waited = ["your claim of F001 was revoked", "not done: no", "hint: try"]
    assert hooked.run("pre-commit", opener=inside) == (0, waited)
    assert hooked.run("pre-commit", opener=inside) == (0, [])
    assert hooked.run("post-merge") == (0, waited[1:]), "elsewhere it is said at once"


@pytest.mark.nightly
def test_only_what_is_due_starts_work_in_the_background(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def start(words: Sequence[str], *, cwd: str, env: object = None) -> bool:
        started.append([*words, cwd])
        return True

    monkeypatch.setattr("gitlease.guard.opening.start_detached", start)
    hooked.run("post-commit")
    door(hooked.jo, clock=hooked.clock).claim("src/auth/**", ttl="15m")
    hooked.run("pre-commit")
    hooked.run("post-commit")
    hooked.clock.advance(299)
    hooked.run("post-checkout")
    assert started == []
    hooked.clock.advance(1)
    hooked.run("post-merge")
    hooked.run("post-rewrite")
    assert started == [["hook", "beat", str(hooked.jo)]]


@pytest.mark.default
def test_a_heartbeat_says_nothing_and_renews(hooked: Hooked) -> None:
    leases = door(hooked.jo, clock=hooked.clock)
    leases.claim("src/auth/**")
    message = hooked.jo / ".git" / "COMMIT_EDITMSG"
    message.write_text("subject\n")
    assert hooked.run("prepare-commit-msg", str(message), "message") == (0, [])
    assert "src/auth/**" in message.read_text()
    assert hooked.run("commit-msg", str(message)) == (0, [])
    hooked.clock.advance(400)
    assert hooked.run("beat") == (0, [])
    assert [x.renewals for x in leases.list()] == [1]
