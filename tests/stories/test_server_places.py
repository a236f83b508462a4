"""A server's hook and the place of the ledgers: no push leads others away from a live lease."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hooked import CODE, Done, task_text
from support.remotes import Servers
from support.repos import git
from support.served import Host, User, serve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Path:
    """A repository with a task, whose ledger has been used."""
    with serve("path", tmp_path_factory.mktemp("places"), servers) as host:
        jo = host.person("jo")
        jo.put("src/api.py", CODE)
        jo.put("tasks/F002.md", task_text("F002"))
        jo.git("commit", "-q", "-m", "begin")
        jo.git("push", "-q", "origin", "main")
        jo.claim("F002")
        jo.release("F002")
        return host.bare


def push(who: User, *words: str) -> Done:
    return who.run("push", "origin", *(words or ("HEAD:main",)))


def saves(who: User, text: str) -> None:
    who.put(".gitlease.yaml", text)
    who.git("commit", "-q", "-m", "settings")


def refused(done: Done, rule: str, *words: str) -> None:
    assert done.returncode == 1, done.stderr
    assert f"({rule}): " in done.stderr
    for word in words:
        assert word in done.stderr


def lands(done: Done) -> None:
    assert done.returncode == 0, done.stderr
    assert "refused" not in done.stderr


LED = {
    "lease.remote": "lease: {remote: 'https://elsewhere.example/x.git'}\n",
    "lease.ledger": "lease: {ledger: 0123456789abcdef0123}\n",
    "lease.ref_prefix": "lease: {ref_prefix: refs/other}\n",
    "lease.layer": "lease: {layer: apart}\n",
}


@pytest.mark.parametrize("key", LED)
def test_no_setting_leads_others_from_the_ledger_of_a_live_lease(host: Host, key: str) -> None:
    """S2: who follows the default branch would claim the same elsewhere, or be locked out."""
    jo, kim = host.person("jo"), host.person("kim")
    jo.claim("F002")
    saves(kim, LED[key])
    refused(push(kim), "settings", "F002, of jo@example.com", f"({key} would change)")
    jo.release("F002")
    lands(push(kim))


@pytest.mark.parametrize("key", ["lease.remote", "lease.ledger", "lease.ref_prefix"])
def test_leases_of_every_layer_count_where_all_are_led_elsewhere(host: Host, key: str) -> None:
    jo, kim = host.person("jo"), host.person("kim")
    jo.git("config", "lease.layer", "apart")
    jo.claim("F002")
    saves(kim, LED[key])
    refused(push(kim), "settings", "F002, of jo@example.com")


def test_own_leases_and_the_present_place_are_no_reason(host: Host) -> None:
    jo, kim = host.person("jo"), host.person("kim")
    lease = jo.claim("F002")
    assert lease.token
    header = git(host.bare, "show", "refs/gitlease/global:ledger.yaml")
    ledger = next(line for line in header.splitlines() if line.startswith("id: ")).split()[1]
    saves(kim, f"lease:\n  remote: origin\n  ledger: {ledger}\n")
    lands(push(kim))
    jo.git("pull", "-q")
    saves(jo, LED["lease.remote"])
    lands(push(jo))


@pytest.mark.parametrize("ref", ["refs/other/global", "refs/heads/copy", "refs/tags/copy"])
@pytest.mark.parametrize("how", ["as it is", "with other words"])
def test_a_ledger_is_pushed_to_no_other_ref(host: Host, ref: str, how: str) -> None:
    """S2: settings could lead there later, and nobody judged its steps."""
    jo, kim = host.person("jo"), host.person("kim")
    kim.git("fetch", "-q", "origin", "refs/gitlease/global")
    found = kim.git("rev-parse", "FETCH_HEAD")
    if how == "with other words":
        found = kim.git("commit-tree", "-m", "notes", f"{found}^{{tree}}")
    refused(push(kim, f"{found}:{ref}"), "foreign-ledger", ref)
    assert host.tip(ref) == ""
    # A file that happens to have the name is no ledger.
    jo.put("ledger.yaml", "format: 1\naccounts: []\n")
    jo.git("commit", "-q", "-m", "accounts")
    lands(push(jo))


def test_no_file_becomes_a_live_task_in_two_pushes(host: Host) -> None:
    """S7: first a file that is no task, then settings that make it the task that another holds."""
    jo, kim = host.person("jo"), host.person("kim")
    jo.claim("F002")
    kim.put("notes/F002.md", task_text("F002").replace("status: todo", "status: done"))
    kim.git("commit", "-q", "-m", "notes")
    lands(push(kim))
    saves(kim, "tasks: {files: ['tasks/**/*.md', 'notes/**/*.md']}\n")
    refused(push(kim), "settings", "would make notes/F002.md a file of F002")
    jo.release("F002")
    lands(push(kim))


def test_tasks_that_nobody_holds_may_become_tasks(host: Host) -> None:
    jo, kim = host.person("jo"), host.person("kim")
    jo.claim("F002")
    kim.put("notes/F003.md", task_text("F003"))
    kim.git("commit", "-q", "-m", "notes")
    saves(kim, "tasks: {files: ['tasks/**/*.md', 'notes/**/*.md']}\n")
    lands(push(kim))
