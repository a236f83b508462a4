"""gitlease runs from an archive, without its stubs, and from compiled files alone."""

from __future__ import annotations

import compileall
import json
import shutil
import subprocess
import sys
import zipapp
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fences import clean_env

from gitlease import __version__
from gitlease.guard.install import own_program
from gitlease.kernel.git import run
from gitlease.kernel.git.run import own_archive

PACKAGE = Path(__file__).resolve().parents[2] / "gitlease"


def _copy(folder: Path, *left_out: str) -> Path:
    shutil.copytree(
        PACKAGE, folder / "gitlease", ignore=shutil.ignore_patterns("__pycache__", *left_out)
    )
    return folder


def _archive(folder: Path) -> list[str]:
    app = _copy(folder / "app", "*.pyi")
    (app / "__main__.py").write_text("from gitlease.__main__ import main\n\nmain()\n")
    zipapp.create_archive(app, folder / "gitlease.pyz", compressed=True)
    shutil.rmtree(app)
    return [str(folder / "gitlease.pyz")]


def _without_stubs(folder: Path) -> list[str]:
    _copy(folder, "*.pyi")
    return ["-m", "gitlease"]


def _compiled(folder: Path) -> list[str]:
    _copy(folder, "*.pyi")
    assert compileall.compile_dir(folder, legacy=True, quiet=2)
    for source in folder.rglob("*.py"):
        source.unlink()
    return ["-m", "gitlease"]


@pytest.mark.parametrize("make", [_archive, _without_stubs, _compiled])
def test_a_claim_a_page_and_a_refusal(
    make: Callable[[Path], list[str]], clones: Callable[..., list[Path]], tmp_path: Path
) -> None:
    jo, kim = clones(2)
    folder = tmp_path / "installed"
    folder.mkdir()
    words = make(folder)

    def ran(*more: str, cwd: Path = jo) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", *words, *more],
            cwd=cwd,
            env=clean_env({"PYTHONPATH": str(folder)}),
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    if words == ["-m", "gitlease"]:
        # And not from the sources beside these tests, which an editable installation names.
        words = ["-c", "import gitlease; print(gitlease.__path__)"]
        assert ran().stdout == f"{[str(folder / 'gitlease')]}\n"
        words = ["-m", "gitlease"]
    assert ran("--version").stdout == f"gitlease {__version__}\n"
    claimed = ran("claim", "deploy")
    assert claimed.returncode == 0, claimed.stderr
    refused = ran("claim", "deploy", cwd=kim)
    assert refused.returncode == 1, refused.stderr
    assert "is held by" in refused.stderr
    under = ran("run", "build", "--", "sh", "-c", "echo $GITLEASE_RESOURCE")
    assert (under.returncode, under.stdout) == (0, "build\n"), under.stderr
    page = ran("help", "ci")
    assert page.returncode == 0, page.stderr
    assert page.stdout.startswith("# ")
    schema = ran("config", "--schema=answers")
    assert schema.returncode == 0, schema.stderr
    assert json.loads(schema.stdout)["title"]


def test_what_an_archive_starts_comes_from_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = tmp_path / "app.pyz"
    app = tmp_path / "app" / "gitlease"
    app.mkdir(parents=True)
    (app / "__init__.py").touch()
    (app / "told.py").write_text("import sys\nprint(__name__, __file__, *sys.argv[1:])\n")
    (app.parent / "__main__.py").touch()
    zipapp.create_archive(app.parent, archive)
    assert own_archive() is None
    monkeypatch.setattr(run, "__file__", str(archive / "gitlease" / "kernel" / "git" / "run.py"))
    assert own_archive() == str(archive)
    words = [*run.own_module("gitlease.told"), "1"]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
    assert said.stdout == f"__main__ {archive}/gitlease/told.py 1\n"
    # Hooks start it as a program of its own, whatever its name is.
    archive.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(archive)])
    assert own_program() == str(archive)
