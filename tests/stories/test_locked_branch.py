"""What a push with work tells where the remote locks a branch, or has a rule about the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.hooked import script
from support.lander import Landings, make_landings
from support.ledgers import workspace
from support.remotes import Remote

from gitlease.kernel.git.run import GitResult
from gitlease.kernel.ledger import transaction
from gitlease.kernel.ledger.ports import Swapped
from gitlease.kernel.rules.errors import Denied, Unavailable
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.rules.work import WorkPush
from gitlease.kernel.store import transport
from gitlease.landing.landing import LandOptions

pytestmark = pytest.mark.slow

LEDGER = "refs/gitlease/global"
MAIN = "refs/heads/main"


@pytest.fixture
def landings(path_remote: Remote, tmp_path: Path) -> Landings:
    return make_landings(path_remote, tmp_path / "at")


def test_a_locked_branch_is_named_after_a_few_tries(
    landings: Landings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "LOCKED_AGAIN", 1)
    real, tries, told = transport.push_work, list[str](), list[str]()

    def counted(work: WorkPush, *words: Any, **how: Any) -> Swapped:
        tries.append(work.remote)
        return real(work, *words, **how)

    monkeypatch.setattr(transport, "push_work", counted)
    jo = landings.jo
    jo.begins()
    tip, lock = jo.git("rev-parse", "topic"), landings.bare / "refs" / "heads" / "main.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    opened = workspace(jo.root, clock=jo.clock)
    with pytest.raises(Unavailable, match=r"^refs/heads/main is locked on the remote: ") as caught:
        opened.land(parse_resource("F001"), LandOptions(), tell=told.append)
    assert any(".lock file" in x for x in caught.value.hints)
    assert len(tries) == 2
    assert len(told) == len({*told}), "what git says of each try is told once"
    assert jo.git("rev-parse", "topic") == tip
    lock.unlink()
    assert jo.land().commits == 1


@pytest.mark.parametrize(
    ("printed", "locked"),
    [
        ("cannot lock ref 'refs/heads/main': Unable to create '/r/main.lock': File exists.", True),
        ("cannot lock ref 'refs/heads/evil': Unable to create '/r/x.lock': File exists.", False),
        ("cannot lock ref 'refs/heads/main': is at 1 but expected 2", False),
    ],
)
def test_only_a_pushed_ref_whose_lock_is_there_counts_as_locked(
    printed: str, *, locked: bool
) -> None:
    note = "[remote rejected] (atomic transaction failed)"
    out = "".join(f"!\t1:{x}\t{note}\n" for x in (LEDGER, MAIN))
    result = GitResult(1, out.encode(), f"remote: error: {printed}\n", timed_out=False)
    pushed = transport.read_push(result, [LEDGER], 1.0, far=False, work=[MAIN])
    assert pushed.locked == (MAIN if locked else "")


@pytest.mark.parametrize("ref", [LEDGER, MAIN, f"{LEDGER}-2"])
def test_a_rule_about_the_ledger_gets_its_hint_in_a_push_of_work(
    landings: Landings, ref: str
) -> None:
    jo = landings.jo
    jo.begins()
    hook = landings.bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    script(
        hook,
        "cat >/dev/null\n"
        f'echo "error: GH013: Repository rule violations found for {ref}."\nexit 1\n',
    )
    with pytest.raises(Denied, match="GH013") as caught:
        jo.land()
    hinted = any(
        "a rule of the repository refuses refs/gitlease/*" in x for x in caught.value.hints
    )
    assert hinted == (ref == LEDGER)
