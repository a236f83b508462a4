"""``check``: check commits and claims, above all in continuous integration; ``verify`` a ledger."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gitlease.check import formats
from gitlease.check.formats import LIMITS, Report
from gitlease.core.errors import GitleaseError, Invalid, UsageError
from gitlease.core.frozen import replace
from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.verb import flag, option, verb
from gitlease.verbs import wire
from gitlease.verbs.table import Violations, exit_of
from gitlease.verify.replay import several

if TYPE_CHECKING:
    from gitlease.check.stale import Action
    from gitlease.faces.cli.call import Call
    from gitlease.verify.replay import Verified
    from gitlease.wiring.check import CheckContext, Chosen
    from gitlease.wiring.verify import LedgerVersion

FORMATS = ("text", "json", "github", "junit", "sarif")
EXITS = (1, 2, 4, 5, 6, 7, 128)
SHOWN = 20  # violations of a ledger, printed for people


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
            hints=(call.typed("check", stale=True, fix=True, yes=True),),
        )
    given = [*(["--stale"] if stale else []), *([words] if words else [])]
    call.cached = None if cached else partial(call.typed, "check", options=["--cached", *given])
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
            error = hint_at_contents(opened.repository, error)
        if console == "github":
            fail_github(ci.summary, error)
        raise error from None
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


class CheckOutput:
    """One report in any format.

    ``body`` has further keys of the JSON. ``undone`` lists failed fixes, which make the check fail
    at any level.
    """

    def __init__(
        self,
        call: Call,
        report: Report,
        body: dict[str, Any],
        *,
        fail_on: str,
        undone: tuple[str, ...] = (),
    ) -> None:
        self._call, self._report, self._fail_on = call, report, fail_on
        said = f"{report.checked}: {report.result}"
        self._error: GitleaseError | None = None
        if report.fails(fail_on):
            self._error = Violations(said)
        elif report.unread or undone:
            self._error = Invalid(said, hints=(*report.unread, *undone))
        self._body = {
            "violations": [wire.violation(one) for one in report.findings],
            "range": report.shown or None,
            "commits": report.commits,
            "stale": report.stale,
            "unread": list(report.unread),
        } | body

    def print(self, form: str, *, summary: str) -> int | None:
        """Print the result and return the exit status. ``summary`` is the job's summary file."""
        report = self._report
        if form == "json":
            return self._document()
        if form == "github":
            _append(summary, formats.as_summary(report))
        if form == "text":
            for one in self.rendered(form).splitlines():
                (output.whole if one.startswith("  next: ") else output.line)(one)
        else:
            sys.stdout.write(self.rendered(form))
        output.warn([formats.tame(x) if form == "github" else x for x in report.warnings])
        return None if self._error is None else exit_of(self._error.code)

    def rendered(self, form: str) -> str:
        """Return the result as the text of a file."""
        report = self._report
        if form == "json":
            return json.dumps(self._json()) + "\n"
        if form == "github":
            return formats.as_github(report)
        if form == "junit":
            return formats.as_junit(report, fail_on=self._fail_on)
        if form == "sarif":
            from gitlease import __version__

            return formats.as_sarif(report, version=__version__)
        return formats.as_text(report)

    def _json(self) -> wire.Document:
        call, warnings = self._call, list(self._report.warnings)
        if self._error is None:
            return wire.success(call.command or "", body=self._body, warnings=warnings)
        body = self._body | ({"warnings": warnings} if warnings else {})
        return wire.failure(call.command, self._error, now=call.now(), body=body)

    def _document(self) -> int | None:
        warnings = self._report.warnings
        if self._error is None:
            self._call.answer(self._body, warnings=warnings, show=lambda: None)
            return None
        error = self._error.with_(warnings=warnings)
        return refusals.tell(self._call, error, body=self._body)


def write(path: str, content: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as opened:
            opened.write(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def fail_github(place: str, error: GitleaseError) -> None:
    """Report a check that could not run in GitHub's annotations and summary."""
    sys.stdout.write(formats.github_failure(error.message, error.hints))
    _append(place, formats.summary_failure(error.message, error.hints))


def _append(path: str, content: str) -> None:
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as opened:
            opened.write(content)
    except OSError as error:
        output.warn([f"the summary could not be written: {error.strerror}"])


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
    cached=True,
)
@click.argument("ref", metavar="[REF]", required=False)
@option("--tip", "tips", metavar="COMMIT", multiple=True, help="A commit seen at the ledger's ref.")
def verify_verb(call: Call, *, ref: str | None, tips: tuple[str, ...], cached: bool) -> int | None:
    from gitlease.wiring.verify import open_version

    if ref is None and not cached:
        call.cached = partial(call.typed, "verify", options=["--cached"])
    version = open_version(
        call.directory or ".",
        ref=ref,
        layer=call.layer,
        local=call.local,
        remote=call.remote,
        cached=cached,
    )
    found = version.verify(tips)
    body = _verified_body(found)
    if not found.broken:
        call.answer(body, warnings=version.warnings, show=lambda: _show_verified(version, found))
        return None
    if call.json:
        message = f"{version.shown}: {several(len(found.broken), 'violation')}"
        error = Violations(message, warnings=version.warnings)
        return refusals.tell(call, error, body=body)
    _show_verified(version, found)
    output.warn(version.warnings)
    return exit_of(Violations.code)


def _verified_body(found: Verified) -> dict[str, Any]:
    return {
        "ledger": found.ledger_id or None,
        "commit": found.tip,
        "revision": found.revision,
        "commits": found.commits,
        "decisions": found.decisions,
        "grants": found.leases,
        "unjudged": list(found.unjudged),
        "violations": [
            {"commit": one.commit, "rule": one.rule, "message": one.message} for one in found.broken
        ],
    }


def _show_verified(version: LedgerVersion, found: Verified) -> None:
    for one in found.broken[:SHOWN]:
        output.line(f"{one.commit}: {one.rule}: {one.message}")
    if len(found.broken) > SHOWN:
        output.line(f"and {several(len(found.broken) - SHOWN, 'more violation')}: --json has them")
    for why in found.unjudged:
        output.line(f"not judged: {why}")
    checked = (
        several(found.commits, "commit"),
        several(found.decisions, "decision"),
        several(found.leases, "grant"),
    )
    came = several(len(found.broken), "violation") if found.broken else "no rule is broken"
    output.line(f"{version.shown} at revision {found.revision}: {', '.join(checked)}: {came}")
