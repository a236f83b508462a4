"""A page of a captive portal in the place of the remote: unreachable, and nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support.commands import run_gitlease
from support.ledgers import door
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import Desk
from support.snapshots import check_words

from gitlease.kernel.rules.errors import Unavailable

PAGE = b"<html>please log in</html>"


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    do_POST = do_PROPFIND = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def portal() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/x.git"
    server.shutdown()
    thread.join()
    server.server_close()


def test_portal_is_no_other_ledger_and_no_hook(
    clones: Callable[..., list[Path]], path_remote: Remote, portal: str
) -> None:
    (ada,) = clones(1)
    door(ada).claim("src/")
    commit_file(ada, "src/a", "a")
    git(ada, "remote", "set-url", "origin", portal)
    with pytest.raises(Unavailable):
        door(ada).list()
    done = run_gitlease(("push", "--json", "origin", "HEAD:main"), ada)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (5, "unavailable")
    assert done.stderr.count("\n") == 1, "nothing of git's own"


@pytest.mark.parametrize("known", [True, False])
def test_claim_at_a_portal_is_plainly_unreachable(
    clones: Callable[..., list[Path]], path_remote: Remote, portal: str, known: bool
) -> None:
    (ada,) = clones(1)
    if known:
        door(ada).claim("src/")
    git(ada, "remote", "set-url", "origin", portal)
    error = Desk(ada).document("claim", "docs/", expect=5)["error"]
    assert error["code"] == "unavailable", "nothing can have landed"
    check_words(error["message"])
    git(ada, "remote", "set-url", "origin", path_remote.url)
    assert Desk(ada).document("claim", "docs/")["status"] == "claimed"
