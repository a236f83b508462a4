"""Who is one person: several addresses of somebody, and what hosts and task files call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitlease.core.holder import login_of, person_key
from gitlease.core.lease import same_person


class Addresses:
    """Keys for people: two addresses are of one person when they have a key in common.

    ``canonical`` has what the project's mailmap makes of addresses, ``names`` what holders are
    called (``people`` in the settings), by which logins of a host are known too.
    """

    def __init__(
        self, *, canonical: Mapping[str, str] | None = None, names: Mapping[str, str] | None = None
    ) -> None:
        self._canonical, self._names = canonical or {}, names or {}
        self._known: dict[str, frozenset[str]] = {}

    def of(self, email: str) -> frozenset[str]:
        """The keys of whoever has this address."""
        if email not in self._known:
            self._known[email] = self._of(email)
        return self._known[email]

    def of_all(self, emails: Iterable[str]) -> frozenset[str]:
        """The keys of some people together."""
        return frozenset[str]().union(*(self.of(email) for email in emails))

    def of_login(self, login: str) -> frozenset[str]:
        """The key of a host's login: that of whoever is called so in task files."""
        return frozenset({_name_key(login)})

    def _of(self, email: str) -> frozenset[str]:
        if not email:
            return frozenset()
        known_as = self._canonical.get(email, email)
        keys = {person_key(known_as)}
        for address in (email, known_as):
            keys |= {_name_key(n) for e, n in self._names.items() if same_person(e, address)}
            login = login_of(address)
            keys |= {_name_key(login)} if login else set()
        return frozenset(keys)


def _name_key(name: str) -> str:
    """No address begins so."""
    return "@" + person_key(name.strip()).removeprefix("@")
