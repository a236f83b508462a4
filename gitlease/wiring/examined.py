"""The place that ``doctor`` examines, and the rows in which its checks report.

A part has its checks in its module ``doctor``: functions that take the ``Examined`` place and yield
``Row`` values. ``tools/doctor.py`` lists them all.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from shlex import quote

from gitlease.kernel.git.repository import Repository, discover
from gitlease.kernel.git.run import SystemClock
from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.rules.errors import GitleaseError, Hint, Unavailable
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.store.transport import ask_about
from gitlease.wiring.ledger import LedgerPlace, open_place

GOOD, WARNING, BAD, UNKNOWN = "good", "warning", "bad", "unknown"
LIMIT = 30.0  # seconds for one contact
MENDS, HELP = Hint("doctor", {"fix": True}), "gitlease help trouble"

# Of the hints of refusals: a command that can be typed as it is, in whole or at the end.
COMMAND = re.compile(r"(?:^|: )((?:git|cd /|chmod|export|mv|pip) ?.+)$", re.DOTALL)
_BLANK = re.compile(r"(?<![\w=$/.])(?:NAME|URL|PREFIX|NAME-OR-URL|EMAIL|PATH|VALUE)(?![\w=])")
_IN_GIT = re.compile(r"git config \((system|global|local|worktree): [^)]*\) ([\w.]+)")
IN_ENVIRONMENT = re.compile(r"(?:environment )?(GITLEASE_[A-Z]+)\b")


@dataclass(frozen=True)
class Row:
    """What a check found; ``fix`` is the command that mends it. ``mend`` may say what it did."""

    state: str
    what: str
    fix: Hint | str = ""
    mend: Callable[[], object] | None = None


Rows = Iterator[Row]


@dataclass(frozen=True, kw_only=True)
class Contact:
    """The answer of the remote to one reading, as far as it came before a ``fault``.

    ``date`` is the time of the remote as HTTP has it, ``ended`` that of this machine then, and
    ``seconds`` the length of one more request. ``doubt`` says why this may not be the ledger that
    everybody uses. Of a ledger in this clone there is nothing.
    """

    head: Snapshot | None = None
    date: str = ""
    ended: float = 0.0
    seconds: float = 0.0
    kind: str = ""
    doubt: GitleaseError | None = None
    warnings: tuple[str, ...] = ()
    fault: Exception | None = None


class Examined:
    """The place around ``directory``, opened as far as it can be; ``folder`` is a temporary one."""

    def __init__(
        self, directory: str, folder: str, *, probes: bool, local: bool, **flags: str | None
    ) -> None:
        self.directory, self.folder, self.probes, self.local = directory, folder, probes, local
        self.flags, self.clock = flags, SystemClock()

    @cached_property
    def repository(self) -> Repository:
        return discover(self.directory)

    @cached_property
    def clone(self) -> Repository | None:
        """The repository; None outside of one."""
        try:
            return self.repository
        except GitleaseError:  # which the check ``repository`` reports
            return None

    @property
    def private(self) -> str:
        return os.path.join(self.repository.common_dir, "gitlease")

    @cached_property
    def place(self) -> LedgerPlace:
        return open_place(self.repository, os.environ, self.flags, local=self.local, keeps=False)

    @property
    def kept(self) -> LedgerPlace:
        """The same. What is read is kept elsewhere in a clone without gitlease, which stays one."""
        is_used = os.path.isdir(self.private)
        return self.place if is_used else replace(self.place, folder=self.folder)

    @cached_property
    def contact(self) -> Contact:
        """The answer of the remote, which is asked once for all checks."""
        try:
            place = self.place
        except GitleaseError:  # which the check ``settings`` reports
            return Contact()
        url = place.location.url
        if url is None:
            return Contact()
        date, kind, began, ended = "", "", 0.0, 0.0
        store = self.kept.store(self.clock, time_limit=LIMIT)
        try:
            head = store.fetch(place.layer)
            to, began = place.remote_at(url, place.location.name), time.time()
            date, kind = ask_about(to, self.kept.objects, timeout=LIMIT)
            ended = time.time()
            doubt = store.doubt(head)
        except Exception as fault:
            return Contact(date=date, ended=ended, fault=fault)
        return Contact(
            head=head,
            date=date,
            ended=ended,
            seconds=ended - began,
            kind=kind,
            doubt=doubt,
            warnings=(*store.warnings, *head.warnings),
        )


def row_of(error: GitleaseError, state: str = "") -> Row:
    """The row about a refusal, with the first of its hints that is a command."""
    # One that is right in some cases only, as its words say, is no fix: agents run what they read.
    fix: Hint | str = ""
    words = [error.message]
    for text in error.hints:
        typed = None if isinstance(text, Hint) or _BLANK.search(text) else COMMAND.search(text)
        if not fix and (typed or (isinstance(text, Hint) and text.verb and not text.why)):
            fix = typed[1] if typed else text
        else:
            words.append(str(text))
    if not fix and (place := _IN_GIT.match(error.message)):
        fix = f"git config --{place[1]} --unset-all {place[2]}"
    elif not fix and (place := IN_ENVIRONMENT.match(error.message)):
        fix = f"unset {place[1]}"
    usual = UNKNOWN if isinstance(error, Unavailable) else WARNING if fix == "git init" else BAD
    return Row(state or usual, "; ".join(words), fix or HELP)


def changed_mode(what: str, path: str, how: str, more: int = 0, less: int = 0) -> Row:
    """The row about modes, with one command for a path, with ``-R`` also for all below it."""
    walk = os.walk(path if how.startswith("-R ") else "")

    def mend() -> None:
        for above, folders, files in chain([("", [path], [])], walk):
            for file in (os.path.join(above, x) for x in (*folders, *files)):
                if not os.path.islink(file):
                    bits = more if os.path.isdir(file) else more & 0o666
                    os.chmod(file, stat.S_IMODE(os.lstat(file).st_mode) & ~less | bits)

    return Row(BAD, what, f"chmod {how} {quote(path)}", mend)
