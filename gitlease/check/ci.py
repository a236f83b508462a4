"""What GitHub Actions and GitLab CI say, in their variables and files, of what they run for.

A pull request's author chooses names of branches and much of the event: nothing of it is taken for
an id or a ref that does not look like one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gitlease.core.frozen import dataclass, replace
from gitlease.git.files import load_json
from gitlease.git.query import is_id

GITHUB, GITLAB = "github", "gitlab"
MAX_EVENT = 64 * 1024 * 1024  # bytes: GitHub itself sends no more than 25 MB
MAX_COUNT = 1_000_000

# The rules of git-check-ref-format, and nothing that a glob or an option could be.
_BRANCH = re.compile(
    r"(?![-/.])(?:(?!\.\.|//|/\.|@\{|\.lock(?:/|$))[^\x00-\x20\x7f~^:?*\[\\])+(?<![./])"
)
_PULLS = ("pull_request", "pull_request_target")
_BROUGHT = ("opened", "synchronize", "reopened")  # by which commits come to be asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class CiContext:
    """What continuous integration says of the change that it runs for.

    ``base`` and ``head`` are full ids, ``""`` where unknown: the commits to check are those of the
    head that the base does not have. ``new``: the branch is new, and has no base. ``base_branch``
    is where they are to go, ``head_ref`` the ref of the remote that has the head, ``commits`` how
    many there are. ``nothing``: a branch was deleted. ``emails`` and ``logins`` are those of
    whoever pushed them, or with ``request`` of whoever opened the request to merge them or sent its
    event, who need not have made any of them. ``workspace`` is the folder that the host shows files
    relative to, ``summary`` the file that the job's summary is added to. ``problems`` are what
    could not be made out.
    """

    provider: str = ""
    base: str = ""
    head: str = ""
    new: bool = False
    nothing: bool = False
    base_branch: str = ""
    default_branch: str = ""
    head_ref: str = ""
    commits: int = 0
    shown: str = ""
    request: bool = False
    emails: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    workspace: str = ""
    summary: str = ""
    problems: tuple[str, ...] = ()

    @property
    def in_github(self) -> bool:
        """Whether this runs in GitHub Actions."""
        return self.provider == GITHUB


def surroundings(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    """The variables that were given, else those of this process."""
    return os.environ if environ is None else environ


def is_ci(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this is continuous integration of any kind: somebody else made the clone."""
    return surroundings(environ).get("CI", "").lower() not in ("", "0", "false")


def read_context(environ: Mapping[str, str] | None = None) -> CiContext:
    """What is to be checked here; nothing where this is no place that says it."""
    environ = surroundings(environ)
    if environ.get("GITHUB_ACTIONS") == "true":
        return _github(environ)
    if environ.get("GITLAB_CI") == "true":
        return _gitlab(environ)
    return CiContext()


# --- GitHub -------------------------------------------------------------------------------------


def _github(environ: Mapping[str, str]) -> CiContext:
    kind, file = environ.get("GITHUB_EVENT_NAME", ""), environ.get("GITHUB_EVENT_PATH", "")
    read = load_json(file, MAX_EVENT) if file else None
    event = _Fields(read)
    here = CiContext(
        provider=GITHUB,
        default_branch=_branch(event.text("repository", "default_branch")),
        workspace=environ.get("GITHUB_WORKSPACE", ""),
        summary=environ.get("GITHUB_STEP_SUMMARY", ""),
        problems=() if isinstance(read, dict) else ("GitHub's event could not be read",),
    )
    if kind in _PULLS or isinstance(event.get("pull_request"), dict):
        return _pull(event, environ, kind, here)
    if kind == "merge_group":
        return replace(
            here,
            base=_id(event.text("merge_group", "base_sha")),
            head=_id(event.text("merge_group", "head_sha")) or _id(environ.get("GITHUB_SHA")),
            base_branch=_branch(_short(event.text("merge_group", "base_ref"))),
            shown="the merge group",
        )
    if kind != "push":
        return here
    before, ref = event.text("before"), event.text("ref") or environ.get("GITHUB_REF", "")
    commits = event.get("commits")
    login = event.text("sender", "login") or environ.get("GITHUB_ACTOR", "")
    return replace(
        here,
        base=_id(before),
        head=_id(event.text("after")) or _id(environ.get("GITHUB_SHA")),
        new=_is_zero(before),
        nothing=event.get("deleted") is True,
        head_ref=_ref(ref),
        commits=len(commits) if isinstance(commits, list) else 0,
        shown=f"the push to {_short(_ref(ref)) or 'a ref'}",
        emails=_some(event.text("pusher", "email")),
        logins=_some(login, event.text("pusher", "name")),
    )


def _pull(event: _Fields, environ: Mapping[str, str], kind: str, here: CiContext) -> CiContext:
    number = event.number("pull_request", "number") or event.number("number")
    sent = kind in _PULLS and event.text("action") in ("", *_BROUGHT)
    base = event.text("pull_request", "base", "ref") or environ.get("GITHUB_BASE_REF", "")
    sender = event.text("sender", "login") if sent else ""
    return replace(
        here,
        base=_id(event.text("pull_request", "base", "sha")),
        head=_id(event.text("pull_request", "head", "sha")),
        base_branch=_branch(base),
        head_ref=f"refs/pull/{number}/head" if number else "",
        commits=event.number("pull_request", "commits"),
        shown=f"pull request #{number}" if number else "the pull request",
        request=True,
        logins=_some(event.text("pull_request", "user", "login"), sender),
    )


# --- GitLab -------------------------------------------------------------------------------------


def _gitlab(environ: Mapping[str, str]) -> CiContext:
    """Without a file: GitLab says all in variables. It names who started a pipeline.

    That is who pushed in the pipeline of a push; in a merge request it may be anybody.
    ``CI_COMMIT_BEFORE_SHA`` is zeros in merge requests, and in the first pipeline of a branch.
    """
    said = environ.get
    default = _branch(said("CI_DEFAULT_BRANCH", ""))
    source = said("CI_PIPELINE_SOURCE", "")
    number = said("CI_MERGE_REQUEST_IID", "")
    emails = _some(said("GITLAB_USER_EMAIL", ""))
    logins = _some(said("GITLAB_USER_LOGIN", ""))
    if number.isascii() and number.isdigit():
        target = _branch(said("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", ""))
        head = said("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", "") or said("CI_COMMIT_SHA", "")
        return CiContext(
            provider=GITLAB,
            base=_id(said("CI_MERGE_REQUEST_DIFF_BASE_SHA", "")),
            head=_id(head),
            base_branch=target,
            default_branch=default or target,
            head_ref=f"refs/merge-requests/{number[:12]}/head",
            shown=f"merge request !{number[:12]}",
            request=True,
            emails=emails,
            logins=logins,
        )
    if source != "push":
        return CiContext(provider=GITLAB, default_branch=default)
    before, branch = said("CI_COMMIT_BEFORE_SHA", ""), _branch(said("CI_COMMIT_BRANCH", ""))
    return CiContext(
        provider=GITLAB,
        base=_id(before),
        head=_id(said("CI_COMMIT_SHA", "")),
        new=_is_zero(before),
        default_branch=default,
        head_ref=f"refs/heads/{branch}" if branch else "",
        shown=f"the push to {branch or 'a tag'}",
        emails=emails,
        logins=logins,
    )


# --- reading ------------------------------------------------------------------------------------


class _Fields:
    """Values deep in a document that may have any form."""

    def __init__(self, document: object) -> None:
        self._document = document

    def get(self, *path: str) -> object:
        found = self._document
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def text(self, *path: str) -> str:
        found = self.get(*path)
        return found if isinstance(found, str) else ""

    def number(self, *path: str) -> int:
        found = self.get(*path)
        return found if type(found) is int and 0 < found < MAX_COUNT else 0


def _id(text: str | None) -> str:
    """A full id that is not the one of nothing; ``""`` for anything else."""
    return text if text is not None and is_id(text) and text.strip("0") else ""


def _is_zero(text: str) -> bool:
    return is_id(text) and not text.strip("0")


def _branch(text: str) -> str:
    """The name of a branch; ``""`` for what can be none."""
    fine = len(text) <= 500 and text.isprintable() and _BRANCH.fullmatch(text) is not None
    return text if fine else ""


def _ref(text: str) -> str:
    start, slash, name = text.partition("/")
    return text if start == "refs" and slash and _branch(name) else ""


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


def _some(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text and len(text) <= 254))
