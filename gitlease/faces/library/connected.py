"""``gitlease.connect``: the library's verbs through a gateway, without git and without a clone."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import ssl
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from socket import SHUT_RDWR
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from gitlease.core.errors import GitleaseError, Unavailable, UnknownOutcome, UsageError
from gitlease.core.resources.resource import WHOLE
from gitlease.core.view import Lease
from gitlease.faces.library.answered import (
    GatewayEvent,
    events_of,
    lease_of,
    leases_of,
    refusal_of,
)
from gitlease.faces.library.refusing import refusing_class
from gitlease.faces.library.values import Duration, ResourceLike, to_seconds

P = ParamSpec("P")
T = TypeVar("T")
PATIENCE = 90.0  # seconds for which an answer is waited for
LARGEST = 32 * 1024 * 1024  # bytes of an answer
TRIES = 3  # of a request that got no answer: it is sent again under its key


@refusing_class
class Connection:
    """Leases through a gateway, for the holder of a token, and for one of its runs.

    The verbs are those of ``gitlease.open``, and so are what they return and raise. Each change is
    sent again where its answer is lost, under a key by which it is done once.
    """

    def __init__(self, url: str, *, token: str, session: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise UsageError(f"{url[:200]!r} is no address of a gateway") from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError("this is no token: it is one word, without a line's end")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url[:200]!r} is no address of a gateway: http://HOST:PORT")
        if parts.username or parts.password:
            raise UsageError("the address of a gateway has no password in it: give token=")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path, self._token, self._session = parts.path.rstrip("/"), token, session
        self.warnings: tuple[str, ...] = ()
        """What a person should know of the last answer."""

    def __repr__(self) -> str:
        port = f":{self._port}" if self._port else ""
        return f"<{type(self).__name__} to {self._host}{port}{self._path}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def claim(
        self,
        resource: ResourceLike,
        *,
        scope: str = WHOLE,
        ttl: Duration | None = None,
        paths: Iterable[str] = (),
        reason: str | None = None,
        wait: Duration | None = None,
        takeover: bool = False,
        reopen: bool = False,
        new: bool = False,
        any: bool = False,
    ) -> Lease:
        """Take a lease, or renew one's own; ``wait`` waits for it, a minute at most.

        Raises LeaseHeld with the holder and when it is free, WaitTimeout, PolicyRefused, NotFound,
        Unavailable or UnknownOutcome.
        """
        body = self._terms(scope, ttl, paths, reason, wait, takeover, reopen, new, any)
        return leases_of(self._change("PUT", _at(resource), body))[0]

    def claim_all(
        self,
        resources: Iterable[ResourceLike],
        *,
        scope: str = WHOLE,
        ttl: Duration | None = None,
        paths: Iterable[str] = (),
        reason: str | None = None,
        wait: Duration | None = None,
        takeover: bool = False,
        reopen: bool = False,
        new: bool = False,
        any: bool = False,
    ) -> tuple[Lease, ...]:
        """Take every one of several leases, or none."""
        body = self._terms(scope, ttl, paths, reason, wait, takeover, reopen, new, any)
        body["resources"] = [str(x) for x in resources]
        return leases_of(self._change("POST", "/v1/leases:claim", body))

    def renew(
        self, resource: ResourceLike, *, scope: str | None = None, ttl: Duration | None = None
    ) -> Lease:
        """The heartbeat. Where two thirds of its time are left, the record answers, as it is.

        Raises LeaseLost or NotHolder.
        """
        body = _given(scope=scope, ttl=to_seconds(ttl, "ttl"))
        return leases_of(self._change("PATCH", _at(resource), body))[0]

    def extend(
        self, resource: ResourceLike, duration: Duration, *, scope: str | None = None
    ) -> Lease:
        """Stretch to at least now + ``duration``, or to the policy's maximum."""
        body = _given(scope=scope, extend=to_seconds(duration, "duration"))
        return leases_of(self._change("PATCH", _at(resource), body))[0]

    def release(
        self, resource: ResourceLike, *, scope: str | None = None, note: str | None = None
    ) -> None:
        """Drop one's lease; with none it succeeds. Raises LeaseHeld for someone else's."""
        query = _given(scope=scope, note=note, session=self._session)
        self._change("DELETE", f"{_at(resource)}{_query(query)}", None)

    def done(self, resource: ResourceLike, *, scope: str | None = None) -> None:
        """Finish: the lease ends completed."""
        query = _given(scope=scope, done="true", session=self._session)
        self._change("DELETE", f"{_at(resource)}{_query(query)}", None)

    def show(self, resource: ResourceLike) -> tuple[Lease, ...]:
        """The leases of one resource; none where it is free."""
        return leases_of(self._ask("GET", _at(resource)))

    def list(
        self, *, holder: str | None = None, state: str = "active", path: str | None = None
    ) -> tuple[Lease, ...]:
        """The leases of the ledger, by their resources."""
        found, cursor = list[Lease](), None
        while True:
            query = _given(holder=holder, state=state, path=path, cursor=cursor, limit="1000")
            document = self._ask("GET", f"/v1/leases{_query(query)}")
            found += leases_of(document)
            cursor = document.get("next_cursor")
            if not cursor:
                return tuple(found)

    def claim_next(self, *, ttl: Duration | None = None) -> Lease:
        """Claim the next task of the queue. Raises NothingLeft."""
        body = _given(claim=True, ttl=to_seconds(ttl, "ttl"))
        return leases_of(self._change("POST", "/v1/tasks:next", body))[0]

    def held_paths(self, paths: Iterable[str]) -> Mapping[str, Lease]:
        """Which of some paths another holds, each with the lease that is in the way."""
        body = _given(paths=[str(x) for x in paths], session=self._session)
        found = self._ask("POST", "/v1/check", body)["findings"]
        return {x["path"]: lease_of(x["lease"]) for x in found if x["severity"] == "block"}

    def events(self, *, after: str | None = None) -> Generator[GatewayEvent, None, None]:
        """What happens, as it happens; ``after`` is the id of the last event that was seen.

        It ends when the gateway closes: go on after the last id then.
        """
        yield from self._events(after, lambda _connection: None)

    def _events(
        self, after: str | None, opened: Callable[[http.client.HTTPConnection], None]
    ) -> Generator[GatewayEvent, None, None]:
        headers = {"Last-Event-ID": after} if after else {}
        connection = self._open()
        opened(connection)
        try:
            answer = self._sent(connection, "GET", "/v1/events", None, headers)
            if answer.status != 200:
                raise refusal_of(answer.status, _read(answer))
            with answer:
                yield from events_of(answer)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the gateway cannot be reached: {error}") from None
        finally:
            connection.close()

    # --- how ----------------------------------------------------------------------------------

    def _terms(
        self,
        scope: str,
        ttl: Duration | None,
        paths: Iterable[str],
        reason: str | None,
        wait: Duration | None,
        takeover: bool,
        reopen: bool,
        new: bool,
        any_name: bool,
    ) -> dict[str, Any]:
        switches = {"takeover": takeover, "reopen": reopen, "new": new, "any": any_name}
        return _given(
            scope=None if scope == WHOLE else scope,
            ttl=to_seconds(ttl, "ttl"),
            paths=[str(x) for x in paths] or None,
            reason=reason,
            wait=to_seconds(wait, "wait"),
            **{name: True for name, on in switches.items() if on},
        )

    def _change(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        return self._ask(method, path, body, key=os.urandom(16).hex())

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, key: str = ""
    ) -> dict[str, Any]:
        headers = {"Idempotency-Key": key} if key else {}
        if self._session is not None and body is not None:
            body = {**body, "session": self._session}
        for number in range(1, TRIES + 1):
            connection = self._open()
            try:
                answer = self._sent(connection, method, path, body, headers)
                found = _read(answer)
            except (OSError, http.client.HTTPException) as error:
                if number < TRIES:
                    continue
                refused = isinstance(error, ConnectionRefusedError)  # nothing was sent
                kind = UnknownOutcome if key and not refused else Unavailable
                raise kind(f"the gateway does not answer: {error}") from None
            finally:
                connection.close()
            if answer.status >= 400:
                raise refusal_of(answer.status, found, changes=bool(key))
            if answer.status not in (200, 201) or found.get("ok") is not True:
                kind = UnknownOutcome if key else Unavailable
                raise kind(f"what answers is no gateway: HTTP {answer.status}")
            self.warnings = tuple(found.get("warnings", ()))
            return found
        raise AssertionError("the last try has an answer")

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
        own = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if self._session is not None:
            own["Gitlease-Session"] = quote(self._session, safe=" !#$&'()*+,/:;=?@[]")
        connection.request(method, f"{self._path}{path}", data, {**own, **headers})
        return connection.getresponse()


class _Awaited(Generic[P, T]):
    """A verb of ``Connection``, to be awaited, with its own parameters and answer."""

    def __init__(self, verb: Callable[Concatenate[Connection, P], T]) -> None:
        self._verb = verb

    def __get__(self, made: AsyncConnection, owner: type) -> Callable[P, Any]:
        async def call(*args: P.args, **options: P.kwargs) -> T:
            return await asyncio.to_thread(self._verb, made.connection, *args, **options)

        return call


class AsyncConnection:
    """The verbs of ``Connection``, awaited: each is carried out by a thread of its own."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Nothing is released: a lease ends by ``release``, ``done`` or time."""

    claim = _Awaited(Connection.claim)
    claim_all = _Awaited(Connection.claim_all)
    renew = _Awaited(Connection.renew)
    extend = _Awaited(Connection.extend)
    release = _Awaited(Connection.release)
    done = _Awaited(Connection.done)
    show = _Awaited(Connection.show)
    list = _Awaited(Connection.list)
    claim_next = _Awaited(Connection.claim_next)
    held_paths = _Awaited(Connection.held_paths)

    async def events(self, *, after: str | None = None) -> AsyncGenerator[GatewayEvent, None]:
        """What happens, as it happens, like ``Connection.events``."""
        loop, opened = asyncio.get_running_loop(), list[http.client.HTTPConnection]()
        told: asyncio.Queue[GatewayEvent | GitleaseError | None] = asyncio.Queue()

        def tell(one: GatewayEvent | GitleaseError | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(told.put_nowait, one)

        def read() -> None:
            try:
                for event in self.connection._events(after, opened.append):
                    tell(event)
                tell(None)
            except GitleaseError as error:
                tell(error)

        threading.Thread(target=read, daemon=True).start()
        try:
            while (one := await told.get()) is not None:
                if isinstance(one, GitleaseError):
                    raise one
                yield one
        finally:
            for socket in [x.sock for x in opened if x.sock is not None]:
                with contextlib.suppress(OSError):  # which ends the thread that reads it
                    socket.shutdown(SHUT_RDWR)


def connect(url: str, *, token: str, session: str | None = None) -> Connection:
    """The leases behind a gateway, for one run of the token's holder. Asks nobody yet.

        leases = gitlease.connect("http://127.0.0.1:8470", token="glt_...")

    Raises UsageError for what is no address.
    """
    return Connection(url, token=token, session=session)


def connect_async(url: str, *, token: str, session: str | None = None) -> AsyncConnection:
    """The same for programs with an event loop: every verb is awaited."""
    return AsyncConnection(connect(url, token=token, session=session))


def _at(resource: ResourceLike) -> str:
    return f"/v1/leases/{quote(str(resource), safe='')}"


def _query(values: Mapping[str, Any]) -> str:
    return f"?{urlencode(values)}" if values else ""


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _read(answer: http.client.HTTPResponse) -> dict[str, Any]:
    """The document of an answer. Raises Unavailable for anything else."""
    with answer:
        whole = answer.length is not None and answer.length <= LARGEST
        data = answer.read() if whole else answer.read(LARGEST + 1)  # or IncompleteRead
    if len(data) > LARGEST:
        raise Unavailable(f"the gateway's answer is larger than {LARGEST // 1024**2} MiB")
    try:
        found = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unavailable(f"what answers is no gateway: HTTP {answer.status}")
    return found
