"""A host's words choose between another try, later and never; what it did is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.faults import answer
from support.ledgers import door, workspace
from support.rejecting_server import rejects
from support.remotes import Remote
from support.repos import commit_file, git

from gitlease.cli.app import run
from gitlease.kernel.git import rejections
from gitlease.kernel.git.rejections import (
    KNOWN,
    KnownWords,
    Rejection,
    denies,
    known_words,
    rejection_in,
)
from gitlease.kernel.ledger import transaction
from gitlease.kernel.rules.errors import Denied, Unavailable
from gitlease.landing.opening import open_push
from gitlease.landing.plan import PushRequest

pytestmark = pytest.mark.default

Clones = Callable[..., list[Path]]
TF401028 = (
    "TF401028: The reference 'refs/gitlease/global' has already been updated by another client, "
    "so you cannot update it. Please try again."
)
GH013 = (
    "error: GH013: Repository rule violations found for refs/gitlease/global.",
    "Review all repository rules at https://github.com/o/r/rules?ref=refs%2Fgitlease%2Fglobal",
    "- Cannot update this protected ref.",
)
BY_RULE = "push declined due to repository rule violations"


@pytest.mark.parametrize("row", KNOWN, ids=lambda x: f"{x.kind.value}: {x.words}")
def test_each_row_knows_the_words_that_it_is_for(row: KnownWords) -> None:
    assert known_words(row.example) is row
    assert known_words(f"fatal: first\n{row.example.upper()}\nerror: last") is row


@pytest.mark.parametrize(
    "text",
    [
        "fatal: unable to access 'https://host/protected/x.git/': Could not resolve host: host",
        "fatal: '/srv/read-only/x.git' does not appear to be a git repository",
        "! [remote rejected] main -> main (exotic words)",
        "error: RPC failed; HTTP 4290",
    ],
)
def test_names_of_places_and_unknown_words_are_no_rejection(text: str) -> None:
    assert rejection_in(text) is None


def test_a_hook_that_declines_since_its_host_failed_is_no_refusal() -> None:
    text = (
        "[remote rejected] (pre-receive hook declined)\nremote: GitLab: 500 Internal Server Error"
    )
    assert rejection_in(text) is Rejection.TROUBLE
    assert denies(text.splitlines()[0])


@pytest.mark.parametrize(
    ("status", "printed"),
    [
        ("failure", ("fatal error in commit_refs",)),
        ("failure", ()),
        ("pre-receive hook declined", ("GitLab: 500 Internal Server Error",)),
    ],
)
def test_trouble_of_the_host_is_reported_as_such_and_passes(
    clones: Clones, tmp_path: Path, status: str, printed: tuple[str, ...]
) -> None:
    (clone,) = clones(1)
    told = rejects(clone, tmp_path / "server", status, *printed)
    with pytest.raises(Unavailable, match="failed to take") as caught:
        door(clone).claim("F001")
    assert (caught.value.code, told.pushes) == ("unavailable", 3)
    assert "later" in caught.value.hints[-1]
    git(clone, "config", "--unset", "remote.origin.receivepack")
    assert door(clone).claim("F001").state == "active"


def test_trouble_ends_a_command_with_5(
    clones: Clones, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone,) = clones(1)
    rejects(clone, tmp_path / "server", "failure", "fatal error in commit_refs")
    assert run(["-C", str(clone), "claim", "F001", "--any", "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "unavailable"


@pytest.mark.parametrize("status", [TF401028, "incorrect old value provided"])
def test_a_lost_race_is_tried_again(clones: Clones, tmp_path: Path, status: str) -> None:
    (clone,) = clones(1)
    told = rejects(clone, tmp_path / "server", status, times=4)
    assert door(clone).claim("F001").state == "active"
    assert told.pushes == 5


def test_a_stale_replica_is_no_refusal(
    clones: Clones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clone,) = clones(1)
    monkeypatch.setattr(transaction, "BUSY_AGAIN", 3)
    rejects(clone, tmp_path / "server", TF401028)
    with pytest.raises(Unavailable) as caught:
        door(clone).claim("F001")
    assert "stale replica" in caught.value.hints[-1]


def test_what_a_host_did_counts_and_not_what_it_says(clones: Clones, tmp_path: Path) -> None:
    one, other = clones(2)
    for status in ("failure", TF401028, "pre-receive hook declined"):
        rejects(one, tmp_path / "server", status, applies=True)
        assert door(one).claim(f"F{len(status)}").state == "active"
    assert len(door(other).list()) == 3


@pytest.mark.parametrize("prefix", ["refs/gitlease", "refs/heads/gitlease"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_rule_of_the_host_is_named_and_no_other_prefix_suggested(
    clones: Clones, tmp_path: Path, prefix: str, *, is_first: bool
) -> None:
    (clone,) = clones(1)
    git(clone, "config", "lease.refPrefix", prefix)
    if not is_first:
        door(clone).claim("F001")
    rejects(clone, tmp_path / "server", BY_RULE, *GH013)
    with pytest.raises(Denied) as caught:
        door(clone).claim("F002")
    (hint,) = caught.value.hints
    assert f"refuses {prefix}/*" in hint
    assert "branches" not in hint


# --- Retry-After ----------------------------------------------------------------------------------

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.fixture
def _unasked() -> Iterator[None]:
    rejections._known_hints.clear()
    yield
    rejections._known_hints.clear()


@pytest.mark.usefixtures("_unasked")
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("sent", "shown"), [("30", " 30s"), (DATE, f" {DATE}"), ("", ""), ("30; x=\x1b[1m", "")]
)
def test_retry_after_is_shown(
    http_remote: Remote, clones: Clones, status: int, sent: str, shown: str
) -> None:
    (clone,) = clones(1, http_remote)
    assert http_remote.http is not None
    http_remote.http.arm(answer(status, times=None, retry_after=sent))
    hints = (f"the host asks to be tried again after{shown}",) if shown else ()
    before = len(http_remote.http.requests())
    for _ in range(2):
        with pytest.raises(Unavailable) as caught:
            door(clone).list()
        assert (caught.value.code, caught.value.hints) == ("unavailable", hints)
    assert len(http_remote.http.requests()) - before == 3, "it is asked for that once a minute"


@pytest.mark.usefixtures("_unasked")
def test_retry_after_is_shown_of_pushes_too(http_remote: Remote, clones: Clones) -> None:
    (clone,) = clones(1, http_remote)
    clock = ManualClock()
    door(clone, clock=clock).claim("F001")
    assert http_remote.http is not None
    http_remote.http.arm(answer(429, times=None, retry_after="30"))
    commit_file(clone, "work.txt", "done\n")
    request = PushRequest(remote="origin", refspecs=("HEAD:main",))

    def push() -> object:
        return open_push(workspace(clone, clock=clock)).push(request)

    for act in (lambda: door(clone, clock=clock).renew("F001"), push):
        with pytest.raises(Unavailable) as caught:
            act()
        assert caught.value.hints == ("the host asks to be tried again after 30s",)
