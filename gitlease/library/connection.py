"""``gitlease.connect`` and ``connect_async``: the verbs through a gateway, without a clone."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import json
import os
import re
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from socket import SHUT_RDWR, socket
from typing import Any, Self, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from gitlease.kernel.rules import errors
from gitlease.kernel.rules.errors import (
    GitleaseError,
    LeaseLost,
    Loss,
    Unavailable,
    UnknownOutcome,
    UsageError,
    check_text,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import moment_of
from gitlease.kernel.rules.loss import reason_text
from gitlease.kernel.rules.resources import Resource, parse_layer, parse_resource, path_resource
from gitlease.library import values
from gitlease.library.gateway_verbs import AwaitedGatewayVerbs, GatewayVerbs
from gitlease.library.methods import (
    GATEWAY_METHODS,
    KINDS,
    LEASE,
    ResourceLike,
    StrPath,
    refusing_class,
    to_folder,
    to_list,
)
from gitlease.library.values import Lease
from gitlease.verbs.table import Result


@dataclass(frozen=True, kw_only=True)
class GatewayEvent:
    """An event: its ``kind`` is that of the audit trail, ``lapsed``, or ``gap``.

    ``events(after=…)`` continues after its ``id``; a lapse has none. At a gap events are missing
    that history no longer has: read the leases again.
    """

    kind: str
    resource: str | None
    scope: str | None
    holder: str | None
    session: str | None
    token: int | None
    by: str | None
    at: datetime
    id: str | None = None


# A field in a gateway's hints: of a body, or of a query.
FIELD = re.compile(r'"(\w+)": (true|"[^"\\\x00-\x1f]*")|\?(\w+)=true')


def leases_of(document: Mapping[str, Any]) -> tuple[Lease, ...]:
    """The leases of an answer."""
    return tuple(values.lease_of(x) for x in document.get("leases", ()))


def refusal_of(status: int, data: Mapping[str, Any], *, changes: bool = False) -> GitleaseError:
    """The refusal that an answer is, as the library raises it."""
    code = str(data.get("code", ""))
    kind = KINDS.get(code)
    if kind is None:
        kind = errors.Denied if status in (401, 403, 421) else Unavailable
        kind = errors.UsageError if status in (405, 413) else kind
        # Sent by a proxy: the change may have landed.
        if changes and status in (500, 502, 504):
            kind = UnknownOutcome
    fact = str(
        data.get("fact") or data.get("message") or f"the gateway answered with HTTP {status}"
    )
    subject: dict[str, Any] = {
        "resource": data.get("resource"),
        "scope": data.get("scope"),
        "hints": tuple(
            FIELD.sub(lambda x: f"{x[1] or x[3]}={json.loads(x[2] or 'true')!r}", str(hint))
            for hint in data.get("hints", ())
        ),
        "holder": data.get("holder"),
    }
    loss = next((x for x in Loss if x == data.get("loss")), None)
    if loss is None:
        is_lost = kind is LeaseLost
        error = LeaseLost(fact, never=True, **subject) if is_lost else kind(fact, **subject)
    else:
        # Whoever had the lease hears from every verb that it is lost.
        if kind is not LeaseLost:
            fact = (
                f"you no longer hold {subject['resource']}: {reason_text(loss, data.get('holder'))}"
            )
        error = LeaseLost(fact, loss=loss, **subject)
    at = data.get("free_at")
    return error.with_(
        free_at_ms=at and round(datetime.fromisoformat(at).timestamp() * 1_000),
        views=tuple(values.lease_of(x) for x in data.get("conflicts", ())),
    )


def events_of(lines: Iterable[bytes]) -> Iterator[GatewayEvent]:
    """The events of a stream."""
    number: str | None = None
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            number = None
        elif line.startswith("id: "):
            number = line.removeprefix("id: ")
        elif line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
            yield values.ANSWERS.load(GatewayEvent, {**data, "id": number})


T = TypeVar("T")
PATIENCE = 90.0  # seconds to wait for an answer
MOST_PATHS = 64  # in one request
PAUSE = 0.2  # seconds before the second try, and twice that before the third
DECIDED = (400, 404, 409, 412, 422)  # refusals that settle the outcome of an earlier try
MAY_HAVE_LANDED = (200, 201, 500, 502, 504)  # statuses that a proxy may send after the change
LARGEST = 32 * 1024 * 1024  # bytes of an answer
TRIES = 3  # of a request without an answer, under the same key


@refusing_class
class Connection(GatewayVerbs):
    """Leases through a gateway, for the holder of a token and one session.

    The verbs, and what they return and raise, are those of ``gitlease.open``. A change whose answer
    is lost is sent again, under a key that makes it happen once. ``warnings`` are those of the last
    answer.
    """

    def __init__(
        self, url: str, *, token: str, session: str | None = None, layer: str | None = None
    ) -> None:
        if not isinstance(url, str) or not isinstance(token, str):
            raise UsageError("url and token must be strings")
        parts = _parse_url(url)
        if session is not None:
            check_text(session, what="a session")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError("invalid token: expected one word")
        self._secure, self._port = parts.scheme == "https", parts.port
        self._host = parts.hostname or ""
        self._path, self._token, self._session = parts.path.rstrip("/"), token, session
        # In every request, since a connection is to one layer.
        self._place = {} if layer is None else {"layer": parse_layer(layer)}
        self.warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        port = f":{self._port}" if self._port else ""
        return f"<{type(self).__name__} to {self._host}{port}{self._path}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def list(
        self, *, holder: str | None = None, state: str | None = None, path: str | None = None
    ) -> tuple[Lease, ...]:
        """The leases of the ledger, sorted by resource; by default those that block others."""
        leases, cursor = list[Lease](), None
        while True:
            known = {"holder": holder, "state": state, "path": path, "cursor": cursor}
            query = (
                {"limit": "1000"} | self._place | {x: y for x, y in known.items() if y is not None}
            )
            document = self._ask("GET", f"/v1/leases?{urlencode(query)}")
            leases += leases_of(document)
            cursor = document.get("next_cursor")
            if not cursor:
                return tuple(leases)

    def held_paths(self, paths: Iterable[StrPath]) -> Mapping[str, Lease]:
        """The paths that another holds, each with the conflicting lease."""
        wanted, held = _Words().paths(to_list(paths, "paths")), dict[str, Lease]()
        for start in range(0, len(wanted), MOST_PATHS):
            body = {"paths": wanted[start : start + MOST_PATHS], **self._place}
            findings = self._ask("POST", "/v1/check", body).get("findings", ())
            held |= {
                x["path"]: values.lease_of(x["lease"]) for x in findings if x["severity"] == "block"
            }
        return held

    def events(self, *, after: str | None = None) -> Generator[GatewayEvent, None, None]:
        """Events as they happen; ``after`` is the id of the last event seen.

        It ends when the gateway closes: continue after the last id then.
        """
        yield from self._events(after, lambda _connection: None)

    def _events(
        self, after: str | None, opened: Callable[[socket], None]
    ) -> Generator[GatewayEvent, None, None]:
        if self._place:
            raise UsageError("events are those of the gateway's own layer: connect without one")
        if after is not None:
            check_text(after, what="the id of an event")
        headers = {"Last-Event-ID": after} if after else {}
        connection = self._open()
        try:
            connection.connect()
            opened(connection.sock)
            answer = self._sent(connection, "GET", "/v1/events", None, headers)
            if answer.status != 200:
                raise refusal_of(answer.status, _read(answer) or {})
            with answer:
                yield from events_of(answer)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the gateway cannot be reached: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unavailable("the server that answered is not a gateway") from None
        finally:
            connection.close()

    # --- how ----------------------------------------------------------------------------------

    def _carry_out(self, name: str, given: Mapping[str, Any]) -> Any:
        """Ask the gateway for the method of this name with these arguments."""
        method = GATEWAY_METHODS[name]
        verb, _, path = method.route.partition(" ")
        body = {**method.values(_Words(), method.differing(given)), **self._place}
        if "{}" in path:
            name = body.pop("resource") if "resource" in body else body.pop("resources")[0]
            path = path.format(quote(name, safe=""))
        if method.verb == "extend":
            body["extend"] = body.pop("duration")
        if "since" in body:
            body["since"] = moment_of(body["since"]).isoformat()
        if in_query := verb in ("GET", "DELETE"):
            words = urlencode({x: "true" if y is True else y for x, y in body.items()})
            path += words and ("&" if "?" in path else "?") + words
        key = "" if verb == "GET" else os.urandom(16).hex()
        answer = self._ask(verb, path, None if in_query else body, key=key)
        leases = leases_of(answer)
        if method.answer == LEASE and not leases:
            raise UnknownOutcome("the gateway's answer has no lease")
        if answer.get("capped_to_max"):
            most = answer.get("max_ttl_seconds")
            leases = tuple(replace(x, capped=True, max_ttl_seconds=most) for x in leases)
        return method.answer_of(Result(body=answer, lines=tuple, leases=leases))

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, key: str = ""
    ) -> dict[str, Any]:
        headers = {"Idempotency-Key": key} if key else {}
        in_doubt = False  # whether an earlier try may have landed
        for number in range(1, TRIES + 1):
            connection = self._open()
            try:
                answer = self._sent(connection, method, path, body, headers)
                document = _read(answer) or {}
            except (OSError, http.client.HTTPException) as error:
                # A connection that was refused carried nothing.
                in_doubt |= bool(key) and not isinstance(error, ConnectionRefusedError)
                if number < TRIES:
                    time.sleep(PAUSE * number)
                    continue
                kind = UnknownOutcome if in_doubt else Unavailable
                raise kind(f"the gateway does not answer: {error}") from None
            finally:
                connection.close()
            # Sent by a proxy, and not by a gateway.
            if "code" not in document and document.get("ok") is not True:
                if key and number < TRIES and answer.status in MAY_HAVE_LANDED:
                    in_doubt = True
                    continue
                if answer.status < 400:
                    kind = UnknownOutcome if key else Unavailable
                    raise kind(f"the server that answered is not a gateway: HTTP {answer.status}")
            if answer.status >= 400:
                refusal = refusal_of(answer.status, document, changes=bool(key))
                # An earlier try may have landed, and this refusal says nothing of it.
                if in_doubt and answer.status not in DECIDED:
                    raise UnknownOutcome(f"whether the change landed is unknown: {refusal.message}")
                raise refusal
            self.warnings = tuple(document.get("warnings", ()))
            return document
        raise AssertionError("the last try returns or raises")

    def _open(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=PATIENCE, context=context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE)

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        usual = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if self._session is not None:
            # A header has ASCII only.
            usual["Gitlease-Session"] = quote(self._session, safe=" !#$&'()*+,/:;=?@[]")
        connection.request(method, f"{self._path}{path}", data, {**usual, **headers})
        return connection.getresponse()


def connect(
    url: str, *, token: str, session: str | None = None, layer: str | None = None
) -> Connection:
    """The leases behind a gateway, for one session of the token's holder; connects at first use.

        leases = gitlease.connect("http://127.0.0.1:8470", token="glt_...")

    ``layer`` is another layer than the gateway's own, of which ``events`` tells nothing. Raises
    UsageError for an invalid address or layer.
    """
    return Connection(url, token=token, session=session, layer=layer)


def _parse_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError
        valid = url.isascii() and not any(x.isspace() for x in url)
    except ValueError:
        valid = False
    if not valid or parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"invalid gateway address {url[:200]!r}: expected http://HOST:PORT")
    if parts.username or parts.password:
        raise UsageError("the address of a gateway must not contain a password: use token=")
    return parts


class _Words:
    """Reads words as a gateway does: names, and paths from the repository's root."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def is_known(self, resource: str) -> bool:
        return True  # the gateway itself looks

    def resources(self, words: Iterable[ResourceLike], *, claiming: bool = False) -> list[str]:
        texts = list[str]()
        for word in words:
            if isinstance(word, os.PathLike):
                word = path_resource(os.fspath(word))
            texts.append((word if isinstance(word, Resource) else parse_resource(word)).text)
        return texts

    def paths(self, words: Iterable[StrPath]) -> list[str]:
        return [path_resource(to_folder(path)).pattern or "" for path in words]


def _read(answer: http.client.HTTPResponse) -> dict[str, Any] | None:
    with answer:
        whole = answer.length is not None and answer.length <= LARGEST
        # Without a number an answer that was cut off raises IncompleteRead.
        data = answer.read() if whole else answer.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise Unavailable(f"the gateway's answer is larger than {LARGEST // 1024**2} MiB")
    try:
        document = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


MOST_AT_ONCE = 256  # calls at the same time


class AsyncConnection(AwaitedGatewayVerbs):
    """The verbs of ``Connection``, awaited, each in a thread of its own.

    A cancelled call goes on in its thread: its outcome is unknown until you read it.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.threads = ThreadPoolExecutor(MOST_AT_ONCE, "gitlease")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Nothing is released: a lease ends by ``release``, ``done`` or time."""
        self.threads.shutdown(wait=False)

    async def list(
        self, *, holder: str | None = None, state: str | None = None, path: str | None = None
    ) -> tuple[Lease, ...]:
        """The leases of the ledger, sorted by resource; by default those that block others."""
        options = {"holder": holder, "state": state, "path": path}
        return await self._call(Connection.list, (), options)

    async def held_paths(self, paths: Iterable[StrPath]) -> Mapping[str, Lease]:
        """The paths that another holds, each with the conflicting lease."""
        return await self._call(Connection.held_paths, (paths,), {})

    async def _call(
        self, verb: Callable[..., T], args: Any, options: Any, *, grants: bool = False
    ) -> T:
        work = functools.partial(verb, self.connection, *args, **options)
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def events(self, *, after: str | None = None) -> AsyncGenerator[GatewayEvent, None]:
        """Events as they happen, as from ``Connection.events``."""
        opened, ended = list[socket](), threading.Event()

        # The generator may be closed while its thread still connects.
        def begin(connected: socket) -> None:
            opened.append(connected)
            if ended.is_set():
                raise ConnectionAbortedError

        events = self.connection._events(after, begin)
        loop = asyncio.get_running_loop()
        try:
            while event := await loop.run_in_executor(self.threads, next, events, None):
                yield event
        finally:
            ended.set()
            # Ends the thread that reads it.
            for connected in opened:
                with contextlib.suppress(OSError):
                    connected.shutdown(SHUT_RDWR)


def connect_async(
    url: str, *, token: str, session: str | None = None, layer: str | None = None
) -> AsyncConnection:
    """The same for programs with an event loop: every verb is awaited."""
    return AsyncConnection(connect(url, token=token, session=session, layer=layer))
