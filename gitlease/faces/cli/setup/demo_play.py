"""The scenes of ``demo``: the commands, and their expected results."""

from __future__ import annotations

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


PLAY = (
    DemoScene("ada", "gitlease init", about="ada sets up the repository: init creates the ledger"),
    DemoScene("ada", "git add .gitlease.yaml"),
    DemoScene("ada", "git commit -q -m 'use gitlease'"),
    DemoScene("ada", "git push -q origin main"),
    DemoScene("bob", "git pull -q"),
    DemoScene(
        "ada",
        "gitlease config --ledger skew 0s",
        about="to keep the demo short: trust the clocks, and allow very short leases",
    ),
    DemoScene("ada", "gitlease config --ledger ttl_min 2s"),
    DemoScene(
        "ada",
        "gitlease hooks install",
        about="both install git hooks that check their commits and pushes",
    ),
    DemoScene("bob", "gitlease hooks install"),
    DemoScene(
        "ada",
        "gitlease next --claim",
        0,
        "claimed F001",
        "both ask for the next task, and each gets a different one",
    ),
    DemoScene("bob", "gitlease next --claim", 0, "claimed F002"),
    DemoScene(
        "ada",
        "gitlease claim src/auth/ --reason 'new sign-in'",
        about="ada also claims a whole folder",
    ),
    DemoScene(
        "bob",
        "gitlease claim F001",
        1,
        "held by ada@example.com",
        "bob wants ada's task, and sees who holds it",
    ),
    DemoScene(
        "bob",
        "git commit -a -m 'log out'",
        1,
        "src/auth/login.py is held by ada@example.com",
        "bob changes src/auth/login.py anyway: git refuses the commit",
        edits=("src/auth/login.py", "def logout(): ..."),
    ),
    DemoScene("ada", "gitlease renew F001", 0, "renewed F001", "ada renews: the heartbeat"),
    DemoScene("ada", "gitlease extend F001 12h", 0, "maximum of 8h", "a long gap is capped"),
    DemoScene(
        "ada",
        "gitlease claim src/pay/ --ttl 6s",
        about="ada claims another folder for 6 seconds, changes src/pay/card.py, and goes silent",
    ),
    DemoScene(
        "ada",
        "git commit -q -a -m 'pay by card'",
        edits=("src/pay/card.py", "def refund(): ..."),
    ),
    DemoScene(
        "bob",
        "gitlease claim src/pay/ --wait 20s",
        0,
        "taken over from ada@example.com",
        "bob waits until the lease expires, and takes it over",
    ),
    DemoScene(
        "ada",
        "gitlease renew src/pay/",
        3,
        "held by bob@example.com",
        "ada comes back too late: her lease is lost",
    ),
    DemoScene(
        "ada",
        "gitlease push",
        1,
        "src/pay/card.py falls under src/pay, held by bob@example.com",
        "her push is refused, so her work cannot land over his",
    ),
    DemoScene("ada", "gitlease brief", 0, "taken over by bob@example.com", "ada's work now"),
    DemoScene(
        "ada",
        "gitlease release F001 --note 'tests are red'",
        0,
        "released F001",
        "ada hands her task over",
    ),
    DemoScene("bob", "gitlease claim F001", 0, "tests are red", "bob continues"),
)

# The commands to try next, and their purpose.
NEXT = (
    ("init", "create the ledger, and settings for your task files"),
    ("hooks install", "in each clone"),
    ("next --claim", "claim the next task, if you have task files"),
    ("claim src/", "or claim any file or folder"),
)
