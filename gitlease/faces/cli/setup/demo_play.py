"""The scenes of ``demo``: the commands, and their expected results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

WORKERS = ("ada", "bob")
TASKS = {"F001": "rate limits", "F002": "password reset", "F003": "audit log"}
# The initial content of the repository.
FILES = {
    **{f"tasks/{x}.md": f"---\nid: {x}\ntitle: {TASKS[x]}\nstatus: todo\n---\n" for x in TASKS},
    "src/auth/login.py": "def login(): ...\n",
    "src/pay/card.py": "def pay(): ...\n",
}


@dataclass(frozen=True, slots=True)
class DemoScene:
    """A worker's command, its expected exit status, and a text that its output must contain.

    ``about`` is announced first; ``edits`` is a file and a line to add to it before.
    """

    who: str
    command: str
    exit: int = 0
    says: str = ""
    about: str = ""
    edits: tuple[str, str] | None = None


# A scene: "# about", "+ FILE added line", "worker$ command", "= exit text in the output".
SCRIPT = """
# ada sets up the repository: init creates the ledger
ada$ gitlease init
ada$ git add .gitlease.yaml
ada$ git commit -q -m 'use gitlease'
ada$ git push -q origin main
bob$ git pull -q
# to keep the demo short: trust the clocks, and allow very short leases
ada$ gitlease config --ledger skew 0s
ada$ gitlease config --ledger ttl_min 2s
# both install git hooks that check their commits and pushes
ada$ gitlease hooks install
bob$ gitlease hooks install
# both ask for the next task, and each gets a different one
ada$ gitlease next --claim
= 0 claimed F001
bob$ gitlease next --claim
= 0 claimed F002
# ada also claims a whole folder
ada$ gitlease claim src/auth/ --reason 'new sign-in'
# bob wants ada's task, and sees who holds it
bob$ gitlease claim F001
= 1 held by ada@example.com
# bob changes src/auth/login.py anyway: git refuses the commit
+ src/auth/login.py def logout(): ...
bob$ git commit -a -m 'log out'
= 1 src/auth/login.py is held by ada@example.com
# ada renews: the heartbeat
ada$ gitlease renew F001
= 0 renewed F001
# a long gap is capped
ada$ gitlease extend F001 12h
= 0 maximum of 8h
# ada claims another folder for 6 seconds, changes src/pay/card.py, and goes silent
ada$ gitlease claim src/pay/ --ttl 6s
+ src/pay/card.py def refund(): ...
ada$ git commit -q -a -m 'pay by card'
# bob waits until the lease has lapsed, and claims it
bob$ gitlease claim src/pay/ --wait 20s
= 0 claimed after the lapsed lease of ada@example.com
# ada comes back too late: her lease is lost
ada$ gitlease renew src/pay/
= 3 held by bob@example.com
# her push is refused, so her work cannot land over his
ada$ gitlease push
= 1 src/pay/card.py falls under src/pay, held by bob@example.com
# ada's work now
ada$ gitlease brief
= 0 by bob@example.com
# ada hands her task over
ada$ gitlease release F001 --note 'tests are red'
= 0 released F001
# bob continues
bob$ gitlease claim F001
= 0 tests are red
"""


SCENE = re.compile(
    r"^(?:# (.*)\n)?(?:\+ (\S+) (.*)\n)?(\w+)\$ (.*)\n(?:= (\d) (.*)\n)?", re.MULTILINE
)


def _scenes() -> Iterator[DemoScene]:
    for found in SCENE.finditer(SCRIPT):
        about, file, added, who, command, status, text = found.groups("")
        edits = (file, added) if file else None
        yield DemoScene(who, command, int(status or 0), text, about, edits)


PLAY = tuple(_scenes())

# The commands to try next, and their purpose.
NEXT = (
    ("init", "create the ledger, and settings for your task files"),
    ("hooks install", "in each clone"),
    ("next --claim", "claim the next task, if you have task files"),
    ("claim src/", "or claim any file or folder"),
)
