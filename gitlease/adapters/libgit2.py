"""Imports pygit2, without the certificates that it would load for connections it never makes.

pygit2 loads the system's CA certificates when it is imported: several milliseconds for every
command, and where there are none (a slim container) the import fails altogether. Only git opens
connections here. In a process of our own libgit2 is told of an empty place while it is imported;
in somebody else's, who may use pygit2 for connections, that is done only when it fails otherwise.
"""

from __future__ import annotations

import sys

_ours = False


def own_process() -> None:
    """Say that this process is gitlease's own."""
    global _ours
    _ours = True


def load_pygit2() -> None:
    """Make sure that pygit2 is imported: its first import goes through here."""
    if "pygit2" in sys.modules:
        return
    if _ours:
        _without_certificates()
        return
    try:
        import pygit2  # noqa: F401
    except Exception:
        _without_certificates()


def _without_certificates() -> None:
    import ssl

    usual = ssl.get_default_verify_paths
    nowhere = usual()._replace(cafile=None, capath="/dev")  # type: ignore[arg-type]
    ssl.get_default_verify_paths = lambda: nowhere
    try:
        import pygit2  # noqa: F401
    finally:
        ssl.get_default_verify_paths = usual
