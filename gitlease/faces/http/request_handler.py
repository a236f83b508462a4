"""What every request goes through: who asks, how much, and what it is answered with."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from gitlease.core.errors import GitleaseError, Unavailable, UsageError, check_text
from gitlease.core.frozen import dataclass
from gitlease.core.lease import State
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import parse_resource
from gitlease.faces import wire
from gitlease.faces.codes import http_of
from gitlease.faces.http.access import Access, Caller, Refused
from gitlease.faces.http.fields import RequestField, read_fields
from gitlease.gateway.gateway import Gateway
from gitlease.gateway.joiner import SAME

MOST_BYTES = 64 * 1024  # of a body
BODY_SECONDS = 10.0  # in which it must have come
THREADS = 256  # requests that are worked on at the same time
WAITS, WAITS_OF_TOKEN = 64, 48  # of those that wait for something to be free
MOST_ALIKE = 16  # requests with one key that wait for each other
REMEMBERED = 10_000  # answers, for requests that are sent again
ANOTHER_REQUEST = "this Idempotency-Key was used for another request"
REMEMBERED_FOR = 30.0  # seconds: what was granted may be over after that
PROBLEM = "application/problem+json"
MAX_SESSION = 128  # characters
SESSION_HEADER = "gitlease-session"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the verbs see it."""

    gateway: Gateway
    caller: Caller
    resource: str
    values: Mapping[str, Any]
    headers: Mapping[str, str]
    key: str | None
    check: Callable[[], None]
    """Raises where what is asked may not be done any more."""

    @property
    def session(self) -> str | None:
        """The caller's run: by the body, or by the header."""
        return session_in(self.headers, self.values.get("session"))

    @property
    def token(self) -> int | None:
        """The token that ``If-Match`` names. UsageError for anything else there."""
        said = self.headers.get("if-match")
        if said is None or said == "*":
            return None
        number = said.strip().removeprefix("W/").strip('"')
        if not number.isascii() or not number.isdigit() or len(number) > 18:
            raise UsageError('If-Match must be the token of a lease in quotes, such as "7"')
        return int(number)


def session_in(headers: Mapping[str, str], said: str | None = None) -> str | None:
    """The run that a request speaks of: as ``said``, else by its header. Raises UsageError."""
    said = said or unquote(headers.get(SESSION_HEADER, ""))
    return check_text(said, what="a session", limit=MAX_SESSION) if said else None


Answered = tuple[int, wire.Document, dict[str, str]]
Verb = Callable[[Asked], Answered]


class Answers:
    """Answers that are remembered by their keys, so that a request may be sent again."""

    def __init__(self, still: Callable[[Answered], bool]) -> None:
        """``still`` says whether what an answer granted is not over."""
        self._still = still
        self._kept: OrderedDict[str, tuple[bytes, float, Answered]] = OrderedDict()
        self._busy: dict[str, tuple[bytes, threading.Lock, int]] = {}  # and how many want it
        self._lock = threading.Lock()

    def once(self, key: str | None, asked: bytes, act: Callable[[], Answered]) -> Answered:
        """What ``act`` answers, or answered before under the same key to the same request."""
        if key is None:
            return act()
        with self._lock:
            first, busy, many = self._busy.get(key, (asked, threading.Lock(), 0))
            if first != asked:
                raise UsageError(ANOTHER_REQUEST, hints=("take a new key for each request",))
            if many >= MOST_ALIKE:
                raise Unavailable(SAME, hints=("ask again",))
            self._busy[key] = asked, busy, many + 1
        try:
            with busy:
                return self._once(key, asked, act)
        finally:
            with self._lock:
                _, _, many = self._busy.pop(key)
                if many > 1:
                    self._busy[key] = asked, busy, many - 1

    def _once(self, key: str, asked: bytes, act: Callable[[], Answered]) -> Answered:
        with self._lock:
            self._forget()
            known = self._kept.get(key)
        if known is not None and known[0] != asked:
            raise UsageError(ANOTHER_REQUEST, hints=("take a new key for each request",))
        if known is not None and self._still(known[2]):
            return known[2]
        answer = act()  # where the ledger has it already, that says so
        with self._lock:
            self._kept[key] = asked, time.monotonic(), answer
            self._kept.move_to_end(key)
        return answer

    def _forget(self) -> None:
        old = time.monotonic() - REMEMBERED_FOR
        while self._kept:
            key, (_, at, _) = next(iter(self._kept.items()))
            if at >= old and len(self._kept) <= REMEMBERED:
                return
            del self._kept[key]


class Door:
    """Answers requests to one gateway."""

    def __init__(self, gateway: Gateway, access: Access) -> None:
        self.gateway, self.access = gateway, access
        self._answers = Answers(self._is_not_over)
        self.threads, self.waits = anyio.CapacityLimiter(THREADS), anyio.CapacityLimiter(WAITS)
        self._waiting = Counter[str]()  # by the id of a token
        self.counted: dict[tuple[str, int], int] = {}
        self.closing = threading.Event()

    @contextlib.contextmanager
    def waiting(self, token_id: str) -> Iterator[None]:
        """Be among those who wait, while the block lasts. Raises Refused where too many do."""
        of_token = self._waiting[token_id]
        if of_token >= WAITS_OF_TOKEN or self._waiting.total() >= self.waits.total_tokens:
            told = "too many wait here already: listen at /v1/events, or ask again"
            raise Refused(503, "busy", told, headers={"Retry-After": "5"})
        self._waiting[token_id] += 1
        try:
            yield
        finally:
            self._waiting[token_id] -= 1

    def count(self, name: str, status: int) -> None:
        """Count an answer."""
        self.counted[name, status] = self.counted.get((name, status), 0) + 1

    def endpoint(
        self, name: str, verb: Verb, fields: Mapping[str, RequestField], *, scope: str
    ) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a verb; ``scope`` is what a token must be good for."""

        async def answer(request: Request) -> Response:
            response: Response
            try:
                answered = await self._answer(request, verb, fields, scope)
                response = JSONResponse(answered[1], answered[0], headers=answered[2])
            except Refused as refused:
                response = problem(refused.status, refused.document, refused.headers)
            except GitleaseError as error:
                response = failed(error)
            except ClientDisconnect:
                return Response(status_code=499)
            self.count(name, response.status_code)
            return response

        return answer

    def _is_not_over(self, answered: Answered) -> bool:
        """Whether all that was granted by an answer stands in the ledger now."""
        granted = [x for x in answered[1].get("leases", ()) if x["state"] == State.ACTIVE.value]
        return all(
            any(
                lease.lease_id == x["lease_id"]
                for lease in self.gateway.held(x["holder"], parse_resource(x["resource"]))
            )
            for x in granted
        )

    async def _answer(
        self, request: Request, verb: Verb, fields: Mapping[str, RequestField], scope: str
    ) -> Answered:
        caller = self.access.caller(request.headers, scope)
        query = request.method in ("GET", "HEAD", "DELETE")
        data = dict(request.query_params) if query else await body_of(request)
        if request.method == "DELETE" and await body_of(request):
            raise UsageError(
                "a DELETE has its fields in its address, not in a body", hints=("?session=RUN",)
            )
        what = "the query" if query else "the body"
        said = request.headers.get("idempotency-key") if scope == "write" else None
        key = None if said is None else operation_id(caller.holder, said)
        resource = request.path_params.get("key", "")
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise UsageError(f"{what} has half of a letter, a lone surrogate") from None
        about = [request.headers.get(x) for x in (SESSION_HEADER, "if-match", "if-none-match")]
        said_all = [request.method, request.scope["path"], data, about]
        identity = hashlib.sha256(json.dumps(said_all, sort_keys=True).encode()).digest()
        threads, gone = self.threads, threading.Event()
        waits = isinstance(data, dict) and data.get("wait") is not None

        def check() -> None:
            if gone.is_set():
                raise ClientDisconnect
            if self.closing.is_set():
                raise Unavailable("this gateway is being stopped", hints=("ask again",))
            self.access.check_still_known(request.headers)

        def act() -> Answered:
            values = read_fields(data, fields, what=what)
            asked = Asked(self.gateway, caller, resource, values, request.headers, key, check)
            return verb(asked)

        with contextlib.ExitStack() as stack:
            if waits:
                threads = self.waits  # so that those who wait keep nobody from a renewal
                stack.enter_context(self.waiting(caller.token_id))
                watch = asyncio.create_task(_notice_leaving(request, gone))
                stack.callback(watch.cancel)
            return await anyio.to_thread.run_sync(
                lambda: self._answers.once(key, identity, act), limiter=threads
            )


async def _notice_leaving(request: Request, gone: threading.Event) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
    gone.set()


async def body_of(request: Request) -> Any:
    """The JSON of a body; ``{}`` where there is none. Raises UsageError and Refused."""
    found = b""
    with anyio.move_on_after(BODY_SECONDS) as slow:
        async for part in request.stream():
            found += part
            if len(found) > MOST_BYTES:
                raise Refused(413, "too_large", f"a body has at most {MOST_BYTES // 1024} KiB")
    if slow.cancelled_caught:
        raise Refused(408, "timeout", f"the body did not come within {BODY_SECONDS:g}s")
    if not found.strip():
        return {}
    try:
        return json.loads(found)
    except (ValueError, RecursionError):
        raise UsageError("the body is not JSON") from None


def operation_id(holder: str, key: str) -> str:
    """The id of the operation of a request: of this holder's alone, whatever the key is."""
    if not 1 <= len(key) <= 255:
        raise UsageError("an Idempotency-Key has 1 to 255 characters")
    return hashlib.sha256(f"{fold(holder)}\0{key}".encode()).hexdigest()[:20]


def failed(error: GitleaseError) -> Response:
    """A refusal as ``application/problem+json``, with all that the contract's error has."""
    status = http_of(error.code)
    document = wire.refusal(error, now=datetime.now(UTC))
    headers = {}
    if error.free_at_ms is not None:
        seconds = max(1, -(-error.free_at_ms // 1_000) - int(time.time()))
        document["retry_after"] = seconds
        headers["Retry-After"] = str(seconds)
    elif status == 503:
        headers["Retry-After"] = "2"
    return problem(status, document, headers)


def problem(status: int, document: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
    code = str(document["code"])
    body = {
        "type": f"https://gitlease.invalid/problems/{code}",
        "title": code.replace("_", " "),
        "status": status,
        "detail": document["message"],
        **document,
    }
    return JSONResponse(body, status, headers=dict(headers), media_type=PROBLEM)
