"""``check``: check commits and claims, above all in continuous integration."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from gitlease.check.formats.report import LIMITS, Report
from gitlease.core.errors import GitleaseError, UsageError
from gitlease.core.frozen import replace
from gitlease.faces import wire
from gitlease.faces.cli import output
from gitlease.faces.cli.check.result import CheckOutput, fail_github, write
from gitlease.faces.cli.verb import flag, option, verb

if TYPE_CHECKING:
    from gitlease.check.stale import Action
    from gitlease.faces.cli.call import Call
    from gitlease.wiring.check import CheckContext, Chosen

FORMATS = ("text", "json", "github", "junit", "sarif")
EXITS = (1, 2, 4, 5, 6, 7, 128)


@verb(
    "check",
    """Check commits against the ledger, or with --stale, check the claims themselves.

The commits of RANGE (main..HEAD) must not touch anything that another person held when they were
made (held-then) or holds now (held-now). Their trailers must not name a token after someone else
got the lease (token-superseded), or one that was never granted (token-unknown). Without RANGE,
check takes the pull request or push of GitHub Actions or GitLab CI, or else the commits of HEAD
that are not on the default branch.

A commit counts as made at its author date, which rebases keep. If someone else merges older work
while a lease is held, this is an error as long as it is held, unless the files stay the same, and
a warning later. The people of a commit are its author and committer, mapped by the mailmap and by
people in .gitlease.yaml. A pusher answers for the whole push. If a co-author, or the person who
opened or updated the pull request, held the lease, the error becomes a warning. If GitHub itself
squashed or merged, the date is that of the merge, and token-superseded is a warning. So is an
unreadable trailer (trailer-unreadable).

The mailmap and all settings come from the commit before the range, so a range cannot change how it
is judged. Flags, the environment and git config take precedence.

--stale finds claims that nobody works under any more; on its own it checks no commits. --fix
releases those that the project's policy allows, one by one: on a terminal it asks about each, and
elsewhere it needs --yes.

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
    exits=EXITS,
    done="nothing found at or above --fail-on",
    no=("violations",),
    session=False,
    cached=True,
)
@click.argument("words", metavar="[RANGE]", required=False)
@flag("--stale", help="Find stale claims.")
@flag(
    "--fix",
    help="With --stale: release claims as the project's policy allows, each after a question.",
)
@flag("--yes", help="With --fix: release them all without a question.")
@option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="The output format (default: text; in GitHub Actions, github).",
)
@option(
    "--fail-on",
    type=click.Choice(tuple(LIMITS)),
    default="error",
    help="The lowest level that exits with 1 (default: error).",
)
@option("--output", "target", metavar="FILE", help="Write the format to FILE.")
def check_verb(
    call: Call,
    *,
    words: str | None,
    stale: bool,
    fix: bool,
    yes: bool,
    form: str | None,
    fail_on: str,
    target: str | None,
    cached: bool,
) -> int | None:
    if fix and not stale:
        raise UsageError("--fix needs --stale")
    if fix and cached:
        raise UsageError("--fix asks the remote: it cannot be combined with --cached")
    if yes and not fix:
        raise UsageError("--yes needs --fix")
    if call.json and form not in (None, "json") and target is None:
        raise UsageError(f"--json cannot be combined with --format {form} without --output")
    call.json = call.json or (form == "json" and target is None)
    if fix and not yes and (call.json or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise UsageError(
            "--fix asks before each release: without a terminal it needs --yes",
            hints=(call.typed("check", options=["--stale", "--fix", "--yes"]),),
        )
    given = [*(["--stale"] if stale else []), *([words] if words else [])]
    call.cached = None if cached else call.typed("check", options=["--cached", *given])
    from gitlease.wiring.check import hint_at_contents, open_check, read_context

    ci = read_context()
    usual = "json" if call.json else "github" if ci.in_github else "text"
    console = usual if target is not None else form or usual
    opened = None
    try:
        where = call.directory or "."
        opened = open_check(where, layer=call.layer, local=call.local, remote=call.remote)
        check = _Check(call, opened)
        check.run(words, stale=stale, fix=fix, yes=yes, cached=cached)
    except GitleaseError as error:
        if opened is not None:
            hint_at_contents(opened.repository, error)
        if console == "github":
            fail_github(ci.summary, error)
        raise
    result = CheckOutput(call, check.report, check.body, fail_on=fail_on, undone=check.undone)
    if target is not None:
        write(os.path.join(call.directory, target), result.rendered(form or usual))
    return result.print(console, summary=ci.summary)


class _Check:
    """Collects the report of a check, and the further keys of its JSON."""

    def __init__(self, call: Call, opened: CheckContext) -> None:
        self._call, self._opened = call, opened
        self.report = Report(prefix=_prefix(opened))
        self.body: dict[str, Any] = {}
        self.undone: tuple[str, ...] = ()

    def run(self, words: str | None, *, stale: bool, fix: bool, yes: bool, cached: bool) -> None:
        """Check commits, claims or both. A bad range is refused before any network call."""
        opened = self._opened
        alone = stale and words is None
        # The policy for releasing claims must not come from the pull request itself.
        chosen = opened.choose(words) if not alone or opened.ci.base_branch else None
        if stale:
            self._stale(chosen, fix=fix, yes=yes, cached=cached)
        if chosen is not None and not alone:
            service = opened.service(chosen)
            checked = service.check(cached=cached, fetched=stale and not cached)
            self._add(checked.findings, checked.warnings, checked.unread)
            self.report = replace(self.report, shown=checked.shown, commits=checked.commits)

    def _stale(self, chosen: Chosen | None, *, fix: bool, yes: bool, cached: bool) -> None:
        from gitlease.wiring.check import open_staleness

        committed = None if chosen is None else self._opened.committed(chosen)
        workspace = self._call.opened(
            repository=self._opened.repository, committed=committed, anonymous=not fix
        )
        service = open_staleness(workspace)
        found = service.find(cached=cached)
        self.report = replace(self.report, stale=True)
        if not fix:
            self._add(found.findings, found.warnings, found.unread)
            return
        done = service.fix(found, choose=_yes if yes else _ask)
        warnings = dict.fromkeys((*found.warnings, *done.warnings))
        if done.commit is not None:
            warnings[f"{done.commit[:10]} is only in this clone: push it"] = None
        self._add(done.findings, tuple(warnings), found.unread)
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


def _ask(action: Action) -> bool:
    for finding in action.findings:
        output.line(finding.message)
    return click.confirm("release it?")


def _yes(_action: Action) -> bool:
    return True


def _prefix(opened: CheckContext) -> str:
    """Return the repository's path below the folder to which the CI host's paths are relative."""
    root, workspace = opened.repository.toplevel, opened.ci.workspace
    if not workspace or root is None:
        return ""
    place = os.path.relpath(os.path.realpath(root), os.path.realpath(workspace))
    return "" if place == "." or place.startswith("..") else place
