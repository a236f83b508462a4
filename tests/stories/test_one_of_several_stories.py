"""Processes that ask for any one of several at the same moment, on a real remote."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.hooked import share_tasks
from support.remotes import Remote
from support.running import Desk, until
from support.workers import Workers

pytestmark = pytest.mark.slow
Clones = Callable[..., list[Path]]


@pytest.fixture
def two(path_remote: Remote, clones: Clones) -> Iterator[list[Desk]]:
    """Two people, each with a clone."""
    with ExitStack() as ends:
        desks = [Desk(clone, path_remote.env) for clone in clones(2)]
        for desk in desks:
            ends.callback(desk.clear)
        yield desks


def race(made: list[Path], remote: Remote, workers: int, names: list[str], number: int) -> None:
    """So many workers as there are names, less one, get one each, and the others are refused."""
    words = [(["-C", str(made[n % len(made)])], remote.env) for n in range(workers)]
    with Workers(words) as asking:
        for turn in range(number):
            wanted = [name.format(turn) for name in names]
            answers = asking.all("claim", *wanted, "--one", "--any")
            got = [x.document["lease"]["resource"] for x in answers if x.exit == 0]
            assert [x for x, n in Counter(got).items() if n > 1] == []
            assert len(got) == min(workers, len(names)), [x.document for x in answers]
            assert {x.code for x in answers} <= {None, "held"}


def test_terminals_of_one_person_and_several_people_never_share(
    path_remote: Remote, clones: Clones
) -> None:
    made = clones(2)
    # Two terminals in each of two clones; paths and names mixed.
    race(made, path_remote, 4, ["port-{}", "src/{}/", "host-{}"], 1)


@pytest.mark.slow
@pytest.mark.parametrize("persons", [1, 4])
def test_many_rounds_of_races_have_a_winner_for_each(
    path_remote: Remote, clones: Clones, persons: int
) -> None:
    race(clones(persons), path_remote, 6, ["a{}", "b{}", "docs/{}/", "c{}"], 8)


@pytest.mark.slow
def test_terminals_that_wait_get_one_each_as_they_become_free(two: list[Desk]) -> None:
    jo, kim = two
    names = ("port-1", "port-2")
    jo.document("claim", *names)
    wait = ("claim", *names, "--one", "--wait", "2m", "--json")
    waiting = [kim.start(*wait), kim.start(*wait)]
    until(lambda: len(jo.document("show", "port-1")["waiting"]) == 2, "two who wait")
    jo.document("release", "port-2")
    until(lambda: any(x.poll() is not None for x in waiting), "the first grant")
    jo.document("release", "port-1")
    got = [re.findall(r'"resource": "(port-\d)"', x.communicate()[0])[0] for x in waiting]
    assert sorted(got) == [*names]
    assert [x.returncode for x in waiting] == [0, 0]
    assert all(not jo.document("show", x)["waiting"] for x in names)


SHOW = 'echo "$GITLEASE_RESOURCE:$GITLEASE_TOKEN"'


def test_a_command_learns_which_it_got_and_gives_back_that_alone(two: list[Desk]) -> None:
    jo, kim = two
    names = ("port-1", "port-2", "port-3")
    jo.document("claim", "port-1")
    inner = " ".join((*jo.words("run", *names, "--one", "--"), "sh", "-c", f"'{SHOW}'"))
    done = jo.ask("run", *names, "--one", "--", "sh", "-c", f"{SHOW}; {inner}")
    assert (done.returncode, done.stdout) == (0, "port-2:2\nport-3:3\n")
    assert done.stderr == "", "its person's own lease was not bound"
    assert jo.live() == ["port-1"]
    held = kim.ask("run", "port-1", "--one", "--", "true")
    assert (held.returncode, jo.live()) == (75, ["port-1"])


def test_an_interrupted_run_gives_back_what_it_got(two: list[Desk]) -> None:
    jo, _ = two
    names = ("port-1", "port-2")
    jo.document("claim", "port-1", "--session", "ours")
    run = jo.start("--session", "ours", "run", *names, "--one", "--", "sleep", "100")
    until(lambda: jo.live() == [*names], "the run's lease")
    run.send_signal(signal.SIGTERM)
    run.communicate()
    until(lambda: jo.live() == ["port-1"], "only what the session had before")


def test_of_tasks_the_one_that_is_got_is_assigned(two: list[Desk]) -> None:
    jo, kim = two
    share_tasks([jo.clone, kim.clone], ["T1", "T2"], jo.env)
    jo.document("claim", "T1", "T2", "--one")
    kim.document("claim", "T1", "T2", "--one", "--commit")
    files = [(kim.clone / "tasks" / f"{name}.md").read_text() for name in ("T1", "T2")]
    assert ["w2" in x for x in files] == [False, True]
