"""The library's fenced push, and the check of a token."""

from __future__ import annotations

from collections.abc import Iterable

from gitlease.domain.errors import UsageError
from gitlease.domain.view import LeaseView
from gitlease.domain.work import PushWish
from gitlease.faces.opened import Opened, to_scope
from gitlease.faces.push_words import choosing, sending
from gitlease.fencing import Fencing as _Fencing
from gitlease.fencing import PushAnswer as PushAnswer


class PushVerbs(Opened):
    """What only a holder may do."""

    def push(
        self,
        remote: str | None = None,
        *refspecs: str,
        require: Iterable[str] = (),
        upstream: bool = False,
        force: bool = False,
        tags: bool = False,
        delete: bool = False,
        options: Iterable[str] = (),
        hooks: bool = True,
        dry_run: bool = False,
    ) -> PushAnswer:
        """Push work and a renewal of its leases in one atomic push: both land, or neither.

        What is pushed, and where, is as ``git push`` would have it. The leases are those of one's
        own that the commits fall under, and those that ``require`` names. Without any it is a plain
        push, and ``warnings`` says so. ``force`` replaces exactly what was looked at; ``options``
        are push options for the server. Raises LeaseLost, NotHolder, LeaseHeld where the commits
        touch what another holds, Denied (with ``refs``) where git, a hook or the remote refuses
        them, UsageError, Unavailable, and UnknownOutcome.
        """
        if isinstance(require, str):
            raise UsageError("required leases are given as a list", resource=require)
        chosen = {"force": force, "tags": tags, "delete": delete}
        wish = PushWish(
            remote=remote,
            refspecs=refspecs,
            choosing=choosing(chosen),
            sending=sending({"push_option": tuple(options)}),
            upstream=upstream,
            hooks=hooks,
        )
        required = [self._resource(word) for word in require]
        answer = self._fencing().push(wish, require=required, dry_run=dry_run)
        self.warnings = answer.warnings
        return answer

    def fence(self, resource: str, token: int, *, scope: str | None = None) -> LeaseView:
        """The live lease, if it has exactly this token now: the last check before what cannot be
        undone. Raises LeaseLost where it has not."""
        if isinstance(token, bool) or not isinstance(token, int) or token < 1:
            raise UsageError("a token is a positive whole number", resource=resource)
        return self._fencing().fence(self._resource(resource), token, scope=to_scope(scope))

    def _fencing(self) -> _Fencing:
        from gitlease.bootstrap_push import open_fencing

        return open_fencing(self._workspace)
