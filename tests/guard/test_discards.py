"""Which shell commands discard work in a work tree, as far as they are written out."""

from __future__ import annotations

import os
import time

import pytest
from support.shell_texts import ALLOWED_TEXTS, DENIED_TEXTS, texts_in

from gitlease.guard import Discard
from gitlease.guard.discards import LONGEST, discards

pytestmark = pytest.mark.default

ELSEWHERE = "/nowhere"


def found_here(command: str) -> list[str]:
    every = discards(command, "/r")
    return [x.words for x in every if not x.folder.startswith(ELSEWHERE)]


def test_the_tables_are_long() -> None:
    for table in (DENIED_TEXTS, ALLOWED_TEXTS):
        texts = texts_in(table)
        assert len({*texts}) == len(texts) >= 60


@pytest.mark.parametrize("command", texts_in(DENIED_TEXTS))
def test_a_command_that_discards_work_is_found(command: str) -> None:
    assert len({*found_here(command)}) == 1


@pytest.mark.parametrize("command", texts_in(ALLOWED_TEXTS))
def test_a_command_that_discards_nothing_here_is_not(command: str) -> None:
    assert found_here(command) == []


@pytest.mark.parametrize("command", ["git reset --hard", "git stash", "rm -r src"])
@pytest.mark.parametrize(
    "text",
    [
        *("{}", "a; {}", "a && {} | b", "a || {} &", "({})", "x=$({})", "{{ {}; }}", "a\n{}\nb"),
        *("{} 2>&1 >/dev/null", "sudo {}", "A=1 {}", "bash -c '{}'", 'sh -c "{}"', "a <<E; {}\nE"),
        *("if {}; then b; fi", "a <<E\nE\n{}", "echo 'x' \"y\"; {}; echo 'z'", "# it's\n{}"),
    ],
)
def test_a_command_is_found_wherever_it_stands(text: str, command: str) -> None:
    (found,) = discards(text.format(command), "/r")
    assert found.words.startswith(command)


def test_what_a_command_works_on_is_followed() -> None:
    text = (
        "cd sub && git stash; (cd ../c; git clean -f); git -C ../b reset --hard; rm -r x ~/y /z/*"
    )
    home = os.path.expanduser("~")
    assert list(discards(text, "/r")) == [
        Discard("git stash", "/r/sub", stash=True),
        Discard("git clean -f", "/r/c"),
        Discard("git -C ../b reset --hard", "/r/b"),
        *(
            Discard("rm -r x ~/y /z/*", path, deletes=True)
            for path in ("/r/sub/x", f"{home}/y", "/z")
        ),
    ]


def test_a_folder_that_is_not_written_out_counts_as_the_first() -> None:
    text = "cd /nowhere/b; cd $X; git stash; cd /nowhere/b; git -C `pwd` stash"
    assert [x.folder for x in discards(text, "/r")] == ["/r", "/r"]


@pytest.mark.parametrize(
    "text",
    [
        *('"', "'", "`", "$(`", '"$(', "(git ", "git stash;", "git -c a ", "git clean -n "),
        *(
            "sudo -a 1 ",
            "sudo nice ",
            "a=b ",
            "if ",
            "\\\n",
            " \n",
            "git \\\n",
            "eval ",
            "bash -c ",
        ),
        *("git reset 2>&1 ", "rm -a ", "{ ", "a/", "<<a ", "x\n"),
    ],
)
def test_no_text_takes_long(text: str) -> None:
    begun = time.process_time()
    long = f"git stash; {text * LONGEST}"[:LONGEST]
    found = list(discards(long, "/r"))
    assert found[0].words.startswith("git stash")
    assert time.process_time() - begun < 2
    assert list(discards(f"{long} ", "/r")) == []
