"""What a clone keeps of many leases is wrong, and its check sum is right: nobody gets in by it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import git
from support.running import Desk

from gitlease.guard import FORM as WATCHED
from gitlease.store import FORM as RECORDS

Change = Callable[[bytes], bytes]


def of_margins(body: bytes) -> bytes:
    """As another version would write it, whose leases have other fields within."""
    return body.replace(b'"grace"', b'"grade"')


def without_heads(body: bytes) -> bytes:
    return body.replace(b"/src", b"")


def no_text(body: bytes) -> bytes:
    return b"\xff\n"


@pytest.fixture
def people(path_remote: Remote, clones: Callable[..., list[Path]]) -> tuple[Desk, Desk]:
    first, second = (Desk(clone, env=path_remote.env) for clone in clones(2))
    first.document("claim", "path:src/")
    first.document("claim", "F001")
    second.document("claim", "path:docs/")
    (second.clone / "src").mkdir()
    (second.clone / "src" / "a.py").write_text("1\n")
    git(second.clone, "add", "src/a.py")
    assert second.ask("hook", "pre-commit").returncode == 1, "which keeps lines of all of it"
    return first, second


@pytest.mark.parametrize("change", [of_margins, without_heads, no_text])
def test_lines_that_are_wrong_let_nobody_in(people: tuple[Desk, Desk], change: Change) -> None:
    _, second = people
    state = next((second.clone / ".git" / "gitlease" / "state").glob("*/global"))
    kept = [*state.glob("*.rows")]
    assert {x.name for x in kept} == {"leases.rows", "paths.rows", "watch.rows"}
    for file in kept:
        form = WATCHED if file.stem == "watch" else f"{RECORDS} {file.stem}"
        head, _, body = file.read_bytes().partition(b"\n")
        assert head == _sum_of(body, form), "this is how they are summed up"
        wrong = change(body)
        file.write_bytes(_sum_of(wrong, form) + b"\n" + wrong)
    refused = second.document("claim", "path:src/z", expect=1)
    assert refused["error"]["code"] == "held"
    for _ in range(2):
        assert second.ask("hook", "pre-commit").returncode == 1, "what another holds stays so"


def _sum_of(body: bytes, form: str) -> bytes:
    return b"%08x %d" % (zlib.crc32(body, zlib.crc32(form.encode())), len(body))
