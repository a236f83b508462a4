"""What agents are told and keep: two people, their clones, and the layers that they use."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.hooked import task_text
from support.repos import git, real_clone
from support.snapshots import check_words
from support.typed import Agent, Typist, commands_in

from gitlease.guard.notes import has_traces

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
HOUR = 3_600


@dataclass
class Two:
    """jo, who administers the ledger, and kim, each in a clone, by one clock."""

    clock: ManualClock
    jo: Typist
    kim: Typist


@pytest.fixture
def two(clones: Clones) -> Two:
    one, other = clones(2)
    (one / "tasks").mkdir()
    for name in ("F001", "F002", "F003"):
        (one / "tasks" / f"{name}.md").write_text(task_text(name), encoding="utf-8")
    git(one, "add", "tasks")
    git(one, "commit", "-q", "-m", "tasks")
    git(one, "push", "-q", "origin", "HEAD:main")
    git(other, "pull", "-q", "origin", "main")
    for clone, name in ((one, "jo"), (other, "kim")):
        git(clone, "config", "user.email", f"{name}@example.com")
    clock = ManualClock()
    made = Two(clock, Typist(one, clock), Typist(other, clock))
    made.jo.ok("config --ledger admins jo@example.com")
    return made


def test_renewing_everything_is_in_every_layer_and_a_hint_names_the_layer(two: Two) -> None:
    kim = two.kim
    kim.env["GITLEASE_SESSION"] = "run-1"
    kim.ok("claim deploy --any")
    kim.ok("claim port --any --layer s1")
    kim.ok("claim disk --any --local")
    two.clock.advance(60)
    assert len(kim.ok("renew --all --json").json["leases"]) == 3
    check_words(kim.ok("renew --all --layer s1").out)
    told = kim.ok("renew --all", env={"GITLEASE_LAYER": "s1"}).out
    check_words(told)
    two.jo.ok("config --ledger admins jo@example.com --layer s1")
    two.jo.ok("revoke port --reason late --layer s1")
    lost = kim.types("renew --all")
    assert lost.code == 3
    check_words(lost.err)
    assert lost.hints == ("gitlease show port --layer s1",)
    kim.accepts(*lost.hints)
    assert kim.types("renew --all --scope api").code == 2


@pytest.fixture
def agent(two: Two) -> Agent:
    """kim's agent, whose host has our hooks."""
    two.kim.ok("agent claude install")
    return Agent(two.kim)


def renewals(two: Two) -> dict[str, int]:
    """How often each live lease was renewed, in every layer that is used here."""
    found: dict[str, int] = {}
    for layer in ("--layer global", "--layer s1", "--local"):
        listed = two.kim.types(f"list {layer} --json")
        leases = listed.json["leases"] if listed.code == 0 else []  # not used yet
        found |= {x["resource"]: x["renewals"] for x in leases if x["state"] == "active"}
    return found


def test_the_heartbeat_keeps_what_a_session_holds_in_every_layer(two: Two, agent: Agent) -> None:
    mine = agent.terminal
    for words in ("deploy", "port --layer s1", "disk --local"):
        two.kim.ok(f"claim {words} --any --ttl 15m", env=mine)
    two.kim.ok("claim theirs --any --ttl 15m --session another")
    for _ in range(8):
        two.clock.advance(280)
        assert agent.uses_a_tool() == ""
    kept = renewals(two)
    assert set(kept) == {"deploy", "port", "disk"}
    assert set(kept.values()) == {4}, "once a third of the time was gone, and not before"


def test_a_short_lease_lives_as_long_as_tools_are_used(two: Two, agent: Agent) -> None:
    two.kim.ok("claim deploy --any --ttl 60s", env=agent.terminal)
    for _ in range(60):
        two.clock.advance(5)
        agent.uses_a_tool()
    assert renewals(two)["deploy"] == 300 // 20


def test_a_heartbeat_in_vain_is_tried_again_before_the_lease_ends(
    two: Two, agent: Agent, tmp_path: Path
) -> None:
    two.kim.ok("claim deploy --any --ttl 60s", env=agent.terminal)
    remote = Path(git(two.kim.clone, "remote", "get-url", "origin").removeprefix("file://"))
    remote.rename(tmp_path / "away.git")
    two.clock.advance(25)
    agent.uses_a_tool()
    (tmp_path / "away.git").rename(remote)
    two.clock.advance(5)
    check_words(agent.uses_a_tool())
    assert renewals(two) == {"deploy": 1}


def test_the_persons_own_is_kept_only_where_the_session_uses_it_or_was_told_of_it(
    two: Two, agent: Agent
) -> None:
    kim = two.kim
    kim.ok("claim src/ docs/ --ttl 15m")
    kim.ok("claim deploy port --any --ttl 15m")
    agent.edits("src/a.py")
    kim.ok("renew deploy", env=agent.terminal)
    two.clock.advance(400)
    agent.uses_a_tool()
    assert renewals(two) == {"path:src": 1, "path:docs": 0, "deploy": 2, "port": 0}
    later = Agent(kim, session="22222222-0000")
    assert "docs" in later.sends("session-start")
    later.uses_a_tool()
    assert renewals(two) == {"path:src": 2, "path:docs": 1, "deploy": 3, "port": 1}


@pytest.mark.parametrize(
    ("event", "how"),
    [
        ("after-tool", ""),
        ("before-edit", "revoke deploy --reason late"),
        ("session-start", ""),
        ("subagent-start", "revoke deploy --reason late"),
    ],
)
def test_a_loss_is_told_at_the_next_event_whatever_it_is(
    two: Two, agent: Agent, event: str, how: str
) -> None:
    two.kim.ok("claim deploy --any", env=agent.terminal)
    assert agent.uses_a_tool() == ""
    two.jo.ok(how) if how else two.clock.advance(HOUR)
    two.kim.ok("list")  # another terminal learns of it, and is told of another run's loss
    paths = {"tool_input": {"file_path": str(two.kim.clone / "README")}}
    said = agent.sends(event, **paths)
    check_words([x for x in said.splitlines() if "deploy" in x])
    for command in commands_in(said):
        if " claim " in command:
            two.kim.ok(command.removeprefix("gitlease "), env=agent.terminal)
    assert "deploy" not in agent.uses_a_tool()


@pytest.fixture
def desk(two: Two, agent: Agent) -> Typist:
    """kim in another clone, whose agent here has leases of a minute of F001 and F002."""
    url = git(two.kim.clone, "remote", "get-url", "origin")
    place = two.kim.clone.parent / "desk"
    real_clone(url, place, git(two.kim.clone, "config", "user.email"), "-b", "main")
    two.kim.ok("claim F001 F002 --ttl 1m", env=agent.terminal)
    return Typist(place, two.clock)


def lost_by_agent(two: Two, agent: Agent) -> dict[str, str]:
    """What ``renew --all`` of the agent says is lost, and why."""
    done = two.kim.types("renew --all --json", env=agent.terminal)
    found = {x["resource"]: x["message"] for x in done.json.get("refused", ())}
    for hint in done.json["error"]["next"] if found else ():
        two.kim.accepts(hint)
    assert done.code == (3 if found else 0)
    return found


@pytest.mark.parametrize(
    ("how", "event"),
    [
        ("release F001", "after-tool"),
        ("done F001", "before-edit"),
        ("session end --all", "after-tool"),
        ("claim F001", "before-edit"),
    ],
)
def test_a_session_is_told_once_what_its_person_ended_elsewhere(
    two: Two, agent: Agent, desk: Typist, how: str, event: str
) -> None:
    if how.startswith("claim"):
        two.clock.advance(300)
    desk.ok(how)
    two.clock.advance(25)
    assert "F001" not in desk.ok("list --cached").err, "who did it knows it"
    if "--all" not in how:
        two.jo.types("claim F001")  # whoever has it now did not take it from anybody
    paths = {"tool_input": {"file_path": str(two.kim.clone / "README")}}

    def told() -> list[str]:
        lines = []
        for _ in range(4):
            two.clock.advance(61)  # until what is known is too old for a guard
            lines += agent.sends(event, **paths).splitlines()
        return lines

    (line,) = [x for x in told() if "F001" in x]
    check_words(line)
    check_words(lost_by_agent(two, agent)["F001"])
    assert "F001" not in "".join(told())


@pytest.mark.nightly
def test_the_own_end_of_a_session_is_no_news_to_it(two: Two, agent: Agent, desk: Typist) -> None:
    two.kim.ok("release F001", env=agent.terminal)
    two.kim.ok("session end", env=agent.terminal)
    assert lost_by_agent(two, agent) == {}
    assert "F00" not in agent.uses_a_tool()
    assert desk.ok("list").err == ""


def test_a_session_is_told_what_brief_tells_and_again_after_a_compaction(
    two: Two, agent: Agent
) -> None:
    jo, kim = two.jo, two.kim
    kim.ok("claim F001", env=agent.terminal)
    kim.ok("claim F003 --layer s1", env=agent.terminal)
    jo.ok("claim F002 --reason limits")
    jo.ok("claim port --any --layer s1")
    jo.ok("note F001 'mind the gap'")
    kim.ok("list")
    kim.ok("list --layer s1")
    first, again = (agent.sends("session-start", source=how) for how in ("startup", "compact"))
    assert first == again
    check_words(first)
    for command in commands_in(first):
        kim.accepts(command)


def test_ones_own_edge_can_be_retired_while_another_holds_the_lease(two: Two) -> None:
    jo, kim = two.jo, two.kim
    jo.ok("claim F001")
    text = task_text("F001", assigned="[jo@example.com, kim@example.com]")
    file = kim.clone / "tasks" / "F001.md"
    file.write_text(text, encoding="utf-8")
    now = two.clock.wall_ms / 1_000
    os.utime(file, (now, now))  # what is newer than the ledger's decisions counts
    told = kim.types("release F001 --json")
    assert (told.code, told.json["error"]["code"]) == (1, "held")
    check_words(told.json["warnings"])
    assert "kim" not in file.read_text(encoding="utf-8")
    assert kim.types("release F001").code == 1, "there is nothing left of kim's"


def test_the_start_of_a_session_ends_what_has_landed(two: Two) -> None:
    kim, jo, layer = two.kim, two.jo.clone, "team"
    kim.ok(f"claim F001 --ttl 2h --layer {layer}")
    two.clock.advance(60)
    (jo / "tasks" / "F001.md").write_text(task_text("F001", status="done"), encoding="utf-8")
    date = f"@{two.clock.wall_ms // 1_000} +0000"
    dates = {"GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date}
    git(jo, "commit", "-q", "-a", "-m", "done", env=dates)
    git(jo, "push", "-q", "origin", "HEAD:main")
    git(kim.clone, "fetch", "-q", "origin")
    two.clock.advance(60)
    agent = Agent(kim)
    agent.sends("subagent-start", agent_id="sub-1")
    (held,) = two.jo.ok(f"list --json --layer {layer}").json["leases"]
    assert held["resource"] == "F001", "its parent looks after that"
    said = agent.sends("session-start", source="startup")
    check_words(said)
    assert "you carry F001" not in said
    assert two.jo.ok(f"list --json --layer {layer}").json["leases"] == []
    assert "F001" not in agent.sends("session-start", source="startup")


@pytest.mark.nightly
def test_a_layer_that_cannot_be_read_keeps_nobody_from_the_rest(two: Two) -> None:
    kim = two.kim
    kim.ok("claim F001")
    kim.ok("claim port-80 --any --layer team")
    kim.ok("claim port-81 --any --layer nightly")
    git(two.jo.clone, "push", "-q", "-f", "origin", "HEAD:refs/gitlease/team")
    read = kim.ok("brief")
    assert [x for x in read.out.splitlines() if "F001" in x and "live" in x]
    assert [x for x in read.out.splitlines() if "port-81" in x]
    assert "port-80" not in read.out
    check_words(kim.ok("brief --json").json["warnings"])


def test_the_command_of_a_run_is_shown_no_takeover(two: Two) -> None:
    """It runs what it reads, as an agent does."""
    two.kim.ok("claim F001 --ttl 1m")
    two.clock.advance(200)
    below = {"GITLEASE_SESSION": "work-1", "GITLEASE_TOKEN": "7"}
    for env, shown in (({}, True), (below, False)):
        refused = two.jo.types("claim F001", env=env)
        assert refused.code == 1
        assert ("--takeover" in refused.err) == shown, refused.err


@pytest.fixture
def ada(clones: Clones) -> Typist:
    ada = Typist(clones(1)[0], ManualClock())
    ada.ok("init")
    return ada


def fresh(ada: Typist, name: str = "fresh") -> Agent:
    """An agent of Bob in a clone in which no command of gitlease has run."""
    place = ada.clone.parent / name
    real_clone(git(ada.clone, "remote", "get-url", "origin"), place, "bob@example.com")
    return Agent(Typist(place, ada.clock), session=f"{name}-1111")


def test_the_first_edit_in_a_fresh_clone_is_guarded(ada: Typist) -> None:
    ada.ok("claim src/auth/")
    agent = fresh(ada)
    assert not has_traces(str(agent.at.clone / ".git"))
    assert agent.edits("src/auth/login.py").startswith("deny")
    assert agent.edits("docs/a.md") == ""


def test_a_remote_without_a_ledger_is_asked_once_a_day(clones: Clones) -> None:
    agent = Agent(Typist(clones(1)[0], ManualClock()))
    asked: list[str] = []
    background = agent._background
    agent._background = lambda words, *, cwd: asked.append(words[2]) or background(words, cwd=cwd)  # type: ignore[method-assign, func-returns-value]
    for _ in range(3):
        agent.sends("session-start")
        agent.edits("a")
        agent.uses_a_tool()
    assert asked == ["look-now"]
    assert not has_traces(str(agent.at.clone / ".git"))
    agent.at.clock.advance(86_401)
    agent.sends("session-start")
    assert asked == ["look-now"] * 2


def test_a_claim_by_others_is_known_to_the_edit_after_next(ada: Typist) -> None:
    """Though what is known is younger than ``guard.max_age``."""
    agent = fresh(ada)
    agent.sends("session-start")
    agent.edits("src/auth/login.py")
    ada.clock.advance(11)
    ada.ok("claim src/auth/")
    agent.edits("src/auth/login.py")
    assert agent.edits("src/auth/login.py").startswith("deny")
