"""The play that ``demo`` performs: who types what, and how that must end."""

from __future__ import annotations

from dataclasses import dataclass

WORKERS = ("ada", "bob")
TASKS = {"F001": "rate limits", "F002": "password reset", "F003": "audit log"}
# What the repository begins with.
FILES = {
    **{f"tasks/{x}.md": f"---\nid: {x}\ntitle: {TASKS[x]}\nstatus: todo\n---\n" for x in TASKS},
    "src/auth/login.py": "def login(): ...\n",
    "src/pay/card.py": "def pay(): ...\n",
}


@dataclass(frozen=True, slots=True)
class DemoScene:
    """Who types what, how that must end, and a word that must be in what is printed.

    ``about`` is told before, and ``edits`` is a file and the line that is added to it.
    """

    who: str
    command: str
    exit: int = 0
    says: str = ""
    about: str = ""
    edits: tuple[str, str] | None = None


PLAY = (
    DemoScene(
        "ada", "gitlease init", about="ada sets the repository up: the ledger is made on the remote"
    ),
    DemoScene("ada", "git add .gitlease.yaml"),
    DemoScene("ada", "git commit -q -m 'use gitlease'"),
    DemoScene("ada", "git push -q origin main"),
    DemoScene("bob", "git pull -q"),
    DemoScene(
        "ada",
        "gitlease config --ledger skew 0s",
        about="for a quick play: trust the clocks, and allow very short leases",
    ),
    DemoScene("ada", "gitlease config --ledger ttl_min 2s"),
    DemoScene(
        "ada",
        "gitlease hooks install",
        about="both let git's hooks watch what they commit and push",
    ),
    DemoScene("bob", "gitlease hooks install"),
    DemoScene(
        "ada",
        "gitlease next --claim",
        0,
        "claimed F001",
        "each asks for the next task, and each gets another one",
    ),
    DemoScene("bob", "gitlease next --claim", 0, "claimed F002"),
    DemoScene(
        "ada",
        "gitlease claim src/auth/ --reason 'new sign-in'",
        about="ada takes a whole folder as well",
    ),
    DemoScene(
        "bob",
        "gitlease claim F001",
        1,
        "held by ada@example.com",
        "bob collides, and is told with whom",
    ),
    DemoScene(
        "bob",
        "git commit -a -m 'log out'",
        1,
        "src/auth/login.py is held by ada@example.com",
        "bob changes src/auth/login.py all the same: git refuses the commit",
        edits=("src/auth/login.py", "def logout(): ..."),
    ),
    DemoScene("ada", "gitlease renew F001", 0, "renewed F001", "ada renews: the heartbeat"),
    DemoScene("ada", "gitlease extend F001 12h", 0, "maximum of 8h", "a long gap is capped"),
    DemoScene(
        "ada",
        "gitlease claim src/pay/ --ttl 6s",
        about="ada takes another folder for 6 seconds, changes src/pay/card.py, and goes silent",
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
        "bob waits: the lease runs out, and is his",
    ),
    DemoScene(
        "ada",
        "gitlease renew src/pay/",
        3,
        "held by bob@example.com",
        "ada is back too late: it is lost",
    ),
    DemoScene(
        "ada",
        "gitlease push",
        1,
        "src/pay/card.py falls under src/pay, held by bob@example.com",
        "and what she did meanwhile does not land over his work",
    ),
    DemoScene("ada", "gitlease brief", 0, "taken over by bob@example.com", "where ada stands"),
    DemoScene(
        "ada",
        "gitlease release F001 --note 'tests are red'",
        0,
        "released F001",
        "ada hands her task over",
    ),
    DemoScene("bob", "gitlease claim F001", 0, "tests are red", "and bob goes on"),
)

# What to type next, each with what it is for.
NEXT = (
    ("init", "the ledger, and settings that fit your tasks"),
    ("hooks install", "in each clone"),
    ("next --claim", "the next task, where you have task files"),
    ("claim src/", "or any file or folder"),
)
