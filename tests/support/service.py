"""The verbs of the engine, bound to one session of a ledger: for tests that call many of them."""

from __future__ import annotations

from functools import partial

from gitlease.engine import LedgerSession, claim, end, govern, hold, reading, sessions


class LeaseService:
    """Claims and everything after, for one actor on one layer of one store."""

    def __init__(self, session: LedgerSession) -> None:
        self.session = session
        self.store, self.clock = session.store, session.clock
        self.actor, self.layer = session.actor, session.layer
        self.edges, self.inbox = session.edges, session.inbox
        self.look, self.known_look, self.views = session.look, session.known_look, session.views

        self.read = partial(reading.read_leases, session)
        self.log = partial(reading.read_log, session)
        self.claim = partial(claim.claim, session)
        self.start = partial(claim.start, session)
        self.wait = partial(claim.wait, session)
        self.renew = partial(hold.renew, session)
        self.renew_all = partial(hold.renew_all, [session])
        self.beat = partial(hold.renew_grants, session)
        self.extend = partial(hold.extend, session)
        self.release = partial(end.release, session)
        self.complete = partial(end.complete, session)
        self.set_status = partial(end.set_status, session)
        self.park = partial(sessions.park, session)
        self.end_session = partial(sessions.end_session, [session])
        self.sessions = partial(sessions.sessions, [session])
        self.retire = partial(end.retire, session)
        self.revoke = partial(govern.revoke, session)
        self.drop_record = partial(govern.drop_record, session)
        self.note = partial(govern.note, session)
        self.set_policy = partial(govern.set_policy, session)
        self.confirm = partial(govern.confirm, session)
