"""The verbs of the engine, bound to one session of a ledger: for tests that call many of them."""

from __future__ import annotations

from functools import partial

from gitlease.engine import LedgerSession, acts, claim, reading, sessions


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
        self.renew = partial(acts.renew, session)
        self.renew_all = partial(acts.renew_all, [session])
        self.beat = partial(acts.renew_grants, session)
        self.extend = partial(acts.extend, session)
        self.release = partial(acts.release, session)
        self.complete = partial(acts.complete, session)
        self.set_status = partial(acts.set_status, session)
        self.park = partial(sessions.park, session)
        self.end_session = partial(sessions.end_session, [session])
        self.sessions = partial(sessions.sessions, [session])
        self.retire = partial(acts.retire, session)
        self.revoke = partial(acts.revoke, session)
        self.drop_record = partial(acts.drop_record, session)
        self.note = partial(acts.note, session)
        self.set_policy = partial(acts.set_policy, session)
        self.confirm = partial(acts.confirm, session)
