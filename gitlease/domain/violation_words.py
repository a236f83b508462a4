"""How violations are told: one line of fact, its evidence, and what to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gitlease.domain.chronicle import Granted, Span
from gitlease.domain.deeds import Deed, Helper
from gitlease.domain.finding import Finding, Level, Rule
from gitlease.domain.frozen import replace
from gitlease.domain.instant import rfc3339
from gitlease.domain.resource import GLOBAL_LAYER, LOCAL_LAYER, WHOLE
from gitlease.domain.trailers import Named

LONGEST = 200
PATHS_SHOWN = 5
SHORT_ID = 10


class Words:
    """The findings about one commit, put into words."""

    def __init__(self, deed: Deed) -> None:
        self._deed = deed
        author = deed.emails[0] if deed.emails else ""
        self._author = shown(author) if author else "somebody without an address"
        self._who = f"{deed.id[:SHORT_ID]} by {self._author}"

    def held_then(
        self,
        rule: Rule,
        span: Span,
        paths: Sequence[str],
        *,
        level: Level = Level.ERROR,
        still: bool = False,
        doubt: str = "",
    ) -> Finding:
        """What another held when the commit was made; ``doubt`` says why that may not be so."""
        when = "made"
        more: tuple[str, ...] = (doubt,) if doubt else ()
        if level is Level.WARNING and not doubt:
            when = "recorded"
            more = ("whether it was made then, or only moved, cannot be known from its dates",)
        now = ", and holds now" if still else ""
        message = f"{self._touches(paths)}, which {_who_for(span, 'held')} when it was {when}{now}"
        return self._about(span, rule, level, message, paths, "log", more)

    def held_now(
        self,
        rule: Rule,
        span: Span,
        paths: Sequence[str],
        *,
        level: Level,
        honest: bool,
        now: int,
    ) -> Finding:
        """What another holds now, or held until just now."""
        more = ("its own people held it when it was made",) if honest else ()
        until = rfc3339(span.lease.expires_at)
        if span.lease.expires_at > now:
            message = f"{self._touches(paths)}, which {_who_for(span, 'holds')} now, until {until}"
        else:
            held = f"{_who_for(span, 'held')} until {until}"
            message = f"{self._touches(paths)}, which {held}: nobody else may have it yet"
        return self._about(span, rule, level, message, paths, "show", more)

    def still_assigned(self, rule: Rule, span: Span, paths: Sequence[str]) -> Finding:
        """What nobody holds, of a task that is somebody's."""
        task = _of(span.lease.resource.text, span.lease.scope)
        message = (
            f"{self._touches(paths)} of {task}, which is still assigned to "
            f"{shown(span.lease.holder)}, whose lease ran out"
        )
        return self._about(span, rule, Level.WARNING, message, paths, "show", ())

    def unknown(
        self,
        rule: Rule,
        named: Named,
        grant: Granted | None,
        *,
        holder: bool = False,
        certain: bool = True,
    ) -> Finding:
        """A token that was never given so."""
        what = self._names(named)
        evidence: list[str] = []
        level = rule.level
        if grant is None and certain:
            message = f"{what}, which was never given"
        elif grant is None:
            level = Level.WARNING
            message = f"{what}, which the ledger's history does not reach back to"
        elif holder:
            message = f"{what}, which was given to {shown(grant.holder)}"
        else:
            message = f"{what}, which was given for {_of(grant.resource, grant.scope)}"
        if grant is not None:
            evidence.append(
                f"token {grant.token}: {_of(grant.resource, grant.scope)}, "
                f"granted to {shown(grant.holder)} at {rfc3339(grant.at)}"
            )
        return self._token(rule, level, message, named, evidence, grant.at if grant else None)

    def superseded(
        self, rule: Rule, named: Named, by: Granted, *, at: int, level: Level, doubt: str = ""
    ) -> Finding:
        """A token that was somebody else's turn by then; ``doubt`` says why it may not have been.

        A warning without one is for what happened within one second.
        """
        message = f"{self._names(named)}, after {shown(by.holder)} had been granted it"
        evidence = [f"token {by.token}: granted to {shown(by.holder)} at {rfc3339(at)}"]
        if doubt:
            evidence.insert(0, doubt)
        elif level is Level.WARNING:
            message = message.replace("after", "in the very second in which", 1)
            message = message.replace(" had been", " was", 1)
        return self._token(rule, level, message, named, evidence, at)

    def no_trailer(self, rule: Rule, others: Sequence[Named] = ()) -> Finding:
        """A commit that names no lease, or only ``others``, of ledgers that are not looked at."""
        paths = [one.path for one in self._deed.touched]
        layers = ", ".join(shown(name) for name in dict.fromkeys(x.layer for x in others))
        more = (f"what it names is of a ledger that is not looked at: {layers}",) if layers else ()
        return Finding(
            rule=rule,
            level=rule.level,
            message=f"{self._who} names no lease, and this project requires one",
            since=self._deed.recorded,
            commit=self._deed.id,
            file=paths[0] if paths else None,
            evidence=(*more, *self._dates(), *_listed(paths)),
            next_steps=("gitlease hooks install",),
        )

    def unreadable(self, rule: Rule) -> Finding:
        """Trailers that name no lease."""
        first, *others = self._deed.unreadable
        paths = [one.path for one in self._deed.touched]
        more = f" and {len(others)} more" if others else ""
        return Finding(
            rule=rule,
            level=rule.level,
            message=f"{self._who} has a trailer that names no lease: {shown(first)}{more}",
            since=self._deed.recorded,
            commit=self._deed.id,
            file=paths[0] if paths else None,
            evidence=("it is read as Gitlease: RESOURCE token=NUMBER", *self._dates()),
            next_steps=("gitlease hooks install",),
        )

    def claimed(self, found: Finding, helper: Helper) -> Finding:
        """The same as a warning, since one who may have taken part had the right to it."""
        name = shown(helper.name)
        said = f"nobody but its message says that {name} took part"
        if helper.requested:
            said = f"nothing but that {name} opened or acted on its request speaks for it"
        return replace(found, level=Level.WARNING, message=f"{found.message}; {said}")

    # --- parts ------------------------------------------------------------------------------------

    def _touches(self, paths: Sequence[str]) -> str:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        return f"{self._who} touches {shown(sorted(paths)[0])}{more}"

    def _names(self, named: Named) -> str:
        return f"{self._who} names token {named.token} of {_of(named.resource, named.scope)}"

    def _about(
        self,
        span: Span,
        rule: Rule,
        level: Level,
        message: str,
        paths: Sequence[str],
        verb: str,
        more: Sequence[str],
    ) -> Finding:
        lease, found = span.lease, sorted(paths)
        end = f"until {rfc3339(span.until)}" + (f" ({span.ended})" if span.ended else "")
        session = f", session {shown(lease.session)}" if lease.session else ""
        held = (
            f"token {lease.token}: {_of(lease.resource.text, lease.scope)} was "
            f"{shown(lease.holder)}'s{session} from {rfc3339(lease.claimed_at)} {end}"
        )
        return Finding(
            rule=rule,
            level=level,
            message=message,
            resource=lease.resource.text,
            scope=lease.scope,
            layer=span.layer,
            holder=lease.holder,
            since=lease.claimed_at,
            commit=self._deed.id,
            file=found[0],
            evidence=(*more, held, *self._dates(), *_listed(found)),
            next_steps=(_command(verb, lease.resource.text, span.layer),),
        )

    def _token(
        self,
        rule: Rule,
        level: Level,
        message: str,
        named: Named,
        evidence: Sequence[str],
        since: int | None,
    ) -> Finding:
        paths = sorted(one.path for one in self._deed.touched)
        return Finding(
            rule=rule,
            level=level,
            message=message,
            resource=named.resource,
            scope=named.scope,
            layer=named.layer,
            holder=None if not self._deed.emails else self._deed.emails[0],
            since=since,
            commit=self._deed.id,
            file=paths[0] if paths else None,
            evidence=(*evidence, *self._dates()),
            next_steps=(_command("log", named.resource, named.layer),),
        )

    def _dates(self) -> tuple[str, ...]:
        written, recorded = self._deed.written, self._deed.recorded
        if written is None or recorded is None:
            return ("one of its dates cannot be read",)
        if written == recorded:
            return (f"made at {rfc3339(written)}",)
        return (f"made at {rfc3339(written)}, recorded at {rfc3339(recorded)}",)


def shown(text: str, limit: int = LONGEST) -> str:
    """A text of others fit for one line: short, and spelt out where it would not print."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return short if short.isprintable() and short else ascii(short)


def _who_for(span: Span, held: str) -> str:
    """``jo@example.com held for F001``; a path that was leased itself is not said twice."""
    lease = span.lease
    return f"{shown(lease.holder)} {held} for {_of(lease.resource.text, lease.scope)}"


def _of(resource: str, scope: str) -> str:
    part = "" if scope == WHOLE else f" (scope {shown(scope)})"
    return shown(resource) + part


def _listed(paths: Sequence[str]) -> tuple[str, ...]:
    if len(paths) < 2:
        return ()
    listed = ", ".join(shown(path) for path in paths[:PATHS_SHOWN])
    more = len(paths) - PATHS_SHOWN
    return (f"it touches {listed}" + (f" and {more} more" if more > 0 else ""),)


def _command(verb: str, resource: str, layer: str) -> str:
    words = ["gitlease", verb]
    if layer != GLOBAL_LAYER:
        words += ["--local"] if layer == LOCAL_LAYER else ["--layer", layer]
    return shlex.join([*words, *(["--"] if resource.startswith("-") else []), resource])
