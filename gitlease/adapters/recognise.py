"""Recognises the task files that a project has already, and makes settings that fit them."""

from __future__ import annotations

from gitlease.adapters.recognise_backlog import find_backlog
from gitlease.adapters.recognise_files import Found
from gitlease.adapters.recognise_folders import find_folder
from gitlease.adapters.repository import Repository
from gitlease.adapters.settings_file import parse_settings
from gitlease.adapters.settings_text import default_yaml, settings_yaml
from gitlease.domain.errors import Invalid
from gitlease.domain.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Fitting:
    """The text of a settings file for a project, and what was recognised there.

    ``recognised`` is None for a project without task files. ``said`` is what a person should know.
    """

    text: str
    recognised: Found | None = None
    said: tuple[str, ...] = ()


def fitting_settings(repository: Repository) -> Fitting:
    """Look for task files in the work tree: Backlog.md's, else those of a usual folder.

    The text can always be loaded; it is the usual one where nothing is recognised.
    """
    said: list[str] = []
    found = find_backlog(repository, said) or find_folder(repository, said)
    if found is None:
        return Fitting(default_yaml(), said=tuple(said))
    text = settings_yaml(found.live, about=found.about)
    try:
        parse_settings(text.encode())
    except (Invalid, UnicodeEncodeError) as error:
        why = error.message if isinstance(error, Invalid) else "a name that is not UTF-8"
        said.append(f"settings that fit the tasks would not load, so they are the usual: {why}")
        return Fitting(default_yaml(), said=tuple(said))
    return Fitting(text, found, tuple(said))
