"""Git LFS's file locks, so that ``git lfs lock``, ``unlock`` and ``locks`` work unmodified.

A lock is a lease of that one file, and every lease of a path is listed as a lock. Locks are of the
whole repository: the ref that a request names is ignored, as Git LFS itself advises.

A lock lasts for the ledger's longest TTL, and a running gateway renews it: users of Git LFS expect
it to last until it is unlocked. With the setting ``lfs.lock_ttl`` it lasts that long, and only the
requests of its owner renew it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from gitlease.gateway.compat import (
    CompatAnswer,
    CompatRequest,
    blocks_until,
    carry_out,
    compat_routes,
)
from gitlease.gateway.gateway import FRESH, Gateway
from gitlease.gateway.request_handler import Failure, Refused, RequestHandler, without_paths
from gitlease.gateway.tokens import WRITE
from gitlease.kernel.rules.errors import (
    GitleaseError,
    Invalid,
    NotFound,
    PolicyRefused,
    UsageError,
    shown,
)
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import utc_text
from gitlease.kernel.rules.lease import Lease, State, same_person
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.resources import (
    MAX_LENGTH,
    escape,
    fold,
    parse,
    parse_resource,
    path_resource,
)
from gitlease.verbs.table import MOST_NAMES, http_of

ROOT = "/lfs"
MEDIA = "application/vnd.git-lfs+json"
REASON = "git lfs lock"
# Where a lock was claimed: its owner's later claims keep that, and not the reason.
HOST = "git-lfs"
PAGE, LONGEST_PAGE = 100, 1_000
LOOKS_IN_TTL, SHORTEST_PAUSE, LONGEST_PAUSE = 8, 2.0, 60.0  # of the gateway's renewals; seconds


def routes(handler: RequestHandler) -> list[BaseRoute]:
    """The endpoints of a gateway for Git LFS: locks, and where its objects are instead."""
    verbs = (
        ("POST", f"{ROOT}/locks", create_lock),
        ("GET", f"{ROOT}/locks", list_locks),
        ("POST", f"{ROOT}/locks/verify", verify_locks),
        ("POST", f"{ROOT}/locks/{{id}}/unlock", unlock),
    )

    async def objects(request: Request) -> Response:
        handler.access.check_address(request.headers)
        if (server := handler.gateway.lfs_objects) is None:
            why = "this gateway has locks, not objects: gitlease help lfs says where they may be"
            raise Refused(501, "not_found", why)
        # Git LFS knows one address for locks and objects. 307 keeps the method and the body.
        return RedirectResponse(f"{server.rstrip('/')}/objects/batch", 307)

    async def nothing(_request: Request) -> Response:
        raise Refused(404, "not_found", "there is nothing of Git LFS at this address")

    batch = handler.endpoint("lfs_objects", objects, refused)
    return [
        *compat_routes(handler, "lfs", verbs, refused, MEDIA),
        Route(f"{ROOT}/objects/batch", batch, methods=["POST"]),
        Route(f"{ROOT}/{{rest:path}}", handler.endpoint("lfs", nothing, refused)),
    ]


# --- locks --------------------------------------------------------------------------------------


Lock = dict[str, Any]  # as the API has it


def locks_of(view: LeaseView) -> list[Lock]:
    """The locks that a lease is: one of each path, of which those of a name have a number."""
    resource = parse_resource(view.resource)
    whole = [] if resource.pattern is None else [(view.lease_id, resource.pattern)]
    more = [(f"{view.lease_id}-{n}", path) for n, path in enumerate(view.paths, 1)]
    return [
        {
            "id": id,
            # Of a pattern its text, by whose name no file is pushed.
            "path": parse(text).path or text,
            "locked_at": utc_text(view.claimed_at),
            "owner": {"name": view.holder},
            # Not in a ``message``: the client takes an answer with one for a refusal.
            "expires_at": utc_text(view.expires_at),
        }
        for id, text in (*whole, *more)
    ]


def create_lock(asked: CompatRequest) -> CompatAnswer:
    """Lock a file; who has the lock already renews it."""
    _check_body(asked)
    path = asked.text("path", limit=MAX_LENGTH)
    if path is None or path.startswith("/") or path.endswith("/"):
        raise UsageError("path must be that of a file, as it is below the root of the repository")
    resource, door = path_resource(escape(path)), asked.door()
    door.ledger.actor = replace(door.ledger.actor, host=HOST)
    policy = door.ledger.look().policy
    ttl = max(min(asked.gateway.lock_ttl or policy.ttl_max, policy.ttl_max), policy.ttl_min)
    result = carry_out("claim", door, resources=[resource], ttl=ttl, reason=REASON)
    return 201, {"lock": locks_of(result.leases[0])[0]}


def list_locks(asked: CompatRequest) -> CompatAnswer:
    id, path, locks = asked.query.get("id"), asked.query.get("path"), [x for x, _ in _locks(asked)]
    if id:
        locks = [x for x in locks if x["id"] == id]
    if path:
        locks = [x for x in locks if fold(x["path"]) == fold(path)]
    page, more = _page(locks, asked.query)
    return 200, {"locks": page, **more}


def verify_locks(asked: CompatRequest) -> CompatAnswer:
    """The locks that a push may not touch, and those of the token's holder."""
    _check_body(asked)
    page, more = _page([x for x, _ in _locks(asked)], asked.body)
    sides: dict[bool, list[Lock]] = {True: [], False: []}
    for lock in page:
        sides[same_person(lock["owner"]["name"], asked.caller.email)].append(lock)
    return 200, {"ours": sides[True], "theirs": sides[False], **more}


def unlock(asked: CompatRequest) -> CompatAnswer:
    """Release the lock; another's is revoked, by an admin with ``force``."""
    _check_body(asked)
    id, force = asked.path["id"], asked.body.get("force", False)
    if not isinstance(force, bool):
        raise UsageError("force must be true or false")
    known = {x["id"]: (x, view) for x, view in _locks(asked)}
    if id not in known:
        raise NotFound(f"there is no lock {shown(id)}: it was unlocked, or has lapsed")
    (lock, view), door = known[id], asked.door()
    path, resource = lock["path"], parse_resource(view.resource)
    is_own = same_person(view.holder, asked.caller.email)
    if not is_own and not force:
        who = f"{view.holder} until {utc_text(view.expires_at)}; --force is for the ledger's admins"
        raise Refused(403, "forbidden", f"{path} is locked by {who}")
    if not resource.is_path:
        whose = f"the lease {resource} of {view.holder}, and ends with it"
        raise Refused(403, "forbidden", f"{path} is locked by {whose}")
    if is_own:
        door.check_condition(resource, view.token, view.scope, held=False)
        carry_out("release", door, resources=[resource], scope=view.scope)
    else:
        terms = {"resource": resource, "scope": view.scope, "expect_holder": view.holder}
        try:
            carry_out("revoke", door, reason="git lfs unlock --force", **terms)
        except PolicyRefused as error:
            raise Refused(403, "forbidden", f"{error.message}: gitlease help lfs") from None
    return 200, {"lock": lock}


def _locks(asked: CompatRequest) -> list[tuple[Lock, LeaseView]]:
    """Every lock with its lease, by path; where they end by themselves, one's own are renewed."""
    if asked.gateway.lock_ttl is not None and WRITE in asked.caller.scopes:
        renew_locks(asked.gateway, asked.caller.email)
    door = asked.door()
    head, leases = door.ledger.read(lambda head: (head, _of_paths(head.ledger)))
    now = door.now()
    current = (x for x in door.ledger.views_in(head, leases) if x.is_current(now))
    # The client unlocks none of two locks of one file, so a lease of the file itself counts alone.
    every = [(lock, view) for view in current for lock in locks_of(view)]
    every.sort(key=lambda x: "-" not in x[0]["id"])
    alone = {(lock["path"], view.holder): (lock, view) for lock, view in every}
    return sorted(alone.values(), key=lambda x: _place(x[0]))


def _of_paths(ledger: Ledger | None) -> list[Lease]:
    """The leases of paths, but for damaged ones: these keep no other from being listed."""
    if ledger is None:
        return []
    try:
        return ledger.leases_with_paths()
    except Invalid:
        return [x for x in ledger.every_lease() if x.patterns]


def _page(locks: list[Lock], asked: Mapping[str, Any]) -> tuple[list[Lock], dict[str, str]]:
    """The locks after the ``cursor`` of a request, at most its ``limit``, and the next cursor."""
    cursor, limit = asked.get("cursor") or "", asked.get("limit") or PAGE
    if not isinstance(cursor, str) or (cursor and "\t" not in cursor):
        raise UsageError("invalid cursor: pass the next_cursor of the page before, unchanged")
    if isinstance(limit, str) and limit.isascii() and limit.isdigit():
        limit = int(limit[:18]) or PAGE
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise UsageError("limit must be a whole number")
    rest = [x for x in locks if _place(x) > cursor]
    page = rest[: min(limit, LONGEST_PAGE)]
    return page, {"next_cursor": _place(page[-1])} if len(page) < len(rest) else {}


def _place(lock: Lock) -> str:
    return f"{lock['path']}\t{lock['id']}"


def _check_body(asked: CompatRequest) -> None:
    kind = asked.headers.get("content-type", MEDIA).partition(";")[0].strip().lower()
    if kind not in (MEDIA, "application/json"):
        raise Refused(415, "usage", f"a body has the type {MEDIA}, not {shown(kind)}")
    ref = asked.body.get("ref")
    if ref is not None and not (isinstance(ref, dict) and isinstance(ref.get("name", ""), str)):
        raise UsageError("ref must be an object with the name of a ref")


def refused(error: Failure) -> Response:
    """A refusal as the client shows it: its ``message``, and the ``lock`` that is in the way."""
    body: dict[str, Any] = {"message": without_paths(error.message)}
    if isinstance(error, Refused):
        headers = dict(error.headers)
        if error.status == 401:
            # With it Git LFS asks git's credential helpers, instead of failing.
            headers["LFS-Authenticate"] = 'Basic realm="gitlease"'
            body["message"] += "; Git LFS sends it as the password of any user"
        return JSONResponse(body, error.status, headers=headers, media_type=MEDIA)
    status, view = http_of(error.code), error.lease
    # Its lease has ended, or is another one by now.
    if status == 412:
        status = 409
    if status == 409 and view is not None:
        if view.state == State.ACTIVE.value:
            body["message"] += f" until {utc_text(view.expires_at)}"
        body["message"] += blocks_until(error)
        locks = sorted(locks_of(view), key=lambda x: x["path"] != error.resource)
        body["lock"] = locks[0] if locks else None
    headers = {"Retry-After": "2"} if status == 503 else {}
    return JSONResponse(body, status, headers=headers, media_type=MEDIA)


# --- how they last ------------------------------------------------------------------------------


def is_lock(lease: Lease) -> bool:
    """True if Git LFS made this lease, or claimed it last, and it is nobody's session's since."""
    by_lfs = lease.place.host == HOST or lease.reason == REASON
    return by_lfs and lease.session is None and not lease.parked


def renew_locks(gateway: Gateway, holder: str) -> None:
    """Renew what a person has locked, if a third of its time is over."""
    # A question is answered without a renewal, too.
    with contextlib.suppress(GitleaseError):
        held = [*dict.fromkeys(x.resource for x in gateway.held(holder) if is_lock(x))]
        # One push renews no more than a claim may name.
        for start in range(0, len(held), MOST_NAMES):
            answer = gateway.renew(gateway.session(holder), held[start : start + MOST_NAMES])
            gateway.leave_messages(holder, answer.warnings)


def keep_locks(gateway: Gateway) -> float:
    """Renew all locks that are due, by what is known here; return the seconds until the next look.

    Nothing is due where locks end by a TTL of their own.
    """
    if gateway.lock_ttl is not None:
        return LONGEST_PAUSE
    if (head := gateway.store.known(gateway.layer)) is None or head.ledger is None:
        return SHORTEST_PAUSE
    now = gateway.clock.now().wall_ms
    holders = {
        x.holder
        for x in _of_paths(head.ledger)
        if is_lock(x) and x.state is State.ACTIVE and 0 < x.expires_at - now < FRESH * x.duration_ms
    }
    for holder in sorted(holders):
        renew_locks(gateway, holder)
    return min(max(SHORTEST_PAUSE, head.policy.ttl_max / LOOKS_IN_TTL), LONGEST_PAUSE)


async def keep(gateway: Gateway) -> None:
    """Renew the locks of a gateway until this is cancelled."""
    pause = SHORTEST_PAUSE
    while True:
        await asyncio.sleep(pause)
        try:
            pause = await anyio.to_thread.run_sync(keep_locks, gateway, abandon_on_cancel=True)
        except Exception:
            # A damaged record, say, which may be repaired while this runs.
            logging.getLogger("gitlease").exception("the locks of Git LFS were not renewed")
            pause = LONGEST_PAUSE
