"""The findings about commits: one line of fact, the evidence, and what to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from gitlease.check.commits.timeline import Granted, Tenure
from gitlease.check.rules import (
    HELD_NOW,
    HELD_THEN,
    NO_TRAILER,
    SUPERSEDED,
    UNKNOWN,
    UNPROVEN,
    UNREADABLE,
)
from gitlease.core.edge import printable
from gitlease.core.finding import CheckRule, Finding, Level
from gitlease.core.frozen import replace
from gitlease.core.instant import moment_of, rfc3339
from gitlease.core.resources.resource import WHOLE, layer_words
from gitlease.core.trailers import Named
from gitlease.guard.commit_facts import CommitFacts

PATHS_SHOWN = 5
SHORT_ID = 10
INSTALL = "gitlease hooks install"


class CommitFindings:
    """Makes the findings about one commit."""

    def __init__(self, commit: CommitFacts) -> None:
        self._commit = commit
        author = commit.emails[0] if commit.emails else ""
        self.who = f"{commit.id[:SHORT_ID]} by "
        self.who += printable(author) if author else "somebody without an address"
        self._paths = [one.path for one in commit.touched]

    def held_then(
        self,
        tenure: Tenure,
        paths: Sequence[str],
        *,
        level: Level = Level.ERROR,
        still: bool = False,
        doubt: str = "",
        merge: CommitFacts | None = None,
    ) -> Finding:
        """It touches what another held when it was made; ``doubt`` says why that may not be so.

        With ``merge``: what another held when that merged it.
        """
        when = "made"
        more: tuple[str, ...] = (doubt,) if doubt else ()
        if merge is not None:
            when, by = "merged", CommitFindings(merge)
            more = (f"merged in {by.who}, {'; '.join(by.dates())}",)
            more += ("it may have landed elsewhere before",)
        elif level is Level.WARNING and not doubt:
            when = "recorded"
            more = ("its dates do not tell whether it was made then or only moved",)
        now = ", and holds now" if still else ""
        said = f"which {_who_for(tenure, 'held')} when it was {when}{now}"
        return self._broken(HELD_THEN, tenure, paths, f", {said}", "log", level, more)

    def held_now(
        self, tenure: Tenure, paths: Sequence[str], *, level: Level, honest: bool, now: int
    ) -> Finding:
        """It touches what another holds now, or held until just now."""
        more = ("its own authors held it when it was made",) if honest else ()
        until = rfc3339(tenure.lease.expires_at)
        said = f", which {_who_for(tenure, 'holds')} now, until {until}"
        if tenure.lease.expires_at <= now:
            said = (
                f", which {_who_for(tenure, 'held')} until {until}, and nobody else may take it yet"
            )
        return self._broken(HELD_NOW, tenure, paths, said, "show", level, more)

    def unproven(self, tenure: Tenure, paths: Sequence[str], *, pushed: bool) -> Finding:
        """It touches what the holder that it names holds now; ``pushed``: by somebody else."""
        level = Level.ERROR if pushed else UNPROVEN.level
        why = "it was pushed by somebody else and" if pushed else "it"
        said = f", which {_who_for(tenure, 'holds')} now: {why} does not name token "
        more = (
            "a commit is the holder's if the holder pushed it, or by the present token in its"
            " trailer; anybody may write an address",
        )
        said += str(tenure.lease.token)
        return self._broken(UNPROVEN, tenure, paths, said, "show", level, more)

    def unknown(
        self, named: Named, grant: Granted | None, *, holder: bool = False, certain: bool = True
    ) -> Finding:
        """A token that was never issued so; ``certain``: the history reaches back far enough."""
        if grant is None:
            message = ", which was never issued"
            if not certain:
                message = ", which the ledger's history does not reach back to"
            level = UNKNOWN.level if certain else Level.WARNING
            return self._token(UNKNOWN, level, message, named)
        what = _of(grant.resource, grant.scope)
        message = f", which was issued for {what}"
        if holder:
            message = f", which was issued to {printable(grant.holder)}"
        given = f"token {grant.token}: {what}, granted to {printable(grant.holder)}"
        evidence = (f"{given} at {rfc3339(grant.at)}",)
        return self._token(UNKNOWN, UNKNOWN.level, message, named, evidence, grant.at)

    def superseded(
        self, named: Named, by: Granted, *, at: int, level: Level, doubt: str = ""
    ) -> Finding:
        """A token after another's grant of the same; ``doubt`` says why it may be fine.

        A warning without one means that both happened within one second.
        """
        message = f", after {printable(by.holder)} had been granted it"
        if level is Level.WARNING and not doubt:
            message = f", in the same second as {printable(by.holder)} was granted it"
        given = f"token {by.token}: granted to {printable(by.holder)} at {rfc3339(at)}"
        evidence = (doubt, given) if doubt else (given,)
        return self._token(SUPERSEDED, level, message, named, evidence, at)

    def no_trailer(self, others: Sequence[Named] = ()) -> Finding:
        """A commit that names no lease, or only ``others``, of ledgers that are not checked."""
        layers = ", ".join(printable(name) for name in dict.fromkeys(x.layer for x in others))
        more = (f"it names only a ledger that is not checked: {layers}",) if layers else ()
        message = " names no lease, and this project requires one"
        evidence = (*more, *self.dates(), *_listed(self._paths))
        since = self._commit.recorded
        return self._finding(NO_TRAILER, message, evidence, INSTALL, since=since)

    def unreadable(self) -> Finding:
        """Trailers that name no lease."""
        first, *others = self._commit.unreadable
        more = f" and {len(others)} more" if others else ""
        message = f" has a trailer that names no lease: {printable(first)}{more}"
        evidence = ("expected Gitlease: RESOURCE token=NUMBER", *self.dates())
        since = self._commit.recorded
        return self._finding(UNREADABLE, message, evidence, INSTALL, since=since)

    def dates(self) -> tuple[str, ...]:
        """When it was made, and when it was recorded if that differs."""
        written, recorded = self._commit.written, self._commit.recorded
        if written is None or recorded is None:
            return ("one of its dates cannot be read",)
        if written == recorded:
            return (f"made at {rfc3339(written)}",)
        return (f"made at {rfc3339(written)}, recorded at {rfc3339(recorded)}",)

    def _broken(
        self,
        rule: CheckRule,
        tenure: Tenure,
        paths: Sequence[str],
        said: str,
        verb: str,
        level: Level,
        more: Sequence[str] = (),
    ) -> Finding:
        lease, found = tenure.lease, sorted(paths)
        others = f" and {len(found) - 1} more" if len(found) > 1 else ""
        end = f"until {rfc3339(tenure.until)}" + (f" ({tenure.ended})" if tenure.ended else "")
        session = f", session {printable(lease.session)}" if lease.session else ""
        held = (
            f"token {lease.token}: {_of(lease.resource.text, lease.scope)} was "
            f"{printable(lease.holder)}'s{session} from {rfc3339(lease.claimed_at)} {end}"
        )
        return self._finding(
            rule,
            f" touches {printable(found[0])}{others}{said}",
            (*more, held, *self.dates(), *_listed(found)),
            _command(verb, lease.resource.text, tenure.layer),
            level=level,
            resource=lease.resource.text,
            scope=lease.scope,
            layer=tenure.layer,
            holder=lease.holder,
            since=lease.claimed_at,
            file=found[0],
        )

    def _token(
        self,
        rule: CheckRule,
        level: Level,
        said: str,
        named: Named,
        evidence: Sequence[str] = (),
        since: int | None = None,
    ) -> Finding:
        return self._finding(
            rule,
            f" names token {named.token} of {_of(named.resource, named.scope)}{said}",
            (*evidence, *self.dates()),
            _command("log", named.resource, named.layer),
            level=level,
            resource=named.resource,
            scope=named.scope,
            layer=named.layer,
            holder=self._commit.emails[0] if self._commit.emails else None,
            since=since,
            file=min(self._paths, default=None),
        )

    def _finding(
        self,
        rule: CheckRule,
        said: str,
        evidence: tuple[str, ...],
        step: str,
        *,
        since: int | None = None,
        **about: Any,
    ) -> Finding:
        about = {"level": rule.level, "file": self._paths[0] if self._paths else None} | about
        return Finding(
            rule=rule,
            message=self.who + said,
            since=None if since is None else moment_of(since),
            commit=self._commit.id,
            evidence=evidence,
            next_steps=(step,),
            **about,
        )


def doubted(found: Finding, said: str) -> Finding:
    """The same as a warning: somebody who may have taken part had the right to it."""
    return replace(found, level=Level.WARNING, message=f"{found.message}; {said}")


def _who_for(tenure: Tenure, held: str) -> str:
    lease = tenure.lease
    return f"{printable(lease.holder)} {held} for {_of(lease.resource.text, lease.scope)}"


def _of(resource: str, scope: str) -> str:
    part = "" if scope == WHOLE else f" (scope {printable(scope)})"
    return printable(resource) + part


def _listed(paths: Sequence[str]) -> tuple[str, ...]:
    if len(paths) < 2:
        return ()
    listed = ", ".join(printable(path) for path in paths[:PATHS_SHOWN])
    more = len(paths) - PATHS_SHOWN
    return (f"it touches {listed}" + (f" and {more} more" if more > 0 else ""),)


def _command(verb: str, resource: str, layer: str) -> str:
    words = ["gitlease", verb, *layer_words(layer)]
    return shlex.join([*words, *(["--"] if resource.startswith("-") else []), resource])
