"""The heartbeat of what goes on in a clone: when to renew leases, and how to report a loss."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.instant import MS, humanize_duration, rfc3339
from gitlease.core.lease import Lease
from gitlease.core.resources.resource import WHOLE, layer_words, word_anywhere
from gitlease.guard.rules import THIRD

if TYPE_CHECKING:
    from gitlease.core.errors import GitleaseError
    from gitlease.engine.ledger_session import LedgerSession

BEAT_AGAIN = 60  # seconds after which a heartbeat that changed nothing is tried again, at most
SHORTEST_KEPT = THIRD * BEAT_AGAIN  # seconds of a lease that one activity a minute keeps alive
TRIES = 12  # of the heartbeat in the time of a lease, at least


def retry_interval(leases: Iterable[Lease]) -> int:
    """Seconds until a heartbeat that changed nothing is tried again, by the shortest lease."""
    shortest = min((x.duration_ms // MS for x in leases), default=BEAT_AGAIN * TRIES)
    return max(1, min(BEAT_AGAIN, shortest // TRIES))


def renew_known(session: LedgerSession, leases: Sequence[Lease]) -> list[str]:
    """Renew leases of the cached state in one push; the messages for the holder.

    Never raises GitleaseError: nobody waits for it.
    """
    from gitlease.core.errors import GitleaseError
    from gitlease.core.moves.operations import grant_of
    from gitlease.engine import acts

    try:
        answer = acts.renew_grants(session, [*map(grant_of, leases)])
    except GitleaseError as error:
        return [*error.warnings, f"your leases were not renewed: {error.message}"]
    usual = session.store.warnings  # of the place itself, nothing new
    news = [text for text in answer.warnings if text not in usual]
    return [*news, *(x.message for x in answer.refused if not _is_reported(session, x))]


def _is_reported(session: LedgerSession, refused: GitleaseError) -> bool:
    # A loss that a notice in the ledger reports, or that is reported as having run out.
    from gitlease.core.errors import LeaseLost
    from gitlease.core.loss import Loss

    head = session.store.known(session.layer)
    if not isinstance(refused, LeaseLost) or head is None or head.ledger is None:
        return False
    notices = head.ledger.notices(session.actor.holder)
    about = (refused.resource, refused.scope)
    return refused.loss is Loss.EXPIRED or about in {(n.resource, n.scope) for n in notices}


def ran_out(lease: Lease, layer: str, default_layer: str, *, age: int | None = None) -> str:
    """The message that a lease ran out, with the command to claim it again.

    ``age``: the remote did not confirm it, and the state is that many seconds old.
    """
    name = word_anywhere(lease.resource.text)
    words = ["gitlease", "claim", name, *layer_words(layer, default_layer)]
    words += [] if lease.scope == WHOLE else ["--scope", lease.scope]
    # Without an edge it may not be a task.
    words += [] if lease.edge or lease.resource.is_path else ["--any"]
    when = rfc3339(lease.expires_at)
    if age is not None:
        known = f"by what this clone knew {humanize_duration(age)} ago"
        when += f", {known} (the remote could not be asked)"
    again = shlex.join(words)
    return f"your lease of {lease.resource} expired at {when}; to go on with it: {again}"
