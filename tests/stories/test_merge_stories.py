"""Merges that drop what a holder landed, from outside: each way into main refuses each of them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.hooked import CODE, Done
from support.remotes import Servers
from support.repos import git
from support.served import Host, User, serve

pytestmark = pytest.mark.slow

LOGIN = "src/auth/login.py"
EARLY = "src/auth/early.py"
BRANCHES = ("one", "two", "old", "gone", "early")
SKIP = {"GITLEASE_SKIP": "1"}
DELETED = ("rm", "-q", LOGIN)

# What jo does on main: words for git, of which those that begin with "!" may end with a conflict.
# Whoever makes the commit with them is not asked, so that `committed` ones have no commit to stop.
Steps = tuple[tuple[str, ...], ...]
DROPPED: dict[str, Steps] = {
    "a conflict of three, and another side": (
        ("!merge", "-q", "--no-commit", "one", "old"),
        ("checkout", "-q", "old", "--", LOGIN),
    ),
    "a file that another deleted": (("!merge", "-q", "gone"), DELETED),
}
COMMITTED: dict[str, Steps] = {
    "their side of every conflict": (("merge", "-q", "--no-edit", "-X", "theirs", "old"),),
    "our own side, from an old commit": (
        ("switch", "-q", "--detach", "base"),
        ("merge", "-q", "-s", "ours", "-m", "merged", "main", "one"),
    ),
}
KEPT: dict[str, Steps] = {
    "the holder's side, where another deleted it": (("!merge", "-q", "gone"),),
    "nothing of what nobody landed": (("merge", "-q", "--no-commit", "-s", "ours", "early"),),
    "the holder's side of a conflict of three": (
        ("!merge", "-q", "--no-commit", "one", "old"),
        ("checkout", "-q", "main", "--", LOGIN),
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Path:
    """Branches of lee's from before kim took src/auth/, and main, where kim's work has landed."""
    with serve("path", tmp_path_factory.mktemp("merges"), servers) as host:
        kim = host.person("kim")
        both = ("AUTHOR", "COMMITTER")
        lee = {f"GIT_{x}_EMAIL": "lee@example.com" for x in both}
        lee |= {f"GIT_{x}_DATE": f"@{int(time.time()) - 3_600} +0000" for x in both}
        kim.put(LOGIN, CODE)
        kim.git("commit", "-q", "-m", "begin", env=lee)
        kim.git("branch", "base")
        for name in BRANCHES:
            kim.git("switch", "-q", "-c", name, "base")
            if name == "gone":
                kim.git("rm", "-q", LOGIN)
            elif name == "early":
                kim.put(EARLY, "early\n")
            else:
                kim.put(LOGIN if name == "old" else f"docs/{name}", f"{name}\n")
            kim.git("commit", "-q", "-m", name, env=lee)
        kim.git("switch", "-q", "main")
        kim.claim("src/auth/", ttl=7_200)
        kim.put(LOGIN, "kim's\n" + CODE)
        kim.git("commit", "-q", "-m", "kim's")
        kim.git("push", "-q", "origin", "main", "base", *BRANCHES)
        git(host.bare, "symbolic-ref", "HEAD", "refs/heads/main")
        return host.bare


@pytest.fixture
def jo(host: Host) -> User:
    """jo, with gitlease's hooks, and every branch."""
    jo = host.person("jo")
    for name in ("base", *BRANCHES):
        jo.git("branch", "-q", name, f"origin/{name}")
    assert jo.gitlease("hooks", "install").returncode == 0
    return jo


def take(jo: User, steps: Steps) -> None:
    for first, *words in steps:
        done = jo.run(first.lstrip("!"), *words, env=SKIP)
        assert done.returncode == (1 if first.startswith("!") else 0), done.stderr


def refuse_it(done: Done, said: str = "is held by kim@example.com") -> None:
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert LOGIN in done.stderr, done.stderr
    assert said in done.stderr, done.stderr


def is_refused_everywhere(host: Host, jo: User) -> None:
    """What jo has at HEAD, by all that stands between that and main."""
    before = host.tip("refs/heads/main")
    refuse_it(jo.run("push", "-q", "origin", "HEAD:main"))
    refuse_it(jo.gitlease("push", "origin", "HEAD:main"), "held by kim@example.com")
    refuse_it(jo.run("push", "-q", "--no-verify", "origin", "HEAD:main"), "refused (held)")
    checked = jo.gitlease("check", "--json", "origin/main..HEAD")
    assert checked.returncode == 1, checked.stderr
    found = {(x["commit"], x["level"]) for x in json.loads(checked.stdout)["violations"]}
    assert (jo.head(), "error") in found
    assert host.tip("refs/heads/main") == before


@pytest.mark.default("a file that another deleted")
@pytest.mark.nightly
@pytest.mark.parametrize("how", DROPPED)
def test_a_merge_that_drops_held_work_is_not_made_and_does_not_land(
    host: Host, jo: User, how: str
) -> None:
    take(jo, DROPPED[how])
    if DELETED not in DROPPED[how]:
        jo.git("add", LOGIN)
    refuse_it(jo.commit("--no-edit"))
    jo.git("commit", "-q", "--no-edit", env=SKIP)
    assert len(jo.git("log", "-1", "--format=%P").split()) > 1
    is_refused_everywhere(host, jo)


@pytest.mark.parametrize("how", COMMITTED)
def test_a_merge_that_git_makes_at_once_does_not_land(host: Host, jo: User, how: str) -> None:
    take(jo, COMMITTED[how])
    is_refused_everywhere(host, jo)


@pytest.mark.default("the holder's side of a conflict of three")
@pytest.mark.parametrize("how", KEPT)
def test_a_merge_in_which_the_holder_s_work_stands_lands(host: Host, jo: User, how: str) -> None:
    """Though another side differs: that gives up nothing of the holder's."""
    take(jo, KEPT[how])
    jo.git("add", "-A")
    done = jo.commit("--no-edit")
    assert done.returncode == 0, done.stderr
    assert "gitlease" not in done.stderr
    done = jo.run("push", "-q", "origin", "HEAD:main")
    assert done.returncode == 0, done.stderr
    assert "gitlease" not in done.stderr
    assert host.tip("refs/heads/main") == jo.head()


@pytest.mark.nightly
def test_a_merge_that_git_makes_at_once_is_judged_before(jo: User) -> None:
    """By a hook of its own: git has not written down then what is merged."""
    refuse_it(jo.run("merge", "-q", "--no-edit", "-X", "theirs", "old"))
    jo.git("merge", "--abort")
    for start, *others in (("base", "main"), ("one", "main", "two")):
        jo.git("switch", "-q", "-C", "side", start)
        done = jo.run("merge", "-q", "--no-ff", "--no-edit", *others)
        assert done.returncode == 0, done.stderr
        assert "gitlease" not in done.stderr
