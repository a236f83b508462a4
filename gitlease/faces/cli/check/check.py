"""``check``: for continuous integration, where no hook can be skipped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from gitlease.check.formats.report import LIMITS, Report
from gitlease.core.errors import GitleaseError, UsageError
from gitlease.core.frozen import replace
from gitlease.faces import wire
from gitlease.faces.cli.check.telling import Telling, fail_github, write
from gitlease.faces.cli.verb import Verb, flag, option

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.guard.commit_facts import Changes
    from gitlease.wiring.check import CheckContext, Chosen

FORMATS = ("text", "json", "github", "junit", "sarif")
EXITS = (1, 2, 4, 5, 6, 7, 128)


@click.command(
    "check",
    cls=Verb,
    help="""Check commits against the ledger, and with --stale the claims themselves.

RANGE (main..HEAD) is checked for commits that touch what another person held when they were made
(held-then) or holds now (held-now), and for trailers that name a token when somebody else had been
granted the same (token-superseded) or one that was never given so (token-unknown). Without RANGE:
the pull request or push that GitHub Actions or GitLab CI runs for; else what HEAD has and the
default branch has not. A commit counts as made at its author date, which rebases keep; work from
before a lease that somebody else merges during it is an error while that is held, unless the files
stay as they were, and a warning afterwards. Authors and committers count as its people, by the
mailmap and people in .gitlease.yaml. Both, and all other settings, are those of the commit before
the range: what the range changes in them does not judge it. Flags, the environment and git config
stand above them. Of co-authors only the message tells: what one of them held makes a warning of an
error, and so it is with whoever opened or updated a pull request; who pushes stands for what the
push brings. Where GitHub itself squashed or merged, the date is the merge's: token-superseded is a
warning then. A trailer that cannot be read is one as well (trailer-unreadable).

--stale looks for claims that nobody works under any more; alone it checks no commits. --fix retires
what the project allows.

It needs to read only, and no user.email. What a shallow clone lacks is fetched beside it. In GitHub
Actions it writes annotations and the job's summary.""",
    examples=(
        "gitlease check",
        "gitlease check main..HEAD",
        "gitlease check --stale",
        "gitlease check --stale --fix",
        "gitlease check --format sarif --output gitlease.sarif --fail-on never",
    ),
    exits=EXITS,
    done="nothing found at or above --fail-on",
    no=("violations",),
    session=False,
    cached=True,
)
@click.argument("words", metavar="[RANGE]", required=False)
@flag("--stale", help="Check for stale claims.")
@flag("--fix", help="With --stale: retire what the project's policy allows.")
@option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="How to tell it (default: text; in GitHub Actions github).",
)
@option(
    "--fail-on",
    type=click.Choice(tuple(LIMITS)),
    default="error",
    help="The level from which on it ends with 1 (default: error).",
)
@option("--output", "target", metavar="FILE", help="Write the format to FILE.")
@click.pass_obj
def check_verb(
    call: Call,
    *,
    words: str | None,
    stale: bool,
    fix: bool,
    form: str | None,
    fail_on: str,
    target: str | None,
    cached: bool,
) -> int | None:
    if fix and not stale:
        raise UsageError("--fix goes with --stale")
    if fix and cached:
        raise UsageError("--fix asks the remote: it does not go with --cached")
    if call.json and form not in (None, "json") and target is None:
        raise UsageError(f"--json and --format {form} exclude each other without --output")
    call.json = call.json or (form == "json" and target is None)
    given = [*(["--stale"] if stale else []), *([words] if words else [])]
    call.cached = None if cached else call.typed("check", options=["--cached", *given])
    from gitlease.wiring.check import open_check, read_context
    from gitlease.wiring.workspace import own_process

    own_process()
    ci = read_context()
    usual = "json" if call.json else "github" if ci.in_github else "text"
    console = usual if target is not None else form or usual
    opened = None
    try:
        where = call.directory or "."
        opened = open_check(where, layer=call.layer, local=call.local, remote=call.remote)
        found = _Found(call, opened)
        found.run(words, stale=stale, fix=fix, cached=cached)
    except GitleaseError as error:
        if opened is not None:
            from gitlease.wiring.stale import hint_at_contents

            hint_at_contents(opened.repository, error)
        if console == "github":
            fail_github(ci.summary, error)
        raise
    told = Telling(call, found.report, found.body, fail_on=fail_on, undone=found.undone)
    if target is not None:
        write(os.path.join(call.directory, target), told.rendered(form or usual))
    return told.tell(console, summary=ci.summary)


class _Found:
    """What was found: the report, and what else the JSON has."""

    def __init__(self, call: Call, opened: CheckContext) -> None:
        self._call, self._opened = call, opened
        self.report = Report(prefix=_prefix(opened))
        self.body: dict[str, Any] = {}
        self.undone: tuple[str, ...] = ()
        self._changes: Changes = {}

    def run(self, words: str | None, *, stale: bool, fix: bool, cached: bool) -> None:
        """Check what was asked for. A bad range is told before anything is asked."""
        opened = self._opened
        alone = stale and words is None
        # A pull request must not bring the policy along by which the claims of others are retired.
        chosen = opened.choose(words) if not alone or opened.ci.base_branch else None
        if stale:
            self._stale(chosen, fix=fix, cached=cached)
        if chosen is not None and not alone:
            service = opened.service(chosen, self._changes)
            checked = service.check(cached=cached, fetched=stale and not cached)
            self._add(checked.findings, checked.warnings, checked.unread)
            self.report = replace(self.report, shown=checked.shown, commits=checked.commits)

    def _stale(self, chosen: Chosen | None, *, fix: bool, cached: bool) -> None:
        from gitlease.wiring.stale import open_staleness

        committed = None if chosen is None else self._opened.committed(chosen)
        workspace = self._call.opened(
            repository=self._opened.repository, committed=committed, anonymous=not fix
        )
        service = open_staleness(workspace)
        found = service.find(cached=cached, sure=fix)
        self._changes = service.changes
        self.report = replace(self.report, stale=True)
        if not fix:
            self._add(found.findings, found.warnings, found.unread)
            return
        done = service.fix(found)
        said = dict.fromkeys((*found.warnings, *done.warnings, *(x.message for x in done.refused)))
        if done.commit is not None:
            said[f"{done.commit[:10]} is only in this clone: push it, for others to see it"] = None
        self._add(done.findings, tuple(said), found.unread)
        self.report = replace(self.report, fixed=done.fixed)
        self.undone = done.undone
        self.body = {
            "fixed": [wire.violation(one) for one in done.fixed],
            "commit": done.commit,
            "leases": [wire.lease(view) for view in done.leases],
        }

    def _add(self, findings: Any, warnings: tuple[str, ...], unread: tuple[str, ...]) -> None:
        self.report = replace(
            self.report,
            findings=(*self.report.findings, *findings),
            warnings=tuple(dict.fromkeys((*self.report.warnings, *warnings))),
            unread=tuple(dict.fromkeys((*self.report.unread, *unread))),
        )


def _prefix(opened: CheckContext) -> str:
    """Where the repository lies below the folder that the host shows files relative to."""
    root, workspace = opened.repository.toplevel, opened.ci.workspace
    if not workspace or root is None:
        return ""
    place = os.path.relpath(os.path.realpath(root), os.path.realpath(workspace))
    return "" if place == "." or place.startswith("..") else place
