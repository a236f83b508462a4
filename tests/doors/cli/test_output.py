"""Tables for people, lines for pipes, and nothing told by colour alone."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest
from doors.fake import Desk, make_desks
from rich.cells import cell_len
from support.snapshots import check_words

from gitlease.cli import output


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 160 columns that knows colours."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def ada() -> Desk:
    """Ada's desk; she holds one lease, another session of hers and Bob hold others."""
    ada, bob = make_desks()
    ada.ok("claim", "F001", "--reason", "rate limits")
    ada.ok("claim", "F002", "--session", "build-7")
    bob.ok("claim", "src/auth/", "--path", "a/b/", "--path", "c", "--ttl", "1h")
    return ada


def test_a_pipe_gets_the_same_table_whole_and_without_colour(ada: Desk) -> None:
    ada.ok("claim", "deep/" * 30)
    lines = ada.ok("list").out.splitlines()
    assert [line[:44].rstrip() for line in (*lines[:3], lines[4])] == [
        "WHOSE             RESOURCE",
        "mine              F001",
        "my-other-session  F002",
        "theirs            src/auth (a/b c)",
    ]
    assert "/".join(["deep"] * 30) in lines[3]
    assert "\x1b" not in "".join(lines)


def test_mine_is_what_this_session_holds(ada: Desk) -> None:
    def listed(*argv: str) -> list[str]:
        return [lease["resource"] for lease in ada.ok("list", "--json", *argv).json["leases"]]

    assert listed("--mine") == ["F001"]
    assert listed("--mine", "--session", "build-7") == ["F001", "F002"]
    assert listed() == ["F001", "F002", "src/auth"]


@pytest.mark.parametrize("columns", [40, 120])
@pytest.mark.parametrize("words", [["list"], ["log"], ["status"], ["show", "F001"], ["queue"]])
def test_no_line_is_wider_than_the_terminal(
    ada: Desk, monkeypatch: pytest.MonkeyPatch, columns: int, words: list[str]
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", str(columns))
    ada.ok("claim", "deep/" * 20, "--reason", "many 日本語の言葉🎉 words " * 4)
    out = ada.ok(*words, terminal=True).out
    assert max(map(cell_len, out.splitlines())) <= columns
    if words[0] not in ("status", "queue"):
        assert "F001" in out
    if columns >= 120 and words[0] in ("list", "log"):  # a table, of which paths and prose give way
        assert len(out.splitlines()) <= 2 + 2 * 4
        assert "ada@example.com" in out
        assert "…" in out


def test_colours_are_as_they_are_asked_for(ada: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" in ada.ok("list", "--color", "always").out
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b" not in ada.ok("list", "--color=never", terminal=True).out
    ada.run("claim", "src/auth/", terminal=True)
    refused = ada.run("claim", "src/auth/x", terminal=True).err
    check_words(refused)
    assert re.search(r"\x1b\[2mhint: .*\x1b\[0m\n", refused)
    assert "\x1b" not in ada.run("claim", "src/auth/x").err
    assert "\x1b" not in ada.run("claim", "src/auth/x", "--color", "never", terminal=True).err


def test_a_terminal_gets_the_time_of_its_place_as_well(
    ada: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "XXX-3:30")
    time.tzset()
    try:
        told = ada.ok("show", "F001", terminal=True).out
        check_words(told.splitlines()[-1])
        assert "here" not in ada.ok("show", "F001").out
        error = ada.run("claim", "src/auth/", "--json", terminal=True).json["error"]
        assert "here" not in error["message"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_log_since_a_time(ada: Desk) -> None:
    ada.clock.advance(3_600)
    ada.ok("claim", "later")
    events = ada.ok("log", "--since", "2026-11-20T12:30Z", "--json").json["events"]
    assert [event["resource"] for event in events] == ["later"]
    assert len(ada.ok("log", "--since", "2026-11-20").out.splitlines()) > 1
    assert ada.ok("log", "--since", "2100-01-01", "--json").json["events"] == []
    refused = ada.run("log", "--since", "yesterday")
    assert refused.code == 2
    check_words(refused.err)


def test_everything_of_a_session_is_released_in_every_layer(ada: Desk) -> None:
    ran = ada.ok("release", "--all")
    assert "released F001" in ran.out
    held = ada.ok("list", "--json").json["leases"]
    assert [lease["resource"] for lease in held] == ["F002", "src/auth"]
    check_words(ada.ok("release", "--all").out)
    for words in (("release",), ("release", "--all", "F001"), ("release", "--all", "--scope", "x")):
        assert ada.run(*words).code == 2


def test_json_is_one_line_in_a_pipe_and_readable_on_a_terminal(ada: Desk) -> None:
    assert ada.ok("list", "--json").out.count("\n") == 1
    assert ada.ok("list", "--json", terminal=True).out.count("\n") > 10


def test_a_narrow_encoding_spells_out_what_it_cannot_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    output.begin()
    output.line("größe")
    sys.stdout.flush()
    assert raw.getvalue() == b"gr\\xf6\\xdfe\n"


def test_name_is_no_command_of_a_job(ada: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    told = ada.ok("claim", "::stop-commands::x", "--any")
    shown = ada.ok("show", "::stop-commands::x")
    listed = ada.ok("list")
    for text in (told.out, told.err, shown.out, shown.err, listed.out):
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
