"""What commits did to the claims of others: held then, held now, and the tokens that they name."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.domain.deeds import Deed, Judgement, helper_with
from gitlease.domain.finding import Finding, Level, Rule
from gitlease.domain.violation_words import Words
from gitlease.domain.violations_held import HELD_NOW, HELD_THEN, BrokenClaims
from gitlease.domain.violations_tokens import SUPERSEDED, UNKNOWN, NamedTokens

NO_TRAILER = Rule(
    "no-trailer", Level.ERROR, "a commit names no lease, and the project requires one"
)
UNREADABLE = Rule(
    "trailer-unreadable", Level.WARNING, "a trailer of a commit names no lease that can be read"
)
NO_LEDGER = Rule(
    "no-ledger", Level.WARNING, "there is no ledger: nobody has claimed yet, or it was deleted"
)
RULES = (HELD_THEN, HELD_NOW, SUPERSEDED, UNKNOWN, NO_TRAILER, UNREADABLE, NO_LEDGER)


def find(deeds: Sequence[Deed], by: Judgement) -> list[Finding]:
    """Every violation, in the order of the commits."""
    held, tokens = BrokenClaims(deeds, by), NamedTokens(by)
    found: list[Finding] = []
    for deed in deeds:
        found += held.of(deed)
        found += tokens.of(deed)
        if deed.unreadable:
            found.append(Words(deed).unreadable(UNREADABLE))
        if by.trailer and _owes_trailer(deed, by):
            owed = Words(deed).no_trailer(NO_TRAILER, deed.named)
            helper = helper_with(deed, by, _mentioned_of(deed, by))
            found.append(Words(deed).claimed(owed, helper) if helper else owed)
    return found


def no_ledger(layers: Sequence[str], place: str) -> Finding:
    """That no ledger is there: a fresh clone cannot know whether there ever was one."""
    names = " or ".join(dict.fromkeys(layers))
    return Finding(
        rule=NO_LEDGER,
        level=NO_LEDGER.level,
        message=(
            f"there is no ledger {names} on {place}, so nothing could be checked: nobody has "
            "claimed yet, or it was deleted"
        ),
    )


def _owes_trailer(deed: Deed, by: Judgement) -> bool:
    """Whether a commit changes more than task files and names no lease.

    A merge names none, and the lines of a squash count where they are true. What is named of a
    ledger that is not looked at could be anything.
    """
    named = any(x.layer in by.ledgers for x in deed.named)
    if named or deed.merge or not deed.touched or deed.only_tasks:
        return False
    return not _mentioned_of(deed, by) & by.addresses.of_all(deed.emails)


def _mentioned_of(deed: Deed, by: Judgement) -> frozenset[str]:
    """The keys of whoever was given what the lines in a commit's message name."""
    keys = frozenset[str]()
    for line in deed.mentioned:
        ledger = by.ledgers.get(line.layer)
        grant = ledger.chronicle.grants.get(line.token) if ledger is not None else None
        if grant is not None and grant.key == line.key:
            keys |= by.addresses.of(grant.holder)
    return keys
