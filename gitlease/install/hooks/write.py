"""Changes of hooks and of what calls them: planned as data, carried out one by one."""

from __future__ import annotations

import os

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.files import load_json, store_json
from gitlease.git.repository import TIMEOUT
from gitlease.git.run import run_git
from gitlease.install.hooks.places import SCRIPTS, Place, Way
from gitlease.install.managed_text import mode_of, written_aside

NOTED = "hooks.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change that is to be made: of a file, or of one setting of git.

    ``new`` is what the file holds then, None to remove it. What is there goes to ``aside`` first;
    ``back`` is what takes the place of a file that is removed.
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
    """What is to be done, what is left to a person (``lines`` to type), and what is to be known.

    ``where`` is what is written to.
    """

    way: Way
    changes: tuple[Change, ...] = ()
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    where: str = ""

    @property
    def said(self) -> tuple[str, ...]:
        return tuple(change.said for change in self.changes if not change.quiet)


def carry_out(place: Place, plan: Plan) -> None:
    for change in plan.changes:
        try:
            if change.setting is not None:
                _set(place.top, *change.setting)
            else:
                _write(place, change)
        except OSError as error:
            raise Invalid(
                f"{change.path} cannot be written: {error.strerror}",
                hints=("what was done before it stays: `gitlease hooks uninstall` undoes it",),
            ) from None


def _set(top: str, key: str, value: str) -> None:
    words = ("--replace-all", key, value) if value else ("--remove-section", key)
    done = run_git(("config", "--local", *words), cwd=top, timeout=TIMEOUT, repository=True)
    if done.code != 0 or done.timed_out:
        raise Invalid(f"git cannot set {key}: {done.err.strip()[:200]}")


def _write(place: Place, change: Change) -> None:
    path = change.path
    if change.new is None:
        if change.back:
            os.replace(change.back, path)
        else:
            os.unlink(path)
        return
    _make_folder(place, os.path.dirname(path))
    mode = None if change.aside else mode_of(path)
    with written_aside(path, change.new, mode=mode, new=change.mode):
        if change.aside:
            os.rename(path, change.aside)


def _make_folder(place: Place, folder: str) -> None:
    """Make a folder, and note that it is ours to remove."""
    if os.path.isdir(folder):
        return
    os.makedirs(folder)
    if folder == place.private:
        return
    os.makedirs(place.private, exist_ok=True)
    noted = _noted(place)
    store_json(os.path.join(place.private, NOTED), {"made": [*noted, folder]})


def _noted(place: Place) -> list[str]:
    data = load_json(os.path.join(place.private, NOTED), 65_536)
    made = data.get("made") if isinstance(data, dict) else None
    return [str(folder) for folder in made] if isinstance(made, list) else []


def drop_folders(place: Place) -> None:
    """Remove the folders that were made for hooks, where nothing else came into them."""
    for folder in _noted(place):
        if folder in (place.folder, place.scripts, os.path.join(place.private, SCRIPTS)):
            try:
                os.rmdir(folder)
            except OSError:
                continue  # somebody else's files are in it
    noted = os.path.join(place.private, NOTED)
    if os.path.lexists(noted):
        os.unlink(noted)
