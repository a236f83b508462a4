"""What a ledger's history and its clients' logs must agree on, judged without the product's rules.

``check_history`` and ``check_answers`` name what is wrong in sentences; no sentence is good news.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from support.fences import clean_env

Record = Mapping[str, Any]
_GRANTING = ("claim", "next", "renew", "extend")
# Answers after which a call may have been carried out all the same.
_UNSETTLED = frozenset({"unavailable", "unknown_outcome", "internal", "denied", "lost"})


@dataclass
class Grant:
    """One grant in history: what its records said, from first to last."""

    record: Record
    expiries: set[str] = field(default_factory=set)


def grants_in(git_dir: Path, ref: str) -> dict[str, Grant]:
    """Every grant that the ref's history shows, by its lease's id."""
    found: dict[str, Grant] = {}
    for _, records, _ in _steps(git_dir, ref):
        for record in records.values():
            grant = found.setdefault(record["lease_id"], Grant(record))
            grant.expiries.add(_seconds(record["expires_at"]))
    return found


def check_history(git_dir: Path, ref: str, tips: Sequence[str] = ()) -> list[str]:
    """What is wrong with the history of a ledger whose renewals append.

    ``tips`` are commits at which the ref was seen at some time: each must be in its history.
    """
    wrong, seen, before, last = [], set[str](), dict[str, Record](), (0, 0)
    known: set[str] = set()
    for commit, records, header in _steps(git_dir, ref):
        seen.add(commit)
        revision, token = header["revision"], header["epoch"] * 10**12 + header["sequence"]
        if revision != last[0] + 1:
            wrong.append(f"{commit}: revision {revision} comes after {last[0]}")
        if token < last[1]:
            wrong.append(f"{commit}: the last token {token} is less than {last[1]}")
        for name, record in records.items():
            if record["lease_id"] in known:
                continue
            known.add(record["lease_id"])
            if record["token"] <= last[1]:
                wrong.append(f"{commit}: the token {record['token']} of {name} was given before")
            held = before.get(name)
            if held is not None and _is_kept_from(held, record):
                wrong.append(f"{commit}: {name} was granted while {held['holder']} held it")
        wrong += [f"{commit}: {both}" for both in _clashes(records)]
        before, last = dict(records), (revision, token)
    wrong += [f"{tip} was the tip, and is not in history" for tip in tips if tip not in seen]
    return wrong


def check_answers(history: Mapping[str, Grant], logs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What clients were told that is not in history, and what is there that nobody asked for."""
    wrong, told = [], set[str]()
    for entry in logs:
        for lease in _granted(entry):
            told.add(lease["lease_id"])
            grant = history.get(lease["lease_id"])
            named = f"{entry['client']} {entry['verb']}: {lease['resource']}"
            if grant is None:
                wrong.append(f"{named}: the grant {lease['lease_id']} is not in history")
            elif grant.record["token"] != lease["token"]:
                wrong.append(f"{named}: token {lease['token']}, not {grant.record['token']}")
            elif lease["expires_at"] not in grant.expiries:
                wrong.append(f"{named}: no record expires at {lease['expires_at']}")
    for lease_id, grant in history.items():
        who = f"{grant.record['holder']}/{grant.record['session']}"
        if lease_id not in told and not any(_may_have_granted(e, grant) for e in logs):
            wrong.append(f"{who} was never told of its grant of {grant.record['resource']}")
    return wrong


def _granted(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    answer = entry["answer"]
    if answer and answer.get("ok") and entry["verb"] in _GRANTING:
        for lease in answer.get("leases", ()):
            if lease["state"] == "active" and lease["holder"] == entry["holder"]:
                yield lease


def _may_have_granted(entry: Mapping[str, Any], grant: Grant) -> bool:
    if (entry["holder"], entry["session"]) != (grant.record["holder"], grant.record["session"]):
        return False
    at = _time(grant.record["claimed_at"])
    margin = timedelta(seconds=2)  # of a wrong clock
    start, end = (datetime.fromtimestamp(entry[x], at.tzinfo) for x in ("start", "end"))
    if not start - margin <= at <= end + margin:
        return False
    answer = entry["answer"]
    if answer is None or entry["verb"] == "run":
        return True
    return not answer["ok"] and answer["error"]["code"] in _UNSETTLED


def _clashes(records: Mapping[str, Record]) -> Iterator[str]:
    """Live leases of one name and overlapping scopes, or of paths one of which covers the other."""
    by_name: dict[str, list[Record]] = {}
    for record in records.values():
        if record["state"] == "active":
            by_name.setdefault(record["resource"].casefold(), []).append(record)
    for name, same in by_name.items():
        for at, one in enumerate(same):
            for other in same[at + 1 :]:
                if "*" in (one["scope"], other["scope"]) or one["scope"] == other["scope"]:
                    yield f"{name} has two records"


def _is_kept_from(held: Record, granted: Record) -> bool:
    """Whether a lease was live as another was granted, to somebody whom it keeps out."""
    if held["state"] != "active" or _time(granted["claimed_at"]) > _time(held["expires_at"]):
        return False
    # A person's parked lease waits for any session of theirs; and a session may be granted anew
    # what it thinks has lapsed, by whichever of its clocks went faster.
    own = held["holder"] == granted["holder"]
    return not (own and (held.get("parked") == "true" or held["session"] == granted["session"]))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _seconds(text: str) -> str:
    return _time(text).strftime("%Y-%m-%dT%H:%M:%SZ")


def _steps(git_dir: Path, ref: str) -> Iterator[tuple[str, dict[str, Record], Mapping[str, Any]]]:
    """Each commit from the first on: its id, its records by file, its header."""
    listed = _git(git_dir, "rev-list", "--reverse", ref).split()
    parsed: dict[str, Any] = {}
    reader = subprocess.Popen(
        ["git", f"--git-dir={git_dir}", "cat-file", "--batch"],
        env=clean_env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def read(blob: str) -> Any:
        if blob not in parsed:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdin.write(blob.encode() + b"\n")
            reader.stdin.flush()
            size = int(reader.stdout.readline().split()[2])
            parsed[blob] = yaml.load(reader.stdout.read(size), yaml.CBaseLoader)
            reader.stdout.read(1)
        return parsed[blob]

    with reader:
        for commit in listed:
            records: dict[str, Record] = {}
            header: Mapping[str, Any] = {}
            for line in _git(git_dir, "ls-tree", "-r", commit).splitlines():
                meta, _, name = line.partition("\t")
                if name == "ledger.yaml":
                    header = _with_numbers(read(meta.split()[2]))
                elif name.startswith(("leases/", "paths/")):
                    records[name] = _with_numbers(read(meta.split()[2]))
            yield commit, records, header


def _with_numbers(found: Mapping[str, Any]) -> dict[str, Any]:
    numbers = ("revision", "epoch", "sequence", "token")
    return {k: int(v) if k in numbers else v for k, v in found.items()}


def _git(git_dir: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", f"--git-dir={git_dir}", *words],
        env=clean_env(),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout


def read_log(lines: Sequence[str]) -> list[dict[str, Any]]:
    """The calls of a journal."""
    return [entry for entry in map(json.loads, lines) if "verb" in entry]
