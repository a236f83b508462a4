"""``demo``: two workers and a remote in a throw-away folder, played with the real commands."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import click

from gitlease.core.errors import GitleaseError, UsageError
from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.verb import Verb, flag
from gitlease.faces.codes import Violations

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call

# Nothing else of the user's environment comes in: settings and agents would change the play.
KEPT = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT"),
    *("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "GIT_EXEC_PATH"),
)
WORKERS = ("ada", "bob")
REF = "refs/gitlease/global"
PATIENCE = 60  # seconds for one command


@dataclass(frozen=True, slots=True)
class DemoScene:
    """Who types what, how that must end, and a word that must be in what is printed."""

    who: str
    words: tuple[str, ...]
    exit: int = 0
    says: str = ""
    about: str = ""


PLAY = (
    DemoScene(
        "ada", ("init",), about="ada sets the repository up: the ledger is made on the remote"
    ),
    DemoScene(
        "ada",
        ("config", "--ledger", "skew", "0s"),
        about="for a quick play: trust the clocks, and allow very short leases",
    ),
    DemoScene("ada", ("config", "--ledger", "ttl_min", "2s")),
    DemoScene("ada", ("claim", "F001", "--reason", "rate limits"), about="ada takes a lease"),
    DemoScene(
        "bob", ("claim", "F001"), 1, "ada@example.com", "bob collides, and is told with whom"
    ),
    DemoScene("ada", ("renew", "F001"), about="ada renews: the heartbeat"),
    DemoScene("ada", ("extend", "F001", "12h"), 0, "maximum of 8h", "a long gap is capped"),
    DemoScene("ada", ("claim", "F002", "--ttl", "3s"), about="ada takes another, and goes silent"),
    DemoScene(
        "bob",
        ("claim", "F002", "--wait", "20s"),
        0,
        "taken over from ada@example.com",
        "bob waits: the lease runs out, and is his",
    ),
    DemoScene("ada", ("renew", "F002"), 3, "bob@example.com", "ada is back too late: it is lost"),
    DemoScene("ada", ("list",), says="theirs", about="ours and theirs"),
    DemoScene("ada", ("release", "F001", "--note", "tests are red"), about="ada hands over"),
    DemoScene("bob", ("claim", "F001"), 0, "tests are red", "and bob goes on"),
)


@dataclass(frozen=True, slots=True)
class DemoStep:
    """A command that was run, and how it ended."""

    who: str
    command: str
    expected: int
    exit: int
    output: str


@dataclass
class Stage:
    """The throw-away folder with one bare remote and a clone for each worker."""

    folder: str
    quiet: bool
    steps: list[DemoStep] = field(default_factory=list)

    def build(self) -> None:
        """Make the remote and the clones; each worker has a name of its own, and no settings."""
        settings = os.path.join(self.folder, "gitconfig")
        with open(settings, "w", encoding="utf-8") as file:
            file.write("[init]\n\tdefaultBranch = main\n")
        remote = os.path.join(self.folder, "origin.git")
        self._git(self.folder, "init", "--quiet", "--bare", remote)
        for name in WORKERS:
            who = ("-c", f"user.email={name}@example.com", "-c", f"user.name={name}")
            self._git(self.folder, "clone", "--quiet", *who, remote, name)
            if name == WORKERS[0]:
                ada = os.path.join(self.folder, name)
                self._git(ada, "commit", "--quiet", "--allow-empty", "-m", "begin")
                self._git(ada, "push", "--quiet", "origin", "HEAD:refs/heads/main")

    def play(self, scene: DemoScene) -> None:
        """Run one command of a worker and compare how it ends. Raises Violations."""
        if scene.about:
            self.say(f"\n# {scene.about}")
        command = shlex.join(("gitlease", *scene.words))
        argv = (sys.executable, "-P", "-m", "gitlease", *scene.words)
        self._run(scene.who, command, argv, scene.exit, scene.says)

    def look(self, *words: str) -> str:
        """Ask the bare remote itself, with plain git."""
        remote = os.path.join(self.folder, "origin.git")
        argv = ("git", f"--git-dir={remote}", *words)
        return self._run("remote", shlex.join(("git", *words)), argv, 0, "")

    def _run(self, who: str, command: str, argv: Sequence[str], expected: int, says: str) -> str:
        self.say(f"{who}$ {command}")
        done = self._started(os.path.join(self.folder, who) if who in WORKERS else ".", argv)
        self.steps.append(DemoStep(who, command, expected, done.returncode, done.stdout))
        self.say(done.stdout.rstrip("\n"))
        if done.returncode != expected:
            raise Violations(
                f"{who}$ {command} ended with {done.returncode} instead of {expected}",
            )
        if says not in done.stdout:
            raise Violations(f"{who}$ {command} did not say {says!r}")
        return done.stdout

    def _git(self, cwd: str, *words: str) -> None:
        done = self._started(cwd, ("git", *words))
        if done.returncode:
            said = (done.stdout.strip() or "no reason given").splitlines()[-1]
            raise Violations(f"git {words[0]} failed: {said}")

    def _started(self, cwd: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            cwd=os.path.join(self.folder, cwd),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """What the commands of the play see."""
        import gitlease

        package = os.path.dirname(os.path.dirname(os.path.abspath(gitlease.__file__)))
        env = {name: os.environ[name] for name in KEPT if name in os.environ}
        paths = [package, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
        return env | {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "PYTHONIOENCODING": "utf-8",
            "HOME": self.folder,
            "XDG_CONFIG_HOME": self.folder,
            "GIT_CONFIG_GLOBAL": os.path.join(self.folder, "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def say(self, text: str) -> None:
        """Print lines as the play goes on; nothing where the answer is one document."""
        if text and not self.quiet:
            for line in text.split("\n"):
                output.line(line)
            sys.stdout.flush()


@click.command(
    "demo",
    cls=Verb,
    help="""A play of two workers, ada and bob, who share a remote in a throw-away folder.

Claim, collision, renewal, a capped extension, a lease that runs out and is taken over, a renewal
that comes too late, release; at last the records as they lie in the ref. Every command is the real
one; the play fails when one of them does not end as told. Your own repository is not touched.""",
    examples=("gitlease demo", "gitlease demo --keep    # and look around in the folder"),
    exits=(1, 2),
    done="every step behaved as expected",
    no=("violations",),
    session=False,
)
@flag("--keep", help="Leave the folder for looking around.")
@click.pass_obj
def demo_verb(call: Call, *, keep: bool) -> int:
    if any((call.layer, call.local, call.remote, call.session, call.no_session)):
        raise UsageError("demo has a repository of its own, and takes only --keep and --json")
    began, folder = time.monotonic(), tempfile.mkdtemp(prefix="gitlease-demo-")
    stage = Stage(os.path.realpath(folder), quiet=call.json)
    differed: GitleaseError | None = None
    try:
        _perform(stage)
    except Violations as error:
        differed = error
    except (OSError, subprocess.TimeoutExpired) as error:
        differed = Violations(f"the play broke off: {error}")
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    body = {
        "steps": [asdict(step) for step in stage.steps],
        "folder": stage.folder if keep else None,
        "seconds": round(time.monotonic() - began, 1),
    }
    if differed is not None:
        return refusals.tell(call, differed, body=body)
    call.answer(body, show=lambda: _show_end(body["seconds"], stage.folder if keep else None))
    return 0


def _perform(stage: Stage) -> None:
    stage.build()
    for scene in PLAY:
        stage.play(scene)
    stage.say("\n# the whole ledger is a tree of YAML files on one ref of the remote")
    files = stage.look("ls-tree", "-r", "--name-only", REF).split()
    records = [name for name in files if name.startswith("leases/")]
    stage.look("show", f"{REF}:{(records or files)[0]}")
    stage.look("log", "--oneline", "-n", "5", REF)


def _show_end(seconds: object, folder: str | None) -> None:
    output.line("")
    output.line(f"every step behaved as expected, in {seconds}s")
    if folder is not None:
        output.line(f"look around in {folder}: origin.git, ada, bob; then remove it")
