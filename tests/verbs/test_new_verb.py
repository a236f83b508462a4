"""A verb is added in three places, its operation, its rule and its function: each door has it.

One that only reads is a function alone, and is at the same doors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.fences import clean_env
from support.remotes import Remote
from support.running import ROOT

VERB = '''
"""A verb that gitlease lacks."""

from __future__ import annotations

from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.moves import holding
from gitlease.kernel.rules.moves.operations import AddNote, Operation
from gitlease.kernel.rules.moves.transitions import MOVES
from gitlease.kernel.rules.resources import Resource
from gitlease.kernel.ledger.stepping import change
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.verbs import wire
from gitlease.verbs.parameters import Named, NoteText, Reason
from gitlease.verbs.table import LEASE_EXITS, TABLE, Door, Result, verb


# 1. The operation.
@dataclass(frozen=True, kw_only=True)
class Shout(Operation):
    """Leaves a note in capitals."""

    resource: Resource
    text: str


# 2. The rule.
def shout(ledger, op, moment):
    note = AddNote(id=op.id, actor=op.actor, resource=op.resource, text=op.text.upper())
    return holding.add_note(ledger, note, moment)


MOVES[Shout] = shout


# 3. The verb.
@verb(
    "shout",
    """Leave a note in capitals.""",
    examples=("gitlease shout F001 'look at this'",),
    exits=LEASE_EXITS[1:],
    done="the note is left",
    tool="Leave a note in capitals.",
)
def shout_verb(door: Door, resource: Named, text: NoteText, *, reason: Reason = None) -> Result:
    def act(ledger, some):
        op = Shout(id=fresh_id(), actor=ledger.actor, resource=some[0], text=text)
        return change(ledger, "shout", [op], notes_of=some)

    answer = door.act("shout", [resource], act)
    notes = [wire.note(x) for x in answer.notes]
    return Result(body=wire.changed(answer) | {"notes": notes}, lines=lambda: ["shouted"])


TABLE["shout"] = "verbs.shouting"
'''
READING_VERB = '''
"""A verb that only reads, which gitlease lacks."""

from __future__ import annotations

from gitlease.verbs.parameters import Named
from gitlease.verbs.table import READING_EXITS, TABLE, Door, Result, verb


@verb(
    "ledger peek",
    """Say whether the ledger has a record of a resource.""",
    examples=("gitlease ledger peek F001",),
    exits=READING_EXITS,
    done="answered",
    reads=True,
)
def ledger_peek_verb(door: Door, resource: Named) -> Result:
    known = door.is_known(resource)
    return Result(body={"known": known}, lines=lambda: ["known" if known else "unknown"])


TABLE["ledger peek"] = "verbs.peeking"
'''
DOORS = """
import contextlib, io, json, os, sys

import gitlease.verbs

gitlease.verbs.__path__.append(sys.argv[1])
import gitlease.verbs.shouting
import gitlease.verbs.peeking
from gitlease.cli.app import run


def typed(*words):
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")) as out:
        status = run(words)
        out.flush()
    return status, out.buffer.getvalue().decode()


found = {"command": typed("shout", "F001", "hello", "--json"), "help": typed("shout", "--help")}
found |= {"peek": typed("ledger", "peek", "F001", "--json")}
found |= {"list": typed("help", "verbs")}
os.environ |= {"_GITLEASE_COMPLETE": "bash_complete"}
os.environ |= {"COMP_WORDS": "gitlease sho", "COMP_CWORD": "1"}
found["completion"] = typed()
os.environ |= {"COMP_WORDS": "gitlease shout --re", "COMP_CWORD": "2"}
found["options"] = typed()
del os.environ["_GITLEASE_COMPLETE"]

# 4. The library's methods, as `python tests/record.py library` would write them.
from types import ModuleType
from support.library_methods import texts

for name, text in texts().items():
    module = ModuleType("gitlease.library." + name.removesuffix(".py"))
    exec(text, vars(module))
    sys.modules[module.__name__] = module

import gitlease
from gitlease.gateway.routes import ROUTES, openapi_document
from gitlease.mcp.server import TOOLS

with gitlease.open(".") as leases:
    found["method"] = [str(x) for x in leases.shout("F001", "again")]
    found["log"] = [x.detail for x in leases.log()]
found["awaited"] = hasattr(gitlease.AsyncLeases, "shout")
found["connection"] = hasattr(gitlease.Connection, "shout")
found["fields"] = [[*x.fields] for x in ROUTES if x.name == "shout"]
found["openapi"] = openapi_document([""])["paths"]["/v1/leases:shout"]["post"]["summary"]
from support.manpage import page

found["man"] = page()
from verbs.test_documents import DOCS, commands

found["page"] = commands((DOCS / "commands.md").read_text(encoding="utf-8"))
found["tool"] = TOOLS["shout"].schema()["properties"]
with gitlease.open(".") as leases:
    leases.claim("F001")
    found["peeked"] = [leases.ledger_peek("F001"), leases.ledger_peek("F002")]
found["peek awaited"] = hasattr(gitlease.AsyncLeases, "ledger_peek")
found["peek on a connection"] = hasattr(gitlease.Connection, "ledger_peek")
print(json.dumps(found))
"""


def test_a_verb_in_three_places_is_at_every_door(
    path_remote: Remote, clones: Callable[..., list[Path]], tmp_path: Path
) -> None:
    (clone,) = clones(1)
    (tmp_path / "shouting.py").write_text(VERB, encoding="utf-8")
    (tmp_path / "peeking.py").write_text(READING_VERB, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "-c", DOORS, str(tmp_path)],
        cwd=clone,
        env=clean_env({**path_remote.env, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    status, answer = found["command"]
    assert (status, json.loads(answer)["notes"][0]["text"]) == (0, "HELLO")
    assert "Leave a note in capitals." in found["help"][1]
    assert "--reason TEXT" in found["help"][1]
    assert "shout" in found["list"][1].split("More:")[1]
    row = "| `shout R TEXT [--reason TEXT]` | Leave a note in capitals. |"
    assert row in found["page"].splitlines(), "which is what `gitlease help commands` prints"
    assert "shout" in found["completion"][1]
    assert "--reason" in found["options"][1]
    assert (found["method"], found["log"]) == ([], ["AGAIN", "HELLO"])
    assert (found["awaited"], found["connection"]) == (True, True)
    assert found["peeked"] == [{"known": True}, {"known": False}]
    assert all(f'.SS "git lease {x} [' in found["man"] for x in ("shout", "ledger"))
    assert json.loads(found["peek"][1])["known"] is False
    assert any(row.startswith("| `ledger peek R` |") for row in found["page"].splitlines())
    assert "ledger" in found["list"][1].split("More:")[1]
    assert (found["peek awaited"], found["peek on a connection"]) == (True, True)
    assert found["fields"] == [["resource", "text", "reason", "session", "layer"]]
    assert found["openapi"] == "Leave a note in capitals."
    assert list(found["tool"]) == ["resources", "text", "reason"]
