"""Whose work a commit is: one rule for hooks, pushes, the check and the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.hooked import Pair, Person
from support.remotes import Servers
from support.served import Host, User, serve

from gitlease.check.opening import CheckContext
from gitlease.kernel.rules.errors import LeaseHeld
from gitlease.landing.opening import open_push
from gitlease.landing.plan import PushRequest

pytestmark = pytest.mark.slow

API, LOGIN, PAGE = "src/api/", "src/api/login.py", "src/web/page.py"
BOT = "agent@bots.example"
TOKEN = "\n\nGitlease: src/api token=1\n"


def by(email: str, *, author_only: bool = False) -> dict[str, str]:
    """The environment in which git commits for somebody."""
    names = ("GIT_AUTHOR_EMAIL",) if author_only else ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL")
    return dict.fromkeys(names, email)


def works(one: Person, message: str = f"work{TOKEN}", env: Mapping[str, str] | None = None) -> str:
    """Commit a change of what kim holds past every hook."""
    one.put(LOGIN)
    one.git("commit", "-q", "-m", message, env={"GITLEASE_SKIP": "1", **(env or {})})
    return one.head()


def settles(pair: Pair, name: str, text: str) -> None:
    """Put a file on the remote's main branch, and fetch it everywhere."""
    pair.kim.put(name, text)
    pair.kim.git("commit", "-q", "-m", "settings", env={"GITLEASE_SKIP": "1"})
    pair.kim.git("push", "-q", "--no-verify", "origin", "HEAD:main")
    for one in (pair.jo, pair.kim):
        one.git("fetch", "-q", "origin")
        one.git("reset", "-q", "--hard", "origin/main")


def judged(one: Person) -> list[bool]:
    """Whether plain ``git push``, ``gitlease push`` and the check stop what main lacks."""
    hook = one.run("push", "-q", "--dry-run", "origin", "HEAD:main").returncode != 0
    request = PushRequest(remote="origin", refspecs=("HEAD:main",), hooks=False)
    try:
        open_push(one.at()).push(request, dry_run=True)
        push = False
    except LeaseHeld:
        push = True
    desk = CheckContext(str(one.root), environ={})
    found = desk.service(desk.choose("origin/main..HEAD")).check().findings
    return [hook, push, any(x.level.value == "error" for x in found)]


PASS, STOP = [False] * 3, [True] * 3


@pytest.fixture
def held(pair: Pair) -> Pair:
    """kim holds src/api, by token 1."""
    assert pair.kim.claim(API).token == 1
    return pair


@pytest.mark.parametrize("how", ["cherry-pick", "rebase", "am"])
def test_the_holders_work_is_theirs_whoever_moves_it(held: Pair, how: str) -> None:
    works(held.kim)
    held.kim.git("push", "-q", "--no-verify", "origin", "HEAD:work")
    jo = held.jo
    jo.saves(PAGE)
    jo.git("fetch", "-q", "origin")
    if how == "cherry-pick":
        jo.git("cherry-pick", "origin/work")
    elif how == "rebase":
        jo.git("branch", "-q", "here")
        jo.git("checkout", "-q", "--detach", "origin/work")
        jo.git("rebase", "-q", "here")
    else:
        patch = jo.run("format-patch", "--stdout", "-1", "origin/work").stdout
        assert jo.run("am", "-q", input=patch).returncode == 0
    jo.git("reset", "-q", "--hard")
    assert "token=1" in jo.message()
    assert judged(jo) == PASS


def test_a_token_that_was_copied_makes_nothing_the_holders(held: Pair) -> None:
    works(held.jo)
    assert judged(held.jo) == STOP
    held.jo.git("push", "-q", "--no-verify", "origin", "HEAD:work")  # nor does the remote
    held.jo.git("fetch", "-q", "origin")
    assert judged(held.jo) == STOP


def test_a_listed_bot_works_for_whoever_s_token_it_names(held: Pair) -> None:
    works(held.kim, env=by(BOT))
    held.kim.git("push", "-q", "--no-verify", "origin", "HEAD:work")
    held.jo.git("pull", "-q", "origin", "work")
    assert judged(held.jo) == STOP
    held.jo.git("reset", "-q", "--hard", "origin/main")
    settles(held, ".gitlease.yaml", f"bots: [{BOT}]\n")
    works(held.kim, env=by(BOT))
    held.kim.git("push", "-q", "-f", "--no-verify", "origin", "HEAD:work")
    held.jo.git("pull", "-q", "origin", "work")
    assert judged(held.jo) == PASS
    held.jo.git(
        "commit", "-q", "--amend", "--no-verify", "-m", "no token", env={"GITLEASE_SKIP": "1"}
    )
    assert judged(held.jo) == STOP


def test_people_are_known_by_the_mailmap_of_the_fetched_main_branch(held: Pair) -> None:
    mailmap = f"Kim <{held.kim.email}> <kim@home.example>\n"
    works(held.jo, env=by("kim@home.example"))
    (held.jo.root / ".mailmap").write_text(mailmap)  # of the work tree: it counts for nothing
    assert judged(held.jo) == STOP
    (held.jo.root / ".mailmap").unlink()
    settles(held, ".mailmap", mailmap)
    works(held.jo, env=by("kim@home.example"))
    assert judged(held.jo) == PASS


# --- on the server --------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path, servers: Servers) -> Iterator[Host]:
    """kim holds src/api on a server, by token 1, and committed on it."""
    with serve("path", tmp_path, servers) as found:
        jo, kim = found.person("jo"), found.person("kim")
        for name in (LOGIN, PAGE):
            jo.put(name, "text\n")
        jo.git("commit", "-q", "-m", "begin")
        jo.git("push", "-q", "origin", "HEAD:main")
        found.install()
        kim.git("pull", "-q", "origin", "main")
        kim.claim(API)
        works(kim)
        yield found


def lands(who: User, what: str = "HEAD:main") -> bool:
    done = who.run("push", "-q", "origin", what)
    assert done.returncode == 0 or "refused (held)" in done.stderr, done.stderr
    return done.returncode == 0


def test_the_server_believes_what_it_accepted_and_no_trailer(host: Host) -> None:
    jo, kim = host.person("jo"), host.person("kim")
    jo.git("fetch", "-q", str(kim.root), "HEAD")
    assert not lands(jo, "FETCH_HEAD:main"), "nobody but its maker says so"
    assert lands(kim, "HEAD:work")
    jo.git("merge", "-q", "--no-ff", "-m", "merge", "FETCH_HEAD")
    assert lands(jo), "the server got it from kim"


def test_new_commits_of_a_listed_merger_are_those_of_their_authors(host: Host) -> None:
    jo, kim = host.person("jo"), host.person("kim")
    assert lands(kim, "HEAD:work")
    jo.git("fetch", "-q", "origin", "work")
    jo.git("merge", "-q", "--squash", "FETCH_HEAD")
    squash = "Work (#1)\n\n* work\n\nGitlease: src/api token=1\n\nReviewed-by: lee <lee@x.y>\n"
    jo.git("commit", "-q", "-m", squash, env=by(kim.email, author_only=True))
    queue = User("queue", jo.root, {"GL_USER": "queue"})
    done = queue.run("push", "-q", "origin", "HEAD:main")
    assert "refused" in done.stderr
    assert not lands(jo)
    install = ("server", "install", "--merger", "queue", str(host.bare))
    done = jo.gitlease(*install)
    assert done.returncode == 0, done.stderr
    assert not lands(jo), "who is not listed brings their own"
    assert lands(queue)
    works(jo)
    assert not lands(queue), "jo's work, whatever it names"
