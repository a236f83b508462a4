"""gitolite as the server, with two users: claims, a collision, what is illegal, what is legal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.forge import JO, KIM, Forge, objects_of
from support.gitolite import Gitolite
from support.hooked import Person
from support.illegal import claim, renew
from support.repos import git, real_clone
from support.served import REF, own_program
from support.snapshots import check_words, cleaned

from gitlease.kernel.git.repository import discover
from gitlease.server.install import install_server, server_state

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gitolite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gitolite]:
    with Gitolite(tmp_path_factory.mktemp("gitolite")) as found:
        repository = discover(str(found.bare))
        install_server(repository, identity="GL_USER", program=str(own_program(found.base)))
        for name in ("jo", "kim"):
            git(found.bare, "config", f"gitlease.{name}.holder", f"{name}@example.com")
        yield found


@pytest.fixture(scope="module")
def people(gitolite: Gitolite, tmp_path_factory: pytest.TempPathFactory) -> tuple[Person, Person]:
    """jo and kim, each with a clone; jo has pushed the first commit."""
    base = tmp_path_factory.mktemp("people")
    made = []
    for name in ("jo", "kim"):
        env = {"GIT_SSH_COMMAND": gitolite.command_as(name)}
        person = Person(name, base / name, env)
        real_clone(gitolite.url(gitolite.bare), person.root, person.email, env=env)
        made.append(person)
    jo, kim = made
    jo.put("src/login.py", "one\n")
    jo.git("commit", "-q", "-m", "begin")
    jo.git("push", "-q", "-u", "origin", "HEAD:main")
    kim.git("pull", "-q", "origin", "main")
    return jo, kim


def test_gitolite_runs_the_hook_and_says_who_pushes(gitolite: Gitolite) -> None:
    state = server_state(discover(str(gitolite.bare)))
    assert state.proven
    assert (gitolite.bare / "hooks" / "update").exists(), "its own hook is still there"


def test_two_users_of_gitolite(
    gitolite: Gitolite, people: tuple[Person, Person], tmp_path: Path
) -> None:
    jo, kim = people
    assert jo.gitlease("claim", "src/").returncode == 0
    collision = kim.gitlease("claim", "src/login.py")
    assert collision.returncode == 1
    check_words(cleaned(collision.stderr))
    assert kim.gitlease("claim", "F002").returncode == 0

    kim.put("src/login.py", "two\n")
    kim.git("commit", "-q", "-m", "too soon")
    work = kim.run("push", "origin", "HEAD:main")
    assert work.returncode == 1
    assert re.search(r"refused \(held\): src/login.py .* jo@example.com", work.stderr)

    forge = Forge(tmp_path / "kim.git", gitolite.bare)
    illegal = {
        "identity": forge.write(forge.honest(renew(JO, "src/"), actor=JO)),
        "held": forge.write(forge.honest(claim(KIM, "src/login.py"), unseen=["src/"])),
    }
    before = forge.tip(), objects_of(gitolite.bare)
    for rule, made in illegal.items():
        done = forge.push(gitolite.url(gitolite.bare), made, env=kim.env)
        assert done.returncode == 1
        assert f"refused {REF} ({rule}): " in done.stderr
    gone = kim.run("push", "origin", f":{REF}")
    assert gone.returncode == 1
    assert "(delete)" in gone.stderr
    assert (forge.tip(), objects_of(gitolite.bare)) == before

    assert jo.gitlease("release", "src/").returncode == 0
    assert kim.gitlease("claim", "src/login.py").returncode == 0
    landed = kim.gitlease("push", "origin", "HEAD:main")
    assert landed.returncode == 0, landed.stderr
    assert git(gitolite.bare, "rev-parse", "main") == kim.head()
