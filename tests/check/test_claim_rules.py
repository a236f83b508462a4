"""The rules by which a commit is judged by each claim that it touches: which of them decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from kernel.rules.values import JO, KIM, at, lease

from gitlease.check import judging, rules
from gitlease.check.judging import (
    CLAIM_RULES,
    ClaimRule,
    CommitVerdict,
    Judgement,
    LedgerFacts,
)
from gitlease.guard.commits import CommitFacts
from gitlease.kernel.rules.edge import Addresses
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Moment
from gitlease.kernel.rules.viewpoint import Touched
from gitlease.kernel.rules.work import Named
from gitlease.verbs.findings import Finding

LEASE = lease(holder=KIM, paths=("src",))
TOKEN = (Named("F001", "f001", LEASE.token),)
PATH = "src/a.py"
OTHER = "lee@example.com"
# Seconds after noon: the lease is live, has run out, has lapsed.
LIVE, EXPIRED, LAPSED = 60, LEASE.ttl + 1, LEASE.ttl * 3

# Each fact of a commit and what surrounds it, with all that it can be.
CASES: dict[str, tuple[Any, ...]] = {
    "pusher": ("", KIM.holder, OTHER),
    "author": (KIM.holder, JO.holder),
    "only_tasks": (False, True),
    "now": (LIVE, EXPIRED, LAPSED),
    "named": (False, True),
    "lands": (None, frozenset(), frozenset({PATH})),
    "merge": (False, True),
    "undone": (False, True),
    "vouched": (False, True),
    "merged_by": ("", KIM.holder, OTHER),
    "helper": (False, True),
}


def commits_of(case: Mapping[str, Any]) -> list[CommitFacts]:
    """The commit in question and those about it, oldest first."""
    commit = CommitFacts(
        id="c" * 40,
        emails=(case["author"],),
        written=at(0).wall_ms,
        recorded=at(0).wall_ms,
        touched=(Touched(PATH),),
        named=TOKEN if case["named"] else (),
        only_tasks=case["only_tasks"],
        helpers=(KIM.holder,) if case["helper"] else (),
        parents=("a" * 40, "b" * 40) if case["merge"] else ("a" * 40,),
    )
    others = replace(commit, helpers=(), named=(), only_tasks=False, parents=("a" * 40,))
    every = []
    if case["undone"]:
        every.append(replace(others, id="d" * 40, emails=(KIM.holder,)))
    every.append(commit)
    tip = commit.id
    if case["vouched"]:
        tip, parents = "e" * 40, (commit.id,)
        kims = replace(others, id=tip, emails=(KIM.holder,), named=TOKEN, parents=parents)
        every.append(replace(kims, touched=()))
    if case["merged_by"]:
        merge = replace(others, id="f" * 40, emails=(case["merged_by"],), touched=())
        every.append(replace(merge, parents=("a" * 40, tip)))
    return every


def cases() -> Iterator[dict[str, Any]]:
    """All combinations of facts."""
    for values in product(*CASES.values()):
        yield dict(zip(CASES, values, strict=True))


def judged(case: Mapping[str, Any]) -> list[Finding]:
    """All findings about one commit."""
    now = Moment(now=at(case["now"]))
    ledger = LedgerFacts("global", (LEASE,), {}, 0, DEFAULT_POLICY, now)
    people = Addresses()
    judge = Judgement(
        addresses=people,
        ledgers={"global": ledger},
        pushers=people.of(case["pusher"]) if case["pusher"] else frozenset(),
        landing=lambda: case["lands"],
    )
    found = judge.find(commits_of(case))
    return [one for one in found if one.commit == "c" * 40]


def naming(rule: ClaimRule) -> ClaimRule:
    """The rule with a verdict that says its name."""
    verdict = CommitVerdict(rules.HELD_NOW, rule.name)
    return rule._replace(verdict=lambda _judge, _claim: verdict)


def test_every_rule_decides_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "CLAIM_RULES", [naming(rule) for rule in CLAIM_RULES])
    left = {rule.name for rule in CLAIM_RULES}
    for case in cases():
        messages = [one.message for one in judged(case)]
        left -= {name for name in left if any(x.endswith(f", {name}") for x in messages)}
        if not left:
            break
    assert left == set()
