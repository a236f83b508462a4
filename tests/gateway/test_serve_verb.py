"""``serve`` and ``serve token``: who may use the gateway, and with what it is started."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from doors.fake import Ran
from support.clock import ManualClock
from support.repos import git
from support.snapshots import check_words
from support.typed import Typist

from gitlease.gateway.opening import open_tokens
from gitlease.gateway.tokens import Tokens

NOW = 1_800_000_000_000


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone, in which the tests stand; it needs no ``user.email``."""
    git(tmp_path, "init", "-q", "-b", "main", "clone")
    monkeypatch.chdir(tmp_path / "clone")
    return tmp_path / "clone"


@pytest.fixture
def tokens(clone: Path) -> Tokens:
    return Tokens(str(clone / ".git" / "gitlease" / "serve"))


def say(*words: str) -> Ran:
    """``gitlease serve …`` in the current folder."""
    done = Typist(Path.cwd(), ManualClock()).types(shlex.join(["gitlease", "serve", *words]))
    return Ran(done.code, done.out, done.err)


def ok(*words: str) -> Ran:
    done = say(*words)
    assert done.code == 0, (done.out, done.err)
    return done


# --- tokens ---------------------------------------------------------------------------------------


def test_the_secret_stands_alone_on_standard_output(tokens: Tokens) -> None:
    done = ok("token", "add", "ada@example.com", "--name", "ci")
    secret = done.out.removesuffix("\n")
    assert done.out == f"{secret}\n"
    found = tokens.holder_of(secret, NOW)
    assert found is not None
    assert (found.email, found.name) == ("ada@example.com", "ci")
    assert found.scopes == ("read", "write")
    assert found.expires_at is None
    assert secret not in done.err
    check_words(done.err)
    check_words(done.err)


def test_what_a_token_is_good_for_is_said_when_it_is_made(tokens: Tokens) -> None:
    done = ok(
        "token", "add", "ada@example.com", "--scopes", "read", "--expires", "90d", "--json"
    ).json
    (told,) = done["tokens"]
    assert (told["scopes"], told["expired"]) == (["read"], False)
    (kept,) = tokens.listed()
    assert kept.expires_at == kept.created_at + 90 * 86_400_000
    assert tokens.holder_of(done["secret"], kept.created_at) == kept
    assert ok("token", "add", "b@c", "--scopes", "write, read", "--json").json["tokens"][0][
        "scopes"
    ] == ["read", "write"]


def test_tokens_are_listed_without_their_secrets(tokens: Tokens) -> None:
    assert ok("token", "list", "--json").json["tokens"] == []
    check_words(ok("token", "list").err)
    made, secret = tokens.add("ada@example.com", name="ci", scopes={"read"}, expires=60, now=NOW)
    tokens.add("kim@example.com", name=None, scopes={"write"}, expires=None, now=NOW)
    done = ok("token", "list")
    assert secret not in done.out
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["ID", "NAME", "EMAIL", "SCOPES", "CREATED", "EXPIRES"]
    assert lines[1][:4] == [made.id, "ci", "ada@example.com", "read"]
    assert lines[2][-1] == "never"
    told = ok("token", "list", "--json").json["tokens"]
    assert [x["expires_at"] for x in told] == ["2027-01-15T08:01:00Z", None]


def test_revoked_by_name_or_id(tokens: Tokens) -> None:
    _, first = tokens.add("ada@example.com", name="ci", scopes={"read"}, expires=None, now=NOW)
    other, _ = tokens.add("kim@example.com", name="web", scopes={"read"}, expires=None, now=NOW)
    check_words(ok("token", "revoke", "ci").out)
    assert tokens.holder_of(first, NOW) is None
    assert ok("token", "revoke", other.id, "--json").json["tokens"][0]["name"] == "web"
    assert tokens.listed() == []


@pytest.mark.parametrize(
    "words",
    [
        *("token", "token add", "token revoke", "token list ci", "token drop ci", "tokens"),
        *("token add 'a b'", "token add a@b --name 'a b'", "token add a@b --scopes admin"),
        *("token add a@b --expires 0", "token add a@b --port 80", "token list --name ci"),
        *("--name ci", "--port 0", "--port 65536", "--host ''", "--allow-host 'a b'"),
        *("--host http://x/", "--repo web", "--repo =.", "--repo a/b=.", f"--repo {'a' * 65}=."),
        *("--repo a=. --repo a=.", "--repo a=. --repo b=../clone", "--layer team", "--local"),
    ],
)
def test_bad_words_are_refused(clone: Path, words: str) -> None:
    assert say(*shlex.split(words)).code == 2
    assert not (clone / ".git" / "gitlease" / "serve" / "tokens.json").exists()


# --- serving --------------------------------------------------------------------------------------


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, str], str, int, str]]:
    """What a gateway is started with, in place of one."""
    calls: list[tuple[dict[str, str], str, int, str]] = []

    def serve(
        repositories: Mapping[str, str],
        host: str,
        port: int,
        prog: str,
        names: Sequence[str],
        rate: float,
    ) -> int:
        assert rate == 1_000
        calls.append((dict(repositories), host, port, " ".join([prog, *names])))
        return 3

    stand_in = SimpleNamespace(serve=serve)
    monkeypatch.setitem(sys.modules, "gitlease.gateway.app", stand_in)
    return calls


Served = list[tuple[dict[str, str], str, int, str]]


def test_this_clone_is_served_on_this_machine_alone(clone: Path, served: Served) -> None:
    ok("token", "add", "ada@example.com")
    done = say()
    assert (done.code, done.out, done.err) == (3, "", "")
    assert served == [({"": str(clone)}, "127.0.0.1", 8470, "gitlease")]


def test_several_clones_are_served_by_their_names(
    clone: Path, tmp_path: Path, served: Served
) -> None:
    git(tmp_path, "init", "-q", "api")
    git(tmp_path, "init", "-q", "--bare", "old.git")
    words = ["--repo", "web=clone", "--repo", f"api={tmp_path / 'api'}", "--repo", "_o-1=old.git"]
    say(*words, "--port", "9000", "-C", "..")
    (call,) = served
    assert call[0] == {
        "web": str(clone),
        "api": str(tmp_path / "api"),
        "_o-1": str(tmp_path / "old.git"),
    }
    assert call[2] == 9000


def test_a_gateway_that_nobody_may_use_says_how_to_let_somebody_in(
    clone: Path, tmp_path: Path, served: Served
) -> None:
    check_words(say().err.splitlines())
    os.chdir(tmp_path)
    err = say("--repo", "web=clone").err
    check_words(err)
    hint = err.splitlines()[-1].removeprefix("hint: gitlease serve ")
    ok(*shlex.split(hint.replace("EMAIL", "ada@example.com")))
    assert open_tokens(str(clone)).listed()
    assert say("--repo", "web=clone").err == ""


@pytest.mark.parametrize(
    ("host", "warned"),
    [
        ("127.9.9.9", False),
        ("::1", False),
        ("LOCALHOST.", False),
        ("::", True),
        ("192.168.0.1", True),
        ("gate.example.com", True),
    ],
)
def test_beyond_this_machine_http_is_not_encrypted(
    clone: Path, served: Served, host: str, warned: bool
) -> None:
    err = say("--host", host).err
    assert ("TLS" in err) is warned
    check_words(err)
    assert served[0][1] == host


def test_only_repositories_are_served(clone: Path, tmp_path: Path, served: Served) -> None:
    for words in (("-C", ".."), ("--repo", "web=.."), ("--repo", "web=nowhere")):
        assert say(*words).code == 128
    assert say("token", "list", "-C", "..").code == 128
    assert served == []
