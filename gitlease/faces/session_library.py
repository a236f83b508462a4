"""The library's verbs about sessions: what a run leaves behind when it stops."""

from __future__ import annotations

from gitlease.domain.operations import MAX_NOTE, MAX_REASON, MAX_WORD, check_text
from gitlease.domain.view import LeaseView
from gitlease.faces.opened import Duration, Opened, to_scope, to_seconds, to_text
from gitlease.sessions import OwnSession as OwnSession


class SessionVerbs(Opened):
    """Parking, and the end of a session."""

    def park(
        self,
        resource: str,
        duration: Duration | None = None,
        *,
        scope: str | None = None,
        reason: str | None = None,
        note: str | None = None,
    ) -> LeaseView:
        """Keep a lease for a later session of its holder: others are refused for ``duration``.

        At most, and by default, for the policy's ``park_max``. Nothing renews it, ``renew`` raises
        LeaseLost, and a ``claim`` of any session of the same person goes on with it, under a new
        token. Raises LeaseLost, NotHolder, and PolicyRefused where nothing may be parked.
        """
        answer = self._service.park(
            [self._resource(resource)],
            seconds=to_seconds(duration, "duration"),
            scope=to_scope(scope),
            reason=to_text(reason, "reason", MAX_REASON),
            note=to_text(note, "note", MAX_NOTE, lines=True),
        )
        return self._heard(answer).leases[0]

    def end_session(
        self,
        id: str | None = None,
        *,
        park: bool | Duration = False,
        note: str | None = None,
        commit: bool | None = None,
    ) -> tuple[LeaseView, ...]:
        """Release everything that is bound to a session of one's own (None: this one), in one push.

        ``park`` keeps it for a later session instead, for so long or, with True, as long as the
        policy allows. Returns what was ended: with nothing held, nothing. Raises UsageError without
        a session, and Invalid where a task file keeps a lease from being released: the others are.
        """
        name = None if id is None else check_text(id, what="the session", limit=MAX_WORD)
        period = None if isinstance(park, bool) else to_seconds(park, "park")
        answer = self._service.end_session(
            name,
            park=park is not False,
            seconds=period,
            note=to_text(note, "note", MAX_NOTE, lines=True),
            commit=commit,
        )
        self._heard(answer)
        if answer.refused:
            raise answer.refused[0]
        return answer.leases

    def sessions(self, *, cached: bool = False) -> tuple[OwnSession, ...]:
        """One's own sessions that have live leases, each with them."""
        reading = self._service.sessions(cached=cached)
        self.warnings = reading.warnings
        return reading.sessions
