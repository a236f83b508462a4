"""``demo``: two workers share a remote in a temporary folder, using the real commands."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import gitlease
from gitlease.cli import output
from gitlease.cli.app import flag, verb
from gitlease.cli.call import Call, tell
from gitlease.kernel.rules.errors import GitleaseError, UsageError, clean
from gitlease.verbs.table import Result, Violations

# --- the scenes -------------------------------------------------------------------------------

WORKERS = ("ada", "bob")
TASKS = {"F001": "rate limits", "F002": "password reset", "F003": "audit log"}
# The initial content of the repository.
FILES = {
    **{f"tasks/{x}.md": f"---\nid: {x}\ntitle: {TASKS[x]}\nstatus: todo\n---\n" for x in TASKS},
    "src/auth/login.py": "def login(): ...\n",
    "src/pay/card.py": "def pay(): ...\n",
}


@dataclass(frozen=True, slots=True)
class DemoScene:
    """A worker's command, its expected exit status, and a text that its output must contain.

    ``about`` is announced first; ``edits`` is a file and a line to add to it before.
    """

    who: str
    command: str
    exit: int = 0
    says: str = ""
    about: str = ""
    edits: tuple[str, str] | None = None


# A scene: "# about", "+ FILE added line", "worker$ command", "= exit text in the output".
SCRIPT = """
# ada sets up the repository: init creates the ledger
ada$ gitlease init
ada$ git add .gitlease.yaml
ada$ git commit -q -m 'use gitlease'
ada$ git push -q origin main
bob$ git pull -q
# to keep the demo short: trust the clocks, and allow very short leases
ada$ gitlease config --ledger skew 0s
ada$ gitlease config --ledger ttl_min 2s
# both install git hooks that check their commits and pushes
ada$ gitlease hooks install
bob$ gitlease hooks install
# both ask for the next task, and each gets a different one
ada$ gitlease next --claim
= 0 claimed F001
bob$ gitlease next --claim
= 0 claimed F002
# ada also claims a whole folder
ada$ gitlease claim src/auth/ --reason 'new sign-in'
# bob wants ada's task, and sees who holds it
bob$ gitlease claim F001
= 1 held by ada@example.com
# bob changes src/auth/login.py anyway: git refuses the commit
+ src/auth/login.py def logout(): ...
bob$ git commit -a -m 'log out'
= 1 src/auth/login.py is held by ada@example.com
# ada renews: the heartbeat
ada$ gitlease renew F001
= 0 renewed F001
# a long gap is capped
ada$ gitlease extend F001 12h
= 0 maximum of 8h
# ada claims another folder for 6 seconds, changes src/pay/card.py, and goes silent
ada$ gitlease claim src/pay/ --ttl 6s
+ src/pay/card.py def refund(): ...
ada$ git commit -q -a -m 'pay by card'
# bob waits until the lease has lapsed, and claims it
bob$ gitlease claim src/pay/ --wait 20s
= 0 claimed after the lapsed lease of ada@example.com
# ada comes back too late: her lease is lost
ada$ gitlease renew src/pay/
= 3 held by bob@example.com
# her push is refused, so her work cannot land over his
ada$ gitlease push
= 3 bob@example.com was granted it later, with token 5
# ada's work now
ada$ gitlease brief
= 0 by bob@example.com
# ada hands her task over
ada$ gitlease release F001 --note 'tests are red'
= 0 released F001
# bob continues
bob$ gitlease claim F001
= 0 tests are red
"""


SCENE = re.compile(
    r"^(?:# (.*)\n)?(?:\+ (\S+) (.*)\n)?(\w+)\$ (.*)\n(?:= (\d) (.*)\n)?", re.MULTILINE
)


PLAY = tuple(
    DemoScene(who, command, int(status or 0), text, about, (file, added) if file else None)
    for about, file, added, who, command, status, text in SCENE.findall(SCRIPT)
)

# The commands to try next, and their purpose.
NEXT = (
    ("init", "create the ledger, and settings for your task files"),
    ("hooks install", "in each clone"),
    ("next --claim", "claim the next task, if you have task files"),
    ("claim src/", "or claim any file or folder"),
)


# --- what is printed --------------------------------------------------------------------------

COLOURS = {"ada": "cyan", "bob": "magenta"}
OTHERS = "yellow"


class DemoTeller:
    """Prints the demo line by line; on a terminal in colour and wrapped."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = output.console() if not quiet and output.on_terminal() else None

    def heading(self, text: str) -> None:
        """Print the title of a scene."""
        self.plain("\n" + text, style="bold")

    def command(self, who: str, command: str) -> None:
        """Print a command."""
        self.plain(f"{who}$ {command}", style=f"bold {COLOURS.get(who, OTHERS)}")

    def printed(self, text: str, *, refused: bool) -> None:
        """Print the output of a command."""
        for line in text.splitlines():
            kind = line.removeprefix("gitlease: ").partition(": ")[0]
            usual = "red" if refused else ""
            self.plain(line, style={"hint": "dim", "warning": "yellow"}.get(kind, usual))

    def plain(self, text: str, *, style: str = "") -> None:
        """Print lines in a style."""
        if self._quiet:
            return
        for line in text.split("\n"):
            if self._console is None:
                output.line(line)
            else:
                from rich.text import Text

                self._console.print(Text(clean(line), style, overflow="fold"))
        sys.stdout.flush()


# --- the stage --------------------------------------------------------------------------------

# The rest of the user's environment is dropped: settings and agents would change the demo.
KEPT = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT"),
    *("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "GIT_EXEC_PATH"),
)
REF = "refs/gitlease/global"
# git must not work in the background in a folder that will be removed.
SETTINGS = "[init]\n\tdefaultBranch = main\n[maintenance]\n\tauto = false\n[gc]\n\tauto = 0\n"
GITLEASE = (sys.executable, "-P", "-m", "gitlease")
TIMEOUT = 60  # seconds for one command
PAUSE = 2.0  # seconds for reading the output on a terminal


@dataclass(frozen=True, slots=True)
class DemoStep:
    """A command with its expected and its actual result."""

    who: str
    command: str
    expected: int
    exit: int
    output: str


@dataclass
class Stage:
    """The temporary folder with a bare remote and a clone for each worker.

    ``pause`` is called with seconds before each scene.
    """

    folder: str
    teller: DemoTeller
    pause: Callable[[float], object]
    steps: list[DemoStep] = field(default_factory=list)

    @property
    def _bin(self) -> str:
        return os.path.join(self.folder, "bin")

    def build(self) -> None:
        """Make the remote and the clones; each worker has an own name, and no settings."""
        # For the hooks: with `python -m gitlease`, the program may be missing.
        launcher = os.path.join(self._bin, "gitlease")
        os.mkdir(self._bin)
        with open(launcher, "w", encoding="utf-8", newline="\n") as file:
            file.write(f'#!/bin/sh\nexec {shlex.join(GITLEASE)} "$@"\n')
        os.chmod(launcher, 0o700)
        settings = os.path.join(self.folder, "gitconfig")
        with open(settings, "w", encoding="utf-8") as file:
            file.write(SETTINGS)
        remote = os.path.join(self.folder, "origin.git")
        self._git(self.folder, "init", "--quiet", "--bare", remote)
        for name in WORKERS:
            who = ("-c", f"user.email={name}@example.com", "-c", f"user.name={name}")
            self._git(self.folder, "clone", "--quiet", *who, remote, name)
            if name == WORKERS[0]:
                ada = os.path.join(self.folder, name)
                for file_name, text in FILES.items():
                    self._add(name, file_name, text)
                self._git(ada, "add", ".")
                self._git(ada, "commit", "--quiet", "-m", "begin")
                self._git(ada, "push", "--quiet", "origin", "HEAD:refs/heads/main")

    def play(self, scene: DemoScene) -> None:
        """Run one command of a worker. Raises Violations if it does not end as expected."""
        if scene.about:
            self.next(scene.about)
        if scene.edits is not None:
            self._add(scene.who, scene.edits[0], scene.edits[1] + "\n")
        words = shlex.split(scene.command)
        if words[0] == "gitlease":
            words[:1] = GITLEASE
        self._run(scene.who, scene.command, words, scene.exit, scene.says)

    def next(self, about: str) -> None:
        """Pause for reading, and announce the next scene."""
        self.pause(PAUSE)
        self.teller.heading(f"# {about}")

    def look(self, *words: str) -> str:
        """Run plain git on the bare remote."""
        remote = os.path.join(self.folder, "origin.git")
        argv = ("git", f"--git-dir={remote}", *words)
        return self._run("remote", shlex.join(("git", *words)), argv, 0, "")

    def _run(self, who: str, command: str, argv: Sequence[str], expected: int, says: str) -> str:
        self.teller.command(who, command)
        done = self._started(who if who in WORKERS else ".", argv)
        self.steps.append(DemoStep(who, command, expected, done.returncode, done.stdout))
        self.teller.printed(done.stdout, refused=done.returncode != 0)
        if done.returncode != expected:
            raise Violations(f"{who}$ {command} ended with {done.returncode} instead of {expected}")
        if says not in done.stdout:
            raise Violations(f"{who}$ {command} did not print {says!r}")
        return done.stdout

    def _add(self, who: str, name: str, text: str) -> None:
        path = os.path.join(self.folder, who, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a", encoding="utf-8", newline="\n") as file:
            file.write(text)

    def _git(self, cwd: str, *words: str) -> None:
        done = self._started(cwd, ("git", *words))
        if done.returncode:
            why = (done.stdout.strip() or "no reason given").splitlines()[-1]
            raise Violations(f"git {words[0]} failed: {why}")

    def _started(self, cwd: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            cwd=os.path.join(self.folder, cwd),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # As on a terminal: refusals and hints stand among the answers.
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of the demo's commands."""
        package = os.path.dirname(os.path.dirname(os.path.abspath(gitlease.__file__)))
        env = {name: os.environ[name] for name in KEPT if name in os.environ}
        paths = [package, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
        return env | {
            "PATH": os.pathsep.join((self._bin, env.get("PATH", os.defpath))),
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "PYTHONIOENCODING": "utf-8",
            "HOME": self.folder,
            "XDG_CONFIG_HOME": self.folder,
            "GIT_CONFIG_GLOBAL": os.path.join(self.folder, "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }


@verb(
    "demo",
    """Watch two workers, ada and bob, who share a remote in a temporary folder.

Each takes a task. They collide, and a commit in a folder that ada holds is refused. A lease is
renewed, extended up to the maximum, lapses and is claimed by bob; a late renewal and a push are
refused, and a task is handed over. Finally you see the records in the ref. All commands are real,
and the demo fails if one of them does not end as expected. Your own repository is not touched. On a
terminal the demo pauses for reading, and takes about a minute.""",
    examples=(
        "gitlease demo",
        "gitlease demo --fast    # without pauses",
        "gitlease demo --keep    # and look around in the folder",
    ),
    exits=(1, 2),
    done="every step behaved as expected",
    no=("violations",),
    session=False,
    refuses=("layer", "local", "remote"),
)
@flag("--keep", help="Keep the folder afterwards.")
@flag("--fast", help="Do not pause on a terminal.")
def demo_verb(call: Call, *, keep: bool, fast: bool) -> int:
    if any((call.layer, call.local, call.remote, call.session, call.no_session)):
        raise UsageError("demo uses its own repository: it only accepts --keep, --fast and --json")
    began, folder = time.monotonic(), tempfile.mkdtemp(prefix="gitlease-demo-")
    teller = DemoTeller(quiet=call.json)
    paced = output.on_terminal() and sys.stdout.isatty() and not call.json and not fast
    stage = Stage(os.path.realpath(folder), teller, time.sleep if paced else lambda _: None)
    differed: GitleaseError | None = None
    try:
        stage.build()
        for scene in PLAY:
            stage.play(scene)
        stage.next("the whole ledger is a tree of YAML files on one ref of the remote")
        files = stage.look("ls-tree", "-r", "--name-only", REF).split()
        records = [name for name in files if name.startswith("leases/")]
        stage.look("show", f"{REF}:{(records or files)[0]}")
        stage.look("log", "--oneline", "-n", "5", REF)
    except Violations as error:
        differed = error
    except BrokenPipeError:
        # The reader left; the demo did not fail.
        raise
    except (OSError, subprocess.TimeoutExpired) as error:
        differed = Violations(f"the demo stopped: {error}")
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    body = {
        "steps": [asdict(step) for step in stage.steps],
        "folder": stage.folder if keep else None,
        "seconds": round(time.monotonic() - began, 1),
    }
    if differed is not None:
        return tell(call, differed, body=body)
    return call.respond(Result(body=body), lambda: _show_end(call, teller, body))


def _show_end(call: Call, teller: DemoTeller, body: dict[str, Any]) -> None:
    teller.plain(f"\nevery step behaved as expected, in {body['seconds']}s")
    if body["folder"] is not None:
        teller.plain(f"look around in {body['folder']} (origin.git, ada, bob), then remove it")
    teller.heading("next, in your repository:")
    for words, why in NEXT:
        teller.plain(f"{call.prog} {words}  # {why}")
