"""The user's repository is byte for byte the same after all lease traffic, whatever its shape."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.ledgers import door, read_files, tip, workspace
from support.remotes import Remote, Servers, open_remote
from support.repos import (
    assert_untouched,
    commit_file,
    common_dir,
    git,
    make_clone,
    make_repository,
    real_clone,
    run_git,
    snapshot,
)
from support.session import LeaseService

import gitlease
from gitlease.cli.app import run
from gitlease.kernel.rules.errors import GitleaseError, LeaseHeld
from gitlease.library.leases import Leases
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
EMAIL = "w1@example.com"


def every_verb(start: Path) -> Leases:
    """Claim, renew, extend, release, finish, note and look, from this folder."""
    leases = door(start)
    leases.claim("F001", ttl="15m", reason="to see what it touches")
    leases.claim("src/**")
    leases.renew("F001")
    leases.extend("F001", "2h")
    leases.renew_all()
    leases.note("F001", "a note")
    leases.list(all=True)
    leases.show("F001")
    leases.release("src/**", note="another")
    leases.claim_all(["F002", "F003"])
    leases.done("F002")
    door(start).release("F003")
    assert leases.list(cached=True)
    assert LeaseService(workspace(start).ledger).log().events
    return leases


def attempt(action: Callable[[], object]) -> GitleaseError | None:
    """The refusal of an action that may as well succeed."""
    try:
        action()
    except GitleaseError as error:
        return error
    return None


@contextmanager
def untouched(*repos: Path) -> Iterator[None]:
    """Nothing of these repositories changes meanwhile but gitlease's own folder."""
    before = [pictured(repo) for repo in repos]
    yield
    for repo, picture in zip(repos, before, strict=True):
        assert_untouched(picture, pictured(repo))


def pictured(repo: Path) -> dict[str, bytes]:
    """A picture of a repository, without gitlease's own folder in that of a submodule."""
    inner = "git/modules/inner/gitlease"
    return {name: what for name, what in snapshot(repo).items() if not name.startswith(inner)}


def others_see(remote: Remote, tmp_path: Path) -> None:
    """The leases are on the remote's ref, for every other clone."""
    other = make_clone(remote, tmp_path / "witness", "witness@example.com", "Witness")
    with pytest.raises(LeaseHeld) as raised:
        door(other).claim("F001")
    assert raised.value.lease is not None
    assert raised.value.lease.holder == EMAIL


def with_work(clone: Path) -> Path:
    """A clone in the middle of work: staged, unstaged and untracked files, a stash, a tag."""
    commit_file(clone, "src/app.py", "print()\n")
    git(clone, "tag", "-a", "v1", "-m", "one")
    (clone / "src/app.py").write_text("print(1)\n")
    git(clone, "stash")
    (clone / "staged.txt").write_text("staged\n")
    git(clone, "add", "staged.txt")
    (clone / "src/app.py").write_text("print(2)\n")
    (clone / "loose.txt").write_text("untracked\n")
    return clone


def configure(clone: Path, settings: dict[str, str]) -> None:
    for key, value in settings.items():
        git(clone, "config", key, value)


# --- shapes -------------------------------------------------------------------------------------


@pytest.mark.default("path")
def test_an_ordinary_clone(
    remote: Remote, clones: Clones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.open_to(monkeypatch)
    clone = with_work(clones(1)[0])
    git(clone, "fetch", "-q", "origin", env=remote.env)  # so that there is a FETCH_HEAD
    before = git(remote.bare, "rev-parse", "refs/heads/main")
    with untouched(clone):
        every_verb(clone)
    others_see(remote, tmp_path)
    assert git(remote.bare, "rev-parse", "refs/heads/main") == before
    assert (common_dir(clone) / "gitlease" / "store.git").is_dir()
    status = git(clone, "status", "--porcelain")
    assert "gitlease" not in status


@pytest.mark.nightly
def test_refusals_and_failures_touch_nothing_either(path_remote: Remote, clones: Clones) -> None:
    one, two = clones(2)
    door(two).claim("F001")
    with untouched(one):
        leases = door(one)
        for action in (
            lambda: leases.claim("F001"),
            lambda: leases.renew("F001"),
            lambda: leases.release("F001"),
            lambda: leases.claim("no such name"),
        ):
            with pytest.raises(GitleaseError):
                action()
        (path_remote.bare / "HEAD").rename(path_remote.bare / "HEAD.away")
        with pytest.raises(GitleaseError):
            leases.claim("F002")


def test_linked_worktrees_share_one_store(
    path_remote: Remote, clones: Clones, tmp_path: Path
) -> None:
    clone = with_work(clones(1)[0])
    linked = tmp_path / "linked"
    git(clone, "worktree", "add", "-q", str(linked))
    with untouched(clone, linked):
        door(clone).claim("F001")
        assert [x.resource for x in door(linked).list(cached=True)] == ["F001"]
        door(linked).claim("F002")
        with pytest.raises(LeaseHeld) as raised:  # a worktree is a session of its own
            door(clone).claim("F002")
        assert raised.value.lease is not None
        assert (raised.value.lease.session or "").startswith("worktree:linked-")
        door(linked).renew_all()
        door(linked).release("F002")
    stores = [path for path in tmp_path.rglob("store.git") if path.is_dir()]
    assert stores == [common_dir(clone) / "gitlease" / "store.git"]


def shallow(remote: Remote, tmp_path: Path) -> Path:
    commits(remote, tmp_path)
    return real_clone(remote.bare.as_uri(), tmp_path / "shallow", EMAIL, "--depth=1")


def bare(remote: Remote, tmp_path: Path) -> Path:
    return real_clone(remote.url, tmp_path / "bare.git", EMAIL, "--bare")


def mirror(remote: Remote, tmp_path: Path) -> Path:
    """remote.origin.mirror must not turn a push of one ref into a push of all."""
    return real_clone(remote.url, tmp_path / "mirror.git", EMAIL, "--mirror")


def with_a_relative_url(remote: Remote, tmp_path: Path) -> Path:
    clone = make_clone(remote, tmp_path / "deep" / "clone", EMAIL, "One")
    git(clone, "config", "remote.origin.url", os.path.relpath(remote.bare, clone))
    (clone / "sub" / "folder").mkdir(parents=True)
    return clone / "sub" / "folder"


def of_sha256_without_any_commit(remote: Remote, tmp_path: Path) -> Path:
    clone = make_repository(tmp_path / "clone", "--object-format=sha256", email=EMAIL)
    git(clone, "config", "lease.remote", remote.url)
    return clone


@pytest.mark.parametrize(
    "shape", [shallow, bare, mirror, with_a_relative_url, of_sha256_without_any_commit]
)
def test_repositories_of_other_shapes(
    shape: Callable[[Remote, Path], Path], path_remote: Remote, tmp_path: Path
) -> None:
    clone = shape(path_remote, tmp_path)
    git(path_remote.bare, "branch", "only-there", "main")
    with untouched(clone):
        every_verb(clone)
    others_see(path_remote, tmp_path)
    assert git(path_remote.bare, "rev-parse", "refs/heads/only-there")


@pytest.mark.nightly
def test_a_partial_clone(tmp_path: Path, servers: Servers) -> None:
    with open_remote("http", tmp_path / "remote", servers=servers) as remote:
        git(remote.bare, "config", "uploadpack.allowFilter", "true")
        git(remote.bare, "config", "uploadpack.allowAnySHA1InWant", "true")
        commits(remote, tmp_path)
        clone = tmp_path / "partial"
        real_clone(remote.url, clone, EMAIL, "--filter=tree:0", "--no-checkout")
        assert git(clone, "config", "remote.origin.promisor") == "true"
        with untouched(clone):
            every_verb(clone)
            other = make_clone(remote, tmp_path / "other", "w2@example.com", "Two")
            door(other).claim("F007")
            assert "F007" in {x.resource for x in door(clone).list()}
        others_see(remote, tmp_path)
        store = common_dir(clone) / "gitlease" / "store.git"
        assert "missing" not in git(store, "rev-list", "--objects", "--all", "--missing=print")
        assert run_git(store, "fsck").returncode == 0


def commits(remote: Remote, tmp_path: Path) -> None:
    """Some history on the remote's main."""
    seed = make_clone(remote, tmp_path / "seed", "seed@example.com", "Seed")
    for n in range(3):
        commit_file(seed, f"file{n}", f"{n}\n")
    git(seed, "push", "-q", "origin", "main", env=remote.env)


def test_a_submodule(path_remote: Remote, tmp_path: Path, servers: Servers) -> None:
    with open_remote("path", tmp_path / "outer", servers=servers, name="outer") as outer:
        parent = make_clone(outer, tmp_path / "parent", EMAIL, "One")
        git(parent, "submodule", "--quiet", "add", path_remote.url, "inner")
        git(parent, "commit", "-q", "-m", "with a submodule")
        inner = parent / "inner"
        git(inner, "config", "user.email", EMAIL)
        with untouched(parent, inner):
            every_verb(inner)
        assert tip(path_remote.bare)
        assert not tip(outer.bare)
        git(parent, "config", "submodule.recurse", "true")
        configure(
            parent, {"push.recurseSubmodules": "on-demand", "fetch.recurseSubmodules": "true"}
        )
        with untouched(parent, inner):
            every_verb(parent)
        assert tip(outer.bare)


# --- ways to the remote -------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["this clone", "all below", "elsewhere"])
def test_settings_for_one_clone_by_its_place(
    path_remote: Remote, clones: Clones, tmp_path: Path, where: str
) -> None:
    """As a checkout in CI keeps its credentials: read once, or a header would be doubled."""
    clone = clones(1)[0]
    own = tmp_path / "own.config"
    git(clone, "config", "-f", str(own), f"url.{path_remote.bare.parent}/.insteadOf", "lab:")
    place = {"this clone": f"{clone}/.git", "all below": f"{clone}/", "elsewhere": "/no/.git"}
    git(clone, "config", f"includeIf.gitdir:{place[where]}.path", str(own))
    git(clone, "config", "remote.origin.url", f"lab:{path_remote.bare.name}")
    if where == "elsewhere":
        with pytest.raises(GitleaseError), gitlease.open(str(clone)) as leases:
            leases.claim("F001")
        return
    with untouched(clone):
        every_verb(clone)
    others_see(path_remote, tmp_path)
    workspace = open_workspace(str(clone))
    place_of = workspace.place
    included = place_of.remote_at("x", None).settings
    assert included.count(("include.path", str(own))) == (where == "this clone")


def test_a_credential_helper_of_the_repository(tmp_path: Path, servers: Servers) -> None:
    users = {"jo": "s3cret"}
    with open_remote("http", tmp_path / "remote", servers=servers, users=users) as remote:
        clone = make_clone(remote.as_user("jo", "s3cret"), tmp_path / "clone", EMAIL, "One")
        git(clone, "config", "remote.origin.url", remote.url)
        with pytest.raises(GitleaseError) as raised:
            door(clone).claim("F001")
        assert raised.value.code == "denied"
        helper = "!f() { test \"$1\" = get && printf 'username=jo\\npassword=s3cret\\n'; }; f"
        git(clone, "config", "credential.helper", helper)
        with untouched(clone):
            every_verb(clone)
        assert {r.user for r in remote.requests() if r.status == 200} == {"jo"}


def test_a_password_in_the_url_is_never_shown(
    tmp_path: Path, servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    users = {"jo": "s3cret"}
    with open_remote("http", tmp_path / "remote", servers=servers, users=users) as remote:
        clone = make_clone(remote.as_user("jo", "s3cret"), tmp_path / "clone", EMAIL, "One")
        with untouched(clone):
            every_verb(clone)
        remote.bare.rename(tmp_path / "away.git")
        for line in (["claim", "F009"], ["list"], ["status"], ["config"], ["whoami"]):
            run([*line, "-C", str(clone)])
            run([*line, "--json", "-C", str(clone)])
        git(clone, "config", "remote.origin.url", remote.as_user("jo", "wr0ng").url)
        run(["claim", "F010", "-C", str(clone)])
        output = capsys.readouterr()
        for text in (output.out, output.err):
            assert "s3cret" not in text
            assert "wr0ng" not in text
        folder = common_dir(clone) / "gitlease"
        for file in folder.rglob("*"):
            if file.is_file():
                assert b"s3cret" not in file.read_bytes()


# --- settings that change what git does ---------------------------------------------------------


SETTINGS: dict[str, dict[str, str]] = {  # those of a row do not get in each other's way
    "signed": {"push.gpgSign": "true", "commit.gpgSign": "true", "gpg.program": "/bin/false"},
    "more is pushed": {
        "push.followTags": "true",
        "remote.origin.push": "refs/heads/*:refs/heads/*",
        "push.default": "nothing",
        "push.autoSetupRemote": "true",
        "submodule.recurse": "true",
        "push.recurseSubmodules": "on-demand",
        "push.atomic": "true",
        "push.useForceIfIncludes": "true",
        "push.negotiate": "true",
    },
    "mirror": {"remote.origin.mirror": "true"},
    "more is fetched": {
        "fetch.prune": "true",
        "fetch.pruneTags": "true",
        "remote.origin.prune": "true",
        "remote.origin.tagOpt": "--tags",
        "fetch.all": "true",
        "fetch.writeCommitGraph": "true",
        "transfer.unpackLimit": "1",
        "transfer.fsckObjects": "true",
    },
    "maintenance": {"gc.auto": "1", "maintenance.auto": "true", "gc.autoDetach": "false"},
    "hidden refs": {"transfer.hideRefs": "refs/gitlease"},
    "other words": {
        "fetch.output": "compact",
        "color.ui": "always",
        "advice.pushUpdateRejected": "false",
        "core.abbrev": "4",
        "i18n.commitEncoding": "ISO-8859-1",
        "i18n.logOutputEncoding": "UTF-16",
        "log.showSignature": "true",
    },
    "old protocol": {"protocol.version": "0"},
    "work tree": {"core.fsmonitor": "true", "core.worktree": "../"},
    "reflogs": {"core.logAllRefUpdates": "always", "trace2.eventTarget": "/dev/null"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_clone(
    name: str, path_remote: Remote, clones: Clones, tmp_path: Path
) -> None:
    clone = clones(1)[0]
    commit_file(clone, "new", "not pushed\n")
    git(clone, "tag", "-a", "v9", "-m", "not pushed either")
    configure(clone, SETTINGS[name])
    refs = git(path_remote.bare, "for-each-ref", "refs/heads", "refs/tags")
    with untouched(clone):
        every_verb(clone)
    others_see(path_remote, tmp_path)
    assert git(path_remote.bare, "for-each-ref", "refs/heads", "refs/tags") == refs


@pytest.mark.default("core.hooksPath")
@pytest.mark.parametrize("where", ["core.hooksPath", ".git/hooks", "global"])
def test_hooks_of_the_clone_do_not_run(
    where: str, path_remote: Remote, clones: Clones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = clones(1)[0]
    folder = clone / ".git/hooks" if where == ".git/hooks" else tmp_path / "hooks"
    folder.mkdir(exist_ok=True)
    ran = tmp_path / "ran"
    for name in ("pre-push", "reference-transaction", "post-commit", "pre-auto-gc", "post-merge"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} >>'{ran}'\nexit 1\n")
        (folder / name).chmod(0o755)
    if where == "core.hooksPath":
        git(clone, "config", "core.hooksPath", str(folder))
    if where == "global":
        extra = tmp_path / "more-config"
        extra.write_text(f'[core]\n\thooksPath = "{folder}"\n')
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "include.path")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(extra))
    with untouched(clone):
        every_verb(clone)
    assert not ran.exists()


@pytest.mark.nightly
def test_git_s_own_tracing_confuses_nothing(
    http_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happened is told from the same words, however much git says besides."""
    clone = clones(1)[0]
    for name in ("GIT_TRACE", "GIT_TRACE2", "GIT_TRACE_PACKET", "GIT_TRACE_CURL"):
        monkeypatch.setenv(name, "1")
    with untouched(clone):
        leases = door(clone)
        leases.claim("F001")
        assert leases.renew("F001").renewals == 1
        assert leases.list()
    git(clone, "config", "remote.origin.url", "http://127.0.0.1:1/x.git")
    refusal = attempt(lambda: door(clone).claim("F002"))
    assert refusal is not None
    assert refusal.code == "unavailable"


def test_what_git_exports_in_a_hook(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clone = with_work(clones(1)[0])
    index = tmp_path / "next-index"
    index.write_bytes((clone / ".git/index").read_bytes())
    before_index = index.read_bytes()
    monkeypatch.chdir(clone)
    exported = {
        "GIT_DIR": ".git",
        "GIT_INDEX_FILE": str(index),
        "GIT_PREFIX": "src/",
        "GIT_OBJECT_DIRECTORY": str(clone / ".git/objects"),
        "GIT_AUTHOR_DATE": "@1700000000 +0000",
        "GIT_AUTHOR_EMAIL": "someone@else.example",
        "GIT_COMMITTER_EMAIL": "someone@else.example",
        "GIT_NAMESPACE": "",
        "GIT_CONFIG_PARAMETERS": "'core.abbrev'='9'",
    }
    with untouched(clone), monkeypatch.context() as hook:
        for name, value in exported.items():
            hook.setenv(name, value)
        every_verb(Path("."))
    assert index.read_bytes() == before_index
    assert door(clone).show("F001")[0].holder == EMAIL
    assert tip(path_remote.bare)


# --- names of folders ---------------------------------------------------------------------------


ODD = [
    'it\'s "quoted" ünïcödé-日本',
    "--upload-pack=touch pwned",
    "semi;colon & $HOME `true` $(true)",
    "back\\slash star*[x]? #hash",
    "percent%20=x.lock",
    "a" * 200,
]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_of_folders(
    name: str, path_remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    bare = home / name / f"{name}.git" if len(name) < 100 else home / name / "r.git"
    bare.parent.mkdir()
    path_remote.bare.rename(bare)
    clone = home / name / "clone" / name
    clone.parent.mkdir()
    real_clone(bare, clone, EMAIL)
    folder = clone / name
    folder.mkdir()
    with untouched(clone):
        every_verb(folder)
        monkeypatch.chdir(clone.parent)
        assert door(clone).list()[0].resource == "F001"
    assert read_files(bare)


def test_a_relative_remote_with_a_leading_dash(tmp_path: Path) -> None:
    """A URL that reads as an option is refused in words, or taken as a path, never as an option."""
    clone = tmp_path / "clone"
    make_repository(clone, email=EMAIL)
    for url in (
        "--upload-pack=touch pwned",
        "-oProxyCommand=touch pwned",
        "ext::sh -c touch% pwned",
        "ssh://-oProxyCommand=touch%20pwned/x",
        "fd::17/x",
    ):
        git(clone, "config", "remote.origin.url", url)
        with untouched(clone), pytest.raises(GitleaseError):
            door(clone).claim("F001")
    assert not list(tmp_path.rglob("pwned"))
