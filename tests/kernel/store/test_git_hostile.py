"""Whatever lies at the ref: a typed refusal, bounded, and only what is damaged is unavailable."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kernel.store.test_kept_rows import Objects
from support.clock import ManualClock
from support.commands import run_program
from support.ledgers import (
    EPOCH_MS,
    Entry,
    door,
    file_of,
    make_header,
    make_lease,
    place,
    raw_tree,
    record_of,
    set_tip,
    tip,
    write_commit,
    write_object,
    write_tree,
)
from support.remotes import Remote
from support.repos import git

from gitlease.cli.app import run
from gitlease.kernel.git import plain_yaml
from gitlease.kernel.rules.errors import GitleaseError, Invalid, LeaseHeld
from gitlease.kernel.rules.instant import rfc3339_ms
from gitlease.kernel.rules.lease import Lease
from gitlease.kernel.rules.ledger import Damage
from gitlease.kernel.store.records import notes_file, notices_file, write_header
from gitlease.kernel.store.tree import read_ledger
from gitlease.library.leases import Leases

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
ROOT = Path(__file__).parents[2]
NAME = make_lease("F001")
PATHS = make_lease("src/auth/**", token=2)
GOOD = record_of(NAME)
HEADER = write_header(make_header())
MEMORY = 48 * 1024 * 1024
ESCAPE = "\x1b]0;pwned\x07\x1b[2J"
BIDI = "‮"


def swap(old: str, new: str, record: bytes = GOOD) -> bytes:
    """A sound record with one thing changed."""
    assert old.encode() in record
    return record.replace(old.encode(), new.encode(errors="surrogatepass"))


def field(name: str, value: str, record: bytes = GOOD) -> bytes:
    """A sound record with one field's text changed."""
    lines = record.decode().split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{name}:"))
    lines[at] = f"{name}: {value}"
    return "\n".join(lines).encode()


def merge_bomb() -> bytes:
    """A small text of merge keys that a loader would expand without end."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join(['*a' + str(i - 1)] * 9)}]}}" for i in range(1, 12)]
    return ("\n".join(lines) + "\n").encode()


BAD_RECORDS: dict[str, bytes] = {
    "empty": b"",
    "not yaml": b"{[}]: : :\n- x",
    "not utf-8": GOOD + b"x: \xff\xfe\n",
    "merge bomb": merge_bomb(),
    "alias": field("holder", "*me"),
    "tag": field("token", "!!python/object/apply:os.system ['true']"),
    "duplicate key": GOOD + b"token: 9\n",
    "deep flow": b"resource: " + b"[" * 30_000,
    "deep block": b"".join(b" " * i + b"a:\n" for i in range(250)),
    "many values": b"x: [" + b"1," * 30_000 + b"]\n",
    "1 MB": GOOD + b"# " + b"x" * 1_000_000,
    "token zero": field("token", "0"),
    "token huge": field("token", "9" * 5_000),
    "ttl of a century": field("ttl", "3155760000"),
    "expires first": field("expires_at", rfc3339_ms(EPOCH_MS - 1)),
    "expires in 20 years": field("expires_at", rfc3339_ms(EPOCH_MS + 20 * 365 * 86_400_000)),
    "local time": field("renewed_at", '"2027-01-15T08:00:00"'),
    "state of the union": field("state", "revoked"),
    "holder escapes": field("holder", json.dumps(f"eve{ESCAPE}@example.com")),
    "holder bidi": field("holder", json.dumps(f"eve{BIDI}@example.com")),
    "scope other": field("scope", "parser"),
    "resource other": field("resource", "F002"),
    "resource spelt as a path": field("resource", '"path:F001"'),
    "resource outside": field("resource", '"../../etc/passwd"'),
    "resource missing": swap("resource: F001\n", ""),
    "margins endless": swap("skew: 60", "skew: 999999999"),
    "paths not paths": field("paths", '["a//b", "!c"]'),
    "paths where none belong": field("paths", '["src/**"]'),
    "paths of 65": field("paths", json.dumps([f"f{i}/x" for i in range(65)])),
}
"""What can lie in the place of F001's record. None of them is a lease of F001."""


@pytest.fixture
def bare(path_remote: Remote) -> Path:
    """The remote's repository."""
    return path_remote.bare


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the records' times are near to."""
    return ManualClock()


@pytest.fixture
def leases(clones: Clones, path_remote: Remote, clock: ManualClock) -> Leases:
    """The door of the first clone, which has never met the ledger."""
    return door(clones(1)[0], clock=clock)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes of YAML were read, in the first item."""
    count, node = [0], plain_yaml.Node

    def counting(*fields: Any) -> plain_yaml.Node:
        count[0] += 1
        return node(*fields)

    monkeypatch.setattr(plain_yaml, "Node", counting)
    return count


@pytest.fixture
def memory() -> Iterator[Callable[[], int]]:
    """Bytes at the peak since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def refused(action: Callable[[], object]) -> GitleaseError:
    """The typed refusal of an action, fit to be printed on any terminal."""
    with pytest.raises(GitleaseError) as raised:
        action()
    error = raised.value
    for line in (error.message, *error.hints):
        assert line.isprintable(), repr(line)
        assert len(line) < 1_000
    return error


def attempt(action: Callable[[], object]) -> GitleaseError | None:
    """The typed refusal of an action that may as well succeed; anything else is a failure."""
    try:
        action()
    except GitleaseError as error:
        refusal = error
    else:
        return None
    assert refusal.message.isprintable(), repr(refusal.message)
    return refusal


def listed(leases: Leases) -> set[str]:
    """What a list shows; its warnings are fit to be printed."""
    found = {view.resource for view in leases.list(all=True)}
    for line in leases.warnings:
        assert line.isprintable(), repr(line)
        assert len(line) < 1_000
    return found


# --- one bad record -----------------------------------------------------------------------------


def test_no_bad_record_is_read_as_a_lease(parsed: list[int], memory: Callable[[], int]) -> None:
    objects = Objects()
    for name, data in BAD_RECORDS.items():
        (damage,) = objects.records({file_of(NAME): data}).every()
        assert isinstance(damage, Damage), name
        assert file_of(NAME).endswith(damage.file), name
        assert damage.problem.isprintable(), name
        assert len(damage.problem) < 1_000, name
    assert parsed[0] < 2 * plain_yaml.MAX_NODES
    assert memory() < MEMORY


@pytest.mark.default("1 MB")
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["1 MB", "merge bomb", "holder escapes"])
def test_a_bad_record_takes_only_its_own_resource(
    name: str, bare: Path, leases: Leases, parsed: list[int], memory: Callable[[], int]
) -> None:
    other = make_lease("F003", token=3)
    place(bare, {file_of(NAME): BAD_RECORDS[name], file_of(other): record_of(other)})
    assert isinstance(refused(lambda: leases.claim("F001")), Invalid)
    assert isinstance(refused(lambda: leases.show("F001")), Invalid)
    assert isinstance(refused(lambda: leases.release("F001")), Invalid)
    assert leases.claim("F002").token == 1_001
    assert leases.claim("src/auth/login.py").token == 1_002
    assert isinstance(refused(lambda: leases.claim("F003")), LeaseHeld)
    assert listed(leases) == {"F002", "F003", "src/auth/login.py"}
    assert any(file_of(NAME) in line for line in leases.warnings)
    assert [view.resource for view in leases.renew_all()] == ["F002", "src/auth/login.py"]
    assert parsed[0] < 12 * plain_yaml.MAX_NODES
    assert memory() < MEMORY


@pytest.mark.default
def test_a_record_that_is_no_regular_file(bare: Path, leases: Leases) -> None:
    """Also for a process that has read the same bytes from a file."""
    place(bare, {file_of(NAME): GOOD})
    assert listed(leases) == {"F001"}
    leases.claim("F002")
    for entry in (
        Entry("120000", write_object(bare, GOOD)),
        Entry("160000", "1" * 40),
        Entry("040000", write_tree(bare, {"x": b"x"})),
    ):
        place(bare, {file_of(NAME): entry}, onto=bool(tip(bare)))
        assert isinstance(refused(lambda: leases.claim("F001")), Invalid)
        assert leases.claim("F002").mine
        assert listed(leases) == {"F002"}


@pytest.mark.default
def test_a_record_that_was_renewed_and_then_damaged_is_no_rollback(
    bare: Path, leases: Leases
) -> None:
    for name in ("F001", "F002"):
        leases.claim(name)
    leases.renew("F001")
    place(bare, {file_of(NAME): b"junk\n"}, onto=True)
    assert listed(leases) == {"F002"}
    assert isinstance(refused(lambda: leases.claim("F001")), Invalid)
    assert leases.claim("F003").mine


@pytest.mark.default("deep flow")
@pytest.mark.parametrize("name", ["deep flow", "merge bomb"])
def test_a_bad_record_of_paths_takes_path_claims_only(
    name: str, bare: Path, leases: Leases
) -> None:
    place(bare, {file_of(PATHS): BAD_RECORDS[name]})
    assert isinstance(refused(lambda: leases.claim("docs/**")), Invalid)
    assert isinstance(refused(lambda: leases.claim("F001", paths=["docs/x"])), Invalid)
    assert leases.claim("F001").token == 1_001
    leases.renew("F001")
    assert listed(leases) == {"F001"}
    leases.release("F001")


# --- names --------------------------------------------------------------------------------------


@pytest.mark.default
def test_two_records_of_one_resource(bare: Path, leases: Leases) -> None:
    covering = make_lease("F001", token=4, paths=("src/**",), holder="mallory@example.com")
    files = {file_of(NAME): record_of(NAME), file_of(covering): record_of(covering)}
    assert len(files) == 2
    place(bare, files)
    assert isinstance(refused(lambda: leases.claim("F001")), Invalid)
    assert leases.claim("F002").token == 1_001
    assert "F002" in listed(leases)


@pytest.mark.default
def test_a_record_under_the_name_of_another(bare: Path, leases: Leases) -> None:
    place(bare, {file_of(NAME): record_of(make_lease("F002", holder="mallory@example.com"))})
    assert isinstance(refused(lambda: leases.claim("F001")), Invalid)
    assert listed(leases) == set()
    assert any(file_of(NAME) in line for line in leases.warnings)
    assert leases.claim("F002").token == 1_001
    assert listed(leases) == {"F002"}


@pytest.mark.default("paths-long")
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(b"\x1b]0;pwned\x07.yaml", id="escapes"),
        pytest.param(b"\xff\xfe\x80.yaml", id="not utf-8"),
        pytest.param(b"x" * 5_000, id="long"),
        pytest.param(b"..", id="dotdot"),
    ],
)
@pytest.mark.parametrize("top", ["leases", "paths"])
def test_odd_names_in_the_tree(top: str, odd: bytes, bare: Path, leases: Leases) -> None:
    """They are met twice: at the first contact, and where a later head differs by them."""
    leases.claim("F009")
    blob = write_object(bare, b"x: y\n")
    fan = Entry("040000", raw_tree(bare, [("100644", odd, blob)]))
    place(bare, {f"{top}/ab": fan}, onto=True)
    assert "F009" in listed(leases)
    assert leases.claim("F002").token == 2
    if top == "paths":
        assert isinstance(refused(lambda: leases.claim("docs/**")), Invalid)
    else:
        assert leases.claim("docs/**").token == 3
    assert leases.renew("F009").renewals == 1


def test_a_folder_that_is_none(bare: Path, leases: Leases) -> None:
    blob = write_object(bare, b"nowhere")
    for top in ("leases", "paths", "notes", "notices"):
        for entry in (Entry("100644", blob), Entry("160000", "1" * 40), Entry("120000", blob)):
            place(bare, {top: entry})
            for action in (
                lambda: leases.claim("F001"),
                lambda: leases.claim("src/x"),
                lambda: leases.note("F001", "hello"),
                lambda: leases.list(all=True),
            ):
                attempt(action)


# --- many ---------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_ten_thousand_entries_of_one_costly_record(
    bare: Path, leases: Leases, parsed: list[int]
) -> None:
    """Small to push, costly to read: reading must not multiply what was pushed once."""
    costly = b"x: [" + b"1," * 19_000 + b"]\n"
    blob = Entry("100644", write_object(bare, costly))
    place(bare, {f"paths/ab/x{i}-{i:016x}.yaml": blob for i in range(2_000)})
    assert leases.claim("F002").token == 1_001
    assert isinstance(refused(lambda: leases.claim("src/x")), Invalid)
    assert listed(leases) == {"F002"}
    assert parsed[0] < 10 * plain_yaml.MAX_NODES


BOMB = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (2_000_000_000, 2_000_000_000))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
import gitlease
with gitlease.open(sys.argv[1]) as leases:
    try:
        lease = leases.claim("F002")
        leases.list(all=True)
        print("claimed")
    except gitlease.GitleaseError as error:
        print(error.code)
"""


def run_limited(clone: Path) -> str:
    """What a process with 2 GB and 20 s of processor time says of a claim and a list."""
    words = [sys.executable, "-c", BOMB, str(clone)]
    done = run_program(words, None, {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, (done.returncode, done.stderr[-2_000:])
    return done.stdout.strip()


@pytest.mark.default("leases")
@pytest.mark.parametrize("where", ["leases/ab", "notes/ab", "junk", "leases"])
def test_a_bomb_of_trees_does_not_go_off(where: str, bare: Path, clones: Clones) -> None:
    """Ten levels of ten times the same folder: a hundred objects that name ten thousand million."""
    clone = clones(1)[0]
    with door(clone) as leases:
        leases.claim("F001")  # so that the next head is compared with this one
    level = write_object(bare, b"boom")
    mode = "100644"
    for _ in range(10):
        level = raw_tree(bare, [(mode, b"f%d" % i, level) for i in range(10)])
        mode = "40000"
    place(bare, {where: Entry("040000", level)}, onto=where != "leases")
    if where == "leases":
        assert run_limited(clone) in ("claimed", "rollback", "invalid")
    else:
        assert run_limited(clone) == "claimed"


# --- time and numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        replace(NAME, renewed_at=253402300799_000, expires_at=253402300799_999),
        replace(NAME, renewed_at=-62135596800_000, expires_at=-62135596799_000),
        replace(NAME, expires_at=NAME.renewed_at, token=10**18),
        replace(NAME, expires_at=EPOCH_MS + 3_650 * 86_400_000, ttl=3_650 * 86_400),
    ],
    ids=["year 9999", "year 1", "no time at all", "ten years"],
)
def test_a_sound_record_with_odd_values(
    record: Lease, bare: Path, leases: Leases, clock: ManualClock
) -> None:
    """Whatever it says, verbs answer or refuse in words, now and much later."""
    place(bare, {file_of(NAME): record_of(record)})
    for _ in range(3):
        for verb in (leases.claim, leases.renew, leases.release, leases.done, leases.show):
            attempt(partial(verb, "F001"))
        assert leases.claim("F002").mine
        listed(leases)
        clock.advance(12 * 365 * 86_400)


# --- the header ---------------------------------------------------------------------------------


def header_field(name: str, value: str) -> bytes:
    return field(name, value, HEADER)


BAD_HEADERS: dict[str, bytes] = {
    "merge bomb": merge_bomb(),
    "no format": swap("format: 2\n", "", HEADER),
    "format text": header_field("format", "one"),
    "id escapes": header_field("id", json.dumps(ESCAPE)),
    "revision huge": header_field("revision", "9" * 40),
    "no policy": swap("policy:", "police:", HEADER),
    "policy upside down": swap("ttl_min: 10", "ttl_min: 99999999", HEADER),
    "ring of digits": header_field("ring", '["a ²³ b"]'),
    "ring of a giant": header_field("ring", json.dumps([f"{'a' * 120_000} 1 b"])),
    "admins escapes": swap("admins: []", "admins: [" + json.dumps(ESCAPE) + "]", HEADER),
    "1 MB": HEADER + b"# " + b"x" * 1_000_000,
}


@pytest.mark.default
def test_no_bad_header_is_read(parsed: list[int]) -> None:
    objects, line = Objects(), b"a <a> 1 +0000\n"
    for name, data in BAD_HEADERS.items():
        tree = objects.tree({"ledger.yaml": data}, {}).encode()
        made = b"tree %s\nauthor %scommitter %s\nx\n" % (tree, line, line)
        with pytest.raises(Invalid) as bad:
            read_ledger(objects, objects.write("commit", made))
        assert bad.value.message.isprintable(), name
        assert len(bad.value.message) < 1_000, name
    assert parsed[0] < 2 * plain_yaml.MAX_NODES


def test_a_bad_header_is_refused_whole(bare: Path, leases: Leases) -> None:
    place(bare, {"ledger.yaml": BAD_HEADERS["id escapes"], file_of(NAME): GOOD})
    before = tip(bare)
    for action in (lambda: leases.claim("F002"), leases.list, lambda: leases.renew("F001")):
        assert isinstance(refused(action), Invalid)
    assert tip(bare) == before


@pytest.mark.default
def test_a_newer_format_may_use_what_this_one_refuses(bare: Path, leases: Leases) -> None:
    """Even where it is not this subset of YAML any more, the message is of the version."""
    newer = b"format: 6\nring: &ring [a, b]\nagain: *ring\n"
    place(bare, {"ledger.yaml": newer})
    error = refused(lambda: leases.claim("F001"))
    assert any("upgrade" in hint for hint in error.hints), error.message


# --- the ref ------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_something_else_at_the_ref(bare: Path, clones: Clones) -> None:
    blob = write_object(bare, HEADER)
    tree = write_tree(bare, {"ledger.yaml": HEADER})
    sound = write_commit(bare, tree)
    tag = write_object(
        bare,
        f"object {sound}\ntype commit\ntag t\ntagger Eve <e@x> 1700000000 +0000\n\nt\n".encode(),
        "tag",
    )
    nothing = write_commit(bare, write_tree(bare, {}))
    foreign = git(bare, "rev-parse", "refs/heads/main")
    symlink = write_commit(bare, write_tree(bare, {"ledger.yaml": Entry("120000", blob)}))
    gitlink = write_commit(bare, write_tree(bare, {"ledger.yaml": Entry("160000", "1" * 40)}))
    folder = write_commit(bare, write_tree(bare, {"ledger.yaml/x": HEADER}))
    leases = door(clones(1)[0])
    for oid in (blob, tree, tag, nothing, foreign, symlink, gitlink, folder):
        set_tip(bare, oid)
        for action in (lambda: leases.claim("F001"), leases.list):
            assert isinstance(refused(action), Invalid)
        assert tip(bare) == oid
    set_tip(bare, sound)
    assert leases.claim("F001").token == 1_001


def test_a_merge_at_the_tip(bare: Path, leases: Leases) -> None:
    leases.claim("F001")
    leases.renew("F001")
    ours, side = tip(bare), write_commit(bare, write_tree(bare, {"x": b"y"}))
    message = b"merge\n\nstep: renewal\n"
    merge = place(bare, {}, onto=True, parents=[ours, side, ours], message=message)
    assert leases.renew("F001").renewals == 2
    assert git(bare, "rev-parse", f"{tip(bare)}^") == merge  # a merge is not replaced
    assert leases.claim("F002").mine


@pytest.mark.default("empty and junk")
@pytest.mark.parametrize(
    ("message", "headers"),
    [
        pytest.param(b"x\n\nstep: renewal\n", [b"encoding bogus-8"], id="unknown encoding"),
        pytest.param(b"\xff\xfe\n\nstep: renewal\n", [b"encoding utf-8"], id="not in its encoding"),
        pytest.param(b"x" * 3_000_000 + b"\n\nstep: renewal\n", [], id="3 MB"),
        pytest.param(b"", [b"x-junk " + b"y" * 200_000, b"gpgsig nonsense"], id="empty and junk"),
    ],
)
def test_a_commit_with_an_odd_message(
    message: bytes,
    headers: list[bytes],
    bare: Path,
    leases: Leases,
    capsys: pytest.CaptureFixture[str],
) -> None:
    leases.claim("F001")
    leases.renew("F001")
    place(bare, {}, onto=True, message=message, headers=headers)
    assert leases.renew("F001").renewals == 2
    assert leases.renew("F001").renewals == 3
    assert leases.claim("F002").mine
    assert run(["log", "-C", folder_of(leases)]) == 0
    assert "F001" in capsys.readouterr().out


def folder_of(leases: Leases) -> str:
    """The work tree that a door belongs to."""
    root = leases._workspace.repository.toplevel
    assert root is not None
    return root


# --- notes, notices and the audit trail -----------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [merge_bomb(), b"x" * 600_000, b"resource: F002\nnotes: []\n"],
    ids=["bomb", "large", "of another"],
)
def test_damaged_notes_and_notices(text: bytes, bare: Path, leases: Leases) -> None:
    place(bare, {notes_file(NAME.resource): text, notices_file("w1@example.com"): text})
    for action in (
        lambda: leases.note("F001", "hello"),
        lambda: leases.show("F001"),
        lambda: leases.release("F001", note="bye"),
        lambda: leases.done("F001"),
    ):
        attempt(action)
    assert leases.claim("F002").mine
    assert listed(leases) >= {"F002"}


HOSTILE_LINES: list[bytes] = [
    b"{" + b'"a":{' * 100_000,
    b'{"kind": ' + b"[" * 100_000,
    b'{"kind":"claimed","operation":"x","at":' + b"9" * 50_000 + b',"by":"e"}',
    b'{"kind":"claimed","operation":"x","at":999999999999999999,"by":"eve"}',
    b'{"kind":"claimed","operation":"x","at":NaN,"by":"eve"}',
    b'{"kind":"claimed","operation":"x","at":true,"by":"eve"}',
    json.dumps({"kind": "claimed", "operation": "x", "at": 1, "by": ESCAPE}).encode(),
    b'{"kind":"claimed","operation":"x","at":1,"by":"\\ud800"}',
    json.dumps({"kind": "noted", "operation": "x", "at": 1, "by": BIDI}).encode(),
    json.dumps({f"k{i}": i for i in range(50_000)}).encode(),
    b'{"kind":["claimed"],"operation":"x","at":1,"by":"eve"}',
    b'{"kind":"claimed","operation":"x","at":1,"by":"e","token":' + b"9" * 30 + b"}",
    b'{"kind":"claimed","operation":"x","at":1,"by":"eve","_asdict":"x","index":"y"}',
    b"{",
    b'{"kind":"claimed","kind":"x","operation":"x","at":1,"by":"eve","by":"ann"}',
]


@pytest.mark.nightly
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_the_audit_trail_survives_hostile_lines(
    form: list[str], bare: Path, leases: Leases, capsys: pytest.CaptureFixture[str]
) -> None:
    leases.claim("F001")
    for line in HOSTILE_LINES:
        place(bare, {}, onto=True, message=b"by hand\n\n" + line + b"\n\nstep: decision\n")
    leases.claim("F002")
    for words in (["log"], ["log", "F001"], ["status"], ["list"]):
        assert run([*words, "-C", folder_of(leases), *form]) == 0
        said = capsys.readouterr()
        for text in (said.out, said.err):
            shown = text.replace("\n", "").replace("\t", "")
            assert "\x1b" not in shown
            assert BIDI not in shown
        if words == ["log"]:
            assert "F001" in said.out
            assert "F002" in said.out
