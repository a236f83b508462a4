"""Placeholders in the assigned field, such as TBD: to every reader they mean nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import git
from support.snapshots import raises
from support.task_trees import tasks_like

from gitlease.kernel.rules.edge import EdgeEdit, People, means_nobody
from gitlease.kernel.rules.errors import Invalid
from gitlease.library.leases import Leases
from gitlease.tasks.edit import edit_task
from gitlease.tasks.reading import read_task
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.default

TASKS = tasks_like()
CLAIM = EdgeEdit(add="jo@x.org")
Clones = Callable[..., list[Path]]


def file(assigned: str) -> bytes:
    return f"---\nid: F001\n{assigned}status: todo\n---\nText.\n".encode()


def edited(assigned: str, edit: EdgeEdit) -> str:
    """What becomes of the lines of the assigned field."""
    after = edit_task(file(assigned), file="tasks/F001.md", tasks=TASKS, edit=edit)
    assert edit_task(after, file="tasks/F001.md", tasks=TASKS, edit=edit) == after
    assert after.startswith(b"---\nid: F001\n")
    assert after.endswith(b"status: todo\n---\nText.\n")
    return after[len(b"---\nid: F001\n") : -len(b"status: todo\n---\nText.\n")].decode()


@pytest.mark.parametrize(
    ("before", "claimed", "released"),
    [
        ("assigned: unassigned\n", "assigned: jo@x.org\n", ""),
        ("assigned: None # who?\n", "assigned: jo@x.org # who?\n", "assigned: # who?\n"),
        ("assigned: -\n", "assigned: jo@x.org\n", ""),
        ("assigned: -  # who?\r\n", "assigned: jo@x.org  # who?\r\n", "assigned:  # who?\r\n"),
        ('assigned: "-"\n', 'assigned: "jo@x.org"\n', ""),
        ("assigned: 'N/A'\n", "assigned: jo@x.org\n", ""),
        ("assigned: '~'\n", "assigned: jo@x.org\n", ""),
        ("assigned: ~\n", "assigned: [jo@x.org]\n", "assigned: []\n"),
        ('assigned: ""\n', "assigned: [jo@x.org]\n", "assigned: []\n"),
        ("assigned: [TBD]\n", "assigned: [jo@x.org]\n", "assigned: []\n"),
        ("assigned: [tbd, n/a]\n", "assigned: [jo@x.org]\n", "assigned: []\n"),
        ("assigned:\n  - nobody\n", "assigned:\n  - jo@x.org\n", "assigned:\n"),
    ],
)
def test_a_name_takes_the_place_of_a_placeholder(before: str, claimed: str, released: str) -> None:
    task = read_task(file(before), file="tasks/F001.md", tasks=TASKS)
    assert task is not None
    assert task.assigned == ()
    assert edited(before, CLAIM) == claimed
    assert edited(claimed, EdgeEdit(remove=("jo@x.org",))) == released


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("assigned: [none, kim]\n", "assigned: [kim, jo@x.org]\n"),
        ("assigned:\n- kim\n- TBD\n", "assigned:\n- kim\n- jo@x.org\n"),
    ],
)
def test_a_placeholder_goes_and_other_names_stay(before: str, after: str) -> None:
    assert edited(before, CLAIM) == after
    assert edited(before, EdgeEdit(remove=("jo@x.org",))) == before
    takeover = EdgeEdit(add="jo@x.org", remove=("kim",))
    assert "kim" not in edited(before, takeover)
    assert "TBD" not in edited(before, takeover)


def test_whoever_is_there_already_leaves_a_placeholder_as_it_is() -> None:
    assert edited("assigned: [jo@x.org, TBD]\n", CLAIM) == "assigned: [jo@x.org, TBD]\n"


def test_a_dash_is_a_value_in_the_lines_of_fields_alone() -> None:
    text = b"---\nid: F001\nassigned: -\nnote: |\n  assigned: -\n---\n"
    after = edit_task(text, file="tasks/F001.md", tasks=TASKS, edit=CLAIM)
    assert after == text.replace(b"assigned: -", b"assigned: jo@x.org", 1)
    broken = b"---\nid: F001\nassigned: - kim\n---\n"
    with raises(Invalid):
        read_task(broken, file="tasks/F001.md", tasks=TASKS)


def test_handles_and_emails_are_names() -> None:
    assert not any(map(means_nobody, ("@none", "none@x.org", "nobodys", "tbd2")))
    with raises(Invalid):
        People({"jo@x.org": "TBD"}).name_of("jo@x.org")


def test_a_placeholder_assigns_a_task_to_nobody(clones: Clones, path_remote: Remote) -> None:
    (one,) = clones(1)
    for number, word in enumerate(("unassigned", "N/A", "-", "TBD"), 1):
        text = f"---\nid: F00{number}\nstatus: todo\nassigned: {word}\n---\n"
        (one / "tasks").mkdir(exist_ok=True)
        (one / f"tasks/F00{number}.md").write_text(text)
    git(one, "add", "tasks")
    git(one, "commit", "-qm", "tasks")
    git(one, "push", "-q", "origin", "HEAD:main")
    leases = Leases(open_workspace(str(one)))
    assert [(x.task.assigned, x.claimable) for x in leases.queue()] == [((), True)] * 4
    for name in ("F001", "F003"):
        leases.claim(name)
    texts = [(one / f"tasks/F00{n}.md").read_text() for n in (1, 3)]
    assert {x.split("assigned: ")[1] for x in texts} == {"w1@example.com\n---\n"}
    for name in ("F001", "F003"):
        leases.release(name)
    texts = [(one / f"tasks/F00{n}.md").read_text() for n in (1, 3)]
    assert {"assigned" in x for x in texts} == {False}
    assert leases.check_stale().findings == ()
    assert leases.add("next").file == "tasks/F005.md"
    assert "assigned: TBD\n" in (one / "tasks/F005.md").read_text()
