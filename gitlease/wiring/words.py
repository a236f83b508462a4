"""Resolves the resources typed in a work tree, and checks which of them may be claimed there.

A grammar alone cannot tell: it depends on the files in the work tree, and outside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from gitlease.kernel.git.repository import Repository, ask
from gitlease.kernel.rules.errors import CLAIM_ANY, GitleaseError, UsageError
from gitlease.kernel.rules.lease import same_person
from gitlease.kernel.rules.resources import (
    PATH_PREFIX,
    Issues,
    Resource,
    check_braces,
    covers,
    fold,
    issue_resource,
    parse,
    parse_resource,
    path_resource,
    reads_as_issue,
    resolve_path,
)
from gitlease.kernel.settings.schema import remotes_of_work
from gitlease.wiring.workspace import Workspace

_WILDCARD = re.compile(r"[*?\[\\]")
_MODULES = ".gitmodules"
_SHOWN = 80  # characters of a word in a message
EXTRAS = "[mcp,server]"  # both, since some tools keep none that is not named
TOOLS = {"pipx_metadata.json": "pipx", "uv-receipt.toml": "uv tool"}  # by their own files


def to_add_extras() -> str:
    """The command that adds the extras of gitlease to the installation that runs this."""
    from importlib.metadata import PackageNotFoundError, distribution

    origin: dict[str, Any] = {}  # it is on no index: what it came from has the extras as well
    with contextlib.suppress(PackageNotFoundError):
        origin = json.loads(distribution("gitlease").read_text("direct_url.json") or "{}")
    url, vcs = origin.get("url", ""), origin.get("vcs_info")
    if vcs:
        url = "@".join([f"{vcs['vcs']}+{url}", *filter(None, [vcs.get("requested_revision")])])
    words = [f"gitlease{EXTRAS} @ {url}" if url else f"gitlease{EXTRAS}"]
    if origin.get("dir_info", {}).get("editable"):
        words = ["-e", f"{unquote(url.removeprefix('file://'))}{EXTRAS}"]
    tools = [x.split() for file, x in TOOLS.items() if os.path.exists(f"{sys.prefix}/{file}")]
    by = [*tools[0], "install", "--force"] if tools else [sys.executable, "-m", "pip", "install"]
    return shlex.join([*by, *words])


def resource_here(workspace: Workspace, word: str) -> Resource:
    """Resolve a word in this folder, and by this ledger if it reads as an issue number.

    Raises UsageError for what is neither a name nor a path, and for a path outside of the work tree
    or in a submodule.
    """
    repository = workspace.repository
    checked = _checked(repository, word, path=False)
    try:
        found = parse_resource(checked, folder=repository.folder, root=repository.toplevel)
    except UsageError as error:
        # A task may have such an id: then its file is what has to change.
        problems = () if checked.isascii() else workspace.ledger.edges.files.read().problems
        why = (p.message for p in problems if checked in p.message)
        raise error.with_(hints=(*why, *error.hints)) from None
    if found.is_path:
        _refuse_submodule(repository, found)
    if not reads_as_issue(found.text):
        return found
    ledger = workspace.ledger
    if ledger.known_policy() is None:
        with contextlib.suppress(GitleaseError):  # the verb reports it
            ledger.store.fetch(ledger.layer)
    policy = ledger.known_policy()
    return found if policy is None else issue_resource(found, policy.issues)


def path_here(repository: Repository, word: str) -> Resource:
    """Resolve a word that is always a path."""
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
    """Warnings about resources to be claimed: paths that match no file.

    Raises UsageError for a name that equals a file or folder, and is neither a task nor leased: it
    is ambiguous.
    """
    for resource in resources if not any_name else ():
        found = None if resource.is_path else file_called(workspace.repository, resource.text)
        if found is not None and not is_known(workspace, resource):
            free = workspace.ledger.edges.on_a_branch(resource) is None
            hints = (f"to claim the {found.kind}, type {found.word}", *(CLAIM_ANY,) * free)
            what = f"{resource} is a {found.kind} here, not a task"
            raise UsageError(what, resource=resource.text, hints=hints)
    paths = [x for x in (*resources, *covered) if x.pattern is not None]
    unmatched = [x for x in paths if not _matches_a_file(workspace, x.pattern or "")]
    return tuple(f"{x} matches no file, here or on the main branch" for x in unmatched)


def dead_hooks(workspace: Workspace) -> tuple[str, ...]:
    """A warning, once, if another folder of hooks has replaced the one that has ours."""
    repository = workspace.repository
    path = repository.config.get("core.hooksPath")
    if not path:
        return ()
    from gitlease.guard.install import warn_once

    return (warning,) if (warning := warn_once(repository, path)) else ()


def _checked(repository: Repository, word: str, *, path: bool) -> str:
    """A word for the grammar. UsageError for what is outside, and for braces."""
    if not isinstance(word, str):
        return word
    if not word.strip():
        raise UsageError(f"a {'path' if path else 'resource'} must not be empty")
    text, root = word.removeprefix(PATH_PREFIX), repository.toplevel
    is_path = path or "/" in word or text != word
    if text.startswith("~") and (home := os.path.expanduser(text)) != text:
        text = _from_root(home, root)
    elif is_path and text.startswith("/") and not (root and _lies_in(text, root)):
        fixed = _literal_head(text)
        # It exists, and nothing does that it would be at the root.
        for outside in (fixed, "/" + fixed.split("/")[1]) if fixed else ():
            if os.path.lexists(outside) and not (root and os.path.lexists(root + outside)):
                text = _from_root(text, root)
                break
    if not text and word != PATH_PREFIX:
        raise UsageError(f"{word[:_SHOWN]} is outside the repository", resource=word[:_SHOWN])
    if "{" in text and not os.path.lexists(os.path.join(root or "", repository.folder, text)):
        check_braces(text)
    return PATH_PREFIX + text if text.startswith("/") and is_path | (text != word) else word


def _literal_head(path: str) -> str:
    """The whole segments of a path before its first wildcard."""
    wild = _WILDCARD.search(path)
    return (path if wild is None else path[: wild.start()].rpartition("/")[0]).rstrip("/")


def _from_root(path: str, root: str | None) -> str:
    """An absolute path as one in the work tree, with symbolic links resolved; ``""``: outside."""
    if root is None or _lies_in(path, root):
        return path if root is not None else ""
    fixed = _literal_head(path)
    real = os.path.realpath(fixed)
    return real + path[len(fixed) :] if _lies_in(real, root) else ""


def _lies_in(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _refuse_submodule(repository: Repository, resource: Resource) -> None:
    root, pattern = repository.toplevel, resource.pattern
    if root is None or pattern is None or not os.path.isfile(os.path.join(root, _MODULES)):
        return
    words = ("config", "-z", "-f", os.path.join(root, _MODULES))
    said = ask(repository, *words, "--get-regexp", r"^submodule\..*\.path$")
    for entry in os.fsdecode(said.out).split("\0"):
        module = entry.partition("\n")[2].strip("/")
        if module and fold(pattern.lstrip("/")).startswith(fold(module) + "/"):
            what = f"{resource} is inside the submodule {module}"
            way = f"claim it in the repository at {module}/, or claim all of {module} here"
            raise UsageError(what, resource=resource.text, hints=(way,))


class NamedFile(NamedTuple):
    """A ``file`` or ``folder`` with a given name, and how to type it as a path."""

    kind: str
    word: str


def file_called(repository: Repository, name: str) -> NamedFile | None:
    """The file or folder with this name, in this folder or at the root, ignoring case."""
    root = repository.toplevel
    for folder in dict.fromkeys((repository.folder, "")) if root is not None else ():
        place = os.path.join(root or "", folder)
        try:
            names = os.listdir(place)
        except OSError:
            continue
        if found := next((x for x in names if fold(x) == fold(name)), None):
            kind = "folder" if os.path.isdir(os.path.join(place, found)) else "file"
            here = folder == repository.folder
            return NamedFile(kind, f"{PATH_PREFIX}{found}" if here else f"/{found}")
    return None


def is_known(workspace: Workspace, resource: Resource) -> bool:
    """Return whether a name is a task, or is leased: live, or lapsed and the caller's own."""
    ledger = workspace.ledger
    try:
        (planned,) = ledger.edges.plan_end([resource], keep_status=True)
        if planned.task is not None or planned.away is not None:
            return True
    except GitleaseError:
        return True  # the claim reports what is wrong with its file
    look, holder = ledger.look(), workspace.identity.actor.holder
    named = [lease for lease in look.leases if lease.resource == resource]
    return any(
        view.state == "active" or (view.state == "expired" and same_person(view.holder, holder))
        for view in ledger.views_in(look.head, named, look.moment)
    )


def _matches_a_file(workspace: Workspace, text: str) -> bool:
    repository, pattern = workspace.repository, parse(text)
    if repository.toplevel is None or text == "**":
        return True
    if pattern.is_literal and os.path.lexists(os.path.join(repository.toplevel, text)):
        return True
    files = ("ls-files", "-z")
    lists = [files, (*files, "--others", "--exclude-standard")]
    refs = filter(None, ("HEAD", workspace.main_branch()))
    lists += [("ls-tree", "-r", "-z", "--name-only", "--full-tree", x) for x in refs]
    for words in lists:
        listed = os.fsdecode(ask(repository, *words).out).split("\0")
        if any(covers(pattern, name) for name in listed if name):
            return True
    return False


# --- the host of issues -----------------------------------------------------------------------

# https://host/owner/name.git, ssh://git@host:22/owner/name and git@host:owner/name
_URL = re.compile(r"(?:(?:https?|ssh|git)://)(?:[^@/]*@)?([^/:@]+)(?::\d+)?/(.+)")
_SCP = re.compile(r"(?:[^@/:]+@)?([^/:@]+):(?!//)(.+)")
_PAGES = {Issues.GITHUB: "issues", Issues.GITLAB: "-/issues"}


def host_of_work(workspace: Workspace) -> Issues:
    """The issue host of a repository, by the name of the server that has its work."""
    place = _place(workspace)
    name = "" if place is None else place[0].lower()
    return next((x for x in _PAGES if x.value in name.split(".")), Issues.NONE)


def issue_pages(workspace: Workspace) -> str | None:
    """The address of an issue's page, without the number; None if it is not known."""
    policy, place = workspace.ledger.known_policy(), _place(workspace)
    if policy is None or policy.issues is Issues.NONE or place is None:
        return None
    host, path = place
    return f"https://{host}/{quote(path)}/{_PAGES[policy.issues]}/"


def _place(workspace: Workspace) -> tuple[str, str] | None:
    """The server of the work, and the path there; None for a local path, and without a remote."""
    for name in remotes_of_work(workspace.location, workspace.repository):
        url = workspace.repository.remote_url(name) or ""
        found = _URL.fullmatch(url) or ("://" not in url and _SCP.fullmatch(url)) or None
        if found is not None and len(found[1]) > 1:  # one letter is a drive
            return found[1], found[2].strip("/").removesuffix(".git")
    return None
