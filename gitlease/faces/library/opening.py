"""``gitlease.open``, ``open_async``, ``session`` and ``run``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TypedDict, Unpack

from gitlease.faces.library.arguments import (
    Duration,
    ResourceLike,
    StrPath,
    check_listener,
    to_folder,
)
from gitlease.faces.library.async_leases import AsyncLeases
from gitlease.faces.library.leases import Leases, OnLost, Session
from gitlease.faces.library.refusals import refusing
from gitlease.faces.library.running import RunResult
from gitlease.wiring.workspace import open_workspace


class RunOptions(TypedDict, total=False):
    """The options of ``Leases.run``."""

    next: bool
    scope: str
    ttl: Duration | None
    wait: Duration | None
    paths: Iterable[StrPath]
    reason: str | None
    note: str | None
    any: bool
    takeover: bool
    expect_holder: str | None
    reopen: bool
    commit: bool | None
    done: bool
    grace: Duration | None
    cwd: StrPath | None


@refusing
def open(
    directory: StrPath = ".",
    *,
    session: str | None = None,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Leases:
    """Open the leases of the repository around ``directory``, without contacting the remote.

    Raises NotARepository, and Invalid for bad settings. Without a ``user.email`` it only reads.
    """
    opener = partial(
        open_workspace, layer=layer, local=local, remote=remote, environ=environ, anonymous=True
    )
    return Leases(opener(to_folder(directory), session=session), layer=layer, open_at=opener)


def open_async(
    directory: StrPath = ".",
    *,
    session: str | None = None,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncLeases:
    """The same for programs with an event loop: every verb is awaited.

        async with gitlease.open_async(".") as leases:
            lease = await leases.claim("F001", wait="5m")
            async for event in leases.watch("F002"):
                print(event.kind)

    It is opened, and raises what ``open`` raises, when the ``async with`` block is entered.
    """
    place = partial(open, layer=layer, local=local, remote=remote, environ=environ)
    return AsyncLeases(partial(place, directory, session=session))


@refusing
def session(
    name: str | None = None,
    *,
    directory: StrPath = ".",
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    on_lost: OnLost | None = None,
    environ: Mapping[str, str] | None = None,
) -> Session:
    """A named session whose leases are renewed until its ``with`` block ends.

        with gitlease.session("build-7") as s:
            s.claim("F001")
            s.check()

    At its end everything claimed here is released in one push; leases that the session held before
    stay. Without a ``name`` (here, or in ``GITLEASE_SESSION``) it gets a random one. ``on_lost`` is
    called in a thread of its own for each lost lease.
    """
    check_listener(on_lost)
    opener = partial(open_workspace, layer=layer, local=local, remote=remote, environ=environ)
    opened = opener(to_folder(directory), session=name)
    return Session(opened, on_lost=on_lost, layer=layer, open_at=opener)


@refusing
def run(
    command: Sequence[str],
    *resources: ResourceLike,
    directory: StrPath = ".",
    session: str | None = None,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
    **options: Unpack[RunOptions],
) -> RunResult:
    """Run a command under leases; the other options are those of ``Leases.run``.

    result = gitlease.run(["make", "deploy"], "deploy-prod", any=True, wait="15m")
    sys.exit(result.status)
    """
    opened = open(
        directory, session=session, layer=layer, local=local, remote=remote, environ=environ
    )
    return opened.run(command, *resources, **options)
