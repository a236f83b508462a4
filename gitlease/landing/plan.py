"""A push as git would carry it out: ``git push --dry-run``, which runs the hooks as well.

So the hooks of the repository see the requested push and nothing else; the push itself, with the
refs of ledgers beside it, comes after and runs none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from gitlease.guard.hooks import HookWorktree
from gitlease.guard.pushes import JUDGED, REPLACES, names_of, removed
from gitlease.guard.reports import PushedCommit, PushedWork
from gitlease.guard.whose import Makers
from gitlease.kernel.git.branches import Branches
from gitlease.kernel.git.rejections import denies, retry_hints
from gitlease.kernel.git.repository import (
    TIMEOUT,
    Pieces,
    Repository,
    ask,
    detail_of,
    is_on,
    without_secrets,
)
from gitlease.kernel.git.run import GitResult
from gitlease.kernel.ledger.ports import Cause
from gitlease.kernel.rules.errors import (
    Denied,
    GitleaseError,
    Unavailable,
    UnknownOutcome,
    UsageError,
    hint,
    shown,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.work import Became, WorkPush, WorkRef
from gitlease.kernel.settings.schema import Location, Tasks
from gitlease.kernel.store.transport import (
    TIME_LIMIT,
    UNABLE,
    push_work,
    refs_at,
    remote_refs,
    run_in,
)


@dataclass(frozen=True, kw_only=True)
class PushRequest:
    """A push in the words of ``git push``.

    ``choosing`` are options that select what is pushed, ``sending`` those that say how;
    ``upstream`` is ``--set-upstream``. Without ``remote`` and ``refspecs`` git's settings decide.
    ``hooks``: run those of the repository. ``atomic``: all refs, or none.
    """

    remote: str | None = None
    refspecs: tuple[str, ...] = ()
    choosing: tuple[str, ...] = ()
    sending: tuple[str, ...] = ()
    upstream: bool = False
    hooks: bool = True
    atomic: bool = True


class NotAtomic(Denied):
    """The remote cannot move several refs at once, or none of them."""


@dataclass(frozen=True, kw_only=True)
class PlannedPush:
    """A push to ``remote`` as it would go now; ``refs`` has every ref, also those that stay.

    ``upstreams`` has branches with the ref that is to become their upstream, ``tracking`` the
    repository's own refs that git will not update, with their new ids.
    """

    push: WorkPush
    refs: tuple[WorkRef, ...]
    remote: str
    upstreams: tuple[tuple[str, str], ...] = ()
    tracking: tuple[tuple[str, str], ...] = ()


# --- the destination --------------------------------------------------------------------------


def work_at(
    repository: Repository, location: Location, request: PushRequest, *, seconds: float
) -> WorkPush:
    """A push to the named remote, or the one that git would choose, without any refs yet.

    Raises UsageError if the ledger is elsewhere.
    """
    if location.url is None:
        raise UsageError(
            "the ledger is local to this clone and does not move with a push",
            hints=("git push pushes without a fence",),
        )
    name = request.remote if request.remote is not None else _default_remote(repository)
    url = repository.remote_url(name) if name in repository.remote_names() else name
    if name != location.name and url != location.url:
        raise elsewhere(location, name)
    if is_on(repository.config.get(f"remote.{name}.mirror")):
        raise UsageError(f"{shown(name)} is a mirror: pushing to it replaces every ledger there")
    if len(repository.push_urls(name)) > 1:
        raise UsageError(f"{shown(name)} has several push URLs, which are updated one by one")
    asked = os.path.join(repository.toplevel or "", repository.folder)
    places = {"GIT_DIR": repository.git_dir, "GIT_WORK_TREE": repository.toplevel}
    return WorkPush(
        folder=asked if repository.toplevel is not None else repository.git_dir,
        remote=name,
        url=url or name,
        refs=(),
        words=request.sending,
        places=tuple((k, v) for k, v in places.items() if v is not None and k in os.environ),
        seconds=seconds,
        atomic=request.atomic,
    )


def elsewhere(location: Location, place: str) -> UsageError:
    """The refusal of a push to another repository than the ledger's."""
    home = location.name or without_secrets(location.url or "")
    return UsageError(
        f"the ledger is on {home}, but this would push to {without_secrets(place)}: work "
        "and lease move together only within one repository",
        hints=("git push pushes there without a fence",),
    )


def unfollowed(
    repository: Repository, push: WorkPush, prefix: str
) -> tuple[WorkPush, tuple[tuple[str, str], ...]]:
    """The push, changed so that no tracking ref follows a ledger, whose objects are not here.

    If the remote's fetch settings would update one, the push goes to the URL instead, and the
    tracking refs of the work are returned. git 2.55 knows a remote's URL: it is spelled otherwise.
    """
    name, config = push.remote, repository.config
    specs = config.get_all(f"remote.{name}.fetch")
    if name == push.url or _follower(f"{prefix}/any", specs) is None:
        return push, ()
    words = list(push.words)
    # By the URL the settings of the remote's name do not hold any more.
    program = config.get(f"remote.{name}.receivepack")
    words += [f"--receive-pack={program}"] if program else []
    proxy = config.get(f"remote.{name}.proxy")
    follow = [(ref, x.new) for x in push.refs if (ref := _follower(x.ref, specs)) is not None]
    by_url = replace(
        push,
        remote=push.url.removesuffix("/") if push.url.endswith("/") else push.url + "/",
        words=tuple(words),
        settings=push.settings if proxy is None else (*push.settings, ("http.proxy", proxy)),
    )
    return by_url, tuple(follow)


def _default_remote(repository: Repository) -> str:
    config, branch = repository.config, repository.branch()
    keys = [f"branch.{branch}.pushremote"] if branch else []
    keys += ["remote.pushdefault"]
    keys += [f"branch.{branch}.remote"] if branch else []
    # In the order in which git itself looks.
    name = next((value for key in keys if (value := config.get(key))), None)
    names = repository.remote_names()
    return name or (names[0] if len(names) == 1 else "origin")


def _follower(ref: str, specs: Sequence[str]) -> str | None:
    for spec in specs:
        source, _, target = spec.removeprefix("+").partition(":")
        head, star, tail = source.partition("*")
        if not target or source.startswith("^"):
            continue
        if not star:
            if ref == source:
                return target
        elif ref.startswith(head) and ref.endswith(tail) and len(ref) >= len(head + tail):
            return target.replace("*", ref[len(head) : len(ref) - len(tail)], 1)
    return None


# --- the output of git push and its hooks -----------------------------------------------------

# What git finds wrong with what was asked, before or without asking the remote.
_WRONG = (
    r"(?im)^(?:error|fatal): (src refspec .*|dst ref.*|.* has no upstream branch.*"
    r"|you are not currently on a branch.*|no configured push destination.*|invalid refspec .*"
    r"|.*cannot be resolved to branch.*|the upstream branch of .*|you are pushing to remote .*"
    r"|you didn't specify any refspecs.*|.*can'?(?:not|t) be (?:combined|used).*|bad object .*"
    r"|the destination refspec .*|the destination you provided .*|.* matches more than one.*"
    r"|--delete (?:doesn't|only) .*|cannot update .*|no refs in common .*|.*expects .*"
    r"|unable to delete '.*': remote ref does not exist"
    r"|options? .* cannot be used together.*|unknown (?:option|switch) .*|no such remote.*)$"
)
_SUBMODULES = "submodule paths contain changes"
_NO_GIT_SERVER = "git-http-push failed"  # after a portal's page in the place of an old server
_NOT_ATOMIC = "does not support --atomic"
_BY_GIT = (
    "error: failed to push",
    "error: atomic push failed",
    "fatal: the remote end hung up",  # a receiving git on this machine, after a dry run
    "error: Cannot access URL ",  # at a portal's page, which git takes for an old server
    "error: no DAV locking support on ",
    f"fatal: {_NO_GIT_SERVER}",
)


def split_output(result: GitResult) -> tuple[tuple[str, ...], list[str] | None]:
    """The lines that hooks printed, and git's own after them; None if git has none."""
    lines = result.out.decode("utf-8", "replace").splitlines()
    # A hook may print such a line, too: git's is the last one.
    starts = [n for n, line in enumerate(lines) if line.startswith("To ")]
    if not starts and result.code == 0 and lines[-1:] == ["Done"]:
        return tuple(lines[:-1]), []  # without any ref git does not even print the remote
    if not starts or result.timed_out:
        return tuple(lines), None
    return tuple(lines[: starts[-1]]), lines[starts[-1] + 1 :]


class OutputFilter:
    """Passes on lines of standard error that hooks or the server print, without git's own.

    Lines after ``fatal:`` are kept until git's exit status shows whether they were its own.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._failed = tell, False
        self._kept: list[str] | None = None
        self.more = Pieces(b"\n", self._take).more

    def _take(self, line: bytes) -> None:
        text = without_secrets(line.decode("utf-8", "replace").rstrip())
        if not text or text.startswith(_BY_GIT):
            self._failed = self._failed or bool(text)
            return
        if self._failed and text.startswith("hint:"):
            return  # git's advice follows its error; earlier hints are a hook's
        if self._kept is None and text.startswith("fatal: "):
            self._kept = []
        (self._tell if self._kept is None else self._kept.append)(text)

    def end(self, result: GitResult) -> None:
        self.more(b"\n")
        for text in self._kept or () if result.code in (0, 1) else ():
            self._tell(text)


def failure(
    result: GitResult, seconds: float, when_unreachable: tuple[str, ...] = ()
) -> GitleaseError:
    """The refusal of a push that git did not plan; hints for where the remote is unreachable."""
    detail = detail_of(result.err.splitlines(), result, seconds)
    if result.timed_out:
        return Unavailable(f"the push could not be prepared: {detail}")
    if _NOT_ATOMIC in result.err:
        return NotAtomic(
            "the remote cannot update several refs at once, so work and lease cannot move together",
            hints=(
                "its receive.advertiseAtomic is off, or its git is too old",
                hint("instead, renew the lease just before git push: {}", "renew", all=True),
                "if the lease is lost in between, nothing stops that push",
            ),
        )
    wrong = re.search(_WRONG, result.err)
    if wrong is not None:
        reason = without_secrets(wrong[1])[:300].rstrip(".")
        hints = (hint("name the remote and the branch, and say {}", set_upstream=True),)
        return UsageError(
            reason[:1].lower() + reason[1:], hints=hints if "no upstream branch" in reason else ()
        )
    if _SUBMODULES in result.err:
        return Denied(
            "submodules have commits that no remote has",
            hints=("push the submodules first: no lease guards submodules pushed along",),
        )
    unable = UNABLE.search(result.err)
    if unable is not None:
        return Denied(f"the remote {unable[1]}")
    if result.code == 1 and _NO_GIT_SERVER in result.err:
        return Unavailable("the remote cannot be reached: what answers at its URL is no git server")
    if result.code == 1:
        return Denied("a pre-push hook of this repository stopped the push")
    if denies(result.err):
        return Denied(f"the remote refused: {detail}")
    return Unavailable(f"the remote cannot be reached: {detail}", hints=when_unreachable)


def unknown(detail: str) -> UnknownOutcome:
    return UnknownOutcome(
        f"it is unknown whether the push reached the remote: {detail}",
        hints=("git ls-remote shows the remote's refs",),
    )


# --- the plan ---------------------------------------------------------------------------------

SECONDS = 3_600.0  # for hooks, and for the way of the objects

_BECAME = {
    " ": Became.UPDATED,
    "+": Became.FORCED,
    "*": Became.CREATED,
    "-": Became.DELETED,
    "=": Became.UP_TO_DATE,
    "!": Became.REJECTED,
}
_SUMMARY = re.compile(r"([0-9a-f]{40,64})\.\.\.?([0-9a-f]{40,64})")
_BRANCH = "refs/heads/"
_ON_DEMAND = {"on-demand", "only"}


class GitWork:
    """The work of one repository, to be pushed to its ledger's remote."""

    def __init__(
        self,
        repository: Repository,
        tasks: Tasks,
        location: Location,
        *,
        ref_prefix: str,
        holder: str,
        people: Mapping[str, str],
        bots: Sequence[str],
        seconds: float = SECONDS,
    ) -> None:
        self._repository, self._location, self._prefix = repository, location, ref_prefix
        self._seconds, self._holder = seconds, holder
        self._worktree = HookWorktree(
            repository,
            tasks,
            environ={},
            ref_prefix=ref_prefix,
            shared=location.name,
            holder=holder,
            strict=True,
            people=people,
            bots=bots,
        )

    def plan(self, request: PushRequest, tell: Callable[[str], None]) -> PlannedPush:
        """Find out what would be pushed, and run the repository's hooks. One connection.

        Raises UsageError for refs that cannot be pushed, or not together with the ledger.
        """
        push = work_at(self._repository, self._location, request, seconds=self._seconds)
        self._check_place(push)
        words = ["push", "--dry-run", "--porcelain", *(["--atomic"] if request.atomic else [])]
        words += request.choosing
        # Without options for the server: in a dry run git sends them to a server that has closed
        # the connection already, and sometimes dies of that.
        words += [word for word in request.sending if not word.startswith("--push-option=")]
        words += ["--set-upstream"] if request.upstream else []
        words += [] if request.hooks else ["--no-verify"]
        # Submodules are checked, but never pushed along: no lease would guard that.
        config = self._repository.config
        recurse = config.get("push.recursesubmodules") or config.get("submodule.recurse") or ""
        chosen = any(word.startswith("--recurse-submodules") for word in request.choosing)
        if (is_on(recurse) or recurse.lower() in _ON_DEMAND) and not chosen:
            words += ["--recurse-submodules=check"]
        words += ["--", push.remote, *request.refspecs]
        # Read before a hook may move a branch: git pushes the ids of then.
        form = ("--format=%(objectname) %(refname)", "refs/heads", "refs/tags")
        listed = os.fsdecode(ask(self._repository, "for-each-ref", *form).out).splitlines()
        before = {ref: oid for oid, _, ref in (line.partition(" ") for line in listed)}
        before["HEAD"] = self._id_of("HEAD")
        # Hooks get the user's own encoding; only git's messages are in English.
        env = {JUDGED: push.remote, "LC_ALL": "", "LC_MESSAGES": "C", "LANGUAGE": ""}
        locale = next((v for k in ("LC_ALL", "LC_CTYPE", "LANG") if (v := os.environ.get(k))), "")
        env |= {"LC_CTYPE": locale} if locale else {}
        # The ids in the output are read as data, so they must be whole.
        full = [("core.abbrev", "no"), ("push.pushOption", "")]
        output = OutputFilter(tell)
        result = run_in(
            push, words, seconds=self._seconds, settings=full, env=env, on_err=output.more
        )
        output.end(result)
        by_hooks, lines = split_output(result)
        for line in by_hooks:
            tell(line)
        if lines is None:
            asked = ("ls-remote", "--quiet", "--", push.remote, "HEAD")
            hints = retry_hints(
                result.err, push.url, lambda env: run_in(push, asked, seconds=TIMEOUT, env={**env})
            )
            raise failure(result, self._seconds, hints)
        refs = [x for line in lines if (x := self._ref(line, before)) is not None]
        for planned in refs:
            if planned.ref.startswith(f"{self._prefix}/"):
                raise UsageError(
                    f"{planned.ref} is a ledger of leases, which only changes of leases move",
                    hints=("name the branches and tags to be pushed",),
                )
        follows = request.upstream or any("\t" not in line and line != "Done" for line in lines)
        moving = replace(push, refs=tuple(x for x in refs if x.moves))
        way, tracking = unfollowed(self._repository, moving, self._prefix)
        return PlannedPush(
            push=way,
            refs=tuple(refs),
            remote=push.remote,
            upstreams=self._upstreams(refs) if follows else (),
            tracking=tracking,
        )

    def _check_place(self, push: WorkPush) -> None:
        # Settings may have git push elsewhere (``pushInsteadOf``): the ledger must be there, too.
        # Where that is so of the ledger's own remote, nothing fences the push, which says so.
        if push.remote == self._location.name:
            return
        ways_to = self._repository.ways_to
        ledger, work = ways_to(self._location.url or "").reads, ways_to(push.remote).writes[0]
        if not self._repository.lead_to_one(ledger, work):
            raise elsewhere(self._location, work)

    def _id_of(self, name: str) -> str:
        words = ("rev-parse", "-q", "--verify", "--end-of-options", name)
        result = ask(self._repository, *words)
        return (os.fsdecode(result.out).split() or [""])[-1] if result.code == 0 else ""

    def _ref(self, line: str, before: Mapping[str, str]) -> WorkRef | None:
        flag, tab, rest = line.partition("\t")
        names, tab_too, summary = rest.partition("\t")
        if not (tab and tab_too) or flag not in _BECAME:
            return None
        source, _, ref = names.rpartition(":")
        became = _BECAME[flag]
        reason = summary if became is Became.REJECTED else ""
        moved = _SUMMARY.match(summary)
        if moved is not None:
            return WorkRef(ref, source, moved[1], moved[2], became)
        new = "" if became is Became.DELETED else before.get(source) or self._id_of(source)
        old = new if became is Became.UP_TO_DATE else ""
        return WorkRef(ref, source, old, new, became, reason)

    def _upstreams(self, refs: Sequence[WorkRef]) -> tuple[tuple[str, str], ...]:
        current = self._repository.branch()
        pairs = []
        for ref in refs:
            source = f"{_BRANCH}{current}" if ref.source == "HEAD" and current else ref.source
            if source.startswith(_BRANCH) and ref.ref.startswith(_BRANCH):
                pairs.append((source.removeprefix(_BRANCH), ref.ref))
        return tuple(pairs)

    def brought(self, plan: PlannedPush) -> PushedWork:
        """The paths touched by the commits that a push would bring, or take away.

        Raises Denied if this clone does not have what is replaced.
        """
        lines = self._lines(plan)
        if not lines:
            return PushedWork()
        lost, cut = self._lost(plan)
        return self._worktree.brought(lines, plan.remote, lost, cut=cut)

    def carried(self, plan: PlannedPush) -> tuple[PushedCommit, ...]:
        """The commits of a push, without those that the remote, which is asked, already has."""
        return self._worktree.carried(self._lines(plan), plan.remote)

    def makers(self, emails: Iterable[str]) -> Makers:
        """Know the people with these addresses."""
        return self._worktree.makers(emails)

    def note_grant(self, commits: Sequence[str], trailer: str) -> None:
        """Keep in this clone that commits were made under a lease that their messages do not name.

        Else they would be refused once, as long as this clone believes that it holds the lease.
        """
        self._worktree.note_grant(commits, trailer)

    def _lines(self, plan: PlannedPush) -> list[str]:
        # As git would give them to its pre-push hook.
        none = "0" * (40 if self._repository.object_format == "sha1" else 64)
        return [
            f"{x.source or '(delete)'} {x.new or none} {x.ref} {x.old or none}"
            for x in plan.refs
            if x.moves
        ]

    def _lost(self, plan: PlannedPush) -> tuple[list[str], bool]:
        if not any(x.moves and x.became in REPLACES for x in plan.refs):
            return [], False
        # By the remote's own word: the tracking refs need not have all of its branches.
        there = refs_at(plan.push, plan.push.remote, timeout=TIME_LIMIT)
        place = self._location.name or self._location.url or ""
        names = names_of(self._repository, place)
        main = Branches(self._repository).main(names)
        return removed(
            self._repository, plan.refs, there, main=main, remote=plan.remote, holder=self._holder
        )

    def land(self, push: WorkPush) -> tuple[str, ...]:
        """Push without any ledger, all refs or none; return the lines that the server printed."""
        pushed = push_work(push)
        if pushed.cause is Cause.NONE:
            return pushed.said
        if not pushed.sent:
            kind = Denied if pushed.cause in (Cause.WORK, Cause.REFUSED, Cause.MOVED) else None
            raise (kind or Unavailable)(f"the push was not made: {pushed.detail}")
        try:
            there = remote_refs(push, timeout=TIME_LIMIT)
        except (Unavailable, Denied) as error:
            raise unknown(f"{pushed.detail}; {error.message}") from None
        # What the remote has decides, not what git says: an answer may be lost on the way.
        if all(there[x.ref] == x.new for x in push.refs):
            return pushed.said
        if pushed.cause is Cause.UNREACHABLE:
            raise unknown(pushed.detail)
        if pushed.cause is Cause.TROUBLE:
            raise Unavailable(
                f"the remote failed to take the push: {pushed.detail}",
                hints=(*pushed.hints, "the trouble is the host's: try again later"),
            )
        raise Denied(f"the remote refused the push: {pushed.detail}", hints=pushed.hints)

    def follow(self, plan: PlannedPush) -> None:
        """Set the requested upstreams, and the tracking refs that git did not update."""
        commands: list[list[str]] = []
        for ref, new in plan.tracking:
            how = ["-m", "update by push", ref, new] if new else ["-d", ref]
            commands.append(["update-ref", *how])
        for branch, ref in plan.upstreams:
            commands += [["config", f"branch.{branch}.remote", plan.remote]]
            commands += [["config", f"branch.{branch}.merge", ref]]
        for words in commands:
            run_in(plan.push, words, seconds=TIMEOUT)
