"""Keeping leases: ``renew`` and ``extend``."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.errors import LeaseLost
from gitlease.core.frozen import replace
from gitlease.core.instant import format_duration
from gitlease.core.loss import lost_by
from gitlease.core.moves.holding import of_session
from gitlease.core.moves.operations import Extend, Grant, Renew
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.engine.answers import Answer, joined, several
from gitlease.engine.landing import settle_landed, settle_named
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.stepping import change, in_every
from gitlease.engine.transaction import fresh_id


def renew(
    session: LedgerSession,
    resources: Sequence[Resource],
    *,
    scope: str | None = None,
    ttl: int | None = None,
) -> Answer:
    """Renew the leases of these resources in one push; those of landed tasks are completed.

    Raises LeaseLost or NotHolder if none of them can be renewed.
    """
    wanted = several(resources)
    landed = _of(settle_named(session, wanted), wanted, scope)
    finished = {fold(view.resource) for view in landed.leases}
    operations = [
        Renew(id=fresh_id(), actor=session.actor, resource=r, scope=scope, ttl=ttl)
        for r in wanted
        if r.key not in finished
    ]
    if not operations:
        return landed
    answer = change(session, "renew", operations, together=False)
    if answer.refused and not answer.leases:
        answer.refused[0].warnings = landed.warnings + answer.warnings
        raise answer.refused[0]
    return joined(landed, tell_longer(answer, ttl))


def _of(landed: Answer, resources: Sequence[Resource], scope: str | None) -> Answer:
    """Keep the leases of these resources only; the warnings are about all."""
    names = {resource.key for resource in resources}
    kept = [v for v in landed.leases if fold(v.resource) in names and scope in (None, v.scope)]
    return replace(landed, leases=tuple(kept))


def tell_longer(answer: Answer, ttl: int | None) -> Answer:
    """Warn of leases that last longer than the TTL that was asked for: none is shortened."""
    longer = [x.resource for x in answer.leases if ttl is not None and x.expires_in > ttl]
    if not longer or ttl is None:
        return answer
    text = f"{', '.join(longer)}: not shortened to {format_duration(ttl)}, a renewal never does so"
    return replace(answer, warnings=(*answer.warnings, text))


def renew_all(layers: Sequence[LedgerSession], *, ttl: int | None = None) -> Answer:
    """Renew all leases of this session in these layers, one push for each.

    Losses not reported yet are among ``refused``; with several layers, so is the error of a layer,
    which is never raised.
    """
    return tell_longer(in_every(layers, "renewed", lambda session: _renew_all(session, ttl)), ttl)


def _renew_all(session: LedgerSession, ttl: int | None) -> Answer:
    landed, before = settle_landed(session), session.untold()
    op = Renew(id=fresh_id(), actor=session.actor, ttl=ttl)
    answer = joined(landed, change(session, "renew", [op], together=False))
    head = session.store.known(session.layer)
    if head is None or head.ledger is None:
        return answer
    # The table names one of them where nothing is left, and knows nothing of what others took.
    _, over = of_session(head.ledger, session.actor, session.moment(head))
    lost = list(over)
    for refused in lost:
        refused.views = session.views_in(head, refused.conflicts)
    back = {(view.resource, view.scope, view.session) for view in answer.leases}
    back |= {(resource, scope, None) for resource, scope, _ in back}
    notices = {n.id: n for n in (*before, *session.untold())}.values()
    for notice in notices:
        if (notice.resource, notice.scope, notice.session) not in back:
            lost.append(lost_by(notice))
            about = (notice.resource, notice.scope)
            there = [x for x in head.ledger.every_lease() if (x.resource.text, x.scope) == about]
            lost[-1].views = session.views_in(head, there)
    others = [x for x in answer.refused if not isinstance(x, LeaseLost)]
    return replace(answer, refused=(*lost, *others))


def renew_grants(session: LedgerSession, grants: Sequence[Grant]) -> Answer:
    """Renew exactly these grants, of any of the holder's sessions, in one push.

    Those that are lost, or cannot be judged, are among ``refused``.
    """
    op = Renew(id=fresh_id(), actor=session.actor, grants=tuple(grants))
    return change(session, "heartbeat", [op], together=False)


def extend(
    session: LedgerSession, resource: Resource, seconds: int, *, scope: str | None = None
) -> Answer:
    """Stretch a lease to at least now + ``seconds``, at most to the policy's maximum.

    A lease of a landed task is completed instead.
    """
    landed = _of(settle_named(session, [resource]), [resource], scope)
    if landed.leases:
        return landed
    op = Extend(id=fresh_id(), actor=session.actor, resource=resource, seconds=seconds, scope=scope)
    return joined(landed, change(session, "extend", [op]))
