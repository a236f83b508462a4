"""What is kept of records: only what changed is read again, and the answers are always the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel.rules.test_pattern import PATTERNS
from kernel.rules.values import JO, KIM, lease
from support.clock import ManualClock
from support.ledgers import door, make_header, make_lease, write_ledger
from support.remotes import Remote

from gitlease.kernel.git.objects import Absent, object_id
from gitlease.kernel.rules.errors import Invalid, LeaseHeld, UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Lease, State
from gitlease.kernel.rules.lease_rows import Reach
from gitlease.kernel.rules.ledger import Damage, Ledger
from gitlease.kernel.rules.moves.claiming import rivals_of
from gitlease.kernel.rules.resources import Resource, parse_resource
from gitlease.kernel.store import tree
from gitlease.kernel.store.records import lease_file, write_lease
from gitlease.kernel.store.state import ROWS_FILE
from gitlease.kernel.store.tree import GitRecords, StoreObjects

Clones = Callable[..., list[Path]]


class Objects:
    """The objects of a ledger's trees, in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if id not in self._kept:
            raise Absent
        return self._kept[id]

    def write(self, kind: str, data: bytes) -> str:
        id = object_id(kind, data, 20)
        self._kept[id] = data
        return id

    def tree(self, files: dict[str, bytes], modes: dict[str, str]) -> str:
        """The tree of these files; ``modes`` has those that are not as they should be."""
        entries, below = list[tuple[str, bytes, str]](), dict[str, dict[str, bytes]]()
        for path, data in files.items():
            top, slash, rest = path.partition("/")
            if slash:
                below.setdefault(top, {})[rest] = data
            else:
                mode = modes.get(path, "100644")
                entries.append((mode, path.encode(), self.write("blob", data)))
        entries += (("40000", x.encode(), self.tree(y, modes)) for x, y in below.items())
        lines = (
            b"%s %s\0%s" % (mode.encode(), name, bytes.fromhex(id))
            for mode, name, id in sorted(entries, key=lambda x: x[1])
        )
        return self.write("tree", b"".join(lines))

    def records(
        self, files: dict[str, bytes], modes: dict[str, str] | None = None, kept: str = ""
    ) -> GitRecords:
        root = self.tree(files, modes or {})
        return GitRecords(StoreObjects(lambda: self), root, kept, root)


def files_of(leases: Sequence[Lease]) -> dict[str, bytes]:
    return {lease_file(x): write_lease(x) for x in leases}


def many(number: int) -> list[Lease]:
    return [make_lease(f"src/part{n:05d}/", token=n + 1) for n in range(number)]


def counted(monkeypatch: pytest.MonkeyPatch, module: object, name: str, into: list[Any]) -> None:
    real = getattr(module, name)

    def count(*words: object, **more: object) -> object:
        into.append(words)
        return real(*words, **more)

    monkeypatch.setattr(module, name, count)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every record that is parsed out of the tree."""
    found: list[object] = []
    counted(monkeypatch, tree, "read_lease", found)
    return found


# --- the same answers ---------------------------------------------------------------------------


class Plain:
    """Records of which nothing is kept: every one is read."""

    def __init__(self, inner: GitRecords) -> None:
        self.of, self.with_paths, self.every = inner.of, inner.with_paths, inner.every
        self.notes, self.notices = inner.notes, inner.notices
        self.tickets, self.every_ticket = inner.tickets, inner.every_ticket


def of_pattern(text: str) -> Resource | None:
    """The resource of a pattern as records have it; None where there is none."""
    try:
        found = parse_resource(f"path:{text}")
        return found if parse_resource(found.text).text == found.text else None
    except UsageError:
        return None


def held(resource: Resource, named: str | None, paths: list[str], state: State) -> Lease:
    made = lease(state=state, resource=named or "F001", paths=tuple(paths))
    return made if named else replace(made, resource=resource)


RESOURCES = PATTERNS.map(of_pattern).filter(lambda x: x is not None)
HELD = st.builds(
    held,
    RESOURCES,
    st.sampled_from([None, None, "F001", "F002", "F003"]),
    st.lists(PATTERNS.filter(lambda x: of_pattern(x) is not None), max_size=2),
    st.sampled_from([State.ACTIVE, State.ACTIVE, State.COMPLETED]),
)
LEDGER = st.lists(HELD, max_size=6, unique_by=lambda x: x.key)


@settings(max_examples=50)
@given(st.lists(LEDGER, min_size=1, max_size=3), RESOURCES, st.booleans())
def test_the_rivals_are_those_of_a_full_reading(
    steps: list[list[Lease]], wanted: Resource, named: bool
) -> None:
    """S2: whoever holds a common file stands in the way, whatever was kept of earlier heads."""
    objects = Objects()
    task, text = lease().resource, wanted.pattern or ""
    with tempfile.TemporaryDirectory() as kept:
        for leases in steps:
            full = objects.records(files_of(leases))
            fast = objects.records(files_of(leases), kept=kept)
            asked = (task, "*", (text,)) if named else (wanted, "*", ())
            read = [Ledger(make_header(), x) for x in (Plain(full), fast)]
            assert rivals_of(read[1], *asked) == rivals_of(read[0], *asked)
            rows, damaged = read[1].live(JO.holder)
            assert not damaged
            live = [x for x in leases if x.state is State.ACTIVE]
            assert sorted(rows, key=lambda x: x.key) == sorted(live, key=lambda x: x.key)


BROKEN: dict[str, tuple[dict[str, bytes], dict[str, str]]] = {
    "no record": ({lease_file(many(3)[1]): b"holder: x\n"}, {}),
    "another's place": ({lease_file(many(3)[1]): write_lease(many(3)[2])}, {}),
    "an odd name": ({"paths/aa/x\ty\n.yaml": b"x"}, {}),
    "an odd folder": ({"paths/xyz/a.yaml": b"x"}, {}),
    "a file for a folder": ({"paths/zz": b"x"}, {}),
    "no folder of records": ({"paths": b"x"}, {}),
    "a link": ({}, {lease_file(many(3)[1]).rpartition("/")[2]: "120000"}),
    "a folder's mode": ({}, {lease_file(many(3)[1]).rpartition("/")[2]: "40000"}),
    "a name": ({lease_file(lease()): b"x"}, {}),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_damage_is_what_a_full_reading_says(
    tmp_path: Path, broken: tuple[dict[str, bytes], dict[str, str]]
) -> None:
    """S9; and a record that cannot be read keeps everybody out, also from what was kept."""
    objects, sound = Objects(), files_of(many(3))
    kept, reach = str(tmp_path), Reach.of_patterns(["elsewhere/"])
    assert list(objects.records(sound, kept=kept).near(reach)) == []
    wrong, modes = broken
    files = {k: v for k, v in sound.items() if "paths" not in wrong} | wrong
    full = outcome(lambda: list(objects.records(files, modes).with_paths()))
    live = objects.records(files, modes).live(JO.holder)
    for _ in range(2):
        near = outcome(lambda: list(objects.records(files, modes, kept=kept).near(reach)))
        assert near == (full if isinstance(full, str) else [])
        rows, damaged = objects.records(files, modes, kept=kept).live(JO.holder)
        assert (sorted(rows.rows), damaged) == (sorted(live[0].rows), live[1])
        every = objects.records(files, modes).every()
        assert [*damaged] == [x for x in every if isinstance(x, Damage)]
    assert damaged
    assert list(objects.records(sound, kept=kept).near(reach)) == []


def outcome(act: Callable[[], list[Lease]]) -> list[Lease] | str:
    try:
        return act()
    except Invalid as error:
        return f"{error.message} {error.hints}"


@pytest.mark.parametrize("junk", [b"", b"\xff" * 99, b"\x1eaa bb\nx"])
def test_what_is_kept_is_read_anew_where_it_is_damaged(
    tmp_path: Path, parsed: list[object], junk: bytes
) -> None:
    objects, files, kept = Objects(), files_of(many(20)), str(tmp_path)
    reach, file = Reach.of_patterns(["src/part00003/x"]), tmp_path / ROWS_FILE
    first = list(objects.records(files, kept=kept).near(reach))
    assert [str(x.resource) for x in first] == ["src/part00003"]
    sound = file.read_bytes()
    for data in (junk, sound + junk + b"x", sound[:-1], sound.replace(b"part00003", b"part00004")):
        file.write_bytes(data)
        parsed.clear()
        assert list(objects.records(files, kept=kept).near(reach)) == first
        assert (len(parsed), file.read_bytes()) == (20, sound)
    parsed.clear()
    assert list(objects.records(files, kept=kept).near(reach)) == first
    assert len(parsed) == 1  # the one that is near, once more and strictly


def test_where_nothing_can_be_kept_everything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = Objects().records(files_of(many(3)), kept=str(tmp_path / "file"))
    assert len(list(found.near(Reach.of_patterns(["src/"])))) == 3


def test_more_records_than_a_ledger_can_have_are_refused_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "MAX_RECORDS", 10)
    found = Objects().records(files_of(many(11)), kept=str(tmp_path))
    with pytest.raises(Invalid):
        list(found.near(Reach.of_patterns(["src/"])))


# --- exact counts -------------------------------------------------------------------------------


def test_a_change_of_one_record_reads_as_little_in_any_ledger(
    tmp_path: Path, parsed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    trees: list[object] = []
    counted(monkeypatch, tree, "read_tree", trees)
    counts, new = set(), make_lease("T00007", token=9_000)
    for number in (50, 2_000):
        objects, kept = Objects(), str(tmp_path / str(number))
        files = files_of([make_lease(f"T{n:05d}", token=n + 1) for n in range(number)])
        assert objects.records(files, kept=kept).live(JO.holder)[0].has_others(JO.holder)
        for read in (parsed, trees):
            read.clear()
        files[lease_file(new)] = write_lease(new)
        objects.records(files, kept=kept).live(JO.holder)
        counts.add((len(parsed), len(trees)))
    assert counts == {(1, 6)}  # of each state its root, the folder of records, and one in it


def test_of_many_names_of_others_it_is_known_that_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "NAMES_KEPT", 3)
    objects, kept = Objects(), str(tmp_path)
    own = [lease(resource=f"F{n:03d}") for n in (1, 9)]
    leases = {x.key: x for x in [*own, *(lease(holder=KIM, resource=f"G{n}") for n in range(9))]}
    for _ in range(4):  # those that were kept end, until there is none
        rows, _ = objects.records(files_of([*leases.values()]), kept=kept).live(JO.holder)
        others = [x for x in rows if x.holder != JO.holder]
        assert rows.of_person(JO.holder) == own
        left = len(leases) - len(own)
        assert (len(others), rows.people) == (min(left, 3), {JO.holder} if left > 3 else None)
        leases = {key: x for key, x in leases.items() if x not in others}
    rows, _ = objects.records(files_of([*leases.values()]), kept=kept).live(KIM.holder)
    assert rows.people is None, "and whoever asks sees all"


@pytest.mark.slow
def test_a_claim_of_a_path_parses_one_record_of_any_number(
    path_remote: Remote, clones: Clones, parsed: list[object]
) -> None:
    (clone,), clock = clones(1), ManualClock()
    write_ledger(path_remote.bare, many(1_000))
    door(clone, clock=clock).claim("docs/first/")
    parsed.clear()
    door(clone, clock=clock).claim("docs/second/")
    assert len(parsed) == 1  # the first claim: it came since
    parsed.clear()
    with pytest.raises(LeaseHeld):
        door(clone, clock=clock).claim("src/part00001/a.py")
    assert len(parsed) == 2
