"""Commands under leases: real processes, signals, terminals and remotes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.faults import delay
from support.fences import clean_env
from support.remotes import Remote
from support.repos import git, real_clone
from support.running import LONG, Desk, lives, number_in, sleeper, until

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are seen there"),
    pytest.mark.slow,
]

Clones = Callable[..., list[Path]]


# --- what a run is --------------------------------------------------------------------------------


@pytest.mark.default
def test_a_command_runs_under_its_lease_with_the_streams_of_its_caller(jo: Desk) -> None:
    script = (
        "cat; env | grep ^GITLEASE_ | sort; echo aside >&2; "
        f"'{sys.executable}' -m gitlease list --mine --json; exit 3"
    )
    (jo.clone / "src" / "a b").mkdir(parents=True)
    done = jo.ask("run", "F001", "src/a b/", "--", "sh", "-c", script, input="typed\n")
    assert (done.returncode, done.stderr.splitlines()[0]) == (3, "aside")
    typed, *variables, listed = done.stdout.splitlines()
    assert typed == "typed"
    env = dict(line.split("=", 1) for line in variables)
    assert env["GITLEASE_RESOURCE"] == "F001 '/src/a b'"
    assert env["GITLEASE_HOLDER"] == "w1@example.com"
    assert re.fullmatch(r"run-[0-9a-f]{12}", env["GITLEASE_SESSION"])
    assert re.fullmatch(r"[0-9-]+T[0-9:]+Z", env["GITLEASE_EXPIRES_AT"])
    leases = json.loads(listed)["leases"]
    assert {x["session"] for x in leases} == {env["GITLEASE_SESSION"]}
    assert env["GITLEASE_TOKEN"] == " ".join(
        str(x["token"]) for x in sorted(leases, key=lambda x: x["token"])
    )
    assert jo.live() == []


@pytest.mark.nightly
def test_nothing_but_the_command_speaks_and_json_is_the_last_line_of_the_errors(jo: Desk) -> None:
    done = jo.ask("run", "F001", "--json", "--", "sh", "-c", "echo --json; echo e >&2; exit 4")
    assert (done.returncode, done.stdout) == (4, "--json\n")
    aside, text = done.stderr.splitlines()
    assert aside == "e"
    answer = json.loads(text)
    assert (answer["ok"], answer["command"], answer["status"]) == (True, "run", "ended")
    assert (answer["exit"], answer["command_exit"], answer["lost"]) == (4, 4, [])
    assert answer["lease"]["resource"] == "F001"
    refused = jo.ask("run", "F001", "--ttl", "9h", "--json", "--", "true")
    error = json.loads(refused.stderr)["error"]
    assert (refused.returncode, refused.stdout) == (75, "")
    assert (error["code"], error["exit"]) == ("policy", 75)


def test_what_gitlease_fails_at_ends_with_125(jo: Desk, path_remote: Remote) -> None:
    for words in ((), ("F001", "--"), ("--", "true")):
        done = jo.ask("run", *words)
        assert (done.returncode, done.stdout) == (125, ""), done
    path_remote.bare.rename(path_remote.bare.with_name("away.git"))
    done = jo.ask("run", "F001", "--json", "--", "true")
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"], error["exit"]) == (125, "unavailable", 125)


def test_what_cannot_be_executed_is_never_claimed(jo: Desk, path_remote: Remote) -> None:
    plain = jo.clone / "plain"
    plain.write_text("echo no\n")
    before = path_remote.connections()
    refused = jo.ask("run", "--next", "F001", "--wait", "3s", "--path", "a", "--", "true")
    assert "only --ttl, --reason, --commit" in refused.stderr
    for word, status in (("no-such-command", 127), ("./plain", 126), ("./", 126)):
        done = jo.ask("run", "F001", "--", word)
        assert (done.returncode, done.stdout) == (status, ""), done
    assert path_remote.connections() == before
    plain.write_text("#!/no/such/interpreter\n")
    plain.chmod(0o755)
    done = jo.ask("run", "F001", "--", "./plain")
    assert (done.returncode, jo.live()) == (126, [])


@pytest.mark.nightly
def test_a_lease_that_cannot_be_released_leaves_the_exit_status(
    jo: Desk, path_remote: Remote
) -> None:
    away = path_remote.bare.with_name("away.git")
    done = jo.ask("run", "F001", "--", "sh", "-c", f"mv '{path_remote.bare}' '{away}'; exit 5")
    assert done.returncode == 5
    away.rename(path_remote.bare)
    assert jo.live() == ["F001"]


def test_closed_streams_are_no_reason_not_to_run(jo: Desk) -> None:
    """Nor do others get their numbers, which the command would take for its own."""
    command = " ".join(f"'{w}'" for w in jo.words("run", "F001", "--"))
    for closed in ("2>&-", "<&- >&- 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"{command} sh -c 'readlink /proc/self/fd/2 >seen; exit 3' {closed}"],
            cwd=jo.clone,
            env=clean_env(jo.env),
            capture_output=True,
            timeout=LONG,
            check=False,
        )
        assert done.returncode == 3
        assert (jo.clone / "seen").read_text() == f"{os.devnull}\n"
        assert jo.live() == []


# --- runs and sessions ----------------------------------------------------------------------------


def test_a_run_within_a_run_joins_it_and_releases_only_its_own(jo: Desk) -> None:
    inner = f"'{sys.executable}' -m gitlease"
    script = (
        f"{inner} run F001 F002 -- true && "
        f"{inner} list --mine --json && {inner} renew F001 >/dev/null"
    )
    done = jo.ask("run", "F001", "--", "sh", "-c", script)
    assert done.returncode == 0, done
    assert [x["resource"] for x in json.loads(done.stdout)["leases"]] == ["F001"]
    assert jo.live() == []


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_signals_are_passed_on_to_the_group(jo: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = (
        "trap 'echo one' USR1; trap 'echo two' USR2; trap 'echo hup' HUP; "
        "trap 'echo term; exit 9' TERM; "
        f"echo $$ >'{file}'; while :; do sleep 0.05; done"
    )
    run = jo.start("run", "F001", "--", "sh", "-c", script)
    number_in(file)
    assert run.stdout is not None
    for signum, word in (
        *((signal.SIGUSR1, "one"), (signal.SIGUSR2, "two")),
        *((signal.SIGHUP, "hup"), (signal.SIGTERM, "term")),
    ):
        run.send_signal(signum)
        assert run.stdout.readline() == f"{word}\n"
    assert run.wait(LONG) == 9
    assert jo.live() == []


def test_what_was_ignored_stays_so(jo: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    words = " ".join(f"'{w}'" for w in jo.words("run", "F001", "--", *sleeper(file)[:3]))
    run = jo.started(["bash", "-c", f"trap '' HUP; exec {words} '{file}'"])
    status = Path(f"/proc/{number_in(file)}/status").read_text()
    ignored = int(next(x.split()[1] for x in status.splitlines() if x.startswith("SigIgn:")), 16)
    for signum in (signal.SIGHUP, signal.SIGPIPE, signal.SIGINT):
        assert bool(ignored >> (signum - 1) & 1) is (signum == signal.SIGHUP)
    run.terminate()
    assert run.wait(LONG) == 143


def test_who_stops_a_run_does_not_wait_for_a_remote_that_hangs(
    clones: Clones, http_remote: Remote, tmp_path: Path
) -> None:
    [clone] = clones(1, http_remote)
    desk, file = Desk(clone), tmp_path / "pid"
    run = desk.start("run", "F001", "--", *sleeper(file))
    number_in(file)
    http_remote.arm(delay(300, times=None))
    run.terminate()
    assert run.wait(LONG) == 143, "long before it answers"
    http_remote.disarm()
    desk.all_gone()
    desk.clear()


@pytest.mark.nightly
@pytest.mark.parametrize("killed", [False, True])
def test_what_the_command_claimed_in_the_session_of_its_run_ends_with_it(
    jo: Desk, kim: Desk, tmp_path: Path, killed: bool
) -> None:
    claim = f"'{sys.executable}' -m gitlease claim F002 src/ 2>/dev/null && "
    if not killed:
        assert jo.ask("run", "F001", "--", "sh", "-c", f"{claim} true").returncode == 0
    else:
        file = tmp_path / "pid"
        words = shlex.join(sleeper(file))
        run = jo.start("run", "F001", "--", "sh", "-c", f"{claim} exec {words}")
        child = number_in(file)
        run.kill()
        run.wait(LONG)
        until(lambda: not lives(child), "the end of the command")
        assert jo.ask("claim", "F003").returncode == 0
        assert jo.ask("release", "F003").returncode == 0
    assert kim.live() == []
    assert kim.ask("claim", "src/").returncode == 0


# --- deaths ---------------------------------------------------------------------------------------


def test_when_the_run_is_killed_its_command_ends_and_the_lease_lapses(
    jo: Desk, kim: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    run = jo.start("run", "F001", "--ttl", "6s", "--", *sleeper(file))
    child = number_in(file)
    run.kill()
    assert run.wait(LONG) == -signal.SIGKILL
    until(lambda: not lives(child), "the end of the command")
    jo.all_gone()
    assert kim.ask("claim", "F001", "--wait", "50s").returncode == 0


@pytest.mark.nightly
def test_when_the_guardian_is_killed_even_a_deaf_command_ends(jo: Desk, tmp_path: Path) -> None:
    """Nobody could end what it started elsewhere, so the lease is left to lapse."""
    file = tmp_path / "pid"
    run = jo.start("run", "F001", "--grace", "1s", "--", *sleeper(file, deaf=True))
    child, guardian = number_in(file), jo.guardian()
    os.kill(guardian, signal.SIGKILL)
    assert run.wait(LONG) == 125
    assert not lives(child)
    assert jo.live() == ["F001"]
    assert run.stderr is not None
    assert "guardian" in run.stderr.read()


def test_a_deaf_command_ends_where_run_and_guardian_are_killed(jo: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    run = jo.start("run", "F001", "--grace", "1s", "--", *sleeper(file, deaf=True))
    child, guardian = number_in(file), jo.guardian()
    run.send_signal(signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    run.kill()
    run.wait(LONG)
    until(lambda: not lives(child), "the end of the command")


def test_a_run_that_is_stopped_past_its_end_has_nothing_left_on_waking(
    jo: Desk, kim: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    run = jo.start("run", "F001", "--ttl", "6s", "--", *sleeper(file, deaf=True))
    child = number_in(file)
    run.send_signal(signal.SIGSTOP)
    until(lambda: not lives(child), "the end of the command, by its guardian")
    taken = kim.document("claim", "F001", "--wait", "50s")
    run.send_signal(signal.SIGCONT)
    assert run.wait(LONG) == 125
    [lease] = kim.document("list")["leases"]
    assert (lease["lease_id"], lease["mine"]) == (taken["lease"]["lease_id"], True)


# --- losses ---------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_revocation_ends_the_command(jo: Desk, kim: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    run = jo.start("run", "F001", "--ttl", "6s", "--json", "--", *sleeper(file, deaf=True))
    child = number_in(file)
    assert kim.ask("revoke", "F001", "--reason", "wrong").returncode == 0
    assert run.wait(LONG) == 125
    assert not lives(child)
    assert run.stderr is not None
    answer = json.loads(run.stderr.read())
    assert (answer["error"]["code"], answer["error"]["exit"], answer["status"]) == (
        "lost",
        125,
        "lost",
    )
    [lost] = answer["lost"]
    assert (lost["loss"], lost["by"]) == ("revoked", "w2@example.com")
    assert answer["command_exit"] == 128 + signal.SIGKILL


def test_no_end_that_does_not_name_a_lease_ends_that_of_the_run_above(
    jo: Desk, tmp_path: Path
) -> None:
    """What the command claimed itself ends, and nothing that its person has elsewhere."""
    others = ["mine", "other", "sibling"]
    for name, options in zip(others, ([], [], ["--session", "sibling"]), strict=True):
        assert jo.ask("claim", name, "--any", *options).returncode == 0
    assert jo.ask("claim", "mine").returncode == 0, "it is renewed"
    url, email = (git(jo.clone, "config", key) for key in ("remote.origin.url", "user.email"))
    place = real_clone(url, tmp_path / "other", email)
    lines = [f"gitlease() {{ '{sys.executable}' -m gitlease \"$@\"; }}", f"cd '{place}'"]
    agent = """echo '{"session_id":"u","reason":"other","cwd":"."}' | """
    for end in (f"{agent}gitlease agent claude session-end", "gitlease session end --all"):
        lines += ["gitlease claim scratch --any 2>/dev/null", end]
        lines += ["while gitlease list | grep -q scratch; do sleep 0.1; done"]
    lines += ["gitlease fence F001 $GITLEASE_TOKEN; echo fence=$?"]
    ran = jo.ask("run", "F001", "--", "sh", "-c", "\n".join(lines))
    assert "fence=0" in ran.stdout, ran
    assert jo.live() == others


# --- the terminal ---------------------------------------------------------------------------------


# Takes the terminal that is its standard input for its own, and becomes the program.
OWN_TERMINAL = """\
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Screen:
    """A program on a terminal of its own."""

    def __init__(self, desk: Desk, words: list[str]) -> None:
        self.handle, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, *words],
            cwd=desk.clone,
            env=clean_env({**desk.env, "PS1": "", "TERM": "dumb", "HISTFILE": os.devnull}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.pid, self.text = self._process.pid, ""

    def type(self, text: str) -> None:
        os.write(self.handle, text.encode())

    def expect(self, said: str) -> str:
        """Wait until this was said; what was said up to its end."""
        until(lambda: said in self._read(), f"{said!r} in {self.text!r}")
        at = self.text.index(said) + len(said)
        before, self.text = self.text[:at], self.text[at:]
        return before

    def _read(self) -> str:
        os.set_blocking(self.handle, False)
        with contextlib.suppress(BlockingIOError):
            self.text += os.read(self.handle, 65_536).decode("utf-8", "replace")
        return self.text

    def close(self) -> None:
        self._process.send_signal(signal.SIGHUP)
        self._process.kill()
        self._process.wait(LONG)
        os.close(self.handle)


@pytest.fixture
def shell(jo: Desk) -> Iterator[Screen]:
    """An interactive bash, in which ``gl`` is gitlease."""
    opened = Screen(jo, ["bash", "--norc", "--noprofile", "--noediting", "-i"])
    try:
        run = " ".join(jo.words())
        opened.type(f"stty -echo; PS1=; gl() {{ {run} \"$@\"; }}; echo rea''dy\n")
        opened.expect("ready\r\n")
        yield opened
    finally:
        opened.close()


def test_on_a_terminal_the_command_reads_it_and_ctrl_c_reaches_it(jo: Desk, shell: Screen) -> None:
    script = r"echo go; read x; echo \"got \$x\"; trap 'echo int; exit 7' INT; echo on; "
    script += "while :; do sleep 0.05; done"
    shell.type(f'gl run F001 -- sh -c "{script}"; echo "exit $?"\n')
    shell.expect("go\r\n")
    shell.type("words\n")
    shell.expect("got words\r\n")
    shell.expect("on\r\n")
    shell.type("\x03")
    shell.expect("int\r\n")
    shell.expect("exit 7\r\n")
    shell.type('read y; echo "shell $y"\n')
    shell.type("mine\n")
    shell.expect("shell mine\r\n")
    assert jo.live() == []


@pytest.mark.nightly
def test_ctrl_z_stops_both_and_fg_goes_on_with_both(jo: Desk, shell: Screen) -> None:
    script = r"echo go; read x; echo \"got \$x\""
    shell.type(f'gl run F001 -- sh -c "{script}"\n')
    shell.expect("go\r\n")
    shell.type("\x1a")
    shell.expect("Stopped")
    shell.type("echo at''ease; fg >/dev/null; echo \"exit $?\"\n")
    shell.expect("atease\r\n")
    shell.type("words\n")
    shell.expect("got words\r\n")
    shell.expect("exit 0\r\n")
    assert jo.live() == []


@pytest.mark.parametrize("how", ["a lost lease", "a killed run"])
def test_on_a_terminal_all_that_the_command_started_ends_and_nothing_else(
    jo: Desk, shell: Screen, tmp_path: Path, how: str
) -> None:
    run, mine, theirs = " ".join(jo.words()), tmp_path / "mine", tmp_path / "theirs"
    script = tmp_path / "script"
    runner_of = 'r=$(cut -d" " -f4 /proc/$PPID/stat)'  # its parent is the guardian
    inner = f'sleep 90 & {runner_of}; echo "$r $!" >"{theirs}"; wait'
    script.write_text(f"sleep 91 & echo $! >{mine}\n{run} run F001 -- sh -c '{inner}'\necho over\n")
    shell.type(f"sh {script}\n")
    until(lambda: theirs.exists() and len(theirs.read_text().split()) == 2, "the command")
    runner, child = map(int, theirs.read_text().split())
    if how == "a lost lease":
        assert jo.ask("release", "F001", "--no-session").returncode == 0
    else:
        os.kill(runner, signal.SIGKILL)
    shell.expect("over\r\n")
    until(lambda: not lives(child), "the end of what the command started")
    assert lives(number_in(mine))
    os.kill(number_in(mine), signal.SIGKILL)


@pytest.mark.nightly
def test_while_run_and_guardian_are_stopped_a_command_outlives_its_lease_and_lands_nothing(
    jo: Desk, kim: Desk, tmp_path: Path
) -> None:
    """The README and the help of ``run`` name it among what is not promised."""
    file = tmp_path / "pid"
    run = jo.start("run", "F001", "--ttl", "6s", "--", *sleeper(file))
    child = number_in(file)
    (lease,) = kim.document("list")["leases"]
    guardian = jo.guardian()
    try:
        for pid in (run.pid, guardian):
            os.kill(pid, signal.SIGSTOP)
        kim.document("claim", "F001", "--wait", "50s")
        assert lives(child)
        assert jo.ask("fence", "F001", str(lease["token"])).returncode == 3
        assert jo.ask("push", "--require", "F001").returncode == 3
    finally:
        for pid in (guardian, run.pid):
            os.kill(pid, signal.SIGCONT)
    assert run.wait(LONG) == 125
    assert not lives(child)
