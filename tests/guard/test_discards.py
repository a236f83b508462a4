"""Which shell commands discard work in a work tree, as far as they are written out."""

from __future__ import annotations

import os
import time

import pytest
from support.shell_texts import ALLOWED_TEXTS, DENIED_TEXTS, texts_in

from gitlease.guard.discards import LONGEST, Discard, discards

pytestmark = pytest.mark.default

ELSEWHERE = "/nowhere"
SEEN = 60_000  # characters


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
        *("`rm ", "rm -r ", "`git reset ", '"`git reset ', "-exec git reset ", "<<a\n", '"<<a\n'),
        *("bash <<a\n", "cd a;", ")", "(", "eval sudo ", "git rm -ffff", "$A", "rm -r $("),
    ],
)
def test_no_text_takes_long(text: str) -> None:
    begun = time.process_time()
    long = f"git stash; {text * SEEN}"[:SEEN]
    found = list(discards(long, "/r"))
    assert found[0].words.startswith("git stash")
    # What looks over the rest of the text for each part of it takes ten times as long.
    assert time.process_time() - begun < 2


def test_a_command_that_is_too_long_to_read_is_denied_for_that() -> None:
    long = f"{' ' * LONGEST}git status"
    assert list(discards(long, "/r")) == [], "it mentions nothing of the kind"
    (found,) = discards(f"{long}; git restore --staged .", "/r")
    assert found.folder == "/r"
    assert found.words.endswith("characters is too long to check (split it)")
    just = f"{' ' * (LONGEST - 9)}git stash"
    assert [x.words for x in discards(just, "/r")] == ["git stash"]


def test_shells_within_shells_are_followed_up_to_a_depth() -> None:
    assert [x.words for x in discards("eval sudo " * 6 + "git stash", "/r")] == ["git stash"]
    (found,) = discards("eval sudo " * 100 + "git stash", "/r")
    assert found.words == "more than 8 shells within one another are too many"
