"""Who an author is on a server, by the mailmap from before the push, not by one that it brings."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.remotes import Servers
from support.served import User, serve

pytestmark = pytest.mark.default

LOGIN = "src/api/login.py"
HOME = "kim@home.example"


def lands(queue: User) -> bool:
    done = queue.run("push", "-q", "origin", "HEAD:main")
    assert done.returncode == 0 or "refused (held)" in done.stderr, done.stderr
    return done.returncode == 0


def test_a_mailmap_that_a_push_brings_makes_nobody_the_holder(
    tmp_path: Path, servers: Servers
) -> None:
    with serve("path", tmp_path, servers) as host:
        jo, kim = host.person("jo"), host.person("kim")
        jo.put(LOGIN, "text\n")
        jo.git("commit", "-q", "-m", "begin")
        jo.git("push", "-q", "origin", "HEAD:main")
        host.install()
        installed = jo.gitlease("server", "install", "--merger", "queue", str(host.bare))
        assert installed.returncode == 0, installed.stderr
        kim.claim("src/api/")
        queue = User("queue", jo.root, {"GL_USER": "queue"})
        jo.put(".mailmap", f"Kim <{kim.email}> <{HOME}>\n")
        jo.git("commit", "-q", "-m", "who is who")
        jo.put(LOGIN, "more\n")
        work = "work\n\nGitlease: src/api token=1"
        skip = {"GITLEASE_SKIP": "1", "GIT_AUTHOR_EMAIL": HOME}
        jo.git("commit", "-q", "-m", work, env=skip)
        assert not lands(queue)
        first = jo.run("push", "-q", "--no-verify", "origin", "HEAD~1:main")
        assert first.returncode == 0, first.stderr
        assert lands(queue), "it was on the default branch before"
