"""What clients were told is held against history: a true log agrees, and no false one does."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from ledger_checker.answers import (
    History,
    LoggedCall,
    check_answers,
    load_calls,
    read_history,
)
from support.repos import git, real_clone

from gitlease.cli.app import run

REF = "refs/gitlease/global"


class Play:
    """Two people in two clones, and the log of all that they were told."""

    def __init__(self, folder: Path) -> None:
        git(folder, "init", "-q", "--bare", "origin.git")
        self.folder, self.bare = folder, folder / "origin.git"
        self.calls: list[LoggedCall] = []
        self._clock = itertools.count()
        for who in ("jo", "kim"):
            real_clone(self.bare, folder / who, f"{who}@example.com")

    def say(self, who: str, verb: str, *words: str) -> LoggedCall:
        start, out = next(self._clock), io.StringIO()
        line = [verb, "-C", str(self.folder / who), "--json", *words]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            run(line)
        named = tuple(itertools.takewhile(lambda word: not word.startswith("-"), words))
        call = LoggedCall(
            client=who,
            holder=f"{who}@example.com",
            verb=verb,
            start=start,
            end=next(self._clock),
            answer=json.loads(out.getvalue()),
            resources=named if verb != "config" else (),
        )
        self.calls.append(call)
        return call


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    made = Play(tmp_path_factory.mktemp("play"))
    made.say("jo", "config", "history", "append", "--ledger")
    made.say("jo", "claim", "F001", "--any", "--ttl", "1h")
    made.say("kim", "claim", "F001", "--any")
    made.say("kim", "claim", "F002", "--any")
    made.say("jo", "renew", "F001")
    made.say("kim", "list")
    made.say("jo", "release", "F001")
    made.say("kim", "claim", "F001", "--any", "--ttl", "2h")
    made.say("jo", "renew", "F001")
    made.say("jo", "claim", "F003", "--any")
    made.say("kim", "done", "F002")
    made.say("kim", "list")
    made.say("jo", "done", "F004", "--any")
    made.say("kim", "claim", "F005", "--any")
    made.say("jo", "done", "F004", "--any")
    made.say("kim", "claim", "F004", "--any", "--reopen")
    return made


@pytest.fixture(scope="module")
def history(play: Play) -> History:
    return read_history(play.bare, REF)


def found(history: History, calls: list[LoggedCall]) -> set[str]:
    return {one.rule for one in check_answers(history, calls)}


def nth(calls: list[LoggedCall], who: str, verb: str, number: int = 0) -> int:
    every = [at for at, call in enumerate(calls) if (call.client, call.verb) == (who, verb)]
    return every[number]


def test_a_true_log_agrees(play: Play, history: History) -> None:
    assert check_answers(history, play.calls) == []
    assert check_answers(history, play.calls[::-1]) == []


def test_a_log_reads_back_as_it_was_written(play: Play, history: History, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    lines = [json.dumps({**asdict(call), "exit": 0}) for call in play.calls]
    lines.insert(1, json.dumps({"fault": "disk full", "at": 1.0}))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert load_calls(file) == play.calls


Change = Callable[[list[LoggedCall]], None]


def told(calls: list[LoggedCall], at: int, change: Callable[[dict[str, Any]], None]) -> None:
    """A call whose answer is another one."""
    answer = copy.deepcopy(dict(calls[at].answer or {}))
    change(answer)
    calls[at] = replace(calls[at], answer=answer)


def a_grant_that_nobody_was_told(calls: list[LoggedCall]) -> None:
    del calls[nth(calls, "jo", "claim")]


def a_refusal_that_took_effect(calls: list[LoggedCall]) -> None:
    at = nth(calls, "kim", "claim", 1)
    calls[at] = replace(calls[at], answer=calls[nth(calls, "kim", "claim")].answer)


def a_success_that_is_in_no_history(calls: list[LoggedCall]) -> None:
    def change(answer: dict[str, Any]) -> None:
        answer["leases"][0] |= {"lease_id": "f" * 20}

    told(calls, nth(calls, "jo", "claim", 1), change)


def a_renewal_that_did_not_land(calls: list[LoggedCall]) -> None:
    def change(answer: dict[str, Any]) -> None:
        answer["leases"][0] |= {"renewals": 9}

    told(calls, nth(calls, "jo", "renew"), change)


def a_release_of_what_is_held_still(calls: list[LoggedCall]) -> None:
    claimed = calls[nth(calls, "jo", "claim", 1)]
    last = replace(claimed, verb="release", start=900, end=901)
    calls.append(last)
    told(calls, len(calls) - 1, lambda answer: answer.update(status="released"))


def one_grant_for_two(calls: list[LoggedCall]) -> None:
    calls.append(replace(calls[nth(calls, "jo", "claim")], client="kim", start=901, end=902))


def a_claim_that_came_before_what_had_ended(calls: list[LoggedCall]) -> None:
    at = nth(calls, "kim", "claim", 2)
    calls[at] = replace(calls[at], start=-3, end=-2)


def a_refusal_for_what_was_long_gone(calls: list[LoggedCall]) -> None:
    at = nth(calls, "kim", "claim")
    calls[at] = replace(calls[at], start=900, end=901)


def a_refusal_for_what_never_was(calls: list[LoggedCall]) -> None:
    def change(answer: dict[str, Any]) -> None:
        for lease in (answer["error"]["lease"], *answer["error"]["conflicts"]):
            lease |= {"lease_id": "e" * 20}

    told(calls, nth(calls, "kim", "claim"), change)


def a_list_of_what_was_there_before(calls: list[LoggedCall]) -> None:
    at = nth(calls, "kim", "list")
    calls[at] = replace(calls[at], start=900, end=901)


def something_called_lost_that_was_not(calls: list[LoggedCall]) -> None:
    at = nth(calls, "jo", "renew", 1)
    answer = {"ok": False, "error": {"code": "lost"}}
    calls[at] = replace(calls[at], client="kim", holder="kim@example.com", answer=answer)


FALSE: dict[Change, str] = {
    a_grant_that_nobody_was_told: "unheard",
    a_refusal_that_took_effect: "unheard",
    a_success_that_is_in_no_history: "answer",
    a_renewal_that_did_not_land: "answer",
    a_release_of_what_is_held_still: "answer",
    one_grant_for_two: "twice",
    a_claim_that_came_before_what_had_ended: "order",
    a_refusal_for_what_was_long_gone: "stale",
    a_refusal_for_what_never_was: "refusal",
    a_list_of_what_was_there_before: "stale",
    something_called_lost_that_was_not: "lost",
}


@pytest.mark.parametrize("change", FALSE, ids=lambda change: change.__name__)
def test_no_false_log_agrees(play: Play, history: History, change: Change) -> None:
    calls = list(play.calls)
    change(calls)
    assert FALSE[change] in found(history, calls)


@pytest.mark.parametrize("answer", [None, {"ok": False, "error": {"code": "unknown_outcome"}}])
def test_of_whom_nothing_was_heard_either_may_be_true(
    play: Play, history: History, answer: dict[str, Any] | None
) -> None:
    calls = list(play.calls)
    for who, verb in (("jo", "claim"), ("jo", "release")):
        at = nth(calls, who, verb)
        calls[at] = replace(calls[at], answer=answer)
    more = replace(calls[0], verb="claim", resources=("F009",), start=990, end=991, answer=answer)
    assert check_answers(history, [*calls, more]) == []
