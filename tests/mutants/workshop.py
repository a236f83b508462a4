"""A copy of gitlease and its tests, into which one fault after the other is put."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Protocol
from venv import EnvBuilder

from mutants.catalogue import ROOT

COPIED = ("gitlease", "tests", "hooks", "pyproject.toml", "README.md", "LICENSE")
PATIENCE = 120.0  # seconds for one net; a loaded machine takes its time
TESTS_FAILED = 1  # of pytest's exit codes; 2 and more: it could not run them
SCRIPT = """\
#!{python}
import sys
from gitlease.__main__ import main
sys.exit(main())
"""
TOLD = 40  # lines of what pytest said


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of some nets: pytest's exit code (None: it took too long), seconds, its words."""

    code: int | None
    seconds: float
    said: str


class Fault(Protocol):
    """A change of one file, and the net that must catch it."""

    @property
    def file(self) -> str: ...
    @property
    def net(self) -> str: ...
    def applied(self, source: str) -> str: ...


class Workshop:
    """The copy, in a folder of its own. Nets run one at a time, and see no other gitlease."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            there = ROOT / name
            if there.is_dir():
                shutil.copytree(there, folder / name)
            else:
                shutil.copy2(there, folder / name)
        self._python = _interpreter(folder)

    def run(self, nets: Sequence[str]) -> Ran:
        """Run what of these nets runs by default, as the copy is now, up to the first failure.

        The tests get a temporary folder of their own: at its end, pytest deletes what other runs
        left in the shared one. That is 80,000 files of a default run, and took more than two
        minutes on a loaded machine, which counted as the time of a net.
        """
        with tempfile.TemporaryDirectory(prefix="gitlease-nets-") as temporary:
            return self._run(nets, Path(temporary, "tests"))

    def _run(self, nets: Sequence[str], temporary: Path) -> Ran:
        patience = PATIENCE * len(nets)
        words = ["-m", "pytest", "-o", "addopts=", "-x", "-q", "--tb=short"]
        words += ["-m", "default", "-p", "no:cacheprovider", "-p", "no:xdist"]
        words += [f"--basetemp={temporary}", *nets]
        # With CI set, hypothesis takes the same examples every time.
        env = {"CI": "yes", **os.environ}
        env.pop("PYTHONPATH", None)
        env.pop("PYTEST_ADDOPTS", None)
        began = time.monotonic()
        process = subprocess.Popen(
            [str(self._python), *words],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=patience)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            said, code = process.communicate()[0], None
        lines = said.splitlines()[-TOLD:]
        return Ran(code, time.monotonic() - began, "\n".join(lines))

    def run_with(self, mutant: Fault) -> Ran:
        """Run a mutant's net with its fault, and take that out again."""
        file = self.folder / mutant.file
        source = file.read_text(encoding="utf-8")
        self._write(file, mutant.applied(source))
        try:
            return self.run([mutant.net])
        finally:
            self._write(file, source)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        # What was compiled is told by size and second alone, and both may be the same.
        Path(cache_from_source(str(file))).unlink(missing_ok=True)


def _interpreter(folder: Path) -> Path:
    """A Python whose gitlease is the copy, also for the hooks that git runs with it."""
    home = folder / ".venv"
    EnvBuilder(symlinks=True).create(home)
    place = {"base": str(home), "platbase": str(home)}
    scripts = Path(sysconfig.get_path("scripts", "venv", place))
    # What is installed beside gitlease: .pth files there, as its own may be, are not read.
    installed = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    paths = Path(sysconfig.get_path("purelib", "venv", place), "copy.pth")
    paths.write_text("\n".join([str(folder), *installed, ""]), encoding="utf-8")
    for name in ("gitlease", "git-lease"):
        script = scripts / name
        script.write_text(SCRIPT.format(python=scripts / "python"), encoding="utf-8")
        script.chmod(0o755)
    return scripts / "python"
