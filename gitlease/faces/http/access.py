"""Access to a gateway: tokens, hosts, origins and rates, checked before a request is read."""

from __future__ import annotations

import base64
import binascii
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass
from gitlease.gateway.tokens import Token

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


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The hosts that requests may be addressed to; with ``addresses`` also every IP address."""

    names: frozenset[str]
    addresses: bool = False

    def __contains__(self, name: str) -> bool:
        if name in self.names:
            return True
        try:
            return self.addresses and bool(ip_address(name))
        except ValueError:
            return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that host."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


class Access:
    """Admits requests by their tokens, each token at a limited rate.

    ``find_token`` maps a secret and a time (wall-clock milliseconds) to its token.
    """

    def __init__(
        self,
        find_token: Callable[[str, int], Token | None],
        *,
        hosts: AllowedHosts,
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
            self._count("")  # all guesses share one rate
            raise _unknown_token()
        if token.scopes.isdisjoint(scopes):
            check_scope(token, scopes[0])
        self._count(token.id)
        return token

    def check_still_valid(self, headers: Mapping[str, str], *, secret: str | None = None) -> None:
        """Raise Refused if the token of a request in progress has expired or been revoked."""
        secret = secret or _secret(headers)
        if secret is None or self._find(secret) is None:
            raise _unknown_token()

    def is_still_valid(self, headers: Mapping[str, str], *, secret: str | None = None) -> bool:
        """Whether the token of a request in progress is still valid."""
        try:
            self.check_still_valid(headers, secret=secret)
        except Refused:
            return False
        return True

    def _find(self, secret: str) -> Token | None:
        try:
            return self._find_token(secret, time.time_ns() // 1_000_000)
        except GitleaseError as error:  # its message names files, which stay private
            logging.getLogger("gitlease").error("%s", error)
            raise Refused(500, "invalid", "the tokens of this gateway cannot be read") from None

    def check_address(self, headers: Mapping[str, str]) -> None:
        """Raise Refused for a foreign origin or host: cross-site requests and DNS rebinding."""
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if _has_port(host) else host
        if name.lower().strip("[]").removesuffix(".") not in self._hosts:
            raise Refused(
                421,
                "wrong_host",
                "this gateway does not answer for that host",
                "gitlease serve --allow-host NAME, on the gateway's machine",
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refused(403, "wrong_origin", "pages of other sites may not send requests here")

    def _count(self, token: str) -> None:
        now = time.monotonic()
        with self._lock:
            left, at = self._buckets.get(token, (self.burst, now))
            left = min(self.burst, left + (now - at) * self.rate)
            self._buckets[token] = (left - 1.0 if left >= 1.0 else left), now
        if left < 1.0:
            seconds = math.ceil((1.0 - left) / self.rate)
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


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and (host.startswith("[") or host.count(":") == 1)


def _secret(headers: Mapping[str, str]) -> str | None:
    # Bearer, the password of Basic, or X-API-Key.
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
