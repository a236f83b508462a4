"""A landing pushes what it judged, and takes a refusal for final unless it lost a race."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hooked import script
from support.lander import Landings, Person, make_landings
from support.rejecting_server import rejects
from support.remotes import Remote
from support.repos import git

from gitlease.kernel.ledger import transaction
from gitlease.kernel.rules.errors import Denied
from gitlease.landing import landing

pytestmark = pytest.mark.slow


@pytest.fixture
def landings(path_remote: Remote, tmp_path: Path) -> Landings:
    return make_landings(path_remote, tmp_path / "at")


@pytest.fixture
def pushes(landings: Landings, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each try of a landing to push, with the base that it was made on."""
    real, seen = landing.Lander._push, list[str]()

    def noted(self: landing.Lander, onto: str, tip: str) -> landing.Landed:
        seen.append(onto)
        return real(self, onto, tip)

    monkeypatch.setattr(landing.Lander, "_push", noted)
    return seen


def moves_on(person: Person) -> None:
    person.git("commit", "-q", "--allow-empty", "-m", "others")
    person.git("push", "-q", "origin", "HEAD:main")


def test_a_commit_made_between_check_and_push_does_not_land(
    landings: Landings, monkeypatch: pytest.MonkeyPatch
) -> None:
    jo, real = landings.jo, landing.Lander._push
    jo.begins()

    def late(self: landing.Lander, onto: str, tip: str) -> landing.Landed:
        jo.git("commit", "-q", "--allow-empty", "-m", "unjudged")
        return real(self, onto, tip)

    monkeypatch.setattr(landing.Lander, "_push", late)
    landed = jo.land(check=("true",))
    assert landings.main[0] == "work on F001"
    assert git(landings.bare, "rev-parse", "main") == landed.commit


@pytest.mark.default
def test_a_refusal_is_final_though_the_base_moves_again_and_again(
    landings: Landings, pushes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jo, kim = landings.jo, landings.kim
    jo.begins()
    hook = landings.bare / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    script(
        hook,
        'if [ "$1" = refs/heads/main ] && git log -1 --format=%ae "$3" | grep -q jo@; '
        "then echo no >&2; exit 1; fi\n",
    )
    real = landing.Lander._push

    with pytest.raises(Denied, match="hook declined"):
        jo.land()
    assert len(pushes) == 1, "nothing moved"
    pushes.clear()

    def refused(self: landing.Lander, onto: str, tip: str) -> landing.Landed:
        try:
            return real(self, onto, tip)
        finally:
            moves_on(kim)

    monkeypatch.setattr(landing.Lander, "_push", refused)
    with pytest.raises(Denied, match="hook declined"):
        jo.land()
    assert len(pushes) == 2, "it was said of the new base, too"
    assert jo.states == {"F001": "active"}


def test_a_refusal_is_tried_again_once_the_ledger_has_moved(
    landings: Landings, pushes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jo, kim = landings.jo, landings.kim
    jo.begins()
    hook = landings.bare / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    script(hook, 'test "$1" != refs/heads/main\n')
    real = landing.Lander._push

    def refused(self: landing.Lander, onto: str, tip: str) -> landing.Landed:
        try:
            return real(self, onto, tip)
        finally:
            if hook.exists():
                hook.unlink()
                kim.begins("F002", branch="other")

    monkeypatch.setattr(landing.Lander, "_push", refused)
    assert jo.land().commits == 1
    assert len(pushes) == 2
    assert jo.states == {"F001": "completed", "F002": "active"}


@pytest.mark.default("True")
@pytest.mark.parametrize("unfenced", [False, True])
def test_a_lost_race_is_tried_again(landings: Landings, tmp_path: Path, *, unfenced: bool) -> None:
    jo = landings.jo
    jo.begins()
    # The dry run that plans a push connects, too.
    told = rejects(jo.root, tmp_path / "server", "incorrect old value provided", times=2)
    assert jo.land(unfenced=unfenced).commits == 1
    assert told.pushes > 2
    assert jo.states == {"F001": "completed"}


def test_a_race_that_nobody_won_ends(
    landings: Landings, pushes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "BUSY_AGAIN", 0)  # for the place in line
    monkeypatch.setattr(landing, "RACES", 1)
    jo = landings.jo
    jo.begins()
    rejects(jo.root, tmp_path / "server", "incorrect old value provided")
    with pytest.raises(Denied, match="incorrect old value"):
        jo.land(unfenced=True)
    assert 1 < len(pushes) < 6
