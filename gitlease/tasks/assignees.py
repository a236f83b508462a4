"""Whom the names in task files mean: found among the authors of commits, for ``init`` to propose.

A name counts as known only if it fits one person: a proposal must not give a task to another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from gitlease.kernel.git.repository import Repository, ask
from gitlease.kernel.rules.edge import People, bare_name, handle_of, means_nobody, same_name
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.lease import login_of, person_key
from gitlease.kernel.settings.text import letters

MOST_COMMITS = 2_000  # whose authors are looked at


@dataclass(frozen=True)
class FoundPeople:
    """``people`` has a name for each email, ``handles`` says that all others are @localpart.

    ``unknown`` are the names that fit no author, or several.
    """

    people: Mapping[str, str]
    handles: bool
    unknown: tuple[str, ...]


def fitting_people(repository: Repository, names: Iterable[str], known: People) -> FoundPeople:
    """Find out whom these names mean that are neither emails nor known already."""
    counted = Counter(x.strip() for x in names if not means_nobody(x) and not known.holders_of(x))
    if not counted:
        return FoundPeople({}, known.handles, ())
    authors = _authors(repository)
    spelt = [name for name, _ in counted.most_common()]
    by_name = {name: _emails_of(name, authors) for name in spelt}
    handles = known.handles or (
        not known.names and all(x.startswith("@") for x in spelt) and not _all_differ(by_name)
    )
    people, unknown = dict[str, str](), list[str]()
    for name, emails in by_name.items():
        if handles and any(same_name(name, handle_of(email)) for email in emails):
            continue
        if len(emails) == 1 and emails[0] not in people and emails[0] not in known.names:
            people[emails[0]] = name
        elif not handles or not name.startswith("@"):
            unknown.append(name)
    return FoundPeople(people, handles, tuple(unknown))


def _all_differ(by_name: Mapping[str, list[str]]) -> bool:
    # Handles of a host, none of which is in its person's email: @localpart would be wrong for all.
    return all(
        emails and not any(same_name(name, handle_of(email)) for email in emails)
        for name, emails in by_name.items()
    )


def _authors(repository: Repository) -> list[tuple[str, str]]:
    """The name and the email of each author, and of the person here; by the mailmap."""
    words = ("log", f"--max-count={MOST_COMMITS}", "--format=%aN%x1f%aE", "HEAD", "--")
    result = ask(repository, *words)
    lines = result.out.decode("utf-8", "replace").split("\n") if result.code == 0 else []
    config = repository.config
    own = (config.get("user.name") or "", config.get("user.email") or "")
    pairs = (line.split("\x1f") for line in lines)
    found = chain([own], ((x[0], x[1]) for x in pairs if len(x) == 2))
    emails = {person_key(email): (name, email) for name, email in reversed([*found])}
    return [
        (name, email)
        for name, email in emails.values()
        if email.count("@") == 1 and email.isprintable() and " " not in email
    ]


def _emails_of(name: str, authors: Iterable[tuple[str, str]]) -> list[str]:
    """The emails of the authors whom a name fits best: by the whole name, else by the first."""
    word, first = bare_name(name), list[str]()
    whole = list[str]()
    for author, email in authors:
        called = (author, email.partition("@")[0], login_of(email) or "")
        if any(x and (word == bare_name(x) or letters(name) == letters(x) != "") for x in called):
            whole.append(email)
        elif word == bare_name(author.partition(" ")[0]):
            first.append(email)
    return whole or first
