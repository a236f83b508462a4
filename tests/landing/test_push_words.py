"""What a push that was not made is called, and where it would have gone."""

from __future__ import annotations

from typing import Any

import pytest

from gitlease.kernel.git.run import GitResult
from gitlease.kernel.ledger.ports import Cause, Swapped
from gitlease.kernel.rules.errors import Denied, GitleaseError, Unavailable
from gitlease.kernel.rules.ledger import Fate
from gitlease.kernel.rules.work import WorkPush
from gitlease.kernel.settings.schema import Location
from gitlease.landing import plan

PUSH = WorkPush(folder=".", remote="origin", url="../x", refs=())


def failed(code: int, err: str) -> GitleaseError:
    return plan.failure(GitResult(code, b"", err), 1.0)


def test_the_place_of_the_ledger_is_named_without_secrets() -> None:
    away = plan.elsewhere(Location(None, "https://jo:secret@here/x", explicit=True), "../there")
    assert "here/x" in away.message
    assert "secret" not in away.message
    assert "on origin," in plan.elsewhere(Location("origin", "u", explicit=False), "x").message


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (Cause.WORK, Denied),
        (Cause.REFUSED, Denied),
        (Cause.MOVED, Denied),
        (Cause.UNREACHABLE, Unavailable),
        (Cause.TROUBLE, Unavailable),
    ],
)
def test_a_push_that_was_not_sent_is_a_refusal_only_where_somebody_refused(
    cause: Cause, kind: type[GitleaseError], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Swapped(Fate.UNDECIDED, cause=cause, sent=False, detail="so it was")
    monkeypatch.setattr(plan, "push_work", lambda _: told)
    work: Any = plan.GitWork.__new__(plan.GitWork)
    with pytest.raises(kind, match="so it was") as caught:
        work.land(PUSH)
    assert type(caught.value) is kind


def test_what_answers_without_git_is_no_hook_that_refused() -> None:
    assert type(failed(1, f"fatal: {plan._NO_GIT_SERVER}")) is Unavailable
    stopped = failed(1, "")
    assert type(stopped) is Denied
    assert "pre-push hook" in stopped.message
