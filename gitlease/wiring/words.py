"""What the words of a command mean in a work tree, and which of them may be claimed there.

A grammar alone cannot tell these: they depend on what lies in the work tree, and outside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import GitleaseError, UsageError
from gitlease.core.lease import same_person
from gitlease.core.resources.pattern import covers, fold, parse
from gitlease.core.resources.resource import (
    PATH_PREFIX,
    Resource,
    parse_resource,
    path_resource,
    resolve_path,
)

if TYPE_CHECKING:
    from gitlease.git.repository import Repository
    from gitlease.wiring.workspace import Workspace

_BRACES = re.compile(r"(?<!\\)\{([^{}]*,[^{}]*)\}")
_WILDCARD = re.compile(r"[*?\[\\]")
_MODULES = ".gitmodules"
_SHOWN = 80  # characters of a word in a message


def resource_here(repository: Repository, word: str) -> Resource:
    """The resource that a word means in this folder.

    Raises UsageError for what is neither a name nor a path, lies outside the work tree or in a
    submodule of it.
    """
    checked = _checked(repository, word, path=False)
    found = parse_resource(checked, folder=repository.folder, root=repository.toplevel)
    _refuse_submodule(repository, found)
    return found


def path_here(repository: Repository, word: str) -> Resource:
    """The same for a word that is always a path."""
    checked = _checked(repository, word, path=True)
    path = resolve_path(checked, folder=repository.folder, root=repository.toplevel)
    _refuse_submodule(repository, found := path_resource(path))
    return found


def check_claim(
    workspace: Workspace,
    resources: Sequence[Resource],
    covered: Iterable[Resource] = (),
    *,
    any_name: bool = False,
) -> tuple[str, ...]:
    """What is to be said of what is about to be claimed: paths that match no file.

    Raises UsageError for a name that is no task, is called as a file or folder is, and means no
    lease that is there: whoever typed it may mean either.
    """
    repository = workspace.repository
    for resource in resources:
        if resource.is_path or any_name:
            continue
        kind = _kind_of(repository, resource.text)
        if kind and not _is_known(workspace, resource):
            raise UsageError(
                f"{resource} is a {kind} here, and no task",
                resource=resource.text,
                hints=(
                    f"the {kind} is claimed as {PATH_PREFIX}{resource}",
                    "a name that is no task is claimed with --any",
                ),
            )
    paths = [x for x in (*resources, *covered) if x.pattern is not None]
    unmatched = [x for x in paths if not _matches_a_file(workspace, x.pattern or "")]
    return tuple(f"{x} matches no file, here or on the main branch" for x in unmatched)


def _checked(repository: Repository, word: str, *, path: bool) -> str:
    """A word as the grammar takes it. UsageError for what lies outside, and for braces."""
    if not isinstance(word, str) or not (path or "/" in word or word.startswith(PATH_PREFIX)):
        return word
    text, root = word.removeprefix(PATH_PREFIX), repository.toplevel
    if text.startswith("~") and (home := os.path.expanduser(text)) != text:
        if root is None or not _lies_in(home, root):
            raise _outside(word)
        text = home
    elif text.startswith("/") and root is not None and not _lies_in(text, root):
        fixed = text if not (wild := _WILDCARD.search(text)) else text[: wild.start()]
        fixed = (fixed if not wild else fixed.rpartition("/")[0]).rstrip("/")
        if fixed and not os.path.lexists(root + fixed) and os.path.lexists(fixed):
            raise _outside(word)
    braces = _BRACES.search(text)
    if braces and not (root and os.path.lexists(os.path.join(root, repository.folder, text))):
        each = [text[: braces.start()] + x + text[braces.end() :] for x in braces[1].split(",")]
        raise UsageError(
            f"{word[:_SHOWN]} has braces, which no pattern expands",
            resource=word[:_SHOWN],
            hints=(f"write each of them: {' '.join(each)}"[:500],),
        )
    return PATH_PREFIX + text if text.startswith(os.sep) else word


def _lies_in(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _outside(word: str) -> UsageError:
    return UsageError(f"{word[:_SHOWN]} is outside the repository", resource=word[:_SHOWN])


def _refuse_submodule(repository: Repository, resource: Resource) -> None:
    root, pattern = repository.toplevel, resource.pattern
    if root is None or pattern is None or not os.path.isfile(os.path.join(root, _MODULES)):
        return
    from gitlease.git.query import ask

    words = ("config", "-z", "-f", os.path.join(root, _MODULES))
    said = ask(repository, *words, "--get-regexp", r"^submodule\..*\.path$")
    for entry in os.fsdecode(said.out).split("\0"):
        module = entry.partition("\n")[2].strip("/")
        if module and fold(pattern.lstrip("/")).startswith(fold(module) + "/"):
            raise UsageError(
                f"{resource} is inside the submodule {module}",
                resource=resource.text,
                hints=(f"claim it there, in the repository at {module}/; or all of {module}",),
            )


def _kind_of(repository: Repository, name: str) -> str:
    """Whether a name is also that of a ``file`` or ``folder``, in this folder or at the root."""
    root = repository.toplevel
    if root is None:
        return ""
    for folder in {repository.folder, ""}:
        place = os.path.join(root, folder, name)
        if os.path.lexists(place):
            return "folder" if os.path.isdir(place) else "file"
    return ""


def _is_known(workspace: Workspace, resource: Resource) -> bool:
    """Whether a name is a task, or that of a live lease or of one of the caller's own."""
    ledger = workspace.ledger
    try:
        if ledger.edges.plan_end([resource], keep_status=True)[0].task is not None:
            return True
    except GitleaseError:
        return True  # the claim says what is wrong with its file
    look, holder = ledger.look(), workspace.identity.actor.holder
    named = [lease for lease in look.leases if lease.resource == resource]
    return any(
        view.state == "active" or (view.state == "expired" and same_person(view.holder, holder))
        for view in ledger.views(look, named)
    )


def _matches_a_file(workspace: Workspace, text: str) -> bool:
    repository, pattern = workspace.repository, parse(text)
    if repository.toplevel is None or text == "**":
        return True
    if pattern.is_literal and os.path.lexists(os.path.join(repository.toplevel, text)):
        return True
    from gitlease.git.query import ask
    from gitlease.git.remote_branches import main_branch
    from gitlease.settings.sources import remotes_of_work

    main = main_branch(repository, remotes_of_work(workspace.location, repository))
    files = ("ls-files", "-z")
    lists = [files, (*files, "--others", "--exclude-standard")]
    lists += [("ls-tree", "-r", "-z", "--name-only", "--full-tree", x) for x in ("HEAD", main) if x]
    for words in lists:
        listed = os.fsdecode(ask(repository, *words).out).split("\0")
        if any(covers(pattern, name) for name in listed if name):
            return True
    return False
