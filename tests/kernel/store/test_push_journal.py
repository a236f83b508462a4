"""The journal of a clone's last pushes: what each was for, how long it took, what became of it."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

from support.commands import typed
from support.paced import PacedHost
from support.snapshots import check_words

from gitlease.kernel.ledger.ports import PushRecord
from gitlease.kernel.store.state import PUSHES_BYTES, PUSHES_KEPT, StateFolder
from gitlease.wiring.workspace import open_workspace


def push(number: int, what: str = "claim of F001") -> PushRecord:
    return PushRecord(1_800_000_000_000 + number, 1_200, what, "landed", sent=True)


def folder(tmp_path: Path) -> StateFolder:
    tmp_path.joinpath("state").mkdir(exist_ok=True)
    return StateFolder(str(tmp_path / "state"))


def test_pushes_are_read_in_their_order(tmp_path: Path) -> None:
    assert folder(tmp_path).pushes() == []
    for number in range(3):
        folder(tmp_path).note_push(push(number))
    assert folder(tmp_path).pushes() == [push(number) for number in range(3)]


def test_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    journal = folder(tmp_path)
    journal.note_push(push(1))
    file = tmp_path / "state" / "pushes"
    with file.open("ab") as torn:
        torn.write(b'[7, "x"]\n\xff\xfe\n[18000000')
    assert journal.pushes() == [push(1)]


def test_it_stays_small(tmp_path: Path) -> None:
    journal = folder(tmp_path)
    for number in range(2_000):
        journal.note_push(push(number, "renew " + "x" * 500))
    assert (tmp_path / "state" / "pushes").stat().st_size <= PUSHES_BYTES
    found = journal.pushes()
    assert 100 < len(found) <= PUSHES_KEPT
    assert found[-1].at == push(1_999).at
    assert len(found[-1].what) == 200


def test_a_huge_file_is_read_from_its_end(tmp_path: Path) -> None:
    journal = folder(tmp_path)
    (tmp_path / "state" / "pushes").write_bytes(b'[1, 2, "x", "lost", true]\n' * 1_000_000)
    assert len(journal.pushes()) == PUSHES_KEPT
    journal.note_push(push(5))
    assert journal.pushes()[-1] == push(5)
    assert (tmp_path / "state" / "pushes").stat().st_size <= 2 * PUSHES_BYTES


def test_several_write_at_once(tmp_path: Path) -> None:
    def write(first: int) -> None:
        for number in range(first, first + 50):
            folder(tmp_path).note_push(push(number))

    threads = [threading.Thread(target=write, args=(n * 50,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {x.at for x in folder(tmp_path).pushes()} == {push(n).at for n in range(200)}


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    journal = StateFolder(str(tmp_path / "gone"))
    journal.note_push(push(1))
    assert journal.pushes() == []


def test_every_push_of_a_clone_is_noted(tmp_path: Path) -> None:
    host = PacedHost(tmp_path / "host")
    jo, kim = (host.clone(tmp_path / who, who) for who in ("jo", "kim"))
    assert typed(jo, "claim", "F1").returncode == 0
    assert typed(kim, "claim", "F2").returncode == 0
    assert typed(jo, "claim", "F3").returncode == 0
    place = open_workspace(str(jo), environ={})
    found = place.ledger.store.pushes(place.layer)
    assert [(x.what, x.fate, x.sent) for x in found] == [
        ("claim of F1", "landed", True),
        ("claim of F3", "lost", False),
        ("claim of F3", "landed", True),
    ]
    assert all(x.took > 0 for x in found)


def test_log_shows_them_newest_first(tmp_path: Path) -> None:
    host = PacedHost(tmp_path / "host")
    jo = host.clone(tmp_path / "jo", "jo")
    empty = typed(jo, "log", "--pushes")
    assert empty.returncode == 0
    check_words(empty.stdout)
    assert typed(jo, "claim", "F1").returncode == 0
    assert typed(jo, "release", "F1").returncode == 0
    before = host.tally()
    told = json.loads(typed(jo, "log", "--pushes", "--json").stdout)
    assert [(x["what"], x["result"], x["sent"]) for x in told["pushes"]] == [
        ("release of F1", "landed", True),
        ("claim of F1", "landed", True),
    ]
    shown = typed(jo, "log", "--pushes", "-n", "1").stdout
    check_words(re.sub(r"\S+Z(?: \(.*?\))?|\d\.\d", "…", shown))
    assert host.tally() == before, "no remote is asked"
    assert typed(jo, "log", "F1", "--pushes").returncode == 2


def test_one_push_is_no_pushes(tmp_path: Path) -> None:
    clone = PacedHost(tmp_path / "host").clone(tmp_path / "ada", "ada")
    typed(clone, "claim", "port-1")
    assert "in the last hour: 1 push, 0 of which" in typed(clone, "log", "--pushes").stdout


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    journal = folder(tmp_path)
    os.mkfifo(tmp_path / "state" / "pushes")
    journal.note_push(push(1))
    assert journal.pushes() == []
