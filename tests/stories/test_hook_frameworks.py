"""The real pre-commit, husky and lefthook call our hooks: what is blocked, seen and renewed.

Debian has none of them (its pre-commit is too old): where one is missing its stories are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from support.commands import run_program
from support.fences import clean_env
from support.hooked import KIM, MINUTE, WAYS_AROUND, Done, Pair, Person
from support.running import until

from gitlease.guard.hook_places import HOOKS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE, LOGIN = "src/web/page.py", "src/api/login.py"
LAPSED, DUE = 20 * MINUTE, 6 * MINUTE  # ago


@dataclass
class Managed:
    """Jo's clone, whose hooks a manager calls, and Kim's."""

    pair: Pair
    jo: Person
    manager: str

    def said(self, done: Done, code: int = 0) -> str:
        """What a person sees of a command of git."""
        seen = done.stdout + done.stderr
        assert done.returncode == code, seen
        return seen


def tool(name: str) -> str:
    """Where a manager is; without it the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


def typed(one: Person, *words: str) -> str:
    done = run_program(words, one.root, one.env)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def shown(jo: Person) -> list[str]:
    """The lines that the installer shows for people to add."""
    words = ("gitlease", "hooks", "install", "--json")
    done = subprocess.run(
        words, cwd=jo.root, env=clean_env(jo.env), capture_output=True, check=False, timeout=120
    )
    lines: list[str] = json.loads(done.stdout)["to_add"]
    assert done.returncode == 1, done.stderr
    return lines


def by_shown_lines(jo: Person) -> None:
    """Our entry as the installer shows it, and the command that comes with it."""
    config = jo.root / ".pre-commit-config.yaml"
    config.write_text("repos:\n  - repo: meta\n    hooks:\n      - id: identity\n")
    *lines, command = shown(jo)
    config.write_text(config.read_text() + "\n".join(lines) + "\n")
    typed(jo, *command.split())


def by_manifest(jo: Person) -> None:
    """The hooks of our manifest, as a repository that is named there would have them."""
    items = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    for item in items:
        item["language"] = "system"
    config = {"repos": [{"repo": "local", "hooks": items}]}
    (jo.root / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    typed(jo, "pre-commit", "install", *(word for name in HOOKS for word in ("-t", name)))


def by_husky(jo: Person) -> None:
    (jo.root / "package.json").write_text("{}\n", encoding="utf-8")
    typed(jo, "husky")
    for line in shown(jo):
        if line.startswith("# .husky/"):
            file = jo.root / line.split()[1]
        else:
            with file.open("a") as opened:
                opened.write(f"{line}\n")


def by_lefthook(jo: Person) -> None:
    main = jo.root / "lefthook.yml"
    main.write_text("pre-commit:\n  jobs:\n    - run: 'true'\n", encoding="utf-8")
    snippet, _, extends = "\n".join(shown(jo)).partition("# lefthook.yml\n")
    (jo.root / "lefthook-gitlease.yml").write_text(snippet + "\n")
    main.write_text(f"{main.read_text()}{extends}\n")
    typed(jo, "lefthook", "install")


MANAGERS: dict[str, tuple[str, Callable[[Person], None]]] = {
    "pre-commit": ("pre-commit", by_shown_lines),
    "pre-commit by its manifest": ("pre-commit", by_manifest),
    "husky": ("husky", by_husky),
    "lefthook": ("lefthook", by_lefthook),
}


@pytest.fixture(params=MANAGERS)
def managed(request: pytest.FixtureRequest, made_pair: Pair, pair: Pair, tmp_path: Path) -> Managed:
    name, set_up = MANAGERS[request.param]
    folders = (str(made_pair.base / "bin"), os.path.dirname(tool(name)), clean_env()["PATH"])
    jo = pair.jo
    jo.env |= {"PATH": ":".join(folders), "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    jo.env["PYTHONPATH"] = str(ROOT)
    typed(jo, "gitlease", "hooks", "uninstall")
    set_up(jo)
    jo.git("add", ".")
    for words in (("commit", "-qm", "hooks"), ("push", "-q")):  # by which nothing is looked up
        jo.git("-c", "core.hooksPath=/dev/null", *words)
    pair.calls()
    return Managed(pair, jo, name)


@pytest.mark.default("pre-commit")
def test_every_hook_is_shown_as_live(managed: Managed) -> None:
    states = json.loads(typed(managed.jo, "gitlease", "hooks", "status", "--json"))
    proven = "live" if managed.manager == "husky" else "proven"  # nobody runs a script of theirs
    assert [x["name"] for x in states["hooks"] if x[proven]] == list(HOOKS), states


@pytest.mark.nightly
def test_a_commit_and_a_push_of_what_another_holds_are_stopped_and_said(managed: Managed) -> None:
    managed.pair.kim.claim(LOGIN)
    before = managed.jo.head()
    managed.jo.put(LOGIN)
    seen = managed.said(managed.jo.commit(), 1)
    assert re.search(rf"{LOGIN} .* {KIM}", seen)
    assert not WAYS_AROUND.search("".join(x for x in seen.splitlines() if "gitlease:" in x))
    assert managed.jo.head() == before
    before = managed.pair.on_remote("main")
    managed.jo.put(LOGIN)
    managed.said(managed.jo.commit(env={"GITLEASE_SKIP": "1"}))
    done = managed.jo.run("push")
    assert done.returncode == 1
    assert re.search(rf"{LOGIN} .* {KIM}", done.stdout + done.stderr)
    assert managed.pair.on_remote("main") == before
    managed.pair.kim.release(LOGIN)
    managed.said(managed.jo.run("push"))
    assert managed.pair.on_remote("main") == managed.jo.head()


@pytest.mark.default("pre-commit")
def test_a_warning_is_seen_and_a_pass_says_nothing_of_ours(managed: Managed) -> None:
    managed.pair.kim.claim(LOGIN, ago=LAPSED)
    managed.jo.put(LOGIN)
    assert f"gitlease: warning: {LOGIN} " in managed.said(managed.jo.commit())
    assert f"gitlease: warning: {LOGIN} " in managed.said(managed.jo.run("push"))
    managed.jo.put(PAGE)
    assert "gitlease: " not in managed.said(managed.jo.commit())
    assert "gitlease: " not in managed.said(managed.jo.run("push"))
    managed.jo.at().inbox.leave(["your claim of F001 was revoked"])
    seen = managed.said(managed.jo.run("checkout", "-b", "other"))
    managed.jo.put(PAGE)
    seen += managed.said(managed.jo.commit())
    assert seen.count("your claim of F001 was revoked") == 1


def test_a_commit_renews_and_names_what_it_falls_under(managed: Managed) -> None:
    lease = managed.jo.claim(PAGE, ago=DUE)
    managed.jo.put(PAGE)
    managed.said(managed.jo.commit())
    assert managed.jo.trailers() == [f"{PAGE} token={lease.token}"]
    until(lambda: managed.pair.leases()[PAGE].renewals > 0, "the renewal")
