"""Help teaches, needs no repository, and costs next to nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from doors.fake import make_desks
from support.commands import run_program
from support.manpage import FILE, page
from support.recording import how_to_record

from gitlease.cli.app import DAILY, GROUPS, MODULES, Verb, application
from gitlease.cli.setup.help import pages
from gitlease.verbs.table import CODES, TABLE

VERBS = list(MODULES)
HEAVY = (
    "pygit2",
    "yaml",
    "rich",
    "asyncio",
    "importlib.metadata",
)


def find(name: str) -> Verb:
    """The command of a verb."""
    verb = application().get_command(click.Context(application()), name)
    assert isinstance(verb, Verb)
    return verb


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_a_paragraph_examples_and_exit_codes(name: str) -> None:
    ada, _ = make_desks()
    ran = ada.ok(name, "--help")
    verb = find(name)
    assert verb.name == name
    assert ran.out == ada.ok(name, "-h").out
    assert ran.out.startswith(f"Usage: gitlease {name} ")
    for part in ("Options:", "Examples:", "Exit codes:", "  -C DIR", "  --json"):
        assert part in ran.out
    assert ("  --layer NAME" in ran.out) == ("layer" not in verb.page.refuses)
    assert len(verb.help or "") > 60, "the help of a verb is a paragraph"
    assert verb.page.examples
    assert all(line.startswith(f"gitlease {name}") for line in verb.page.examples)
    known = {code.exit for code in CODES.values()}
    assert 2 in verb.page.exits or verb.page.own_exits
    assert set(verb.page.exits) <= known
    assert [*verb.page.exits] == sorted({*verb.page.exits})
    assert (ran.err, ada.opened) == ("", [])


@pytest.mark.parametrize("topic", [*pages()])
def test_a_link_to_another_page_is_the_command_that_prints_it(topic: str) -> None:
    ada, _ = make_desks()
    printed = ada.ok("help", topic).out
    assert not re.search(r"\]\((?!https:)[^)]*\.md\)", printed)
    for other in re.findall(r"\(`gitlease help ([\w-]+)`\)", printed):
        assert other in pages()


def test_help_shows_ten_verbs_and_help_verbs_all() -> None:
    ada, _ = make_desks()
    for argv in ((), ("--help",), ("-h",), ("help",)):
        out = ada.ok(*argv).out
        shown = [verb for verb in MODULES if f"\n  {verb} " in out]
        assert sorted(shown) == sorted(DAILY)
        assert len(DAILY) == 10
    out = ada.ok("help", "verbs").out
    for title, verbs in GROUPS:
        assert f"{title}:" in out
        for verb, _, short in verbs:
            assert f"  {verb} " in out
            assert short in out
    assert ada.run("compact", "--help").code == 2
    assert ada.run("help", "lfs", "doctor").code == 2
    assert ada.run("help", "hooks", "install").code == 0


def run_here(tmp_path: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run python in an empty folder, where there is no repository."""
    root = str(Path(__file__).parents[3])
    return run_program([sys.executable, *argv], tmp_path, {"PYTHONPATH": root})


@pytest.mark.parametrize("argv", [("--version",), ("--help",), ("claim", "--help"), ("clam",)])
def test_nothing_heavy_is_loaded_to_say_a_few_words(tmp_path: Path, argv: tuple[str, ...]) -> None:
    code = (
        "import sys\nfrom gitlease.cli.app import run\n"
        f"status = run({list(argv)!r})\n"
        "print('LOADED', *sorted(sys.modules), file=sys.stderr)\nsys.exit(status)\n"
    )
    done = run_here(tmp_path, "-c", code)
    assert done.returncode == (2 if argv == ("clam",) else 0), done.stderr
    loaded = set(done.stderr.rpartition("LOADED")[2].split())
    assert "click" in loaded
    assert loaded.isdisjoint(HEAVY)
    verbs = {f"gitlease.cli.{module}" for module in MODULES.values() if module}
    assert not loaded & verbs
    own = {"gitlease.verbs.claiming"} if "claim" in argv else set()
    assert loaded & {f"gitlease.{module}" for module in TABLE.values()} == own


def test_outside_a_repository(tmp_path: Path) -> None:
    done = run_here(tmp_path, "-m", "gitlease", "list")
    assert (done.returncode, done.stdout) == (128, "")
    assert "Traceback" not in done.stderr
    # Git may tell at which file system it stopped looking.
    assert len(done.stderr.splitlines()) <= 3


def test_the_manual_page_is_what_the_commands_say() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), how_to_record("man")


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man")
def test_the_manual_page_reads_well() -> None:
    env = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    words = ["man", "--warnings", "--local-file", str(FILE)]
    done = subprocess.run(words, env=env, capture_output=True, encoding="utf-8", check=True)
    assert done.stderr == ""
    assert "git lease claim [OPTIONS] RESOURCE..." in done.stdout
    assert all(f"git lease {verb}" in done.stdout for verb in MODULES)
