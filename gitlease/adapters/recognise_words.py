"""Which words of a project mean to do, in progress and done: by what they say, then by their place.

The first word of each is the one that gitlease writes, so plain words stand before odd ones:
``Done`` before ``Cancelled``, ``In Progress`` before ``Blocked``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from gitlease.adapters.settings_schema import STATUSES, read_text, shown
from gitlease.domain.errors import UsageError
from gitlease.domain.frozen import dataclass
from gitlease.domain.pattern import fold

BACKLOG_STATUSES = ("To Do", "In Progress", "Done")
MAX_WORDS = 100
MAX_SHOWN = 8

# Only letters and digits count: "in-progress" and "🚧 In Progress" are the same word here.
_PLAIN = {
    "todo": "todo ready open new backlog planned plan pending proposed queued next notstarted "
    "unstarted inbox later triage reopened",
    "in_progress": "inprogress doing wip started active working workinprogress ongoing underway "
    "current implementing developing indevelopment building",
    "done": "done closed complete completed finished resolved fixed shipped merged released",
}
_ODD = {
    "in_progress": "review inreview reviewing codereview toreview readyforreview needsreview "
    "testing intesting test readyfortesting totest qa inqa verifying validating",
    "done": "delivered deployed verified cancelled canceled rejected wontdo wontfix obsolete "
    "abandoned dropped duplicate declined archived",
}
_MEANING = {
    word: (role, rank)
    for rank, table in enumerate((_PLAIN, _ODD))
    for role, words in table.items()
    for word in words.split()
}
_WAITING = frozenset(("blocked", "onhold", "hold", "parked", "paused", "waiting", "deferred"))


@dataclass(frozen=True, slots=True)
class Words:
    """The words of each role, as ``tasks.statuses`` has them, and those without any.

    A role is absent where nothing was found for it, and then has the usual words. ``refused``
    cannot be settings at all.
    """

    roles: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def known(self) -> dict[str, tuple[str, ...]]:
        """The roles in their usual order."""
        return {role: self.roles[role] for role in STATUSES if role in self.roles}

    def unplaced(self) -> str:
        """The words that stand in no role, fit for a message; ``""`` where all do."""
        words = [*self.unknown, *self.refused]
        more = f" and {len(words) - MAX_SHOWN} more" if len(words) > MAX_SHOWN else ""
        return ", ".join(map(shown, words[:MAX_SHOWN])) + more


def from_list(statuses: Sequence[str], default: str = "", used: Iterable[str] = ()) -> Words:
    """The words of a list that goes from to do to done; ``default`` is what new tasks have.

    A word that says what it means is taken at its word. Of the others the first is to do, the last
    is done, and what stands between is in progress. ``used`` are words of task files: those that
    are not in the list count only when they say what they mean.
    """
    words, refused = _fit(statuses)
    words, beyond = words[:MAX_WORDS], words[MAX_WORDS:]
    starts = _fit([default])[0]
    by_place = _by_place(words, {fold(word) for word in starts})
    others = _fit([*words, *starts, *used])[0][len(words) :]
    by_place |= dict.fromkeys(others[:1] if starts == others[:1] else (), "todo")
    roles: dict[str, list[str]] = {}
    for word in [*words, *others]:
        role = _role(word) or by_place.get(word)
        if role:
            roles.setdefault(role, []).append(word)
    last = words[-1] if words else ""
    return Words(
        {role: tuple(_in_order(found, last)) for role, found in roles.items()},
        unknown=(*beyond, *(w for w in others if not _role(w) and w not in by_place)),
        refused=tuple(refused),
    )


def from_use(counted: Mapping[str, int]) -> Words:
    """The words that task files use, each with how often; a role in usual words stays absent."""
    words, refused = _fit(sorted(counted, key=lambda word: -counted[word]))
    found: dict[str, list[str]] = {}
    for word in words:
        found.setdefault(_role(word) or "", []).append(word)
    unknown = found.pop("", [])
    roles = {role: _unusual(role, _in_order(used)[:MAX_WORDS]) for role, used in found.items()}
    return Words(
        {role: tuple(said) for role, said in roles.items() if said},
        unknown=tuple(unknown),
        refused=tuple(refused),
    )


def note_unplaced(words: str, said: list[str]) -> str:
    """Add to ``said`` which words stand in no role; returns the same for a comment."""
    said.append(f"add to tasks.statuses in .gitlease.yaml what these statuses mean: {words}")
    return f"In no list of statuses, since their words do not tell what they mean: {words}"


def _unusual(role: str, used: list[str]) -> list[str]:
    """What to set for a role whose words are used like that; nothing where the usual ones fit."""
    usual = STATUSES[role]
    if not set(used) <= set(usual):
        return used
    if role == "todo" or usual[0] in used:
        return []
    # Nobody writes the first of the usual words here, so gitlease should not either.
    return [used[0], *(word for word in usual if word != used[0])]


def _by_place(words: Sequence[str], starts: Set[str]) -> dict[str, str]:
    """The roles of the words that do not say what they mean; ``starts`` (folded) are to do."""
    found = dict.fromkeys((word for word in words if not _role(word)), "in_progress")
    last = words[-1] if words else ""
    finished = any(_role(word) == "done" for word in words)
    if last in found and not (finished and core(last) in _WAITING):
        found[last] = "done"
    for word in found:
        if word == words[0] or fold(word) in starts:
            found[word] = "todo"
    return found


def _fit(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """The words that can be settings, each once whatever its letter case; and the others."""
    found: dict[str, str] = {}
    refused = []
    for word in filter(None, map(str.strip, words)):
        try:
            found.setdefault(fold(read_text(word, "a status")), word)
        except UsageError:
            refused.append(word)
    return list(found.values()), refused


def core(word: str) -> str:
    """A word without what people write in many ways: letter case, blanks, punctuation."""
    return "".join(filter(str.isalnum, fold(word)))


def _role(word: str) -> str | None:
    return _MEANING.get(core(word), (None, 0))[0]


def _in_order(words: Iterable[str], last: str = "") -> list[str]:
    """Plain words first, then those by place, then odd ones; ``last`` before its equals."""
    return sorted(words, key=lambda word: (_rank(word), word != last))


def _rank(word: str) -> int:
    found = _MEANING.get(core(word))
    return 1 if found is None else found[1] * 2
