"""``gitlease.open`` and ``gitlease.session``: where a program begins."""

from __future__ import annotations

from collections.abc import Mapping

from gitlease.faces.library.leases import Leases, OnLost, Session
from gitlease.faces.library.values import check_listener
from gitlease.wiring.workspace import open_workspace


def open(
    directory: str = ".",
    *,
    session: str | None = None,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Leases:
    """Open the leases of the repository around ``directory``, without asking the remote.

    Raises NotARepository, and Invalid for bad settings or a missing ``user.email``.
    """
    return Leases(
        open_workspace(
            directory, session=session, layer=layer, local=local, remote=remote, environ=environ
        )
    )


def session(
    name: str | None = None,
    *,
    directory: str = ".",
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    on_lost: OnLost | None = None,
    environ: Mapping[str, str] | None = None,
) -> Session:
    """A run with a name of its own: what it claims is renewed until its ``with`` block ends.

        with gitlease.session("build-7") as s:
            s.claim("F001")
            s.check()

    At the end everything that was claimed here is released, in one push; what the session held
    before stays. Without a ``name`` (here, or in ``GITLEASE_SESSION``) it gets a random one.
    ``on_lost`` is called in a thread of its own with each lease that is lost.
    """
    check_listener(on_lost)
    opened = open_workspace(
        directory, session=name, layer=layer, local=local, remote=remote, environ=environ
    )
    return Session(opened, on_lost=on_lost)
