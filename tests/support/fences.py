"""The fences round a test run: no user settings get in, nothing gets out into HOME."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Everything whose name starts so is taken out of the environment before any test runs.
FENCED_PREFIXES = (
    "GIT_",
    "GITLEASE_",
    "SSH_",
    "XDG_",
    "LC_",
    "AIDER_",
    "AMP_",
    "CLAUDE",
    "CODEX_",
    "COPILOT_",
    "CURSOR_",
    "GEMINI_",
    "OPENCODE",
)
FENCED_NAMES = frozenset(
    {"AI_AGENT", "EMAIL", "LANG", "LANGUAGE"}
    | {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
)
# Maintenance goes on behind a test's back, and newer gits start it with many a command.
GLOBAL_CONFIG = (
    '[init]\n\tdefaultBranch = main\n[protocol "file"]\n\tallow = always\n'
    "[maintenance]\n\tauto = false\n"
)
FALLBACK_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Fences:
    """The temporary HOME and git settings of one test process."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The directory HOME points to."""
        return self.root / "home"

    @property
    def global_config(self) -> Path:
        """The file GIT_CONFIG_GLOBAL points to."""
        return self.root / "gitconfig"

    def violations(self) -> list[str]:
        """What appeared in HOME, or changed in the global configuration, by name."""
        there = sorted(self.home.rglob("*"))
        found = [f"HOME/{path.relative_to(self.home).as_posix()}" for path in there]
        if sorted(entry.name for entry in (self.root / "template").iterdir()):
            found.append("the template directory is not empty any more")
        if self.global_config.read_text(encoding="utf-8") != GLOBAL_CONFIG:
            found.append("the global git configuration was changed")
        return found

    def remove(self) -> None:
        """Remove the temporary directories."""
        shutil.rmtree(self.root, ignore_errors=True)


def is_fenced(name: str) -> bool:
    """Whether the variable is kept away from the tests."""
    return name in FENCED_NAMES or name.startswith(FENCED_PREFIXES)


def build(environ: Mapping[str, str]) -> Fences:
    """Make the temporary directories and work out the environment inside the fences."""
    root = Path(os.path.realpath(tempfile.mkdtemp(prefix="gitlease-tests-")))
    fences = Fences(root)
    fences.home.mkdir()
    (root / "template").mkdir()
    fences.global_config.write_text(GLOBAL_CONFIG, encoding="utf-8")
    os.utime(fences.global_config, (0, 0))  # what changed a moment ago is another thing to hooks
    fences.environ.update({k: v for k, v in environ.items() if not is_fenced(k)})
    fences.environ.update(
        HOME=str(fences.home),
        GIT_CONFIG_GLOBAL=str(fences.global_config),
        GIT_CONFIG_NOSYSTEM="1",
        GIT_TEMPLATE_DIR=str(root / "template"),
        GIT_TERMINAL_PROMPT="0",
        XDG_CACHE_HOME=str(root / "cache"),
        LC_ALL="C.UTF-8",
    )
    return fences


_raised: Fences | None = None


def raise_fences() -> Fences:
    """Put the fences round this process (once): os.environ is replaced by the fenced one."""
    global _raised
    if _raised is None:
        _raised = build(os.environ)
        _hear_signals()
        atexit.register(_remove_in, os.getpid(), _raised)  # runs that never start a session
        for name in [name for name in os.environ if name not in _raised.environ]:
            del os.environ[name]
        os.environ.update(_raised.environ)
    return _raised


def _hear_signals() -> None:
    """Undo what nohup and shells do to jobs in the background, which every child would inherit."""
    for signum in (signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        if signal.getsignal(signum) == signal.SIG_IGN:
            typed = signum == signal.SIGINT
            signal.signal(signum, signal.default_int_handler if typed else signal.SIG_DFL)


def _remove_in(process: int, fences: Fences) -> None:
    if os.getpid() == process:  # not in a fork of it
        fences.remove()


def clean_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a git child: the fences only, whatever a test did to os.environ."""
    base = raise_fences().environ
    kept = {
        name: value
        for name, value in base.items()
        if name in {"PATH", "HOME", "TMPDIR", "LC_ALL", "XDG_CACHE_HOME"} or name.startswith("GIT_")
    }
    kept.setdefault("PATH", FALLBACK_PATH)
    return {**kept, **(extra or {})}
