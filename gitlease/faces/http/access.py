"""Who may ask, and how often: tokens, hosts, origins and rates, before anything is read."""

from __future__ import annotations

import base64
import binascii
import logging
import threading
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, Protocol

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass

RATE, BURST = 100.0, 200.0  # requests a second of a token, and how many may come at once
REALM = 'Bearer realm="gitlease"'


class Refused(Exception):
    """A request that is not let in; ``document`` is the problem that says why."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *hints: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})
        self.document: dict[str, Any] = {"code": code, "message": message, "hints": list(hints)}


class KnownToken(Protocol):
    """A token as it is kept."""

    @property
    def id(self) -> str: ...
    @property
    def email(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def scopes(self) -> frozenset[str]: ...


Keys = Callable[[str, int], KnownToken | None]
"""Gives the token that a secret is, at a time in wall-clock milliseconds; None for none."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request comes from, by its token alone."""

    holder: str
    token_id: str
    name: str
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """What requests may be addressed to: names, and with ``addresses`` every IP address."""

    names: frozenset[str]
    addresses: bool = False

    def has(self, name: str) -> bool:
        """Whether a gateway answers for a host."""
        if name in self.names:
            return True
        try:
            return self.addresses and bool(ip_address(name))
        except ValueError:
            return False


def is_loopback(host: str) -> bool:
    """Whether only this machine gets there."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


class Access:
    """Lets callers in by their tokens, each at a rate."""

    def __init__(self, keys: Keys, *, hosts: AllowedHosts) -> None:
        self._keys, self._hosts = keys, hosts
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def caller(
        self, headers: Mapping[str, str], scope: str, *, secret: str | None = None
    ) -> Caller:
        """Who asks. Raises Refused: 401 without a token, 403 for a wrong scope, 429 for a rate.

        ``secret`` is what was brought in another way than those of tokens.
        """
        self.check_address(headers)
        secret = secret or _secret(headers)
        if secret is None:
            raise Refused(
                401,
                "unauthorized",
                "this needs a token: Authorization: Bearer TOKEN",
                "gitlease serve token add EMAIL makes one, where the gateway runs",
                headers={"WWW-Authenticate": REALM},
            )
        known = self._known(secret)
        if known is None:
            self._count("")  # all that guess share one
            raise _unknown_token()
        if scope not in known.scopes:
            raise Refused(403, "forbidden", f"the token {known.name} may not {scope}")
        self._count(known.id)
        return Caller(known.email, known.id, known.name, known.scopes)

    def check_still_known(self, headers: Mapping[str, str], *, secret: str | None = None) -> None:
        """Refused where the token of a request that goes on is not good any more."""
        secret = secret or _secret(headers)
        if secret is None or self._known(secret) is None:
            raise _unknown_token()

    def _known(self, secret: str) -> KnownToken | None:
        try:
            return self._keys(secret, time.time_ns() // 1_000_000)
        except GitleaseError as error:  # it names files, which are nobody's business outside
            logging.getLogger("gitlease").error("%s", error)
            raise Refused(500, "invalid", "the tokens of this gateway cannot be read") from None

    def check_address(self, headers: Mapping[str, str]) -> None:
        """Refused where a page of another site has a browser ask, or leads a name here."""
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if _has_port(host) else host
        if not self._hosts.has(name.lower().strip("[]").removesuffix(".")):
            raise Refused(
                421,
                "wrong_host",
                "this gateway does not answer for the host that was asked",
                "gitlease serve --allow-host NAME, where the gateway runs",
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refused(403, "wrong_origin", "pages of other sites may not ask here")

    def _count(self, token: str) -> None:
        now = time.monotonic()
        with self._lock:
            left, at = self._buckets.get(token, (BURST, now))
            left = min(BURST, left + (now - at) * RATE)
            self._buckets[token] = max(0.0, left - 1.0), now
        if left < 1.0:
            raise Refused(
                429,
                "too_many_requests",
                f"more than {RATE:g} requests a second",
                headers={"Retry-After": "1"},
            )


def _unknown_token() -> Refused:
    return Refused(
        401,
        "unauthorized",
        "this token is not known, or is not good any more",
        "gitlease serve token list shows those that are",
        headers={"WWW-Authenticate": REALM},
    )


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and (host.startswith("[") or host.count(":") == 1)


def _secret(headers: Mapping[str, str]) -> str | None:
    """The token of a request: Bearer, the password of Basic, or X-API-Key."""
    kind, _, rest = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and rest.strip():
        return rest.strip()
    if kind.lower() == "basic":
        try:
            said = base64.b64decode(rest.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        return said.partition(":")[2] or None
    return headers.get("x-api-key") or None
