"""The output of ``git push`` and its hooks, and the error of a push that failed."""

from __future__ import annotations

import re
from collections.abc import Callable

from gitlease.core.errors import Denied, GitleaseError, Unavailable, UnknownOutcome, UsageError
from gitlease.git.repository import denies, detail_of, without_secrets
from gitlease.git.run import GitResult
from gitlease.store.work_push import UNABLE

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
        self._tell, self._rest, self._failed = tell, b"", False
        self._kept: list[str] | None = None

    def more(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = without_secrets(line.decode("utf-8", "replace").rstrip())
            if not text or text.startswith(_BY_GIT):
                self._failed = self._failed or bool(text)
                continue
            if self._failed and text.startswith("hint:"):
                continue  # git's advice follows its error; earlier hints are a hook's
            if self._kept is None and text.startswith("fatal: "):
                self._kept = []
            (self._tell if self._kept is None else self._kept.append)(text)

    def end(self, result: GitResult) -> None:
        self.more(b"\n")
        for text in self._kept or () if result.code in (0, 1) else ():
            self._tell(text)


def failure(result: GitResult, seconds: float) -> GitleaseError:
    detail = detail_of(result.err.splitlines(), result, seconds)
    if result.timed_out:
        return Unavailable(f"the push could not be prepared: {detail}")
    if _NOT_ATOMIC in result.err:
        return Denied(
            "the remote cannot update several refs at once, so work and lease cannot move together",
            hints=(
                "its receive.advertiseAtomic is off, or its git is too old",
                "instead, renew the lease just before git push: gitlease renew --all && git push; "
                "if the lease is lost in between, nothing stops that push",
            ),
        )
    wrong = re.search(_WRONG, result.err)
    if wrong is not None:
        reason = without_secrets(wrong[1])[:300].rstrip(".")
        hints = ("name the remote and the branch, and say --set-upstream",)
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
    return Unavailable(f"the remote cannot be reached: {detail}")


def unknown(detail: str) -> UnknownOutcome:
    return UnknownOutcome(
        f"it is unknown whether the push reached the remote: {detail}",
        hints=("git ls-remote shows the remote's refs",),
    )
