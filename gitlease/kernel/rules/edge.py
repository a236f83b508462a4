"""The assigned edge, durably in a task's file, and the people whom the names there mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum

from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass, field
from gitlease.kernel.rules.lease import login_of, person_key, same_person
from gitlease.kernel.rules.resources import Resource

LONGEST_SHOWN = 100
LONGEST_EMAIL = 254
_EMAIL = re.compile(r"[^\s@]+@[^\s@]+")
# What people and templates write in the place of a name while a task has no assignee.
PLACEHOLDERS = frozenset(
    ("", "~", "-", "--", "–", "—", "n/a", "tbd", "tba", "null", "none", "nobody", "no one")
) | {"unassigned", "not assigned"}


class Progress(Enum):
    """The meaning of a status word; the words themselves are settings of each project."""

    TODO = "todo"
    IN_PROGRESS = "in_progress"
    DONE = "done"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task as in its file: texts as written there, ``""`` if absent.

    ``paths`` are patterns relative to the root. ``file`` is relative to the root, and ``line`` is
    that of the assigned field (or the first line), for messages. ``exempt``: a label or a field
    says that its claims are never called stale. ``outdated`` has the names in the file whose
    assignment the ledger ended since; they are not among the assigned. ``records`` has the names
    of those to whom the ledger's records assign it. ``ref``: what has it where the work tree lacks
    it (a branch, or the index).
    """

    resource: Resource
    file: str
    title: str = ""
    status: str = ""
    progress: Progress = Progress.TODO
    assigned: tuple[str, ...] = ()
    priority: str = ""
    depends_on: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    created: str = ""
    line: int = 1
    exempt: bool = False
    outdated: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    ref: str = ""

    @property
    def everyone(self) -> dict[str, str]:
        """Everyone to whom it is assigned, and where that stands: record, file, or both."""
        files = {name: "both" if name in self.records else "file" for name in self.assigned}
        return files | {name: "record" for name in self.records if name not in files}

    @property
    def is_done(self) -> bool:
        return self.progress is Progress.DONE


@dataclass(frozen=True)
class EdgeEdit:
    """A change of one task file: the names to remove and to add, and the new status.

    Names are compared by ``same_name``, so making the same edit again changes nothing. None leaves
    the status, or adds no name.
    """

    remove: tuple[str, ...] = ()
    add: str | None = None
    status: str | None = None


@dataclass(frozen=True)
class Assignee:
    """A name in a task file that is not the caller's, and the holders that it stands for.

    ``handle``: if there are none, it stands for anyone whose email has this local part.
    """

    name: str
    holders: tuple[str, ...] = ()
    handle: bool = False

    def is_holder(self, holder: str) -> bool:
        if self.handle and not self.holders:
            return same_name(self.name, handle_of(holder))
        return any(same_person(holder, mine) for mine in self.holders)

    @property
    def known(self) -> str:
        """The printable text for a message: the holder if there is exactly one, else the name."""
        return self.holders[0] if len(self.holders) == 1 else printable(self.name)


@dataclass(frozen=True)
class People:
    """How holders are called in task files: by the map, else by their email.

    ``handles``: holders not in the map are called ``@localpart`` of their email, as in Backlog.md.
    ``usual`` maps further addresses of people to their usual ones, as a mailmap does; both as
    ``person_key`` has them.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    handles: bool = False
    usual: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, holder: str) -> str:
        """The name to write for a holder. Invalid if the map gives it to somebody else."""
        for is_theirs in (same_person, self._same_by_mailmap):
            for email, name in self.names.items():
                if is_theirs(email, holder):
                    return _name_of_somebody(name, holder)
        name = handle_of(holder) if self.handles else holder
        others = self._mapped_to(name)
        # Written all the same it would be read as theirs.
        if others:
            raise Invalid(
                f"{holder} would be {name} in task files, but that name belongs to {others[0]}",
                hints=(f"add {holder} to people in .gitlease.yaml",),
            )
        return name

    def is_mine(self, name: str, holder: str) -> bool:
        """Return whether a name in a task file means this holder."""
        mapped = self._mapped_to(name)
        if mapped:
            return any(self.is_same(email, holder) for email in mapped)
        if self.is_same(name, holder):
            return True
        in_map = any(same_person(email, holder) for email in self.names)
        return self.handles and not in_map and same_name(name, handle_of(holder))

    def is_same(self, one: str, other: str) -> bool:
        """Return whether two addresses are one person's, by ``names`` or by the mailmap too."""
        if same_person(one, other):
            return True
        names = [[n for e, n in self.names.items() if same_person(e, x)] for x in (one, other)]
        if any(same_name(x, y) for x in names[0] for y in names[1]):
            return True
        # Two names in the settings are two people, whatever a mailmap says.
        return not all(names) and self._same_by_mailmap(one, other)

    def _same_by_mailmap(self, one: str, other: str) -> bool:
        if "@" not in one or "@" not in other:
            return False
        keys = person_key(one), person_key(other)
        return self.usual.get(keys[0], keys[0]) == self.usual.get(keys[1], keys[1])

    def holders_of(self, name: str) -> tuple[str, ...]:
        """The holders that a name stands for: by the map, or as an email."""
        is_email = len(name) <= LONGEST_EMAIL and _EMAIL.fullmatch(name) and name.isprintable()
        return self._mapped_to(name) or ((name,) if is_email else ())

    def others(self, assigned: Iterable[str], holder: str) -> tuple[Assignee, ...]:
        """Everyone in a list of assignees; nobody if the holder is among them."""
        names = tuple(assigned)
        # Several assignees share a task: no one of them is kept out by the others.
        if any(self.is_mine(name, holder) for name in names):
            return ()
        return tuple(Assignee(n, self.holders_of(n), self.handles) for n in names)

    def _mapped_to(self, name: str) -> tuple[str, ...]:
        return tuple(email for email, known in self.names.items() if same_name(known, name))


def handle_of(holder: str) -> str:
    """``@localpart`` of an email: how Backlog.md calls people."""
    return "@" + holder.partition("@")[0]


def _name_of_somebody(name: str, holder: str) -> str:
    if not means_nobody(name):
        return name
    raise Invalid(
        f"people calls {holder} {printable(name)}, which means nobody in task files",
        hints=(f"give {holder} another name under people in .gitlease.yaml",),
    )


def means_nobody(name: str) -> bool:
    """True for a placeholder, such as ``TBD``: the task is assigned to nobody.

    A leading @ makes it a name: ``@none`` is the handle of none@example.com.
    """
    return person_key(name.strip()) in PLACEHOLDERS


def same_name(one: str, other: str) -> bool:
    """True if two names in task files mean the same: neither ASCII case nor a leading @ matters."""
    return bare_name(one) == bare_name(other)


def bare_name(name: str) -> str:
    """The name as it is compared: without a leading @, ASCII letters in lower case."""
    return person_key(name.strip()).removeprefix("@")


def printable(name: str) -> str:
    """A name fit for a line of a message, however it was written."""
    short = name if len(name) <= LONGEST_SHOWN else name[:LONGEST_SHOWN] + "…"
    return short if short.isprintable() and short.strip() == short and short else ascii(short)


ADDRESSES = 8  # of one person, who are told of something


class Persons:
    """The persons of one repository.

    ``mailmap`` maps addresses to canonical ones. ``known`` has further known addresses: authors
    of commits, holders of leases; those in the people map are always known.
    """

    def __init__(
        self, people: People, mailmap: Mapping[str, str] | None = None, known: Iterable[str] = ()
    ) -> None:
        self.people = people
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

    def usual(self, email: str) -> str:
        """The address, as ``person_key`` has it, that stands for all of a person's."""
        folded = person_key(email)
        return self._usual.get(folded, folded)

    def emails(self, name: str) -> tuple[str, ...]:
        """Every known address of the person that a name means; none if there is none."""
        if name not in self._found:
            word = person_key(name.strip())
            near = [*self._by_word.get(word, ()), *self._by_word.get(word.removeprefix("@"), ())]
            near += self.people.holders_of(name)
            named = [
                email
                for email in dict.fromkeys(near)
                if person_key(email) in self._by_word and self.people.is_mine(name, email)
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
        mapped = (n for e, n in self.people.names.items() if person_key(e) in folded)
        words = (email.partition("@")[0] for email in every)
        return frozenset(word.strip().removeprefix("@") for word in (*mapped, *words))

    def stands_for(self, name: str, email: str) -> bool:
        """Return whether a name in a task file means whoever has this address."""
        usual = self.usual(email)
        is_known = any(self.usual(known) == usual for known in self.emails(name))
        return is_known or self.people.is_mine(name, email)

    def assignee(self, name: str) -> Assignee:
        """A name with the addresses of whoever it means, as far as they are known."""
        holders = self.emails(name)[:ADDRESSES] or self.people.holders_of(name)
        return Assignee(name, holders, self.people.handles)

    def called(self, name: str) -> str:
        """How to call whoever a name means: by an address where there is one, else by the name."""
        holders = self.people.holders_of(name) or self.emails(name)
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
            known_as = self._canonical.get(email, email)
            keys = {person_key(known_as)} if email else set()
            for address in (email, known_as) if email else ():
                keys |= {_name_key(n) for e, n in self._names.items() if same_person(e, address)}
                login = login_of(address)
                keys |= {_name_key(login)} if login else set()
            self._known[email] = frozenset(keys)
        return self._known[email]

    def of_all(self, emails: Iterable[str]) -> frozenset[str]:
        """The keys of some people together."""
        return frozenset[str]().union(*(self.of(email) for email in emails))

    def of_login(self, login: str) -> frozenset[str]:
        """The key of a host's login: that of whoever is called so in task files."""
        return frozenset({_name_key(login)})


def _name_key(name: str) -> str:
    return "@" + bare_name(name)  # no address begins with @
