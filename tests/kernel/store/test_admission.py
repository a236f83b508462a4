"""S2, S3: a lease is granted only where what is written is what everybody reads."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.commands import run_gitlease
from support.ledgers import REF, door
from support.remotes import Remote, new_bare
from support.repos import commit_file, git, real_clone
from support.running import Desk
from support.snapshots import check_words, cleaned, raises

from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.repository import discover, main_branch
from gitlease.kernel.rules.errors import (
    AnotherLedger,
    Invalid,
    LeaseHeld,
    PolicyRefused,
    Unavailable,
)
from gitlease.kernel.settings.schema import recorded_id
from gitlease.kernel.settings.text import parse_settings
from gitlease.library.leases import Leases

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]


@pytest.fixture
def fork(path_remote: Remote, tmp_path: Path) -> Path:
    """Another repository with the same branches."""
    fork = tmp_path / "fork.git"
    git(tmp_path, "clone", "-q", "--bare", path_remote.url, str(fork))
    return fork


def refs(bare: Path) -> str:
    return git(bare, "for-each-ref", "--format=%(objectname)", REF)


def leases(bare: Path) -> int:
    return git(bare, "ls-tree", "-r", "--name-only", REF).count("leases/") if refs(bare) else 0


def refused(leases: Leases, name: str = "F001") -> Invalid:
    with pytest.raises(Invalid) as caught:
        leases.claim(name)
    assert not isinstance(caught.value, AnotherLedger)
    assert caught.value.hints, "it says how to go on"
    return caught.value


def record(clone: Path, leases: Leases) -> str:
    """Have init record the id, and push it; the id."""
    made = leases.init().id
    git(clone, "add", ".gitlease.yaml")
    git(clone, "commit", "-qm", "settings")
    git(clone, "push", "-q", "origin", "HEAD:main")
    assert made is not None
    return made


# --- URLs -----------------------------------------------------------------------------------------


def split(clone: Path, remote: Remote, fork: Path, how: str) -> None:
    """Have git push to the fork, and fetch from the remote."""
    if how == "pushurl":
        git(clone, "remote", "set-url", "--push", "origin", str(fork))
    elif how == "pushInsteadOf":
        git(clone, "config", f"url.{fork}.pushInsteadOf", remote.url)
    else:
        for url in (str(fork), remote.url):
            git(clone, "remote", "set-url", "--add", "--push", "origin", url)


@pytest.mark.default("pushurl-True")
@pytest.mark.parametrize(
    ("how", "first"),
    [("pushurl", True), ("pushurl", False), ("pushInsteadOf", False), ("several", True)],
)
def test_push_url_of_another_repository_grants_nothing(
    clones: Clones, path_remote: Remote, fork: Path, how: str, first: bool
) -> None:
    clock = ManualClock()
    ada, bob = clones(2)
    split(ada, path_remote, fork, how)
    if not first:
        door(bob, clock=clock).claim("F001")
    refused(door(ada, clock=clock), "F002")
    assert leases(fork) == 0
    assert not clock.naps
    assert door(bob, clock=clock).claim("F001").holder == "w2@example.com"

    git(ada, "config", "lease.remote", path_remote.url)  # the way out
    if how == "pushInsteadOf":
        git(ada, "config", "--remove-section", f"url.{fork}")
    with pytest.raises(LeaseHeld):
        door(ada, clock=clock).claim("F001")


def test_copied_ledger_behind_the_push_url_is_another(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    clock = ManualClock()
    ada, bob = clones(2)
    door(bob, clock=clock).claim("kept")
    git(fork, "fetch", "-q", path_remote.url, f"{REF}:{REF}")  # the same id, and the same head
    split(ada, path_remote, fork, "pushurl")
    refused(door(ada, clock=clock))
    assert leases(fork) == leases(path_remote.bare)


@pytest.mark.parametrize("known", [True, False])
def test_push_url_of_the_same_repository_costs_no_contact(
    clones: Clones, path_remote: Remote, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_EXEC_PATH", path_remote.env["GIT_EXEC_PATH"])
    ada, bob = clones(2)
    if known:
        door(bob).claim("kept")
    git(ada, "remote", "set-url", "--push", "origin", path_remote.bare.as_uri())
    assert door(ada).claim("F001").mine
    with pytest.raises(LeaseHeld):
        door(bob).claim("F001")
    before = path_remote.connections()
    git(ada, "remote", "set-url", "--push", "origin", path_remote.bare.as_uri() + "/")
    door(ada).claim("F002")
    assert path_remote.connections() == before + 1


@pytest.mark.default
def test_older_leases_go_on_where_they_are(clones: Clones, path_remote: Remote, fork: Path) -> None:
    (ada,) = clones(1)
    door(ada).claim("F001")
    split(ada, path_remote, path_remote.bare, "pushurl")
    git(ada, "remote", "set-url", "--add", "--push", "origin", str(fork))
    leases = door(ada)
    refused(leases, "F002")
    assert leases.renew("F001").mine
    leases.release("F001")
    assert leases.list() == ()
    check_words(leases.warnings)


@pytest.mark.default
def test_push_default_leads_no_lease_astray(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    ada, bob = clones(2)
    git(ada, "remote", "add", "fork", str(fork))
    git(ada, "config", "remote.pushDefault", "fork")
    door(ada).claim("F001")
    assert not refs(fork)
    with pytest.raises(LeaseHeld):
        door(bob).claim("F001")


@pytest.mark.default("settings4-pushes4-/up")
@pytest.mark.parametrize(
    ("settings", "pushes", "fetches"),
    [
        ({}, ["/up"], "/up"),
        ({"url.B.insteadOf": "/u"}, ["Bp"], "Bp"),
        ({"url.B.insteadOf": "/u", "url.C.insteadOf": "/up"}, ["C"], "C"),
        ({"url.B.pushInsteadOf": "/up"}, ["B"], "/up"),
        ({"url.B.pushInsteadOf": "/up", "remote.origin.pushurl": "/x"}, ["/x"], "/up"),
        ({"url.B.insteadOf": "/x", "remote.origin.pushurl": "/x"}, ["B"], "/up"),
    ],
)
def test_effective_urls_are_those_of_git(
    tmp_path: Path, settings: dict[str, str], pushes: list[str], fetches: str
) -> None:
    git(tmp_path, "init", "-q", ".")
    git(tmp_path, "remote", "add", "origin", "/up")
    for key, value in settings.items():
        git(tmp_path, "config", key, value)
    ways = discover(str(tmp_path)).ways_to("origin")
    assert (list(ways.writes), ways.reads) == (pushes, fetches)
    assert git(tmp_path, "remote", "get-url", "--push", "--all", "origin").split() == pushes
    assert git(tmp_path, "remote", "get-url", "origin") == fetches


@pytest.mark.default
def test_url_that_git_rewrites_twice_grants_nothing(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    (ada,) = clones(1)
    git(ada, "config", f"url.{fork}.pushInsteadOf", path_remote.url)
    git(ada, "config", f"url.{path_remote.url}.insteadOf", str(fork))
    refused(door(ada))
    assert not refs(fork)


# --- the recorded ledger --------------------------------------------------------------------------


def test_fork_grants_nothing_until_it_has_its_own_ledger(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    ada, bob = clones(2)
    recorded = record(ada, door(ada))
    git(fork, "fetch", "-q", path_remote.url, "+main:main")
    git(bob, "remote", "set-url", "origin", str(fork))
    git(bob, "fetch", "-q")  # the default branch counts, wherever HEAD is
    assert recorded in refused(door(bob)).message
    with pytest.raises(Invalid):
        door(bob).init()
    assert not refs(fork)
    assert any(recorded in x for x in _warned(door(bob)))

    git(bob, "reset", "-q", "--hard", "origin/main")
    own = door(bob).init(new_ledger=True).id
    assert own not in (None, recorded)
    # It may as well have been deleted here.
    with pytest.raises(PolicyRefused):
        door(bob).claim("F001")
    Desk(bob).document("init", "--restore", "--now")
    assert door(bob).claim("F001").mine, "before the file is committed, too"
    git(bob, "commit", "-qam", "own ledger")
    git(bob, "push", "-q", "origin", "HEAD:main")
    assert own is not None
    assert own in (bob / ".gitlease.yaml").read_text()
    cy = fork.parent / "cy"
    real_clone(fork, cy, "cy@example.com")
    with pytest.raises(LeaseHeld):
        door(cy).claim("F001")


def _warned(leases: Leases) -> tuple[str, ...]:
    leases.list()
    return tuple(leases.warnings)


@pytest.mark.default
@pytest.mark.parametrize(
    "text",
    [
        "",
        "lease:\n    ttl: 20m # short\ntasks:\n  files: [a/*.md]\n",
        "lease: {ttl: 20m}\nguard: {mode: warn}\n",
        'lease: {ttl: 20m, "ledger": "old"}\n',
        "\ufeffschema: 1\n",
    ],
)
def test_the_id_is_added_to_any_settings_file(
    clones: Clones, path_remote: Remote, text: str
) -> None:
    (ada,), prefix = clones(1), "refs/heads/gitlease"
    git(ada, "config", "lease.refPrefix", prefix)
    (ada / ".gitlease.yaml").write_text(text, encoding="utf-8")
    before = parse_settings(text.encode())
    recorded = record(ada, door(ada))
    written = (ada / ".gitlease.yaml").read_bytes()
    after = parse_settings(written)
    assert after.pop("lease.ledger").value == recorded
    before.pop("lease.ledger", None)
    assert after.pop("lease.ref_prefix").value == prefix
    assert {k: x.value for k, x in after.items()} == {k: x.value for k, x in before.items()}
    door(ada).init()
    assert (ada / ".gitlease.yaml").read_bytes() == written


@pytest.mark.default
@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("lease:\n  ledger: abc-1\n", "abc-1"),
        (
            "lease: # ours\n  # one of many\n  ttl: 20m\n\n  'ledger' :\n    'abc-1' # here\n",
            "abc-1",
        ),
        ('"lease": {"l\\x65dger": "abc\\x2d1"}\n', "abc-1"),
        ("# lease: {ledger: abc-1}\nlease:\n  ttl: 20m # ledger: abc-1\n", None),
        ("lease:\n  ledger: abc-1\n  colour: [\n", "abc-1"),
    ],
)
def test_recorded_id_is_read_by_the_rules_of_yaml(
    clones: Clones, path_remote: Remote, text: str, id: str | None
) -> None:
    (ada,) = clones(1)
    commit_file(ada, ".gitlease.yaml", text)
    assert recorded_id(discover(str(ada)), ["origin"]) == id


def test_init_records_the_refs_of_its_ledger_too(clones: Clones, path_remote: Remote) -> None:
    ada, bob = clones(2)
    door(ada).config("lease.ref_prefix", "refs/heads/gitlease")
    record(ada, door(ada))
    assert git(path_remote.bare, "for-each-ref", "refs/heads/gitlease")
    door(ada).claim("F001")
    git(bob, "fetch", "-q")  # the settings are not in its work tree yet, and main's count
    with pytest.raises(LeaseHeld):
        door(bob).claim("F001")


def test_recorded_id_is_read_where_the_remote_says(clones: Clones, path_remote: Remote) -> None:
    """Nothing here names its default branch, which is called neither main nor master."""
    (ada,) = clones(1)
    bare = Path(git(ada, "remote", "get-url", "origin").strip())
    git(ada, "branch", "before")
    commit_file(ada, ".gitlease.yaml", "lease: {ledger: abc-1}\n")
    git(ada, "push", "-q", "origin", "HEAD:trunk", "HEAD:other")
    git(bare, "symbolic-ref", "HEAD", "refs/heads/trunk")
    git(bare, "update-ref", "-d", "refs/heads/main")
    git(ada, "fetch", "-q", "--prune", "origin")
    git(ada, "remote", "set-head", "-d", "origin")
    git(ada, "checkout", "-q", "before")
    with pytest.raises(Unreadable):  # unknown, which is not the same as none
        recorded_id(discover(str(ada)), ["origin"])
    assert main_branch(discover(str(ada)), ["origin"], now=1.0) == "refs/remotes/origin/trunk"
    assert recorded_id(discover(str(ada)), ["origin"]) == "abc-1"


def test_fenced_push_trusts_no_other_ledger_than_the_recorded(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    ada, bob, cy = clones(3)
    recorded = record(ada, door(ada))
    for clone in (bob, cy):
        git(clone, "pull", "-q")
    door(bob, remote=str(fork)).init(new_ledger=True)  # somebody of the fork, with its own file
    door(bob, remote=str(fork)).claim("src/")
    git(cy, "remote", "set-url", "origin", str(fork))
    commit_file(cy, "src/a", "a")
    answer = Desk(cy).document("push", "origin", "HEAD:refs/heads/topic")
    assert (answer["status"], answer["leases"]) == ("pushed", [])
    assert any(recorded in x for x in answer["warnings"])
    commit_file(cy, "src/b", "b")
    words = ("push", "--require", "src/", "origin", "HEAD:refs/heads/topic")
    error = Desk(cy).document(*words, expect=7)["error"]
    assert recorded in error["message"]


@pytest.mark.default
def test_other_layers_follow_the_recorded_ledger(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    ada, bob = clones(2)
    record(ada, door(ada))
    with pytest.raises(Invalid):
        door(ada).init(new_ledger=True)  # it never replaces the recorded one
    git(bob, "pull", "-q")
    assert door(bob, layer="docs").claim("F001").mine
    git(bob, "remote", "set-url", "origin", str(fork))
    with pytest.raises(Invalid):
        door(bob, layer="api").claim("F002")


# --- a new ledger beside others -------------------------------------------------------------------


def test_two_remotes_with_a_ledger_each_grant_nothing_until_one_is_chosen(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    ada, bob = clones(2)
    door(bob).claim("F001")
    door(bob, remote=str(fork)).claim("F002")
    git(ada, "remote", "rename", "origin", "upstream")
    git(ada, "remote", "add", "origin", str(fork))
    assert "upstream" in refused(door(ada)).hints[0]
    with raises(Invalid):
        door(ada).init()
    door(ada).init(new_ledger=True)  # as the hint says
    assert door(ada).claim("F003").mine
    door(ada).init()


def test_reading_a_fork_binds_no_clone_to_its_ledger(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    ada, bob, cy = clones(3)
    recorded = record(ada, door(ada))
    door(ada).claim("F001")
    git(fork, "fetch", "-q", path_remote.url, "+main:main")
    git(bob, "pull", "-q")
    door(bob, remote=str(fork)).init(new_ledger=True)  # somebody of the fork
    git(cy, "remote", "rename", "origin", "upstream")
    git(cy, "remote", "add", "origin", str(fork))
    git(cy, "fetch", "-q", "--all")
    _warned(door(cy))
    error = refused(door(cy), "F002")
    assert recorded in error.message
    git(cy, *shlex.split(error.hints[0].partition(": git ")[2]))  # as it is typed
    assert door(cy).claim("F002").mine
    with pytest.raises(LeaseHeld):
        door(cy).claim("F001")
    git(cy, "config", "lease.remote", "origin")
    hints = refused(door(cy), "F003").hints
    assert hints[0].endswith("git config lease.remote upstream")


@pytest.mark.slow("False-False")
@pytest.mark.nightly
@pytest.mark.parametrize(("recorded", "known"), [(True, True), (False, True), (False, False)])
def test_init_makes_no_ledger_on_a_fork_beside_that_of_another_remote(
    clones: Clones, path_remote: Remote, fork: Path, recorded: bool, known: bool
) -> None:
    ada, bob = clones(2)
    if recorded:
        record(ada, door(ada))
    door(ada).claim("F001")
    clone = ada if known else bob
    git(fork, "fetch", "-q", path_remote.url, "+main:main")
    git(clone, "remote", "rename", "origin", "upstream")
    git(clone, "remote", "add", "origin", str(fork))
    git(clone, "fetch", "-q", "origin")
    desk = Desk(clone)
    for words in (("claim", "F002"), ("init",)):
        error = desk.document(*words, expect=7)["error"]
        assert error["hints"][0].endswith("git config lease.remote upstream")
        assert "gitlease init" not in error["next"], "it would refuse"
    assert not refs(fork)
    git(clone, "config", "lease.remote", "upstream")
    desk.document("claim", "F002")
    git(clone, "config", "--unset", "lease.remote")
    desk.document("init", "--new-ledger")
    assert desk.document("claim", "F002")["lease"]["mine"]


def test_ledger_that_another_remote_gets_later_is_found_within_an_hour(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    ada, bob = clones(2)
    clock = ManualClock()
    git(ada, "remote", "rename", "origin", "upstream")
    git(ada, "remote", "add", "origin", str(fork))
    door(ada, clock=clock).claim("F001")  # nobody has a ledger yet
    door(bob, clock=clock).claim("F002")
    clock.advance(3_601)
    assert "upstream" in refused(door(ada, clock=clock), "F002").hints[0]


@pytest.mark.nightly
def test_first_ledger_among_remotes_is_told(
    clones: Clones, path_remote: Remote, fork: Path, tmp_path: Path
) -> None:
    ada, bob = clones(2)
    git(ada, "remote", "add", "fork", str(fork))
    leases = door(ada)
    leases.claim("F001")
    assert any(path_remote.url in x and "fork" in x for x in leases.warnings)
    assert not any("fork" in x for x in _warned(door(ada)))

    away = tmp_path / "away.git"
    new_bare(away)
    git(bob, "remote", "set-url", "origin", str(away))
    git(bob, "remote", "add", "gone", str(tmp_path / "nowhere.git"))
    with pytest.raises(Unavailable):
        door(bob).claim("F001")
    assert not refs(away)
    door(bob).init()  # the deliberate way
    assert door(bob).claim("F001").mine


def test_hooks_warn_of_another_ledger_and_let_pass(
    clones: Clones, path_remote: Remote, fork: Path
) -> None:
    ada, bob = clones(2)
    record(ada, door(ada))
    git(bob, "pull", "-q")
    git(fork, "fetch", "-q", path_remote.url, "+main:main")
    cy = fork.parent / "cy"
    real_clone(fork, cy, "cy@example.com")
    commit_file(cy, "src/a", "a")
    door(bob, remote=str(fork)).init(new_ledger=True)  # somebody of the fork, with its own file
    door(bob, remote=str(fork)).claim("src/")
    (cy / "src/a").write_text("b")
    git(cy, "add", ".")
    for _ in range(2):  # by what was just fetched, and by what is kept of it
        done = run_gitlease(("hook", "pre-commit"), cy)
        assert done.returncode == 0, done
        check_words(cleaned(done.stderr))


@pytest.mark.parametrize("older", [True, False])
def test_fork_as_push_url_takes_no_ledger_from_where_it_is(
    clones: Clones, path_remote: Remote, fork: Path, older: bool
) -> None:
    ada, bob, new = clones(3)
    if older:  # a copy of the ledger, which is not the one in use
        door(bob).claim("kept")
        git(fork, "fetch", "-q", path_remote.url, f"{REF}:{REF}")
    before = refs(fork)
    for name in ("F001", "F002"):
        door(ada).claim(name)
    for clone in (ada, new):
        split(clone, path_remote, fork, "pushurl")
    desk = Desk(ada)
    desk.document("renew", "--all")
    desk.document("release", "F001")
    desk.document("done", "F002", "--any")
    for clone in (ada,) if older else (ada, new):
        desk = Desk(clone)
        status = desk.document("status")
        assert status["ledger"]["written_to"] == status["ledger"]["fetched_from"] == path_remote.url
        for verb in ("list", "brief", "queue"):
            assert any(path_remote.url in x for x in desk.document(verb)["warnings"])
        for words in (("init",), ("claim", "F003")):
            head = refs(path_remote.bare)
            error = desk.document(*words, expect=7)["error"]
            assert path_remote.url in error["message"]
            assert not any("gitlease init" in hint for hint in error["hints"])
            assert refs(path_remote.bare) == head
    assert refs(fork) == before
    git(ada, "config", "lease.remote", path_remote.url)  # nothing else was learned meanwhile
    assert door(ada).claim("F003").mine
