"""How every request is handled: who may send it, its limits, repeats of it, and its response."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import json
import logging
import math
import os
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes, urlencode

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from gitlease.gateway.gateway import Gateway
from gitlease.gateway.tokens import Token
from gitlease.kernel.rules.errors import (
    GitleaseError,
    Hint,
    Unavailable,
    UsageError,
    around,
    check_text,
)
from gitlease.kernel.rules.resources import fold
from gitlease.verbs import wire
from gitlease.verbs.table import http_of

T = TypeVar("T")
RATE = 1_000  # requests a second of a token; twice as many may come at once
REALM = 'Bearer realm="gitlease"'


class Refused(Exception):
    """A request that is refused before a verb sees it."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *hints: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hints = status, code, message, hints
        self.headers = dict(headers or {})


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach that host."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


class Access:
    """Admits requests by their tokens, each token at a limited rate.

    ``find_token`` maps a secret and a time (wall-clock milliseconds) to its token, and ``hosts``
    says whether a request may be addressed to that host.
    """

    def __init__(
        self,
        find_token: Callable[[str, int], Token | None],
        *,
        hosts: Callable[[str], bool],
        rate: float = RATE,
    ) -> None:
        self._find_token, self._hosts = find_token, hosts
        self.rate, self.burst = rate, 2.0 * rate  # a second, and at once
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def admit(self, headers: Mapping[str, str], *scopes: str, secret: str | None = None) -> Token:
        """The token of a request; ``secret`` if it did not come in the usual headers.

        Raises Refused: 401 without a valid token, 403 for one with none of the ``scopes``, 429
        above the rate.
        """
        self.check_address(headers)
        secret = secret or _secret(headers)
        if secret is None:
            raise Refused(
                401,
                "unauthorized",
                "a token is required: Authorization: Bearer TOKEN",
                "gitlease serve token add EMAIL creates one, on the gateway's machine",
                headers={"WWW-Authenticate": REALM},
            )
        token = self._find(secret)
        if token is None:
            # All guesses share one rate.
            self._count("")
            raise _unknown_token()
        if not set(scopes).intersection(token.scopes):
            check_scope(token, scopes[0])
        self._count(token.id)
        return token

    def check_still_valid(self, headers: Mapping[str, str]) -> None:
        """Raise Refused if the token of a request in progress has expired or been revoked."""
        if not self.is_still_valid(headers):
            raise _unknown_token()

    def is_still_valid(self, headers: Mapping[str, str], *, secret: str | None = None) -> bool:
        """Return whether the token of a request in progress is still valid."""
        secret = secret or _secret(headers)
        return secret is not None and self._find(secret) is not None

    def _find(self, secret: str) -> Token | None:
        try:
            return self._find_token(secret, time.time_ns() // 1_000_000)
        except GitleaseError as error:
            # Its message names files, which stay private.
            logging.getLogger("gitlease").error("%s", error)
            raise Refused(500, "invalid", "the tokens of this gateway cannot be read") from None

    def check_address(self, headers: Mapping[str, str]) -> None:
        """Raise Refused for a foreign origin or host: cross-site requests and DNS rebinding."""
        host = headers.get("host", "")
        name, _, port = host.rpartition(":")
        if not port.isdigit() or not (host.startswith("[") or host.count(":") == 1):
            name = host
        if not self._hosts(name.lower().strip("[]").removesuffix(".")):
            raise Refused(
                421,
                "wrong_host",
                "this gateway does not answer for that host",
                "gitlease serve --allow-host NAME, on the gateway's machine",
            )
        origin = headers.get("origin")
        # A browser sends its cookies for this host with requests of any page: only ours may ask.
        if origin is not None and origin.partition("://")[2] != host:
            raise Refused(403, "wrong_origin", "pages of other sites may not send requests here")

    def _count(self, token: str) -> None:
        now = time.monotonic()
        with self._lock:
            allowed, at = self._buckets.get(token, (self.burst, now))
            allowed = min(self.burst, allowed + (now - at) * self.rate)
            self._buckets[token] = (allowed - 1.0 if allowed >= 1.0 else allowed), now
        if allowed < 1.0:
            seconds = math.ceil((1.0 - allowed) / self.rate)
            raise Refused(
                429,
                "too_many_requests",
                f"more than {self.rate:g} requests a second of one token: come again in {seconds}s",
                "gitlease serve --rate N allows more, on the gateway's machine",
                headers={"Retry-After": str(seconds)},
            )


def check_scope(token: Token, scope: str) -> None:
    """Raise Refused for a token without this access."""
    if scope not in token.scopes:
        raise Refused(403, "forbidden", f"the token {token.name} has no {scope} access")


def _unknown_token() -> Refused:
    return Refused(
        401,
        "unauthorized",
        "this token is unknown, expired or revoked",
        "gitlease serve token list shows the valid ones, on the gateway's machine",
        headers={"WWW-Authenticate": REALM},
    )


def _secret(headers: Mapping[str, str]) -> str | None:
    # Bearer, the password of Basic (Git LFS), or X-API-Key (OpenIntent).
    kind, _, rest = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and rest.strip():
        return rest.strip()
    if kind.lower() == "basic":
        try:
            pair = base64.b64decode(rest.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        return pair.partition(":")[2] or None
    return headers.get("x-api-key") or None


MOST_BYTES = 64 * 1024  # of a body
BODY_SECONDS = 10.0  # in which it must have come
THREADS = 256  # requests that are worked on at the same time
WAITS, WAITS_OF_TOKEN = 64, 48  # of those that wait for something to be free
REMEMBERED = 10_000  # keyed requests
PROBLEM = "application/problem+json"
MAX_SESSION = 128  # characters
SESSION_HEADER = "gitlease-session"
IGNORED = frozenset({"by", "holder", "agent_id"})  # of a body: the token determines the holder


def session_in(headers: Mapping[str, str], session: str | None = None) -> str | None:
    """The session of a request: the given one, else the header's. Raises UsageError."""
    session = session or _unquoted(headers.get(SESSION_HEADER, ""), "a session")
    return check_text(session, what="a session", limit=MAX_SESSION) if session else None


def check_url(request: Request) -> None:
    """Raise UsageError for a path or query that is not UTF-8, or that gives a field twice."""
    # What is read of them has replacement characters, and the last of several values.
    _unquoted(request.scope["raw_path"], "the path")
    _unquoted(request.scope["query_string"], "the query")
    given = Counter(name for name, _ in request.query_params.multi_items())
    if twice := next((name for name, number in given.items() if number > 1), None):
        raise UsageError(f"the query gives {twice[:60]!r} more than once")


def _unquoted(text: str | bytes, what: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{what} must be percent-encoded UTF-8") from None


Failure = Refused | GitleaseError


def other_request() -> UsageError:
    """The refusal of a key that was used before."""
    why = "this Idempotency-Key was used for another request"
    return UsageError(why, hints=("use a new key for each request",))


class RequestHandler:
    """Answers the requests to one gateway."""

    def __init__(self, gateway: Gateway, access: Access) -> None:
        self.gateway, self.access = gateway, access
        self.threads, self.waits = anyio.CapacityLimiter(THREADS), anyio.CapacityLimiter(WAITS)
        self._waiting = Counter[str]()  # by token id
        self._keyed = OrderedDict[str, tuple[bytes, anyio.Lock]]()  # digests by key
        self.counts = Counter[tuple[str, int]]()  # answers by verb and status
        self.closing = threading.Event()

    @contextlib.contextmanager
    def waiting(self, token_id: str) -> Iterator[None]:
        """Count the block as a wait of this token. Raises Refused if too many wait already."""
        of_token = self._waiting[token_id]
        if of_token >= WAITS_OF_TOKEN or self._waiting.total() >= self.waits.total_tokens:
            message = "too many requests are waiting: listen at /v1/events, or try again"
            raise Refused(503, "busy", message, headers={"Retry-After": "5"})
        self._waiting[token_id] += 1
        try:
            yield
        finally:
            self._waiting[token_id] -= 1

    def endpoint(
        self,
        name: str,
        answer: Callable[[Request], Awaitable[Response]],
        failed: Callable[[Failure], Response],
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint whose refusals get the shape of its API, and whose answers are counted."""

        async def respond(request: Request) -> Response:
            try:
                check_url(request)
                response = await answer(request)
            except (Refused, GitleaseError) as error:
                response = failed(error)
            except ClientDisconnect:
                # Nobody reads it. It counts neither as answered nor as failed.
                return Response(status_code=499)
            self.counts[name, response.status_code] += 1
            return response

        return respond

    @contextlib.asynccontextmanager
    async def keyed(self, key: str | None, request: Request, data: Any) -> AsyncIterator[None]:
        """One request of a key at a time; a key that had another request is refused."""
        if key is None:
            yield
            return
        headers = [request.headers.get(x) for x in (SESSION_HEADER, "if-match", "if-none-match")]
        whole = json.dumps([request.method, request.scope["path"], data, headers], sort_keys=True)
        digest = hashlib.sha256(whole.encode()).digest()
        # As far as this gateway remembers: the ledger has the key of what was carried out, but not
        # the fields of the request.
        first = key not in self._keyed
        # A lock of the loop's: requests of one key that wait for each other use up no threads.
        known, lock = self._keyed.setdefault(key, (digest, anyio.Lock()))
        if known != digest:
            raise other_request()
        self._keyed.move_to_end(key)
        if len(self._keyed) > REMEMBERED:
            self._keyed.popitem(last=False)
        try:
            async with lock:
                yield
        except GitleaseError:
            # The next one with this key may be put right.
            if first:
                self._keyed.pop(key, None)
            raise

    async def carry_out(
        self, request: Request, caller: Token, act: Callable[[Callable[[], None]], T], *, wait: bool
    ) -> T:
        """Carry a request out in a thread; ``act`` is given what raises once it may not go on."""
        threads, has_left = self.threads, threading.Event()

        def check() -> None:
            if has_left.is_set():
                raise ClientDisconnect
            if self.closing.is_set():
                raise Unavailable("this gateway is being stopped", hints=("try again",))
            self.access.check_still_valid(request.headers)

        with contextlib.ExitStack() as stack:
            if wait:
                # Threads of their own, so that waits never delay a renewal.
                threads = self.waits
                stack.enter_context(self.waiting(caller.id))
                watch = asyncio.create_task(_notice_leaving(request, has_left))
                stack.callback(watch.cancel)
            return await anyio.to_thread.run_sync(act, check, limiter=threads)


async def _notice_leaving(request: Request, has_left: threading.Event) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
    has_left.set()


async def body_of(request: Request) -> Any:
    """The JSON of a body, ``{}`` for an empty one. Raises UsageError and Refused."""
    data = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                data += part
                if len(data) > MOST_BYTES:
                    raise Refused(413, "too_large", f"a body has at most {MOST_BYTES // 1024} KiB")
    except TimeoutError:
        raise Refused(408, "timeout", f"the body did not arrive within {BODY_SECONDS:g}s") from None
    if not data.strip():
        return {}
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError("the body is not JSON") from None


def operation_id(holder: str, key: str) -> str:
    """The operation id of a keyed request."""
    if not 1 <= len(key) <= 255:
        raise UsageError("an Idempotency-Key has 1 to 255 characters")
    # With the holder in it: nobody's key stands for another one's request.
    return hashlib.sha256(f"{fold(holder)}\0{key}".encode()).hexdigest()[:20]


def failed(error: Failure, fields: Collection[str] = (), *, in_query: bool = False) -> Response:
    """A refusal as ``application/problem+json``, with all fields of the contract's error.

    ``fields`` are those of the request, in which its hints are worded, ``in_query`` where they are.
    """
    body: dict[str, Any]
    if isinstance(error, Refused):
        body = {"code": error.code, "message": error.message, "hints": list(error.hints)}
        return _problem(error.status, body, error.headers)
    status, headers = http_of(error.code), dict[str, str]()
    body = wire.refusal(error, now=datetime.now(UTC))
    body |= {
        "message": without_paths(body["message"]),
        "fact": without_paths(error.message),  # without holder, place and time
        "hints": own_hints(error.hints, fields, in_query=in_query),
    }
    if error.loss is not None:
        body["loss"] = error.loss.value
    if error.free_at_ms is not None:
        # Rounded up: whoever comes a second early is refused once more.
        seconds = max(1, -(-error.free_at_ms // 1_000) - int(time.time()))
        body["retry_after"] = seconds
        headers["Retry-After"] = str(seconds)
    elif status == 503:
        headers["Retry-After"] = "2"
    return _problem(status, body, headers)


def _problem(status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
    code = str(body["code"])
    problem = {
        "type": f"https://gitlease.invalid/problems/{code}",
        "title": code.replace("_", " "),
        "status": status,
        "detail": body["message"],
        **body,
    }
    return JSONResponse(problem, status, headers=dict(headers), media_type=PROBLEM)


# --- words of a request ------------------------------------------------------------------------

# Where things lie on the gateway's machine is nobody's business.
_LOCAL_PATH = r"(?<![^\s'\"(=])(?:file://)?/([^\s'\"(),;:/]+)/[^\s'\"(),;]*[^\s'\"(),;:.]"


def without_paths(text: str) -> str:
    """A message without local paths."""

    def shown(path: re.Match[str]) -> str:
        return "(a local path)" if os.path.lexists(f"/{path[1]}") else path[0]

    return re.sub(_LOCAL_PATH, shown, text).replace("((a local path))", "(a local path)")


def own_hints(hints: Iterable[str], known: Collection[str], *, in_query: bool = False) -> list[str]:
    """The hints that a request can follow, in fields: those with an unknown one are left out."""
    worded = []
    for text in hints:
        if isinstance(text, Hint):
            if text.verb or not text.arguments.keys() <= {*known}:
                continue
            words = query_of(text.arguments) if in_query else json.dumps(text.arguments)[1:-1]
            text = around(text.why, words)
        worded.append(without_paths(text))
    return worded


def query_of(fields: Mapping[str, Any]) -> str:
    """The query that has these fields."""
    texts = {x: y if isinstance(y, str) else json.dumps(y) for x, y in fields.items()}
    return "?" + urlencode(texts, errors="replace")
