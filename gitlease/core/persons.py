"""Whom a name in a task file means: one person may have several addresses.

The people map says which name is whose, the mailmap of the repository which addresses are one
person's. Both are asked at once, so that nobody is called idle who works under another address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitlease.core.edge import Assignee, People, bare_name
from gitlease.core.holder import login_of, person_key
from gitlease.core.lease import same_person

ADDRESSES = 8  # of one person, who are told of something


class Persons:
    """The persons of one repository.

    ``mailmap`` maps addresses to canonical ones. ``known`` has further known addresses: authors
    of commits, holders of leases; those in the people map are always known.
    """

    def __init__(
        self, people: People, mailmap: Mapping[str, str] | None = None, known: Iterable[str] = ()
    ) -> None:
        self._people = people
        pairs = dict(mailmap or {})
        self._usual = {person_key(one): person_key(usual) for one, usual in pairs.items()}
        self._same: dict[str, list[str]] = {}
        self._by_word: dict[str, list[str]] = {}
        self._by_login: dict[str, list[str]] = {}
        for email in dict.fromkeys((*people.names, *known)):
            self._same.setdefault(self.usual(email), []).append(email)
            for word in (person_key(email), person_key(email.partition("@")[0])):
                self._by_word.setdefault(word, []).append(email)
            if login := login_of(email):
                self._by_login.setdefault(login, []).append(email)
        self._found: dict[str, tuple[str, ...]] = {}
        self._folded: dict[str, frozenset[str]] = {}

    def usual(self, email: str) -> str:
        """The address, as ``person_key`` has it, that stands for all of a person's."""
        folded = person_key(email)
        return self._usual.get(folded, folded)

    def emails(self, name: str) -> tuple[str, ...]:
        """Every known address of the person that a name means; none if there is none."""
        if name not in self._found:
            word = person_key(name.strip())
            near = [*self._by_word.get(word, ()), *self._by_word.get(word.removeprefix("@"), ())]
            near += self._people.holders_of(name)
            named = [
                email
                for email in dict.fromkeys(near)
                if person_key(email) in self._by_word and self._people.is_mine(name, email)
            ]
            named += self._by_login.get(word.removeprefix("@"), [])
            twins = [twin for e in named for twin in self._same.get(self.usual(e), ())]
            each = {person_key(email): email for email in reversed((*named, *twins))}
            self._found[name] = tuple(reversed(each.values()))
        return self._found[name]

    def names(self, holder: str) -> frozenset[str]:
        """Words, one of which is in every name that means a holder."""
        every = (holder, *self._same.get(self.usual(holder), ()))
        folded = {person_key(email) for email in every}
        mapped = (n for e, n in self._people.names.items() if person_key(e) in folded)
        words = (email.partition("@")[0] for email in every)
        return frozenset(word.strip().removeprefix("@") for word in (*mapped, *words))

    def persons(self, name: str) -> frozenset[str]:
        """The usual addresses of whoever a name means."""
        if name not in self._folded:
            self._folded[name] = frozenset(map(self.usual, self.emails(name)))
        return self._folded[name]

    def stands_for(self, name: str, email: str) -> bool:
        """Whether a name in a task file means whoever has this address."""
        return self.usual(email) in self.persons(name) or self._people.is_mine(name, email)

    def assignee(self, name: str) -> Assignee:
        """A name with the addresses of whoever it means, as far as they are known."""
        holders = self.emails(name)[:ADDRESSES] or self._people.holders_of(name)
        return Assignee(name, holders, self._people.handles)

    def called(self, name: str) -> str:
        """How to call whoever a name means: by an address where there is one, else by the name."""
        holders = self._people.holders_of(name) or self.emails(name)
        return Assignee(name, holders[:1]).known


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
    return "@" + bare_name(name)  # no address begins with @
