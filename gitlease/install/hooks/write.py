"""Changes of hooks and of what calls them: planned as data, carried out one by one."""

from __future__ import annotations

import os

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.files import share
from gitlease.git.repository import TIMEOUT
from gitlease.git.run import run_git
from gitlease.install.hooks.places import HookPlace, Way
from gitlease.install.managed_text import mode_of, written_aside


@dataclass(frozen=True, slots=True, kw_only=True)
class HookChange:
    """A planned change of a file, or of one setting of git.

    ``new`` are the bytes of the file, None to remove it. The old file is moved to ``aside`` first;
    ``back`` is moved to the place of a file that is removed.
    """

    said: str
    path: str = ""
    new: bytes | None = None
    mode: int = 0o755
    aside: str = ""
    back: str = ""
    setting: tuple[str, str] | None = None
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes to make, ``lines`` for a person to add, and notes. ``where`` is written to."""

    way: Way
    changes: tuple[HookChange, ...] = ()
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    where: str = ""

    @property
    def said(self) -> tuple[str, ...]:
        return tuple(change.said for change in self.changes if not change.quiet)


def carry_out(place: HookPlace, plan: Plan) -> None:
    for change in plan.changes:
        try:
            if change.setting is not None:
                _set(place.top, *change.setting)
            else:
                _write(change)
        except OSError as error:
            raise Invalid(
                f"{change.path} cannot be written: {error.strerror}",
                hints=("gitlease hooks uninstall undoes what was done before",),
            ) from None


def _set(top: str, key: str, value: str) -> None:
    words = ("--replace-all", key, value) if value else ("--remove-section", key)
    done = run_git(("config", "--local", *words), cwd=top, timeout=TIMEOUT, repository=True)
    if done.code != 0 or done.timed_out:
        raise Invalid(f"git cannot set {key}: {done.err.strip()[:200]}")


def _write(change: HookChange) -> None:
    path = change.path
    if change.new is None:
        if change.back:
            os.replace(change.back, path)
        else:
            os.unlink(path)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    mode = None if change.aside else mode_of(path)
    with written_aside(path, change.new, mode=mode, new=change.mode):
        if change.aside:
            os.rename(path, change.aside)
    share(path)
