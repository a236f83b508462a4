"""What ``init`` proposes for people, dependencies, the form of the field, and status words."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import typed
from support.repos import git, make_repository
from support.snapshots import check_words
from support.task_trees import put

from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.edge import EdgeEdit, People
from gitlease.kernel.settings.schema import Settings, load_settings
from gitlease.tasks.assignees import fitting_people
from gitlease.tasks.edit import edit_task
from gitlease.tasks.propose import fitting_settings, fitting_words
from gitlease.tasks.reading import read_task

pytestmark = pytest.mark.default


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository of Jo's with one commit of each of three more people."""
    root = make_repository(tmp_path / "repo")
    for name, email in (
        ("Alice Smith", "alice.s@corp.example"),
        ("Kim", "kim@example.com"),
        ("kimberley", "12+octokim@users.noreply.github.com"),
    ):
        who = (f"user.name={name}", f"user.email={email}")
        git(root, "-c", who[0], "-c", who[1], "commit", "-q", "--allow-empty", "-m", "x")
    return root


def task(repo: Path, number: int, *lines: str) -> None:
    text = "".join(f"{line}\n" for line in lines)
    put(repo, f"tasks/T{number}.md", f"---\nid: T{number}\n{text}---\n")


def fitted(repo: Path) -> Settings:
    put(repo, ".gitlease.yaml", fitting_settings(discover(str(repo))).text)
    return load_settings(discover(str(repo)), environ={}, flags={})


def test_names_of_authors_become_people(repo: Path) -> None:
    task(repo, 1, "status: todo", "assigned: alice")
    task(repo, 2, "status: todo", "assigned: [Kim, TBD]")
    task(repo, 3, "status: todo", "assigned: octokim")
    task(repo, 4, "status: todo", "assigned: zoe")
    task(repo, 5, "status: todo", "assigned: jo@example.com")
    found = fitted(repo)
    assert found.people == {
        "alice.s@corp.example": "alice",
        "kim@example.com": "Kim",
        "12+octokim@users.noreply.github.com": "octokim",
    }
    assert not found.handles
    (repo / ".gitlease.yaml").unlink()
    check_words(fitting_settings(discover(str(repo))).warnings)


def test_a_name_of_two_people_is_nobodys(repo: Path) -> None:
    git(repo, "-c", "user.name=Alice Jones", "-c", "user.email=aj@x.org", "commit", "-q",
        "--allow-empty", "-m", "x")  # fmt: skip
    found = fitting_people(discover(str(repo)), ["alice", "Alice Jones"], People())
    assert (found.people, found.unknown) == ({"aj@x.org": "Alice Jones"}, ("alice",))


def test_handles_are_the_local_parts_of_emails(repo: Path) -> None:
    task(repo, 1, 'assigned: "@kim"')
    task(repo, 2, 'assigned: "@octokim"')
    task(repo, 3, 'assigned: "@zoe"')
    found = fitted(repo)
    assert found.handles
    assert found.people == {"12+octokim@users.noreply.github.com": "@octokim"}


def test_an_existing_file_is_told_what_to_add(repo: Path) -> None:
    put(repo, ".gitlease.yaml", "people: {kim@example.com: Kimmy}\n")
    task(repo, 1, "assigned: alice", "status: Doing it")
    task(repo, 2, "assigned: Kimmy", "status: wip")
    tasks = [
        read_task((repo / f"tasks/T{n}.md").read_bytes(), file="x.md", tasks=fitted_tasks(repo))
        for n in (1, 2)
    ]
    known = People({"kim@example.com": "Kimmy"})
    words = fitted_tasks(repo).statuses
    found = fitting_words(discover(str(repo)), [x for x in tasks if x], words, known)
    assert found is not None
    assert found.proposed == ("tasks.statuses", "people")
    check_words("\n".join(x for x in found.text.splitlines() if x and x[0] != "#"))
    told = typed(repo, "init", "--local")
    assert "alice.s@corp.example" in told.stdout


def fitted_tasks(repo: Path):  # type: ignore[no-untyped-def]
    return load_settings(discover(str(repo)), environ={}, flags={}).tasks


@pytest.mark.parametrize("key", ["deps", "depends-on", "needs", "blocked_by"])
def test_dependencies_are_found_by_their_usual_names(repo: Path, key: str) -> None:
    task(repo, 1, "status: todo")
    task(repo, 2, "status: todo", f"{key}: T1")
    assert fitted(repo).tasks.fields["depends_on"] == key


def test_dependencies_in_one_line(repo: Path) -> None:
    data = b"---\nid: T9\ndepends_on: T1, T2 T3\n---\n"
    found = read_task(data, file="tasks/T9.md", tasks=fitted_tasks(repo))
    assert found is not None
    assert found.depends_on == ("T1", "T2", "T3")


def test_status_words_keep_their_letter_case(repo: Path) -> None:
    task(repo, 1, "status: Todo")
    task(repo, 2, "status: DONE")
    found = fitted(repo).tasks.statuses
    assert (found["todo"][0], found["done"][0]) == ("Todo", "DONE")
    (repo / ".gitlease.yaml").unlink()
    task(repo, 1, "status: todo")
    task(repo, 2, "status: done")
    assert "tasks.statuses" not in fitting_settings(discover(str(repo))).proposed


CLAIM, RELEASE = EdgeEdit(add="jo@x.org"), EdgeEdit(remove=("jo@x.org",))


@pytest.mark.parametrize(
    ("others", "form", "before", "claimed", "released"),
    [
        ("assigned: [kim@x.org]", "list", "", "assigned: [jo@x.org]\n", "assigned: []\n"),
        (
            *("assigned:\n  - kim@x.org", "list", "assigned: TBD\n", "assigned: [jo@x.org]\n"),
            "assigned: []\n",
        ),
        ("assigned: kim@x.org", "single", "assigned:\n", "assigned: jo@x.org\n", ""),
        ("assigned: kim@x.org", "single", "assigned: ~\n", "assigned: jo@x.org\n", ""),
        (
            *("assigned: kim@x.org", "single", "assigned: # who\n", "assigned: jo@x.org # who\n"),
            "assigned: # who\n",
        ),
        ("assigned: kim@x.org", None, "", "assigned: jo@x.org\n", ""),
        ("assigned: []", None, "assigned: []\n", "assigned: [jo@x.org]\n", "assigned: []\n"),
    ],
)
def test_a_first_name_is_written_in_the_form_of_the_others(
    repo: Path, others: str, form: str | None, before: str, claimed: str, released: str
) -> None:
    task(repo, 1, "status: todo", *others.split("\n"))
    task(repo, 2, "status: todo", *([before.strip()] if before else []))
    tasks = fitted(repo).tasks
    assert tasks.assigned_form == form
    data = f"---\nid: T2\n{before}---\n".encode()
    after = edit_task(data, file="tasks/T2.md", tasks=tasks, edit=CLAIM)
    assert after == f"---\nid: T2\n{claimed}---\n".encode()
    assert edit_task(after, file="tasks/T2.md", tasks=tasks, edit=CLAIM) == after
    after = edit_task(after, file="tasks/T2.md", tasks=tasks, edit=RELEASE)
    assert after == f"---\nid: T2\n{released}---\n".encode()


def test_people_of_backlog_md_whose_handles_are_not_in_their_emails(repo: Path) -> None:
    put(repo, "backlog/config.yml", 'project_name: "x"\n')
    for number, name in ((1, "'@kim'"), (2, "'@octokim'"), (3, "@Kim"), (4, "'@codex'")):
        text = f"---\nid: T-{number}\nstatus: To Do\nassignee:\n  - {name}\n---\n"
        put(repo, f"backlog/tasks/t-{number} - X.md", text)
    found = fitted(repo)
    assert found.handles
    assert found.people == {"12+octokim@users.noreply.github.com": "@octokim"}
