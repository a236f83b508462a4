"""What the board shows, of whatever stands in a ledger, and how it is put into lines and files."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from doors.fake import NOON, Desk, make_desks
from markdown_it import MarkdownIt
from rich.cells import cell_len
from support.picture import DARK, FOLDER, LIGHT, pictures
from support.snapshots import check_words
from support.tasks import task

from gitlease.board import text as board_text
from gitlease.board import verbs as model
from gitlease.board.live import picture
from gitlease.board.page import PageView, exported, page, policy
from gitlease.board.text import (
    board_lines,
    head_lines,
    matching,
    news_lines,
    open_resource,
    said_in,
)
from gitlease.board.verbs import BoardView, Section, make_board
from gitlease.kernel.ledger.ports import TaskProblem
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.edge import Progress
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.ledger import FAILED
from gitlease.kernel.rules.moves.operations import AddNote, Claim, TakeTicket
from gitlease.kernel.rules.resources import parse_resource

DAY = 86_400
HOSTILE = "\x1b]0;owned\x07<script>alert(1)</script> | `x` \u202egnp.\n## Free"


def ledger_of(desk: Desk) -> Any:
    chosen = {"layer": None, "local": False, "remote": None, "session": None, "no_session": False}
    return desk.open("", **chosen).ledger


def board_of(desk: Desk) -> BoardView:
    """The board as somebody sees it now."""
    ledger = ledger_of(desk)
    return make_board(ledger, ledger.look())


def names(board: BoardView, section: Section) -> list[str]:
    return [row.name for row in board.section(section)]


def busy() -> tuple[Desk, Desk]:
    """A ledger in which there is something of everything."""
    ada, bob = make_desks(
        task("F001", title="Rate limits"),
        task("F002", title="A page", depends_on=("F001",)),
        task("F003", title="Kept", paths=("src/auth/login.py",)),
        task("F004", "pat@example.com", title="Of Pat"),
        task("F005", title="Done", progress=Progress.DONE),
        task("F006", title="Odd", progress=Progress.OTHER),
        task("F007", title="日本語の説明", priority="high"),
        task("F008", title="Left alone"),
        task("F009", title="For later"),
    )
    ada.ok("claim", "F008", "--ttl", "1h")
    ada.clock.advance(8 * DAY)
    bob.ok("claim", "F001", "--session", "build-7", "--reason", "rate limits")
    bob.ok("claim", "src/auth/**", "--ttl", "1h")
    bob.ok("claim", "F009")
    bob.ok("release", "F009", "--keep")
    bob.ok("claim", "quick", "--any", "--ttl", "10s")
    ada.ok("claim", "own", "--any", "--ttl", "20m")
    for desk, name in ((bob, "quick"), (ada, "F001")):
        asked = TakeTicket(
            id=fresh_id(),
            actor=Actor(holder=f"kim+{name}@example.com", session="s9"),
            resources=(parse_resource(name),),
            ticket=f"t-{name}",
            until=desk.clock.wall_ms + 600_000,
        )
        ledger_of(desk).step("waiting", [asked])
    ada.clock.advance(20)
    return ada, bob


def test_everything_stands_in_its_section_in_its_order() -> None:
    ada, _ = busy()
    board = board_of(ada)
    assert {x: names(board, x) for x in Section} == {
        Section.HELD: ["F001", "own", "src/auth/**", "F004"],
        Section.BLOCKED: ["F003"],
        Section.WAITING: ["F009"],
        Section.EXPIRED: ["quick"],
        Section.ABANDONED: ["F008"],
        Section.FREE: ["F007", "F002"],
    }
    rows = {row.name: row for row in board.rows}
    assert (rows["F001"].title, rows["F001"].session) == ("Rate limits", "build-7")
    assert (rows["F001"].host, rows["F001"].branch) == ("desktop", "topic")
    assert [x.holder for x in rows["F001"].waiting] == ["kim+F001@example.com"]
    assert rows["F003"].through == "src/auth/**"
    assert rows["F003"].section is Section.BLOCKED
    assert (rows["F004"].holder, rows["F004"].ends) == ("pat@example.com", None)
    assert rows["F002"].waits_for == ("F001",)
    assert [x.name for x in board.rows if x.mine] == ["own", "F008"]


def test_what_is_seen_changes_at_the_time_that_the_board_says() -> None:
    ada, bob = make_desks(task("F001"))
    bob.ok("claim", "F001", "--ttl", "15m")
    board = board_of(ada)
    assert board.changes_at == NOON + 900_000
    seen = []
    while board.changes_at is not None:
        seen.append((board.rows[0].section, *board_text.details(board.rows[0], board.now)))
        ada.clock.advance((board.changes_at - ada.clock.wall_ms) / 1000)
        board = board_of(ada)
    blocking = "blocks until 12:16:00Z, then still assigned"
    assert list(dict.fromkeys(seen)) == [
        (Section.HELD,),
        (Section.EXPIRED, blocking),
        (Section.EXPIRED, "still assigned"),
    ]
    assert names(board, Section.ABANDONED) == ["F001"]


def test_a_filter_wants_every_word() -> None:
    ada, _ = busy()
    board = board_of(ada)
    assert [x.name for x in matching(board, "BOB held").rows] == ["F001", "src/auth/**"]
    assert [x.name for x in matching(board, "kim+F001").rows] == ["F001"]
    assert not matching(board, "nobody-at-all").rows
    assert {x.name for x in matching(board, "src").news} == {"src/auth/**"}


def test_what_is_opened_has_notes_and_history_and_tells_nobody_their_news() -> None:
    ada, bob = make_desks(task("F001"))
    ada.ok("claim", "F001")
    ada.ok("note", "F001", "half done: tests are red")
    ledger = ledger_of(bob)
    look = ledger.look()
    board = make_board(ledger, look)
    opened = open_resource(ledger, look, board, parse_resource("F001"))
    assert [x.kind for x in opened.events] == ["noted", "claimed"]
    assert [x.text for x in opened.notes] == ["half done: tests are red"]
    nothing = open_resource(ledger, look, board, parse_resource("X1"))
    assert (nothing.rows, nothing.notes, nothing.events) == ((), (), ())


@pytest.mark.parametrize("width", [40, 79, 100, 200])
def test_each_row_is_one_line_of_the_terminals_width(width: int) -> None:
    ada, _ = busy()
    board = board_of(ada)
    lines = [*board_lines(board, width)]
    heads = sum(bool(board.section(section)) for section in Section)
    assert len(lines) == len(board.rows) + 2 * heads
    lines += head_lines(board, width, state="live")
    lines += news_lines(board.news, width)
    said = [line.plain for line in lines]
    assert max(map(cell_len, said)) <= width
    text = " ".join(" ".join(said).split())
    for told in ("HELD 4", "BLOCKED 1", "WAITING 1", "EXPIRED 1", "ABANDONED 1", "FREE 2", "left"):
        assert told in text
    if width >= 100:
        for told in ("bob@example.com", "rate", "日本語", "ada@example.com (you)"):
            assert told in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_few_letters_gets_no_others(encoding: str) -> None:
    ada, _ = busy()
    board = board_of(ada)
    for text in said_in(board_lines(board, 100), encoding):
        assert text.plain.encode(encoding).decode(encoding) == text.plain
        assert cell_len(text.plain) <= 100
    foot = picture(board, 100, 30, state="live")[-1:]
    check_words([x.plain for x in said_in(foot, encoding)])


def test_what_others_wrote_is_shown_and_never_obeyed() -> None:
    ada, _ = make_desks(task("F001", title=HOSTILE, depends_on=("\x1b[2J",)))
    board = board_of(ada)
    for width in (60, 200):
        for line in (*board_lines(board, width), *head_lines(board, width, state="")):
            assert line.plain.isprintable()
    for made in (
        exported(board, "html"),
        page(board, PageView(find='"><i>'), None, base="/board"),
        exported(board, "svg"),
    ):
        assert "<script>alert" not in made
        assert '"><i>' not in made
        assert "\x1b" not in made
        assert "&lt;script&gt;" in made.replace("&#160;", " ")


def test_documents_ask_nobody() -> None:
    ada, _ = busy()
    board = board_of(ada)
    svg = exported(board, "svg")
    ElementTree.fromstring(svg)
    html = exported(board, "html")
    assert "<script" not in html
    for made in (svg, html, page(board, PageView(), None, base="/board")):
        addresses = set(re.findall(r"https?://[^\s\"')]+", made))
        assert addresses <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}
        assert "@import" not in made
        assert "url(http" not in made
    assert "'unsafe" not in policy(script=True)


def test_readme_shows_the_board_over_the_demos_ledger() -> None:
    readme = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    buttons = {"#ff5f57", "#febc2e", "#28c840"}
    for (name, made), colours in zip(pictures().items(), (LIGHT, DARK), strict=True):
        assert f'".github/{name}"' in readme
        kept = (FOLDER / name).read_text(encoding="utf-8")
        words = [[*ElementTree.fromstring(x).itertext()][1:] for x in (kept, made)]
        assert words[0] == words[1], "PYTHONPATH=tests python tests/support/picture.py"
        assert {*re.findall(r"#[0-9a-f]{6}\b", made)} <= {*colours.values(), *buttons}


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        "see https://evil.example/x?a=1 or www.evil.example or kim@evil.example, says @kim in #12",
        "[x](https://evil.example) ![y](https://evil.example/z.png) **bold** _so_ <b>html</b> &lt;",
        "`tick` ``two`` | a bar \\| and `",
    ],
)
def test_in_markdown_all_that_others_wrote_is_code(text: str) -> None:
    ada, bob = make_desks(task("F001", title=text))
    bob.ok("claim", "F001", "--reason", model.plain(text))
    markdown = exported(board_of(ada), "md")
    reader = MarkdownIt("commonmark").enable("table")
    tokens = reader.parse(markdown)
    kinds = [x.type for token in tokens for x in [token, *(token.children or ())]]
    assert not {"link_open", "image", "html_inline", "html_block", "em_open"} & {*kinds}
    assert kinds.count("heading_open") == 3
    assert kinds.count("td_open") == 6
    code = [x.content for token in tokens for x in token.children or () if x.type == "code_inline"]
    plain, quoted = model.plain(text).replace("\\|", "\\ |"), f'"{model.plain(text)}"'
    assert plain in code
    assert quoted.replace("\\|", "\\ |") in code
    rest = [x.content for token in tokens for x in token.children or () if x.type == "text"]
    assert "evil" not in " ".join(rest)


def test_task_files_that_cannot_be_used_are_told() -> None:
    ada, _ = make_desks(task("F001"))
    files = [f"tasks/F{n}.md" for n in range(3)]
    ada.tasks.problems = tuple(TaskProblem(file, f"{file}:2: <no> YAML") for file in files)
    board = board_of(ada)
    said = "tasks/F0.md:2: <no> YAML; and 2 more task files cannot be used: see gitlease queue"
    assert board.warnings == (said,)
    assert ada.ok("board", "--json").json["warnings"] == [said]
    assert said.replace("<", "&lt;").replace(">", "&gt;") in exported(board, "html")
    assert f"`{said}`" in exported(board, "md")


# --- the screen -------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(40, 3), (60, 8), (60, 9), (100, 25), (100, 60)])
def test_rows_that_do_not_fit_are_counted(width: int, height: int) -> None:
    board = board_of(busy()[0])
    board = replace(board, trouble="the remote is away " * 9, warnings=("tasks/F1.md: bad " * 9,))
    lines = [x.plain for x in picture(board, width, height, state="live")]
    assert len(lines) == height
    shown = [row.name for row in board.rows if any(x.startswith(f"  {row.name} ") for x in lines)]
    assert shown == [row.name for row in board.rows][: len(shown)]
    hidden = [int(found[1]) for x in lines if (found := re.fullmatch("  ([0-9]+) more", x))]
    assert len(board.rows) - len(shown) == sum(hidden)
    assert bool(hidden) == (height < 60)


# --- the command ------------------------------------------------------------------------------


def test_once_is_the_same_in_a_pipe(wide: None) -> None:
    ada, _ = busy()
    piped = ada.ok("board", "--once").out
    assert "Rate limits" in piped
    assert "\x1b" not in piped
    assert "Rate limits" in ada.ok("board", "--once", terminal=True).out
    document = ada.ok("board", "--json").json
    first = document["rows"][0]
    assert first["resource"] == "F001"
    assert first["waiting"] == ["kim+F001@example.com"]
    asked = ada.store.remote.asked
    check_words(ada.ok("board", "--once", "--cached").err)
    assert ada.store.remote.asked == asked


def test_what_does_not_go_together_is_said() -> None:
    ada, _ = make_desks()
    for typed in ("", "--once --export md", "--export md --web", "--web --cached", "--port 80"):
        assert ada.run("board", *typed.split()).code == 2, typed


def test_pools_and_failed_tasks_are_shown_in_every_form() -> None:
    ada, bob = make_desks(task("F001"), task("F002"), task("F003"))
    for number in (1, 2):
        session = f"work-00000000000{number}"
        host = f"laptop/F00{number}:4711"
        actor = Actor("bob@example.com", session=session, session_explicit=True, host=host)
        op = Claim(
            id=fresh_id(),
            actor=actor,
            resource=parse_resource(f"F00{number}"),
            lease_id=fresh_id(),
            edge=True,
            picked=True,
        )
        ledger_of(bob).step("claim", [op])
    note = AddNote(
        id=fresh_id(FAILED), actor=actor, resource=parse_resource("F003"), text="exit 3\n| <b>"
    )
    ledger_of(bob).step("note", [note])
    board = board_of(ada)
    assert board.pools() == ["pool 4711 of bob@example.com on laptop: F001, F002"]
    assert names(board, Section.HELD) == ["F001", "F002"]
    assert names(board, Section.BLOCKED) == ["F003"]
    for form in ("svg", "html", "md"):
        assert "4711" in exported(board, form), form

    rows = {x["resource"]: x for x in ada.ok("board", "--json").json["rows"]}
    assert (rows["F001"]["pool"], rows["F003"]["pool"]) == (board.rows[0].pool, None)
    assert (rows["F003"]["setback"]["failures"], rows["F001"]["setback"]) == (1, None)
