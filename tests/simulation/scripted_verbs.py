"""The commands of small worlds, as functions of a service and the remote that it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from support.session import LeaseService, ledger_session

from gitlease.guard.reports import PushedCommit, PushedWork
from gitlease.guard.whose import Makers
from gitlease.kernel.ledger.acts import renew_grants
from gitlease.kernel.ledger.answers import Answer, ClaimOptions
from gitlease.kernel.ledger.keeping import holds_of
from gitlease.kernel.ledger.sessions import unbind
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import JSON
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.moves.operations import Claim, grant_of
from gitlease.kernel.rules.resources import Resource, parse_resource
from gitlease.kernel.rules.viewpoint import Touched
from gitlease.kernel.rules.work import Became, WorkPush, WorkRef
from gitlease.landing.fenced_push import FencedPush
from gitlease.landing.plan import GitWork, PlannedPush, PushRequest

if TYPE_CHECKING:
    from simulation.scripted import Process, Remote

LAYER = "global"
MAIN = "refs/heads/main"


class OneCommit:
    """A repository whose push moves main to one new commit, which touches ``path``."""

    def __init__(self, remote: Remote, new: str, path: str) -> None:
        self._remote, self._new, self._touched = remote, new, (Touched(path),)

    def plan(self, wish: PushRequest, tell: Callable[[str], None]) -> PlannedPush:
        old = self._remote.look()
        became = Became.UP_TO_DATE if old == self._new else Became.UPDATED
        one = WorkRef(MAIN, MAIN, old, self._new, became)
        push = WorkPush(folder="/", remote="origin", url="/r", refs=(one,) if one.moves else ())
        return PlannedPush(push=push, refs=(one,), remote="origin")

    def carried(self, plan: PlannedPush) -> Sequence[PushedCommit]:
        return [PushedCommit("1" * 40, self._touched)]

    def brought(self, plan: PlannedPush) -> PushedWork:
        return PushedWork(self._touched)

    def makers(self, emails: Iterable[str]) -> Makers:
        return Makers()

    def note_grant(self, commits: Sequence[str], trailer: str) -> None:
        """This repository keeps nothing."""

    def land(self, push: WorkPush) -> tuple[str, ...]:
        self._remote.land(push)
        return ()

    def follow(self, plan: PlannedPush) -> None:
        """Nobody looks at what follows a push."""


def _claim(service: LeaseService, remote: Remote, what: Resource, ttl: int) -> Answer:
    return service.claim([what], ClaimOptions(ttl=ttl, reopen=True))


def _claim_another(service: LeaseService, remote: Remote, what: Resource, ttl: int) -> Answer:
    """Claim something else, as another process of the clone."""
    return service.claim([parse_resource("F009")], ClaimOptions(ttl=ttl))


def _keep(service: LeaseService, remote: Remote, what: Resource, ttl: int) -> Answer:
    """Claim it, and have a heartbeat keep it."""
    return _asked(service, _claim(service, remote, what, ttl))


def _beat(service: LeaseService, remote: Remote, what: Resource, ttl: int) -> object:
    """Renew what the heartbeat of the clone keeps."""
    holds = cast("Process", service.clock).disk.kept
    if not holds:
        return service.read()
    return _asked(service, renew_grants(service.session, [x.grant for x in holds]))


def _asked(service: LeaseService, answer: Answer) -> Answer:
    cast("Process", service.clock).disk.ask("heartbeat", [JSON.dump(x) for x in holds_of(answer)])
    return answer


def _pick(service: LeaseService, remote: Remote, what: Resource, ttl: int) -> Answer:
    """Claim it as a pool does: its edge ends with the lease."""
    return service.claim([what], ClaimOptions(ttl=ttl, reopen=True, picked=True))


def _person(service: LeaseService) -> LeaseService:
    """The same clone, as its person without a session."""
    session = service.session
    person = ledger_session(
        session.store,
        clock=session.clock,
        actor=Actor(session.actor.holder),
        layer=LAYER,
        dice=service.session.transaction._dice,
    )
    return LeaseService(person)


def _bind(service: LeaseService, remote: Remote, what: Resource, ttl: int) -> Answer:
    return service.claim([what], ClaimOptions(ttl=ttl, reopen=True, bind=True))


def _unbind(service: LeaseService, remote: Remote, what: Resource, ttl: int) -> Answer:
    """Give back what is bound to this run, by what its clone knows."""
    look = service.session.known_look()
    bound = [x for x in (look.leases if look else ()) if x.session == service.actor.session]
    return unbind(service.session, [grant_of(x) for x in bound])


def _unbind_any(service: LeaseService, remote: Remote, what: Resource, ttl: int) -> Answer:
    """Ask for what is bound to any run of this person's: the product is to refuse it."""
    every = service.session.look().leases
    return unbind(service.session, [grant_of(x) for x in every if x.session is not None])


def _claim_for_two(service: LeaseService, remote: Remote, what: Resource, ttl: int) -> None:
    """Two persons ask through one gateway, in one step."""
    claims = [
        Claim(id=fresh_id(), actor=actor, resource=what, lease_id=fresh_id(), ttl=ttl)
        for actor in (service.actor, Actor(service.actor.holder.replace("p", "q", 1)))
    ]
    step = service.session.step("claim", claims, together=False)
    if not step.applied.outcomes:
        raise next(x for x in step.applied.results if isinstance(x, GitleaseError))


def _push(service: LeaseService, remote: Remote, what: Resource, ttl: int) -> None:
    process = cast("Process", service.clock)
    work = cast("GitWork", OneCommit(remote, f"work {process.client}.{process.number}", "src/a.py"))
    FencedPush(service.session, work, layers=[LAYER]).push(PushRequest(), require=[what])


VERBS: dict[str, Callable[[LeaseService, Remote, Resource, int], object]] = {
    "claim": _claim,
    "claim another": _claim_another,
    "keep": _keep,
    "beat": _beat,
    "pick": _pick,
    "claim for two": _claim_for_two,
    "claim as the person": lambda service, *given: _claim(_person(service), *given),
    "bind": _bind,
    "unbind": _unbind,
    "unbind anybody's": _unbind_any,
    "end": lambda service, *_: service.end_session(),
    "push": _push,
    "renew": lambda service, _, what, ttl: service.renew([]),
    "extend": lambda service, _, what, ttl: service.extend(what, ttl),
    "release": lambda service, _, what, ttl: service.release([what]),
    "done": lambda service, _, what, ttl: service.complete(what, any_name=True),
    "revoke": lambda service, _, what, ttl: service.revoke(what, reason="stuck"),
    "note": lambda service, _, what, ttl: service.note(what, "half done"),
    "read": lambda service, _, what, ttl: service.read(),
}
