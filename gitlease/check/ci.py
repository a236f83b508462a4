"""Reads from the variables and files of GitHub Actions and GitLab CI what they run for.

The author of a pull request chooses branch names and much of the event: nothing in it is taken for
an id or a ref unless it looks like one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gitlease.core.frozen import dataclass, replace
from gitlease.git.files import load_json
from gitlease.git.repository import is_id

GITHUB, GITLAB = "github", "gitlab"
MAX_EVENT = 64 * 1024 * 1024  # bytes: GitHub itself sends no more than 25 MB
MAX_COUNT = 1_000_000

# The rules of git-check-ref-format, and nothing that a glob or an option could be.
_BRANCH = re.compile(
    r"(?![-/.])(?:(?!\.\.|//|/\.|@\{|\.lock(?:/|$))[^\x00-\x20\x7f~^:?*\[\\])+(?<![./])"
)
_PULLS = ("pull_request", "pull_request_target")
_ADDS_COMMITS = ("opened", "synchronize", "reopened")  # actions of a pull request


@dataclass(frozen=True, slots=True, kw_only=True)
class CiContext:
    """The change that continuous integration runs for.

    ``base`` and ``head`` are full ids, ``""`` if unknown: the commits to check are those of the
    head that the base lacks. ``new``: the branch is new, and has no base. ``base_branch`` is where
    they are to go, ``head_ref`` the remote's ref of the head. ``nothing``: a branch was deleted.
    ``emails`` and ``logins`` are those of the person who pushed, or with ``request`` of the people
    who opened or updated the pull request, who need not have made any of its commits. ``workspace``
    is the folder that the host shows files relative to, ``summary`` the file to add the job's
    summary to. ``problems`` are sentences.
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
    """The given variables, else those of this process."""
    return os.environ if environ is None else environ


def is_ci(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this is continuous integration of any kind, where clones may be partial."""
    return surroundings(environ).get("CI", "").lower() not in ("", "0", "false")


def read_context(environ: Mapping[str, str] | None = None) -> CiContext:
    """The change to check, empty outside of GitHub Actions and GitLab CI."""
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
        number = _number(event, "pull_request.number") or _number(event, "number")
        sent = kind in _PULLS and _text(event, "action") in ("", *_ADDS_COMMITS)
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


# --- GitLab -------------------------------------------------------------------------------------


def _gitlab(environ: Mapping[str, str]) -> CiContext:
    # GitLab names who started a pipeline: of a push, who pushed; of a merge request, anybody.
    # CI_COMMIT_BEFORE_SHA is zeros in merge requests, and in the first pipeline of a branch.

    def ci(name: str) -> str:
        return environ.get(f"CI_{name}", "")

    here = CiContext(provider=GITLAB, default_branch=_branch(ci("DEFAULT_BRANCH")))
    by = replace(
        here,
        emails=_some(environ.get("GITLAB_USER_EMAIL", "")),
        logins=_some(environ.get("GITLAB_USER_LOGIN", "")),
    )
    number = ci("MERGE_REQUEST_IID")[:12]
    if number.isascii() and number.isdigit():
        target = _branch(ci("MERGE_REQUEST_TARGET_BRANCH_NAME"))
        return replace(
            by,
            base=_id(ci("MERGE_REQUEST_DIFF_BASE_SHA")),
            head=_id(ci("MERGE_REQUEST_SOURCE_BRANCH_SHA") or ci("COMMIT_SHA")),
            base_branch=target,
            default_branch=here.default_branch or target,
            head_ref=f"refs/merge-requests/{number}/head",
            shown=f"merge request !{number}",
            request=True,
        )
    if ci("PIPELINE_SOURCE") != "push":
        return here
    before, branch = ci("COMMIT_BEFORE_SHA"), _branch(ci("COMMIT_BRANCH"))
    return replace(
        by,
        base=_id(before),
        head=_id(ci("COMMIT_SHA")),
        new=_is_zero(before),
        head_ref=f"refs/heads/{branch}" if branch else "",
        shown=f"the push to {branch or 'a tag'}",
    )


# --- reading ------------------------------------------------------------------------------------


def _at(document: object, path: str) -> object:
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
    """A full id that is not all zeros; ``""`` for anything else."""
    return text if is_id(text) and text.strip("0") else ""


def _is_zero(text: str) -> bool:
    return is_id(text) and not text.strip("0")


def _branch(text: str) -> str:
    """The name of a branch; ``""`` for an invalid one."""
    fine = len(text) <= 500 and text.isprintable() and _BRANCH.fullmatch(text) is not None
    return text if fine else ""


def _ref(text: str) -> str:
    start, slash, name = text.partition("/")
    return text if start == "refs" and slash and _branch(name) else ""


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


def _some(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text and len(text) <= 254))
