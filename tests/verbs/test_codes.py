"""The table of codes is that of the contract, and every command line ends by it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from doors.fake import Desk, make_desks, words
from support.snapshots import check_words

from gitlease.kernel.rules import errors
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.verbs.table import CODES, exit_of

CONTRACT = {
    1: {"held", "wait_timeout", "violations", "nothing_left"},
    2: {"usage"},
    3: {"lost", "not_holder"},
    4: {"denied"},
    5: {"unavailable", "unknown_outcome"},
    6: {"policy"},
    7: {"invalid", "not_found", "rollback"},
    128: {"not_a_repository"},
}


def every_error(base: type[GitleaseError] = GitleaseError) -> Iterator[type[GitleaseError]]:
    """All errors of the domain."""
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from every_error(kind)


def test_exit_statuses_are_those_of_the_contract() -> None:
    found: dict[int, set[str]] = {}
    for name, code in CODES.items():
        found.setdefault(code.exit, set()).add(name)
    assert found == CONTRACT | {70: {"internal"}}


def test_every_error_of_the_domain_is_in_the_table() -> None:
    assert {kind.code for kind in every_error()} <= set(CODES)


def test_a_code_that_no_table_knows_is_a_fault_of_gitlease() -> None:
    assert exit_of("brand_new") == 70


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (("claim", "free"), 0),
        (("claim", "taken", "--wait", "5s"), 1),
        (("claim", "free", "--ttl", "soon"), 2),
        (("claim", "!src/"), 2),
        (("renew", "taken"), 3),
        (("renew", "free"), 3),
        (("claim", "free", "--ttl", "1s"), 6),
        (("list", "--cached", "--layer", "never-seen"), 7),
        (("release", "free"), 0),
    ],
    ids=words,
)
def test_a_command_line_ends_by_the_table(argv: tuple[str, ...], status: int) -> None:
    ada, bob = make_desks()
    ada.ok("claim", "taken")
    ada.ok("done", "finished", "--any")
    ran = bob.run(*argv)
    assert ran.code == status, ran
    assert (status == 0) or ran.out == ""


def test_a_fault_of_gitlease_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(self: Desk, directory: str, **options: object) -> None:
        raise RuntimeError("a cog fell out\nand rolled away")

    monkeypatch.setattr(Desk, "open", burst)
    ada, _ = make_desks()
    ran = ada.run("list", "--json")
    assert ran.code == 70
    assert ran.json["error"]["code"] == "internal"
    check_words(ran.err)
    assert "Traceback" in ada.run("list", "--traceback").err


def test_an_interruption_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Desk, directory: str, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Desk, "open", stop)
    ada, _ = make_desks()
    ran = ada.run("list")
    assert (ran.code, ran.out, ran.err) == (130, "", "")
    for sent, code in (([], "unavailable"), (["a claim"], "unknown_outcome")):
        monkeypatch.setattr("gitlease.kernel.ledger.ports._SENT", sent)
        ran = ada.run("claim", "F001", "--json")
        error = ran.json["error"]
        assert (ran.code, error["exit"], error["code"], error["next"]) == (130, 130, code, [])
        check_words(ran.err)


def test_a_signal_while_the_module_of_a_verb_is_loaded_names_the_verb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(_name: str) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    ada, _ = make_desks()
    for patched, argv, command in (
        ("find_verb", "lock", "claim"),
        ("import_module", "init", "init"),
    ):
        monkeypatch.setattr(f"gitlease.cli.app.{patched}", stop)
        ran = ada.run(argv, "F001", "--json")
        assert (ran.code, ran.json["command"]) == (143, command)


def test_an_interruption_before_the_command_begins_is_none_either() -> None:
    """While its modules are loaded."""
    script = (
        "import gitlease.__main__ as main\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "main._status = stop\n"
        "main.main()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")
