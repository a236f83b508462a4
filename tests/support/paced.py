"""A remote at a real host's pace: each connection and each pack takes the time that it is told to.

Clones reach it through a program in the place of git's two services, which notes the connection,
sleeps, and becomes the service. A hook notes each pack that arrives, and sleeps as well. Tests give
no times: they count.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from support.remotes import Remote, new_bare
from support.repos import git, make_clone

_SERVICE = """\
#!/bin/sh
service=$1 who=$2 seconds=$3
PACED=$$ PACK_SECONDS=$4
export PACED PACK_SECONDS
shift 4
printf '%s\\t%s\\t%s\\n' "$PACED" "$service" "$who" >>{log}
[ "$seconds" = 0 ] || sleep "$seconds"
exec git "$service" "$@"
"""

# What other programs than the one above push is not noted, and not held up.
_HOOK = """\
#!/bin/sh
refs=$(cut -d' ' -f3)
[ -n "$PACED" ] || exit 0
printf '%s\\t%s\\t%s\\n' "$PACED" {what} "$(echo $refs)" >>{log}
"""
_SLEEP = '[ "$PACK_SECONDS" = 0 ] || sleep "$PACK_SECONDS"\n'


@dataclass
class Connection:
    """One connection to the host: ``upload-pack`` or ``receive-pack``, and which clone made it."""

    service: str
    who: str
    pack: tuple[str, ...] = ()
    """The refs that a pack came for; none where nothing was sent."""
    landed: bool = False
    """Whether any of these refs was moved."""

    @property
    def is_push(self) -> bool:
        return self.service == "receive-pack"


@dataclass(frozen=True)
class Tally:
    """Counted connections: ``packs`` are those pushes that sent one, ``landed`` those that won."""

    pushes: int = 0
    packs: int = 0
    landed: int = 0
    fetches: int = 0

    def __sub__(self, before: Tally) -> Tally:
        pairs = zip(astuple(self), astuple(before), strict=True)
        return Tally(*(now - then for now, then in pairs))


def tally_of(connections: Iterable[Connection]) -> Tally:
    """Count connections."""
    every = list(connections)
    pushes = [x for x in every if x.is_push]
    return Tally(
        pushes=len(pushes),
        packs=sum(bool(x.pack) for x in pushes),
        landed=sum(x.landed for x in pushes),
        fetches=len(every) - len(pushes),
    )


class PacedHost:
    """A bare repository, and how clones reach it.

    ``connection`` and ``pack`` are the seconds that each connection and each pack takes.
    """

    def __init__(self, folder: Path, *, connection: float = 0.0, pack: float = 0.0) -> None:
        self._times = connection, pack
        self.bare = new_bare(folder / "origin.git")
        self._log, self._program = folder / "connections", folder / "service"
        self._log.touch()
        log = shlex.quote(str(self._log))
        _write_program(self._program, _SERVICE.format(log=log))
        hooks = {"pre-receive": ("pack", _SLEEP), "post-receive": ("landed", "")}
        for name, (what, then) in hooks.items():
            _write_program(self.bare / "hooks" / name, _HOOK.format(what=what, log=log) + then)
        self.remote = Remote("path", str(self.bare), self.bare, _services=self._services)

    def clone(self, path: Path, who: str, *, hurried: bool = False) -> Path:
        """A clone of ``who@example.com``, for whom nothing takes time if ``hurried``."""
        made = make_clone(self.remote, path, f"{who}@example.com", who.title())
        self.pace(made, who, hurried=hurried)
        return made

    def pace(self, clone: Path, who: str, *, hurried: bool = False) -> None:
        """Have a clone reach this host at its pace, and its connections noted under a name."""
        times = (0.0, 0.0) if hurried else self._times
        for service in ("upload-pack", "receive-pack"):
            words = [str(self._program), service, who, *(f"{seconds:g}" for seconds in times)]
            git(clone, "config", f"remote.origin.{service.replace('-', '')}", shlex.join(words))

    def connections(self) -> list[Connection]:
        """Every connection so far, in order."""
        found: list[Connection] = []
        last: dict[str, Connection] = {}  # of each process, whose numbers come again
        for line in self._log.read_text(encoding="utf-8").splitlines():
            process, what, value = line.split("\t")
            if what == "pack":
                last[process].pack = tuple(value.split())
            elif what == "landed":
                last[process].landed = True
            else:
                last[process] = Connection(what, value)
                found.append(last[process])
        return found

    def tally(self, who: str | None = None) -> Tally:
        """What was counted so far, of one clone or of all."""
        return tally_of(x for x in self.connections() if who in (None, x.who))

    def seconds_of(self, counted: Tally) -> float:
        """How long this host takes for what was counted, one connection after the other."""
        connection, pack = self._times
        return (counted.pushes + counted.fetches) * connection + counted.packs * pack

    def _services(self) -> list[str]:
        return [x.service for x in self.connections()]


def _write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
