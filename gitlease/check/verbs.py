"""The verbs that check: ``check`` commits and claims, and ``verify`` a ledger's history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gitlease.check.commits import read_context
from gitlease.check.opening import (
    CheckContext,
    hint_at_contents,
    open_staleness,
    prefix_in,
    verify_ledger,
)
from gitlease.check.rules import CheckResult
from gitlease.kernel.rules.errors import GitleaseError, UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.verbs import parameters as takes
from gitlease.verbs import wire
from gitlease.verbs.table import AT_A_CLONE, DoorOfClone, Result, Violations, verb

if TYPE_CHECKING:
    from gitlease.check.replay import Verified


SHOWN = 20  # violations of a ledger, printed for people


@verb(
    "check",
    """Check commits against the ledger, or with --stale, check the claims themselves.

The commits of RANGE (main..HEAD) must not touch anything that another person holds now (held-now).
Their trailers must not name a token that a later lease of
the same superseded (token-superseded), or one that was never granted (token-unknown). Without
RANGE, check takes the pull request or push of GitHub Actions or GitLab CI, or else the commits of
HEAD that are not on the default branch.

No date of a commit decides anything. Work of others on what is held is an error as long as it is
held, unless all commits together leave the files as they are, or a later commit of the holder that
names the present token builds on it. The people of a commit are its author and committer, mapped
by the mailmap and by people in .gitlease.yaml. A pusher answers for the whole push. If a
co-author, or the person who opened or updated the pull request, holds the lease, the error becomes
a warning. An unreadable trailer (trailer-unreadable) is one, too. Addresses that bots in
.gitlease.yaml lists count as the holder whose token they name.

The latest holder vouches for superseded commits by pushing, or by
the newest token on the commit or on one that follows it.

The mailmap and all settings come from the commit before the range, so a range cannot change how it
is judged. Flags, the environment and git config take precedence.

--stale finds claims that nobody works under any more; on its own it checks no commits. --fix
releases those that the project's policy allows, one by one: on a terminal it asks about each, and
elsewhere it needs --yes.

Tasks that wait for a person are listed, as those that `work --pr` handed on.

Without --fix, check only reads, and needs no user.email. Commits missing from a shallow clone are
fetched separately. In GitHub Actions it writes annotations and a job summary.""",
    examples=(
        "gitlease check",
        "gitlease check main..HEAD",
        "gitlease check --stale",
        "gitlease check --stale --fix",
        "gitlease check --stale --fix --yes",
        "gitlease check --format sarif --output gitlease.sarif --fail-on never",
    ),
    exits=(1, 2, 4, 5, 6, 7, 128),
    done="nothing found at or above --fail-on",
    no=("violations",),
    session=False,
    reads=True,
    doors=AT_A_CLONE,
)
def check_verb(
    door: DoorOfClone,
    range: takes.CommitRange = None,
    *,
    stale: takes.StaleToo = False,
    fix: takes.FixStale = False,
    cached: takes.Cached = False,
) -> Result:
    if fix and not stale:
        raise UsageError(f"{door.option('fix')} needs {door.option('stale')}")
    if fix and cached:
        cannot = f"cannot be combined with {door.option('cached')}"
        raise UsageError(f"{door.option('fix')} asks the remote: it {cannot}")
    ci, alone = read_context(), stale and range is None
    # Stale claims alone need no commits, so the ledger of tests has them, too.
    opened = None if alone and door.in_memory else CheckContext(**door.place())
    repository = opened.repository if opened else door.workspace.repository
    found = CheckResult(prefix=prefix_in(ci.workspace, repository))
    more = wire.Document()
    try:
        # A bad range is refused before any network call. The policy for releasing claims must not
        # come from the pull request itself.
        needed = opened is not None and (not alone or ci.base_branch)
        chosen = opened.choose(range) if opened and needed else None
        if stale:
            committed = opened.committed(chosen) if opened and chosen else None
            # Without releases it only reads, for which nobody needs a user.email.
            service = open_staleness(door.workspace_by(committed, repository, anonymous=not fix))
            claims = service.find(cached=cached)
            if fix:
                claims = service.fix(
                    claims,
                    choose=lambda x: door.agrees(
                        [one.message for one in x.findings], "release it?"
                    ),
                )
                more = _fixed(claims)
            local = [f"{x[:10]} is only in this clone: push it" for x in [claims.commit] if x]
            warnings = _once(claims.warnings, local)
            prefix = found.prefix
            found = replace(claims, prefix=prefix, _cases=(), warnings=warnings)
        if opened and chosen and not alone:
            # The search for stale claims has just fetched the ledger.
            commits = opened.service(chosen).check(cached=cached, fetched=stale and not cached)
            found = _joined(found, commits)
    except GitleaseError as error:
        raise hint_at_contents(repository, error) from None
    return Result(
        body={
            "violations": [wire.violation(one) for one in found.findings],
            "range": found.shown or None,
            "commits": found.commits if found.of_commits else None,
            "stale": stale,
            "unread": list(found.unread),
            "waiting": list(found.waiting),
        }
        | more,
        value=found,
        warnings=found.warnings,
    )


def _fixed(claims: CheckResult) -> wire.Document:
    """What the answer has beside the rest where stale claims were released."""
    return {
        "fixed": [wire.violation(one) for one in claims.fixed],
        "commit": claims.commit,
        "leases": [wire.lease(view) for view in claims.leases],
    }


def _joined(claims: CheckResult, commits: CheckResult) -> CheckResult:
    """What was found about commits, after what was found about stale claims."""
    return replace(
        claims,
        findings=(*claims.findings, *commits.findings),
        # Both read the same ledger and task files, and warn of the same.
        warnings=_once(claims.warnings, commits.warnings),
        unread=_once(claims.unread, commits.unread),
        waiting=commits.waiting,
        shown=commits.shown,
        commits=commits.commits,
    )


def _once(*texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for some in texts for text in some))


@verb(
    "verify",
    """Replay a ledger's whole history, and compare each commit with what its operations come to.

The configured ledger is fetched and read from its first commit. Every commit names its operations:
they are carried out once more on the state before it, by the rules that decide claims and that the
server's hook uses, and must come to the same bytes. So one who writes to the ref without gitlease
is found: a grant over somebody's lease, a token used twice, a record or a policy that changed
without an operation, a past that was rewritten. A mistake in those rules is not found.

Where later renewals replaced earlier ones, the decisions are replayed, and the final renewal must
be one of the leases that were there. Anything that cannot be judged is listed: under the policy's
rule `observed`, only the new holder knows how long it had waited. Who pushed a commit is not known.
Times are those of the writers' clocks.

REF is a branch, ref or commit of this repository that holds a ledger, or a commit of the ledger
known to this clone; nothing is fetched then. --tip names a commit that someone saw at the ledger's
ref: it must still be in its history, or be a renewal that was replaced.

verify only reads, and needs no user.email.""",
    examples=(
        "gitlease verify",
        "gitlease verify --remote backup",
        "gitlease verify refs/copies/ledger",
        "gitlease verify --tip 4f2a9c1 --json",
    ),
    exits=(1, 2, 4, 5, 7, 128),
    done="no rule is broken",
    no=("violations",),
    session=False,
    reads=True,
    doors=AT_A_CLONE,
)
def verify_verb(
    door: DoorOfClone,
    ref: takes.LedgerCommit = None,
    *,
    tips: takes.SeenTips = (),
    cached: takes.Cached = False,
) -> Result:
    if ref is not None and (cached or door.chose_ledger):
        raise UsageError("REF excludes the options that choose a ledger: it is of this repository")
    place = door.workspace.place
    shown, found, warnings = verify_ledger(place, ref=ref, cached=cached, tips=tips)
    return Result(
        body={
            "ledger": found.ledger_id or None,
            "commit": found.tip,
            "revision": found.revision,
            "commits": found.commits,
            "decisions": found.decisions,
            "grants": found.leases,
            "unjudged": list(found.unjudged),
            "violations": [
                {"commit": one.commit, "rule": one.rule, "message": one.message}
                for one in found.broken
            ],
        },
        lines=lambda: _verified_lines(shown, found),
        value=found,
        warnings=warnings,
        failure=Violations(f"{shown}: {_outcome(found)}") if found.broken else None,
        summed_up=True,
    )


def _verified_lines(shown: str, found: Verified) -> Iterable[str]:
    from gitlease.check.replay import several

    for one in found.broken[:SHOWN]:
        yield f"{one.commit}: {one.rule}: {one.message}"
    if len(found.broken) > SHOWN:
        yield f"and {several(len(found.broken) - SHOWN, 'more violation')}: --json has them"
    for why in found.unjudged:
        yield f"not judged: {why}"
    counts = (found.commits, "commit"), (found.decisions, "decision"), (found.leases, "grant")
    checked = ", ".join(several(number, what) for number, what in counts)
    yield f"{shown} at revision {found.revision}: {checked}: {_outcome(found)}"


def _outcome(found: Verified) -> str:
    from gitlease.check.replay import several

    return several(len(found.broken), "violation") if found.broken else "no rule is broken"
