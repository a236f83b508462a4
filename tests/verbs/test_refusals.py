"""A refusal of every code of the table leaves every door in that door's own form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doors.fake import make_desks
from mcp.shared.exceptions import MCPError
from support.gateway import Served, serving
from support.remotes import Remote
from support.snapshots import raises
from support.tools import in_memory

import gitlease
from gitlease.kernel.rules import errors
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.verbs.table import CODES, INTERNAL, Violations, find_verb

MESSAGE, HINT = "the remote says no", "ask it nicely"
KINDS: dict[str, Any] = {"invalid": errors.Invalid, "violations": Violations}
for _kind in vars(errors).values():
    if isinstance(_kind, type) and hasattr(_kind, "code"):
        KINDS.setdefault(_kind.code, _kind)  # a base comes before its kinds
# What only happens in a clone reaches nobody through a gateway.
ELSEWHERE = ("violations", "not_a_repository")


def refusal(code: str) -> Exception:
    """What a verb raises; a code of no refusal stands for a bug."""
    return RuntimeError(MESSAGE) if code == INTERNAL else KINDS[code](MESSAGE, hints=(HINT,))


@pytest.fixture
def refuses(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has every verb of the table refuse with a code, at every door."""

    def prepare(code: str) -> None:
        def function(*_asked: Any, **_values: Any) -> Any:
            raise refusal(code)

        class Refusing(SimpleNamespace):
            def __getattr__(self, name: str) -> Any:
                return getattr(self.declared, name)

        def found(name: str) -> Any:
            return Refusing(declared=find_verb(name), answer=function)

        for module in ("cli.app", "library.methods", "mcp.server"):
            monkeypatch.setattr(f"gitlease.{module}.find_verb", found)
        monkeypatch.setattr("gitlease.gateway.routes.carry_out", function)

    return prepare


@pytest.fixture
def clone(
    path_remote: Remote, clones: Callable[..., list[Path]], monkeypatch: pytest.MonkeyPatch
) -> Path:
    path_remote.open_to(monkeypatch)
    return clones(1)[0]


@pytest.fixture
def gate(clone: Path) -> Iterator[Served]:
    with serving(clone) as served:
        yield served


Refuses = Callable[[str], None]


@pytest.mark.parametrize("code", CODES)
def test_a_command_ends_with_its_exit_status(code: str, refuses: Refuses) -> None:
    ada, _ = make_desks()
    refuses(code)
    ran, document = ada.run("note", "F001", "x"), ada.run("note", "F001", "x", "--json")
    assert ran.code == document.code == document.json["error"]["exit"] == CODES[code].exit
    assert document.json["error"]["code"] == code
    assert (ran.out, MESSAGE in ran.err.splitlines()[0]) == ("", True)
    if code != INTERNAL:
        assert f"hint: {HINT}" in ran.err.splitlines()
        assert HINT in document.json["error"]["hints"]


def test_a_method_raises_its_class(clone: Path, refuses: Refuses) -> None:
    leases = gitlease.open(clone)
    for code in CODES:
        refuses(code)
        with pytest.raises(type(refusal(code)), match=MESSAGE) as raised:
            leases.note("F001", "x")
        if isinstance(raised.value, GitleaseError):
            assert raised.value.hints[0] == HINT


def test_a_request_is_answered_with_its_status(gate: Served, refuses: Refuses) -> None:
    for code in CODES:
        refuses(code)
        answer = gate.ask("jo", "POST", "/v1/leases:note", json={"resource": "F001", "text": "x"})
        assert answer.status_code == CODES[code].http
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert (problem["code"], problem["status"]) == (code, CODES[code].http)
        if code != INTERNAL:
            assert (problem["detail"], problem["hints"]) == (MESSAGE, [HINT])


def test_a_method_of_a_connection_raises_its_class(gate: Served, refuses: Refuses) -> None:
    leases = gitlease.connect(gate.url, token=gate.secret("jo"))
    for code in CODES.keys() - {*ELSEWHERE}:
        refuses(code)
        # After a bug the change may have landed.
        kind = gitlease.UnknownOutcome if code == INTERNAL else KINDS[code]
        with pytest.raises(GitleaseError) as raised:
            leases.note("F001", "x")
        assert type(raised.value) is kind
        if code != INTERNAL:
            assert (raised.value.message, raised.value.hints[0]) == (MESSAGE, HINT)


def test_a_tool_answers_with_an_error(clone: Path, refuses: Refuses) -> None:
    with in_memory(clone) as tools:
        for code in CODES:
            refuses(code)
            if code == INTERNAL:
                with raises(MCPError):
                    tools.ask("note", resources=["F001"], text="x")
                continue
            document = tools.document("note", resources=["F001"], text="x")
            assert not document["ok"], "and the call is marked as an error"
            assert document["error"]["code"] == code
            assert document["error"]["exit"] == CODES[code].exit
            assert f"{code}: {MESSAGE}" in tools.text("note", resources=["F001"], text="x")
