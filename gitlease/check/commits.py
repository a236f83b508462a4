"""Chooses commits, and checks them against the claims of others, by the ledgers and their history.

The commits are those of a given range, of a CI run, or of this branch and not of the default
branch. The check has no holder, changes nothing, and reports what it could not check.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from gitlease.check.judging import Judgement, LedgerFacts, ledger_facts
from gitlease.check.rules import CheckResult, no_ledger
from gitlease.guard.commits import CommitFacts, CommitReader
from gitlease.guard.history import commit_ids, in_range
from gitlease.kernel.git.files import load_json
from gitlease.kernel.git.rejections import denies
from gitlease.kernel.git.repository import HEADS, Repository, ask, ask_line, detail_of, is_id
from gitlease.kernel.ledger.chores import pending_messages
from gitlease.kernel.ledger.ledger_session import unread_records
from gitlease.kernel.ledger.ports import Clock, Snapshot, TaskFiles, doing
from gitlease.kernel.rules.edge import Addresses
from gitlease.kernel.rules.errors import (
    Denied,
    GitleaseError,
    NotFound,
    Unavailable,
    UsageError,
    shown,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.rules.ledger import Ledger, is_kept
from gitlease.kernel.rules.resources import fold
from gitlease.kernel.store.git_ledger import RefLedgerStore
from gitlease.kernel.store.history_reader import LedgerHistory, read_history
from gitlease.kernel.store.private_store import PrivateStore
from gitlease.kernel.store.transport import Remote, fetch_into

# --- the change that CI runs for ------------------------------------------------------------------

GITHUB, GITLAB = "github", "gitlab"
MAX_EVENT = 64 * 1024 * 1024  # bytes: GitHub itself sends no more than 25 MB
MAX_COUNT = 1_000_000

# The rules of git-check-ref-format, and nothing that a glob or an option could be.
_BRANCH = re.compile(
    r"(?![-/.])(?:(?!\.\.|//|/\.|@\{|\.lock(?:/|$))[^\x00-\x20\x7f~^:?*\[\\])+(?<![./])"
)
_PULLS = ("pull_request", "pull_request_target")
_ADDS_COMMITS = ("opened", "synchronize", "reopened")  # actions of a pull request


@dataclass(frozen=True, kw_only=True)
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


def is_ci() -> bool:
    """Return whether this is continuous integration of any kind, where clones may be partial."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def read_context(environ: Mapping[str, str] | None = None) -> CiContext:
    """The change to check, empty outside of GitHub Actions and GitLab CI."""
    environ = os.environ if environ is None else environ
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
        # Whoever labels or closes a request sends its event, and need not have pushed anything to
        # it.
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
            base_branch=_branch(_text(event, "merge_group.base_ref").removeprefix(HEADS)),
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
        shown=f"the push to {_ref(ref).removeprefix(HEADS) or 'a ref'}",
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
        head_ref=HEADS + branch if branch else "",
        shown=f"the push to {branch or 'a tag'}",
    )


# --- reading ------------------------------------------------------------------------------------
# The author of a pull request chooses branch names and much of the event that CI hands on: nothing
# in it is taken for an id or a ref unless it looks like one.


def _at(document: object, path: str) -> object:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _text(document: object, path: str) -> str:
    value = _at(document, path)
    return value if isinstance(value, str) else ""


def _number(document: object, path: str) -> int:
    value = _at(document, path)
    # Not isinstance: True is an int as well.
    return value if type(value) is int and 0 < value < MAX_COUNT else 0


def _id(text: str) -> str:
    # Hosts send zeros for a branch that is new or was deleted.
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


def _some(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text and len(text) <= 254))


# --- which commits --------------------------------------------------------------------------------

INFINITE = 2_147_483_647  # what git takes for all there is
SECONDS = 600.0
MAX_COMMITS = 50_000
SETTINGS = ".gitlease.yaml"
DEPTHS = (100, 2_000, INFINITE)
USUAL = ("main", "master", "trunk", "develop")
UNSHALLOW = (
    "in GitHub Actions give actions/checkout fetch-depth: 0, in GitLab CI set GIT_DEPTH: 0",
    "anywhere else: git fetch --unshallow",
)
# Messages of remotes that do not have an object or a ref, or do not allow asking for it.
_LACKING = (
    "couldn't find remote ref",
    "not our ref",
    "unadvertised object",
    "no such ref",
    "did not receive expected object",
    "remote error: upload-pack",
)
_FORMS = (
    "write it like main..HEAD, with commits, branches or tags of this clone",
    "in a pull request, and on a branch of its own, none is needed",
)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The commits to check, the oldest first, with full ids.

    ``shown`` is the range for people. ``base`` is a commit from before it, whose mailmap and
    settings hold; ``""`` if there is none. ``place`` is the repository with their objects if that
    is not the user's own. ``cut``: there were more.
    """

    commits: tuple[str, ...]
    shown: str
    base: str = ""
    place: Repository | None = None
    cut: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """One end of a range: for people, and as a name for this clone and for the remote.

    A name is a full id or what git can make one of; ``""`` if there is none. ``named``: it was
    given on the command line.
    """

    shown: str
    here: str = ""
    there: str = ""
    named: bool = False


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Chooses commits of one repository. ``store`` opens the store beside it, or returns None."""

    # Commits are listed in the user's clone if that has all of them and their parents, else in the
    # store: a clone for CI often has a single commit, and deepening it would change it.

    repository: Repository
    remote: str | None
    store: Callable[[], HistoryStore | None]

    def choose(self, words: str | None, context: CiContext) -> Chosen:
        """The commits of the range ``words``, else those that the context is about.

        The user's repository is not changed. Raises UsageError for an invalid range, NotFound for
        commits that do not exist, and Unavailable if the remote is needed and does not answer.
        """
        if words is None and context.nothing:
            return Chosen(commits=(), shown=context.shown or "nothing")
        if words is not None or not context.head:
            return self._choose(*self._by_words("HEAD" if words is None else words, context))
        head = Point(context.shown, context.head, context.head)
        bases, default = self._bases(context)
        try:
            return self._choose(head, bases, context.shown)
        except NotFound:
            if default is None:
                raise
        chosen = self._choose(head, [default], context.shown)
        warning = "what was there before is gone: checked are the commits that"
        warnings = (f"{warning} {default.shown} lacks", *chosen.warnings)
        return replace(chosen, warnings=warnings)

    def _choose(self, head: Point, bases: Sequence[Point], label: str) -> Chosen:
        points = (head, *bases)
        known = commit_ids(self.repository, [point.here for point in points])
        for point, oid in zip(points, known, strict=True):
            if oid is None and not point.there:
                message = f"no commit {shown(point.shown)} in this clone"
                if not point.named:
                    raise NotFound(message, hints=UNSHALLOW)
                deep = "git fetch --unshallow" if self.repository.shallow() else "git fetch"
                raise UsageError(message, hints=(_FORMS[0], f"it may be on the remote: {deep}"))
        ids = [oid for oid in known if oid is not None]
        if len(ids) == len(points):
            chosen, whole = _listed(label, self.repository, ids)
            if whole:
                return chosen
        # The remote is asked for an id if one is known, since names may have moved.
        store = self.store()
        wants = [oid or point.there for oid, point in zip(known, points, strict=True)]
        if store is None or not all(wants):
            message = f"this clone does not have all of the commits of {shown(label)}"
            raise NotFound(message, hints=UNSHALLOW)
        # Most ranges are short: a whole history is fetched only where less does not reach their
        # base.
        for depth in DEPTHS:
            fetched = store.fetch(list(dict.fromkeys(wants)), depth=depth)
            chosen, whole = _listed(label, store.repository, [fetched[name] for name in wants])
            if whole:
                return replace(chosen, place=store.repository)
        warning = "the remote's own history is shallow: what its first commits change is unknown"
        return replace(chosen, place=store.repository, warnings=(warning,))

    def _by_words(self, words: str, context: CiContext) -> tuple[Point, Sequence[Point], str]:
        dots = "..." if "..." in words else ".."
        first, between, last = words.partition(dots)
        ends = [end for end in (first, last) if end]
        odd = not words.isprintable() or len(words) > 1_000 or not ends
        if odd or any(".." in end or end.startswith(("-", "^")) for end in ends):
            raise UsageError(f"{shown(words)} is not a range", hints=_FORMS)
        # A variable that is empty in somebody's script must not make an empty range, which passes.
        if between and not first:
            raise UsageError(f"the range {shown(words)} has no beginning", hints=_FORMS)
        # The remote is asked for nothing but ids.
        ends = [first, last or "HEAD"] if between else [words]
        points = [Point(x, x, x if is_id(x) else "", named=True) for x in ends]
        if between:
            return points[1], points[:1], words
        default = self._default(context)
        return points[0], [default], f"{default.shown}..{words}"

    def _bases(self, context: CiContext) -> tuple[list[Point], Point | None]:
        """The bases of a change, and the one to use if these do not exist any more."""
        bases: list[Point] = []
        tracked = self._branch(context.base_branch)
        if tracked is not None and (tracked.here or not context.base):
            # First: it may be newer than the host's base.
            bases.append(tracked)
        if context.base:
            bases.append(Point(context.base[:10], context.base, context.base))
        default = self._branch(context.default_branch)
        if default is None or default.there == context.head_ref:
            return bases, None
        # A new branch has no state before the push: all that the default branch lacks is checked.
        return bases + [default] * context.new, default

    def _branch(self, name: str) -> Point | None:
        if not name:
            return None
        (known,) = self._known([self._tracking(name)] if self.remote is not None else [""])
        return Point(name, known, HEADS + name)

    def _default(self, context: CiContext) -> Point:
        """The default branch, of the remote if there is one."""
        remote = self.remote
        branch = context.base_branch or context.default_branch
        names = [branch] if branch else []
        if remote is not None:
            head = ask_line(self.repository, "symbolic-ref", "-q", self._tracking("HEAD"))
            start = self._tracking("")
            names += [head.removeprefix(start)] if head.startswith(start) else []
        if not names:
            names = [self.repository.config.get("init.defaultbranch") or "", *USUAL]
        names = list(dict.fromkeys(filter(None, names)))
        for name, known in zip(names, self._known(map(self._tracking, names)), strict=True):
            if known and remote is not None:
                return Point(f"{remote}/{name}", known, HEADS + name)
            if known:
                return Point(name, known)
        if remote is None:
            raise UsageError("cannot find the default branch; pass a range", hints=_FORMS)
        there = HEADS + branch if branch else "HEAD"
        return Point(f"{remote}/{branch or 'HEAD'}", "", there)

    def _tracking(self, branch: str) -> str:
        folder = "heads" if self.remote is None else f"remotes/{self.remote}"
        return f"refs/{folder}/{branch}"

    def _known(self, refs: Iterable[str]) -> list[str]:
        asked = list(refs)
        ids = commit_ids(self.repository, asked)
        return [ref if oid else "" for ref, oid in zip(asked, ids, strict=True)]


def _listed(label: str, where: Repository, ids: Sequence[str]) -> tuple[Chosen, bool]:
    """The commits of the head that the bases lack, and whether that is certain."""
    head, *bases = ids
    commits, whole = in_range(where, head, bases, most=MAX_COMMITS + 1)
    chosen = Chosen(
        commits=commits[-MAX_COMMITS:],
        shown=label,
        base=bases[0] if bases else head,
        cut=len(commits) > MAX_COMMITS,
    )
    return chosen, whole


# --- commits that are not here --------------------------------------------------------------------


class HistoryStore:
    """A bare repository beside the clone, for commits of one remote."""

    def __init__(self, repository: Repository, remote: Remote, *, folder: str) -> None:
        self._store = PrivateStore(os.path.join(folder, "history.git"))
        # Old objects need not meet today's checks.
        settings = (*remote.settings, ("fetch.fsckObjects", "false"))
        self._remote = replace(remote, settings=settings)
        path = self._store.path
        self.repository = replace(
            repository, common_dir=path, git_dir=path, toplevel=None, folder="", worktree=None
        )

    def fetch(self, wants: Sequence[str], *, depth: int) -> dict[str, str]:
        """Fetch refs or ids, so many commits deep; return their full ids.

        Raises NotFound for what the remote does not have or provide, Unavailable, and Denied.
        """
        self._store.tidy()  # of what was fetched long ago
        self._store.ready()
        # Named by the process: two checks of a clone may fetch at once.
        names = {want: f"refs/check/{os.getpid()}-{n}" for n, want in enumerate(wants)}
        done = fetch_into(
            self._remote,
            self._store.path,
            [f"+{want}:{name}" for want, name in names.items()],
            f"--depth={depth}",
            "--update-shallow",
            timeout=SECONDS,
        )
        if done.code or done.timed_out:
            detail = detail_of(done.err.splitlines(), done, SECONDS)
            if not done.timed_out and denies(done.err):
                raise Denied(f"the remote refused the fetch: {detail}")
            if not done.timed_out and any(words in done.err for words in _LACKING):
                message = f"the remote does not provide the commits: {detail}"
                raise NotFound(message, hints=UNSHALLOW)
            raise Unavailable(f"the remote cannot be reached: {detail}")
        ids = commit_ids(self.repository, list(names.values()))
        for name in names.values():
            # No ref keeps the objects: they go with a later tidying.
            ask(self.repository, "update-ref", "-d", name)
        return {want: oid or "" for want, oid in zip(wants, ids, strict=True)}


# --- the check ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CheckService:
    """Checks chosen commits against the ledgers of some layers.

    ``people`` are the names of holders, ``bots`` the addresses of those who commit for others;
    ``trailer``: each commit must name a lease.
    """

    chosen: Chosen
    store: RefLedgerStore
    reader: CommitReader
    tasks: TaskFiles
    clock: Clock
    layers: Sequence[str]
    people: Mapping[str, str]
    trailer: bool
    bots: Sequence[str]
    context: CiContext

    def check(self, *, cached: bool = False, fetched: bool = False) -> CheckResult:
        """Check the commits. One connection for each layer.

        ``cached`` uses the ledgers as this clone knows them, and reports their age; ``fetched``:
        they were fetched just now. Raises what the store raises: Unavailable if a ledger cannot be
        read, which is never taken for an empty one.
        """
        chosen, store = self.chosen, self.store
        layers = list(dict.fromkeys(self.layers))
        heads = [self._head(layer, cached=cached, fetched=fetched) for layer in layers]
        with doing(f"reading {len(chosen.commits)} commits"):
            commits = self.reader.read(chosen.commits)
        with doing("reading the history of the ledger"):
            histories = [self._history(head, commits, older=not cached) for head in heads]
            now = self.clock.now()
            ledgers = [
                ledger_facts(head, history, now)
                for head, history in zip(heads, histories, strict=True)
            ]
        warnings = [*self.context.problems, *chosen.warnings, *store.warnings]
        with doing(f"comparing {len(commits)} commits with the leases"):
            findings = self._judgement(ledgers, commits).find(commits)
            # Findings about claims of tasks are placed at the edge's line of the task's file.
            try:
                listed = self.tasks.read().tasks if any(x.resource for x in findings) else ()
                unplaced = []
            except GitleaseError as error:
                listed, unplaced = (), [f"the task files could not be read: {error.message}"]
        tasks = {task.resource.key: task for task in listed}
        findings = [
            replace(x, file=task.file, line=task.line)
            if (task := tasks.get(fold(x.resource or "")))
            else x
            for x in findings
        ]
        # A ledger that was deleted, or was never fetched, must not look like one in which all is
        # well.
        if chosen.commits and all(head.ledger is None for head in heads):
            findings.append(no_ledger(layers, store.place))
        # A change must not choose the rules that it is checked by.
        if chosen.base and any(y.path == SETTINGS for x in commits for y in x.touched):
            warnings.append(
                f"{SETTINGS} is changed here: the check goes by that of {chosen.base[:10]}, "
                "from before the change"
            )
        for head in heads:
            warnings += self._told_of(head, now, cached=cached)
        warnings += unplaced
        if chosen.cut:
            warnings.append(f"only the newest {len(chosen.commits)} commits were checked")
        return CheckResult(
            findings=tuple(findings),
            unread=tuple(text for head in heads for text in unread_records(head)),
            shown=chosen.shown,
            commits=len(chosen.commits),
            waiting=tuple(x for head in heads if head.ledger for x in _waiting(head.ledger)),
            warnings=tuple(dict.fromkeys(warnings)),
        )

    def _head(self, layer: str, *, cached: bool, fetched: bool) -> Snapshot:
        known = self.store.known(layer) if cached or fetched else None
        if known is None and cached:
            raise NotFound.of_copy(layer)
        # Nothing is kept of a ledger that does not exist, though it was fetched.
        return known or self.store.fetch(layer)

    def _told_of(self, head: Snapshot, now: Instant, *, cached: bool) -> list[str]:
        """What there is to say of a ledger that the commits were compared with."""
        told = [*head.warnings]
        if head.ledger is None:
            told.append(
                f"there is no ledger {head.layer} on {self.store.place}: nobody holds anything"
            )
        elif cached:
            age = head.received.elapsed_at_most(now) // MS
            told.append(f"this goes by the ledger {head.layer} as this clone knew it {age}s ago")
        if not cached:
            told += pending_messages(self.store, head)
        return told

    def _history(
        self, head: Snapshot, commits: Sequence[CommitFacts], *, older: bool
    ) -> LedgerHistory:
        if not commits or not head.version:
            return LedgerHistory(layer=head.layer)
        named = [x for commit in commits for x in (*commit.named, *commit.mentioned)]
        token = min((x.token for x in named if x.layer == head.layer), default=None)
        if token is None:  # nobody asks what was granted once
            return LedgerHistory(layer=head.layer)
        return read_history(self.store, head, token=token, older=older)

    def _judgement(
        self, ledgers: Sequence[LedgerFacts], commits: Sequence[CommitFacts]
    ) -> Judgement:
        holders = {x.holder for ledger in ledgers for x in ledger.grants.values()}
        emails, request = self.context.emails, self.context.request
        canonical = self.reader.canonical((*sorted(holders), *self.people, *emails))
        addresses = Addresses(canonical=canonical, names=self.people)
        people = {f"@{login}": addresses.of_login(login) for login in self.context.logins}
        people |= {email: addresses.of(email) for email in emails}
        return Judgement(
            addresses=addresses,
            bots=self.bots,
            # Whoever opened or updated a request need not have made its commits.
            pushers=frozenset() if request else frozenset().union(*people.values()),
            requesters=people if request else {},
            trailer=self.trailer,
            ledgers={x.layer: x for x in ledgers},
            landing=cache(lambda: self.reader.differing(commits[-1].id)),
        )


def _waiting(ledger: Ledger) -> Iterable[str]:
    for lease in ledger.every_lease():
        setback = ledger.setback(lease.resource) if is_kept(lease) else None
        if setback and setback.waits:
            why = setback.last.text.strip().partition("\n")[0]
            yield f"{lease.resource} of {lease.holder}: {why}"
