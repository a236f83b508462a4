"""The tokens of a gateway: told once, kept as hashes, gone at once when they are revoked."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.snapshots import check_words, raises

from gitlease.gateway import tokens as module
from gitlease.gateway.tokens import LARGEST, Token, Tokens
from gitlease.kernel.git.files import exclusive, read_with_status
from gitlease.kernel.rules.errors import Invalid, NotFound, UsageError

NOW = 1_800_000_000_000
ADA = "ada@example.com"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "gitlease" / "serve"


@pytest.fixture
def file(folder: Path) -> Path:
    return folder / "tokens.json"


@pytest.fixture
def tokens(folder: Path) -> Tokens:
    return Tokens(str(folder))


def add(tokens: Tokens, email: str = ADA, **more: Any) -> tuple[Token, str]:
    words: dict[str, Any] = {"name": None, "scopes": {"read", "write"}, "expires": None}
    return tokens.add(email, now=NOW, **(words | more))


def test_a_secret_is_256_random_bits_and_only_its_hash_is_kept(tokens: Tokens, file: Path) -> None:
    made, secret = add(tokens, name="ci", scopes={"read"}, expires=60)
    assert re.fullmatch(r"glt_[A-Za-z0-9_-]{43}", secret)
    text, digest = file.read_text(), sha256(secret.encode()).hexdigest()
    assert secret.removeprefix("glt_") not in text + repr(made)
    assert digest in text
    told = {"email": ADA, "name": "ci", "scopes": ("read",), "created_at": NOW}
    assert made == Token(id=made.id, expires_at=NOW + 60_000, sha256=digest, **told)  # type: ignore[arg-type]
    other, another = add(tokens, "zoë@example.com")
    assert another != secret
    assert re.fullmatch("[0-9a-f]{8}", other.id)
    assert other.name == other.id
    again = Tokens(str(file.parent))
    assert again.listed() == [made, other]
    assert again.holder_of(secret, NOW) == made


def test_nobody_else_may_read_the_file(tokens: Tokens, folder: Path, file: Path) -> None:
    before = os.umask(0)
    try:
        add(tokens)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    add(tokens)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(x.name for x in folder.iterdir()) == ["lock", "tokens.json"]


def test_a_secret_counts_until_it_expires_or_is_revoked(tokens: Tokens, folder: Path) -> None:
    gateway = Tokens(str(folder))
    ci, secret = add(tokens, name="ci", expires=60)
    _, lasting = add(tokens)
    assert gateway.holder_of(secret, NOW + 59_999) == ci
    assert gateway.holder_of(secret, NOW + 60_000) is None
    assert [x.is_over(NOW + 60_000) for x in gateway.listed()] == [True, False]
    assert tokens.revoke("ci") == ci
    assert gateway.holder_of(secret, NOW) is None
    kept = gateway.holder_of(lasting, NOW + 10**12)
    assert kept is not None
    assert tokens.revoke(kept.id) == kept
    assert gateway.holder_of(lasting, NOW) is None
    assert gateway.listed() == []
    for gone in ("ci", kept.id, "nobody", ""):
        with pytest.raises(NotFound, match="no token "):
            tokens.revoke(gone)


@pytest.mark.parametrize("secret", ["", "glt_" + "A" * 43, "ü", "\ud800", "x" * 9_999])
def test_any_other_secret_is_nobodys(tokens: Tokens, secret: str) -> None:
    assert tokens.holder_of(secret, NOW) is None
    _, real = add(tokens)
    assert tokens.holder_of(secret, NOW) is None
    assert tokens.holder_of(real + " ", NOW) is None
    assert tokens.holder_of(real.removeprefix("glt_"), NOW) is None


def test_the_file_is_read_only_when_it_has_changed(
    tokens: Tokens, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, reads = Tokens(str(folder)), list[str]()

    def counted(path: str, limit: int) -> tuple[bytes, os.stat_result] | None:
        reads.append(path)
        return read_with_status(path, limit)

    monkeypatch.setattr(module, "read_with_status", counted)
    assert gateway.holder_of("x", NOW) is None
    assert reads == []
    _, secret = add(tokens)
    reads.clear()
    for _ in range(5):
        assert gateway.holder_of(secret, NOW)
    assert len(reads) == 1
    add(tokens)
    reads.clear()
    assert gateway.holder_of(secret, NOW)
    assert gateway.holder_of("x", NOW) is None
    assert len(reads) == 1


BAD_WORDS: dict[str, list[Any]] = {
    "email": ["", "a b@example.com", " ada@example.com", "a\x1b@example.com", "a" * 255],
    "name": ["", "a b", "ci\n", "a" * 65, "ab12cd34", "taken"],
    "scopes": [(), ("read", "admin")],
}


@pytest.mark.parametrize("field", BAD_WORDS)
def test_bad_words_are_refused_and_change_nothing(tokens: Tokens, file: Path, field: str) -> None:
    add(tokens, name="taken")
    before = file.read_bytes()
    for word in BAD_WORDS[field]:
        with raises(UsageError):
            add(tokens, **{field: word})
    assert file.read_bytes() == before


def test_there_is_an_end_to_their_number(
    tokens: Tokens, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    for _ in range(3):
        add(tokens)
    with raises(Invalid) as refused:
        add(tokens)
    check_words(refused.value.hints)
    assert len(tokens.listed()) == 3
    monkeypatch.setattr(module, "MOST", 4)
    monkeypatch.setattr(module, "LARGEST", len(file.read_bytes()) + 200)
    with raises(Invalid):
        add(tokens, "a" * 254)


def good(**changes: Any) -> dict[str, Any]:
    told = {"id": "0011aabb", "email": ADA, "name": "ci", "scopes": ["read"], "created_at": NOW}
    return {**told, "expires_at": None, "sha256": "0" * 64, **changes}


def whole(*told: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({"version": 1, "tokens": list(told), **changes}).encode()


def put(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(data)


DAMAGED = [b"", b"\xff\xfe", b"[" * 100_000, b"null", b"{}", b"9" * 5_000, b" " * (LARGEST + 1)]
DAMAGED += [whole(version=2), whole(tokens=None), whole(tokens=[1]), whole({})]
WRONG: list[dict[str, Any]] = [{"id": "x"}, {"id": None}, {"email": "a b"}, {"email": 5}]
WRONG += [{"name": "a b"}, {"name": ["ci"]}, {"name": "ab12cd34"}, {"scopes": []}]
WRONG += [{"scopes": "read"}, {"scopes": ["admin"]}, {"scopes": [["read"]]}, {"created_at": True}]
WRONG += [{"created_at": -1}, {"created_at": "now"}, {"expires_at": 1.5}, {"expires_at": 1 << 70}]
WRONG += [{"sha256": "A" * 64}, {"sha256": "0" * 63}]
DAMAGED += [whole(good(**changes)) for changes in WRONG]
DAMAGED += [whole(good(), good(id="22aabbcc", name="b"))]
DAMAGED += [whole(good(), good(sha256="1" * 64, name="b"))]
DAMAGED += [whole(good(), good(sha256="1" * 64, id="22aabbcc"))]


def test_a_damaged_file_is_named_with_the_way_out(tokens: Tokens, file: Path) -> None:
    put(file, whole(good(), good(id="22aabbcc", name="22aabbcc", sha256="1" * 64)))
    assert [x.name for x in tokens.listed()] == ["ci", "22aabbcc"], "as it is written"
    said = set()
    for data in DAMAGED:
        put(file, data)
        for ask in (
            tokens.listed,
            lambda: tokens.holder_of("glt_x", NOW),
            lambda: tokens.revoke("ci"),
            lambda: add(tokens),
        ):
            with pytest.raises(Invalid) as refused:
                ask()
            said.add(refused.value.message)
        assert file.read_bytes() == data, "it is left for a person to look at"
        (hint,) = refused.value.hints
        subprocess.run(["sh", "-c", hint.partition(": ")[2]], check=True)
        assert tokens.listed() == []
    check_words(said)
    assert add(tokens)[0].email == ADA


def test_what_is_no_file_is_damage_and_never_followed(
    tokens: Tokens, folder: Path, file: Path
) -> None:
    elsewhere = folder.parent / "elsewhere.json"
    put(elsewhere, whole(good()))
    folder.mkdir()
    makes: list[Callable[[], object]] = [
        file.mkdir,
        lambda: os.mkfifo(file),
        lambda: file.symlink_to(elsewhere),
    ]
    for make in makes:
        make()
        with raises(Invalid):
            tokens.holder_of("x", NOW)
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()


@pytest.mark.parametrize("mode", [0o640, 0o602])
def test_a_file_that_others_could_change_is_not_trusted(
    tokens: Tokens, file: Path, mode: int
) -> None:
    _, secret = add(tokens)
    file.chmod(mode)
    with raises(Invalid) as refused:
        tokens.holder_of(secret, NOW)
    (hint,) = refused.value.hints
    subprocess.run(["sh", "-c", hint.rpartition(": ")[2]], check=True)
    assert tokens.holder_of(secret, NOW)


def test_nothing_is_changed_without_the_lock(folder: Path, tokens: Tokens) -> None:
    """Of two changes at once one would undo the other: a revocation, perhaps."""
    add(tokens, name="ci")
    hasty = Tokens(str(folder), patience=0)
    with exclusive(str(folder / "lock"), timeout=1) as alone:
        assert alone
        with raises(Invalid):
            hasty.revoke("ci")
        assert [x.name for x in hasty.listed()] == ["ci"], "reading takes no lock"
    assert hasty.revoke("ci").name == "ci"


def test_changes_at_once_are_all_kept(folder: Path) -> None:
    def work(number: int) -> None:
        mine = Tokens(str(folder))
        for turn in range(5):
            add(mine, name=f"n{number}-{turn}")
        mine.revoke(f"n{number}-0")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [None] * 8
    names = {x.name for x in Tokens(str(folder)).listed()}
    assert names == {f"n{n}-{turn}" for n in range(8) for turn in range(1, 5)}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "gitlease").write_text("")
    with raises(Invalid):
        add(Tokens(str(tmp_path / "gitlease" / "serve")))
