"""A run ends in every layer, and what it was killed at on its way to a lease."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest
from support.repos import git
from support.running import LONG, Desk, lives, number_in, sleeper, until

import gitlease

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="orphans are adopted on Linux"),
    pytest.mark.slow,
]


def held(desk: Desk, layer: str) -> list[str]:
    leases = desk.document("list", "--layer", layer)["leases"]
    return [x["resource"] for x in leases if x["state"] == "active"]


def claims(desk: Desk) -> str:
    """A line of a shell that claims in another layer, and in the run's own."""
    lines = (desk.words("claim", "port", "--layer", "team"), desk.words("claim", "more"))
    return "; ".join(f"{shlex.join(x)} >/dev/null" for x in lines)


def test_what_a_run_claims_in_another_layer_ends_with_it(jo: Desk, kim: Desk) -> None:
    assert jo.ask("claim", "mine", "--layer", "team").returncode == 0
    seen = f"{shlex.join(jo.words('list', '--layer', 'team', '--json'))} >seen.json"
    done = jo.ask("run", "F001", "--", "sh", "-c", f"{claims(jo)}; {seen}")
    assert (done.returncode, "port" in (jo.clone / "seen.json").read_text()) == (0, True), done
    assert (held(kim, "team"), held(kim, "global")) == (["mine"], [])
    # Whichever layer it was itself in.
    claim = shlex.join(jo.words("claim", "other", "--layer", "global"))
    done = jo.ask("run", "F001", "--layer", "team", "--", "sh", "-c", f"{claim} >/dev/null")
    assert (done.returncode, held(kim, "team"), held(kim, "global")) == (0, ["mine"], [])


@pytest.mark.default
def test_what_a_killed_run_claimed_in_another_layer_ends_with_it(
    jo: Desk, kim: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    script = f"{claims(jo)}; exec {shlex.join(sleeper(file))}"
    run = jo.start("run", "F001", "--", "sh", "-c", script)
    child, guardian = number_in(file), jo.guardian()
    run.kill()
    run.wait(LONG)
    until(lambda: not lives(child) and not lives(guardian), "its end")
    told = jo.ask("claim", "last")
    assert (told.returncode, told.stderr.count("no longer holds it")) == (0, 3), told
    assert (held(kim, "team"), held(kim, "global")) == ([], ["last"])


@pytest.mark.default("given")
@pytest.mark.parametrize("session", [[], ["--session", "mine"]], ids=["own", "given"])
def test_a_run_that_is_killed_as_it_claims_keeps_nothing(
    jo: Desk, kim: Desk, tmp_path: Path, session: list[str]
) -> None:
    assert jo.ask("claim", "before", *session).returncode == 0
    # The remote stands still once it has the claim, and nobody hears of that.
    hook, file = Path(git(jo.clone, "remote", "get-url", "origin")) / "hooks", tmp_path / "pid"
    hook.mkdir(exist_ok=True)
    script = hook / "post-update"
    script.write_text(f"#!/bin/sh\necho $$ >{file}.new; mv {file}.new {file}\nexec sleep 300\n")
    script.chmod(0o755)
    run = jo.start("run", "F001", *session, "--", "true")
    stands = number_in(file)
    assert "F001" in kim.live()
    run.kill()
    run.wait(LONG)
    script.unlink()
    os.kill(stands, signal.SIGKILL)
    told = jo.ask("claim", "last")
    assert (told.returncode, "F001: session" in told.stderr) == (0, True), told
    assert sorted(kim.live()) == ["before", "last"]


def test_a_lease_of_a_run_names_the_process_of_the_run(jo: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f"{shlex.join(jo.words('claim', 'more'))} >/dev/null; exec {shlex.join(sleeper(file))}"
    run = jo.start("run", "F001", "--session", "given", "--", "sh", "-c", script)
    number_in(file)
    with gitlease.open(str(jo.clone)) as leases:
        found = {(x.resource, x.pid) for x in leases.list()}
    run.terminate()
    assert run.wait(LONG) == 143
    assert found == {("F001", run.pid), ("more", run.pid)}
