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
    is where they are to go, ``head_ref`` the ref of the remote that has the head. ``nothing``: a
    branch was deleted. ``emails`` and ``logins`` are those of whoever pushed them, or with
    ``request`` of whoever opened the request to merge them or sent its event, who need not have
    made any of them. ``workspace`` is the folder that the host shows files relative to, ``summary``
    the file that the job's summary is added to. ``problems`` are what could not be made out.
    """

    provider: str = ""
    base: str = ""
    head: str = ""
    new: bool = False
    nothing: bool = False
    base_branch: str = ""
    default_branch: str = ""
    head_ref: str = ""
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
    event = load_json(file, MAX_EVENT) if file else None
    here = CiContext(
        provider=GITHUB,
        default_branch=_branch(_text(event, "repository.default_branch")),
        workspace=environ.get("GITHUB_WORKSPACE", ""),
        summary=environ.get("GITHUB_STEP_SUMMARY", ""),
        problems=() if isinstance(event, dict) else ("GitHub's event could not be read",),
    )
    tip = _id(environ.get("GITHUB_SHA", ""))
    if kind in _PULLS or isinstance(_at(event, "pull_request"), dict):
        return _pull(event, environ, kind, here)
    if kind == "merge_group":
        return replace(
            here,
            base=_id(_text(event, "merge_group.base_sha")),
            head=_id(_text(event, "merge_group.head_sha")) or tip,
            base_branch=_branch(_short(_text(event, "merge_group.base_ref"))),
            shown="the merge group",
        )
    if kind != "push":
        return here
    before, ref = _text(event, "before"), _text(event, "ref") or environ.get("GITHUB_REF", "")
    login = _text(event, "sender.login") or environ.get("GITHUB_ACTOR", "")
    return replace(
        here,
        base=_id(before),
        head=_id(_text(event, "after")) or tip,
        new=_is_zero(before),
        nothing=_at(event, "deleted") is True,
        head_ref=_ref(ref),
        shown=f"the push to {_short(_ref(ref)) or 'a ref'}",
        emails=_some(_text(event, "pusher.email")),
        logins=_some(login, _text(event, "pusher.name")),
    )


def _pull(event: object, environ: Mapping[str, str], kind: str, here: CiContext) -> CiContext:
    number = _number(event, "pull_request.number") or _number(event, "number")
    sent = kind in _PULLS and _text(event, "action") in ("", *_BROUGHT)
    base = _text(event, "pull_request.base.ref") or environ.get("GITHUB_BASE_REF", "")
    sender = _text(event, "sender.login") if sent else ""
    return replace(
        here,
        base=_id(_text(event, "pull_request.base.sha")),
        head=_id(_text(event, "pull_request.head.sha")),
        base_branch=_branch(base),
        head_ref=f"refs/pull/{number}/head" if number else "",
        shown=f"pull request #{number}" if number else "the pull request",
        request=True,
        logins=_some(_text(event, "pull_request.user.login"), sender),
    )


# --- GitLab -------------------------------------------------------------------------------------


def _gitlab(environ: Mapping[str, str]) -> CiContext:
    """Without a file: GitLab says all in variables. It names who started a pipeline.

    That is who pushed in the pipeline of a push; in a merge request it may be anybody.
    ``CI_COMMIT_BEFORE_SHA`` is zeros in merge requests, and in the first pipeline of a branch.
    """

    def said(name: str) -> str:
        return environ.get(f"CI_{name}", "")

    here = CiContext(provider=GITLAB, default_branch=_branch(said("DEFAULT_BRANCH")))
    by = replace(
        here,
        emails=_some(environ.get("GITLAB_USER_EMAIL", "")),
        logins=_some(environ.get("GITLAB_USER_LOGIN", "")),
    )
    number = said("MERGE_REQUEST_IID")[:12]
    if number.isascii() and number.isdigit():
        target = _branch(said("MERGE_REQUEST_TARGET_BRANCH_NAME"))
        return replace(
            by,
            base=_id(said("MERGE_REQUEST_DIFF_BASE_SHA")),
            head=_id(said("MERGE_REQUEST_SOURCE_BRANCH_SHA") or said("COMMIT_SHA")),
            base_branch=target,
            default_branch=here.default_branch or target,
            head_ref=f"refs/merge-requests/{number}/head",
            shown=f"merge request !{number}",
            request=True,
        )
    if said("PIPELINE_SOURCE") != "push":
        return here
    before, branch = said("COMMIT_BEFORE_SHA"), _branch(said("COMMIT_BRANCH"))
    return replace(
        by,
        base=_id(before),
        head=_id(said("COMMIT_SHA")),
        new=_is_zero(before),
        head_ref=f"refs/heads/{branch}" if branch else "",
        shown=f"the push to {branch or 'a tag'}",
    )


# --- reading ------------------------------------------------------------------------------------


def _at(document: object, path: str) -> object:
    """A value deep in a document that may have any form."""
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _text(document: object, path: str) -> str:
    found = _at(document, path)
    return found if isinstance(found, str) else ""


def _number(document: object, path: str) -> int:
    found = _at(document, path)
    return found if type(found) is int and 0 < found < MAX_COUNT else 0


def _id(text: str) -> str:
    """A full id that is not the one of nothing; ``""`` for anything else."""
    return text if is_id(text) and text.strip("0") else ""


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
