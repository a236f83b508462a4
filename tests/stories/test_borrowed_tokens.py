"""A token is public: whoever does not hold its lease brings no new commits that name it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hooked import CODE, Done
from support.remotes import Servers
from support.served import Host, User, serve

pytestmark = pytest.mark.slow

API, WEB = "src/api/login.py", "src/web/page.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Path:
    """A repository with two files."""
    with serve("path", tmp_path_factory.mktemp("work"), servers) as host:
        jo = host.person("jo")
        jo.put(API, CODE)
        jo.put(WEB, CODE)
        jo.git("commit", "-q", "-m", "begin")
        jo.git("push", "-q", "origin", "main")
        return host.bare


def push(who: User, to: str) -> Done:
    return who.run("push", "origin", f"HEAD:{to}")


def test_a_borrowed_token_is_no_work_of_a_lease_that_covers_more_later(host: Host) -> None:
    jo, kim = host.person("jo"), host.person("kim")
    token = jo.claim("deploy", paths=["src/api/"]).token
    kim.saves(WEB, message=f"work\n\nGitlease: deploy token={token}")
    for to in ("topic", "topic", "refs/tags/topic"):
        done = push(kim, to)
        assert done.returncode == 1, done.stderr
        assert f"names token {token} of deploy, which jo@example.com holds" in done.stderr
    assert jo.claim("deploy", paths=["src/web/"]).token == token
    done = push(kim, "main")
    assert "refused (held): src/web/page.py" in done.stderr
    # Without the line it is kim's own work, wherever nobody holds what it touches.
    jo.release("deploy")
    kim.git("commit", "-q", "--amend", "-m", "work")
    assert push(kim, "main").returncode == 0


def test_the_holders_own_commits_may_be_landed_by_anybody(host: Host) -> None:
    jo, kim = host.person("jo"), host.person("kim")
    token = jo.claim("deploy", paths=["src/api/"]).token
    jo.saves(API, message=f"work\n\nGitlease: deploy token={token}")
    assert push(jo, "topic").returncode == 0
    kim.git("fetch", "-q", "origin", "topic")
    kim.git("reset", "-q", "--hard", "FETCH_HEAD")
    assert push(kim, "main").returncode == 0
