"""The step that retires stale claims: leases, edges and words to those concerned, all in one."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.answers import Answer
from gitlease.domain.errors import GitleaseError, Invalid
from gitlease.domain.frozen import dataclass, replace
from gitlease.domain.operations import Retire, Retirement
from gitlease.domain.retiring import RETIRED
from gitlease.edges import Planned
from gitlease.intents import RETIRED as GOAL
from gitlease.stepping import LeaseSteps
from gitlease.swapping import fresh_id


@dataclass(frozen=True, slots=True)
class Wish:
    """A retirement, and what it means for the task's file where it means anything."""

    item: Retirement
    planned: Planned | None = None


class RetireSteps(LeaseSteps):
    """The step below ``check --stale --fix``."""

    def retire(self, wishes: Sequence[Wish], *, commit: bool = True) -> Answer:
        """Retire what is still stale by the ledger as it is now: one push, and one commit.

        What cannot be retired is among ``refused``: it was claimed meanwhile, or its task file
        cannot be edited safely.
        """
        self.mended(self.settle_first)
        good, refused = self._writable(wishes, commit)
        if not good:
            return Answer(status=RETIRED, refused=refused, changed=False)
        op = Retire(id=fresh_id(), actor=self.actor, items=tuple(wish.item for wish in good))
        planned = [wish.planned for wish in good if wish.planned is not None]
        answer = self._together("retirement", [op], planned, goal=GOAL, commit=commit, checked=True)
        return replace(answer, refused=refused + answer.refused)

    def _writable(
        self, wishes: Sequence[Wish], commit: bool
    ) -> tuple[list[Wish], tuple[GitleaseError, ...]]:
        """Those whose task files could be edited; what speaks against each of the others."""
        if self._unwritable([wish.planned for wish in wishes if wish.planned], commit) is None:
            return list(wishes), ()
        good: list[Wish] = []
        refused: list[GitleaseError] = []
        said: set[str] = set()
        general: Invalid | None = None
        for wish in wishes:
            error = None
            if wish.planned is not None:
                error = general or self._unwritable([wish.planned], commit)
            if error is None:
                good.append(wish)
                continue
            # The same words of two files are about neither: there is no branch to commit on, say.
            general = error if error.message in said else None
            said.add(error.message)
            name = wish.item.resource.text
            refused.append(Invalid(error.message, resource=name, hints=error.hints))
        return good, tuple(refused)

    def _unwritable(self, plans: Sequence[Planned], commit: bool) -> Invalid | None:
        try:
            self.edges.check(plans, commit=commit)
        except Invalid as error:
            return error
        return None
