"""The tokens of a gateway: holders, scopes and expiry.

A token's secret is shown once, when it is made; only its SHA-256 is stored.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from gitlease.kernel.git.files import (
    LOCK,
    cannot_keep,
    drop_leftovers,
    exclusive,
    read_with_status,
    replace_file,
)
from gitlease.kernel.rules.errors import Invalid, NotFound, UsageError, shown
from gitlease.kernel.rules.frozen import JSON, dataclass, field
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import is_holder

FILE = "tokens.json"
VERSION = 1
PREFIX = "glt_"
READ, WRITE = "read", "write"
SCOPES = frozenset({READ, WRITE})
BOARD, LINK = "board", "link"  # scopes of a browser's cookie, and of the one-time link to it
COOKIE_LASTS, LINK_LASTS = 12 * 3_600, 60  # seconds
MOST = 10_000  # tokens of one repository
LARGEST = 8 * 1024 * 1024  # bytes of the file
PATIENCE = 10.0  # seconds to wait for another change

_NAME = r"[A-Za-z0-9_.-]{1,64}"
_ID = r"[0-9a-f]{8}"
_HASH = r"[0-9a-f]{64}"


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token without its secret. Times are wall-clock milliseconds; None: it never expires."""

    id: str
    email: str
    name: str
    scopes: tuple[str, ...]
    created_at: int
    expires_at: int | None
    sha256: str = field(repr=False)  # of the secret

    def is_over(self, now: int) -> bool:
        """Return whether it has expired."""
        return self.expires_at is not None and now >= self.expires_at


_TokensByHash = dict[str, Token]  # by the SHA-256 of the secret, oldest first


class Tokens:
    """The tokens in a folder of one repository. Every method raises Invalid for a damaged file."""

    def __init__(self, folder: str, *, patience: float = PATIENCE) -> None:
        self._folder, self._patience = folder, patience
        self._file = os.path.join(folder, FILE)
        self._known: _TokensByHash = {}
        self._stat: tuple[int, ...] = ()

    def add(
        self,
        email: str,
        *,
        name: str | None,
        scopes: Collection[str],
        expires: int | None,
        now: int,
    ) -> tuple[Token, str]:
        """Add a token; return it and its secret, which is not stored.

        The ``name`` defaults to the id. ``expires`` is in seconds from now, None for never; ``now``
        is in wall-clock milliseconds. Raises UsageError for a bad value or a name in use, Invalid
        if there are too many or the file cannot be written.
        """
        if not is_holder(email):
            raise UsageError(f"invalid email {shown(email)}: expected one word without spaces")
        if name is not None and not _is_name(name):
            raise UsageError(
                f"invalid token name {shown(name)}: expected 1-64 of A-Z a-z 0-9 _ . -, "
                "and not eight hex digits, which would be an id"
            )
        if not scopes or not SCOPES.issuperset(scopes):
            raise UsageError(f"scopes are {READ}, {WRITE} or both")
        with self._changing() as kept:
            if name is not None and any(x.name == name for x in kept.values()):
                raise UsageError(f"token {name} exists already", hints=("choose another name",))
            return _put_new(kept, email, name, tuple(sorted(scopes)), expires, now)

    def link(self, email: str, now: int) -> str:
        """The secret of a link to the board, valid once, for ``LINK_LASTS`` seconds.

        Expired links and cookies are removed.
        """
        with self._changing() as kept:
            for digest, token in [*kept.items()]:
                if token.is_over(now) and not SCOPES.issuperset(token.scopes):
                    del kept[digest]
            return _put_new(kept, email, None, (LINK,), LINK_LASTS, now)[1]

    def withdraw(self, secret: str) -> None:
        """Remove a link; an unknown one is ignored."""
        with self._changing() as kept:
            kept.pop(_hash(secret), None)

    def redeem(self, secret: str, now: int) -> str | None:
        """Exchange a link for a cookie's secret, valid for ``COOKIE_LASTS`` seconds.

        None if the link is unknown, was used before, or has expired.
        """
        with self._changing() as kept:
            link = kept.get(_hash(secret))
            # A link works once: whoever reads it in a browser's history later gets nothing.
            if link is None or link.scopes != (LINK,) or link.is_over(now):
                return None
            del kept[_hash(secret)]
            return _put_new(kept, link.email, None, (BOARD,), COOKIE_LASTS, now)[1]

    def listed(self) -> list[Token]:
        """Every token that was not revoked, including expired ones, oldest first."""
        return [*self._current().values()]

    def revoke(self, id_or_name: str) -> Token:
        """Revoke a token at once, and return it. Raises NotFound."""
        with self._changing() as kept:
            for digest, token in kept.items():
                if id_or_name in (token.id, token.name):
                    return kept.pop(digest)
            raise NotFound(f"no token {shown(id_or_name)}")

    def holder_of(self, secret: str, now: int) -> Token | None:
        """The token of a secret; None if it is unknown, revoked or expired."""
        # Looked up by its hash, so the time that it takes tells nothing of a secret.
        token = self._current().get(_hash(secret))
        return None if token is None or token.is_over(now) else token

    def _current(self) -> _TokensByHash:
        # Looked at each time: a revocation counts at once, also by another process.
        try:
            there = os.stat(self._file, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            self._known, self._stat = {}, ()
            return self._known
        except OSError as error:
            raise self._unreadable(error.strerror or "unknown") from None
        if _changes(there) != self._stat:
            self._known, self._stat = self._read()
        return self._known

    def _read(self) -> tuple[_TokensByHash, tuple[int, ...]]:
        try:
            read = read_with_status(self._file, LARGEST)
        except OSError as error:
            raise self._unreadable(error.strerror or "unknown") from None
        if read is None:
            raise self._unreadable("not a regular file")
        data, there = read
        # Others may have read the hashes, which is no harm, or have written their own, which is.
        if there.st_mode & 0o077:
            file = shlex.quote(self._file)
            raise Invalid(
                f"{self._file} is accessible to others than its owner",
                hints=(f"check that it is unchanged, then: chmod 600 {file}",),
            )
        if len(data) > LARGEST:
            raise self._unreadable(f"larger than {LARGEST:,} bytes")
        try:
            return _tokens_of(json.loads(data)), _changes(there)
        except (LookupError, TypeError, ValueError, RecursionError):
            raise self._unreadable("damaged") from None

    def _unreadable(self, why: str) -> Invalid:
        file = shlex.quote(self._file)
        return Invalid(
            f"the gateway's tokens cannot be read: {self._file}: {why}",
            hints=(f"restore a backup, or make new tokens after: mv {file} {file}.bad",),
        )

    @contextmanager
    def _changing(self) -> Iterator[_TokensByHash]:
        # The tokens, locked; they are written if the block succeeds.
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            # A folder that was there before may be open to others.
            os.chmod(self._folder, 0o700)
        except OSError as error:
            raise cannot_keep(self._folder, error) from None
        lock = os.path.join(self._folder, LOCK)
        with exclusive(lock, timeout=self._patience) as alone:
            # Or one of two changes would undo the other: a revocation, say.
            if not alone:
                raise Invalid(
                    f"{lock} cannot be locked", hints=("something else changes tokens: try again",)
                )
            kept = dict(self._current())
            yield kept
            self._write(kept)

    def _write(self, kept: _TokensByHash) -> None:
        value = {"version": VERSION, "tokens": [JSON.dump(token) for token in kept.values()]}
        data = json.dumps(value, indent=1, ensure_ascii=False)
        if len(kept) > MOST or len(data.encode()) > LARGEST:
            raise Invalid(
                f"a gateway has at most {MOST:,} tokens", hints=("revoke those that are not used",)
            )
        try:
            drop_leftovers(self._folder)
            replace_file(self._file, data.encode(), mode=0o600)
        except OSError as error:
            raise cannot_keep(self._folder, error) from None


def _put_new(
    kept: _TokensByHash,
    email: str,
    name: str | None,
    scopes: tuple[str, ...],
    expires: int | None,
    now: int,
) -> tuple[Token, str]:
    secret = PREFIX + urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
    taken, id = {x.id for x in kept.values()}, os.urandom(4).hex()
    while id in taken:
        id = os.urandom(4).hex()
    made = Token(
        id=id,
        email=email,
        name=name or id,
        scopes=scopes,
        created_at=now,
        expires_at=None if expires is None else now + expires * MS,
        sha256=_hash(secret),
    )
    kept[made.sha256] = made
    return made, secret


def _is_name(word: str) -> bool:
    return bool(re.fullmatch(_NAME, word)) and not re.fullmatch(_ID, word)


def _hash(secret: str) -> str:
    # For 256 random bits that is enough: slow hashes are for passwords that people choose.
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _changes(there: os.stat_result) -> tuple[int, ...]:
    # Whatever differs once another file was moved into its place.
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns


def _tokens_of(data: Any) -> _TokensByHash:
    # Raises LookupError, TypeError or ValueError for anything that was not written here.
    tokens = [JSON.load(Token, x) for x in data["tokens"]]
    for several in ({x.sha256 for x in tokens}, {x.id for x in tokens}, {x.name for x in tokens}):
        if len(several) != len(tokens):
            raise ValueError
    sound = data["version"] == VERSION and len(tokens) <= MOST
    for token in tokens:
        scopes = set(token.scopes)
        sound &= token.name == token.id or _is_name(token.name)
        sound &= bool(scopes) and (scopes <= SCOPES or scopes in ({BOARD}, {LINK}))
        sound &= bool(re.fullmatch(_ID, token.id) and re.fullmatch(_HASH, token.sha256))
        sound &= min(token.created_at, token.expires_at or 0) >= 0 and is_holder(token.email)
    if not sound:
        raise ValueError
    return {x.sha256: x for x in tokens}
