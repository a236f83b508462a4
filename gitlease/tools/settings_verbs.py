"""The verbs ``config`` and ``init``: the settings of a clone, and the policy of its ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import Reading
from gitlease.kernel.ledger.ports import TaskList
from gitlease.kernel.ledger.stepping import read_leases
from gitlease.kernel.rules.errors import GitleaseError, Hint, Unavailable, UsageError
from gitlease.kernel.rules.instant import parse_duration
from gitlease.kernel.rules.policy import KEYS, check_change, policy_words
from gitlease.kernel.rules.resources import Issues
from gitlease.kernel.settings.text import SuggestedSettings
from gitlease.tasks.queue import problem_messages, unknown_statuses
from gitlease.verbs import parameters as takes
from gitlease.verbs import wire
from gitlease.verbs.table import AT_A_CLONE, DoorOfClone, Result, Table, verb
from gitlease.wiring.words import host_of_work
from gitlease.wiring.workspace import (
    Setting,
    proposed_settings,
    record_ledger,
    set_config,
    tasks_seen,
    write_default_settings,
)

TTL = "lease.ttl"
FILE = ".gitlease.yaml"
NAMED = 3  # files
OFF = frozenset({"false", "no", "off", "0", ""})


@verb(
    "config",
    """Show the effective settings with their sources, show one (KEY), or set one (KEY VALUE).

Values are set in this clone's git config (lease.*); an empty value unsets. Shared settings belong
in .gitlease.yaml. --ledger shows or sets the ledger's policy instead, which all clients must agree
on: limits of the TTL, margins for clocks, admins, and when an assignment counts as abandoned.
Anyone may set it until there are admins. To remove all admins, an admin sets admins to 'none ME',
where ME is their own email address.""",
    examples=(
        "gitlease config",
        "gitlease config lease.ttl 30m",
        "gitlease config --schema > .gitlease.schema.json    # for an editor",
        "gitlease config --ledger",
        "gitlease config --ledger ttl_max 4h",
        "gitlease config --ledger edges.abandoned_after 14d",
        "gitlease config --ledger admins 'ada@example.com jo@example.com'",
    ),
    exits=(2, 4, 5, 6, 7, 128),
    done="shown, or set",
    session=False,
    reads=True,
    doors=AT_A_CLONE,
)
def config_verb(
    door: DoorOfClone,
    key: takes.SettingKey = None,
    value: takes.SettingValue = None,
    *,
    ledger: takes.OfLedger = False,
    cached: takes.Cached = False,
) -> Result:
    if value is not None and key is None:
        raise UsageError("a value needs a key")
    # Settings of the clone are read without the remote anyway, and setting a policy needs it.
    if cached and (not ledger or value is not None):
        needs = f"{door.option('cached')} needs {door.option('ledger')}"
        raise UsageError(f"{needs}, without a value to set")
    if ledger:
        return _policy(door, key and key.lower(), value, cached=cached)
    if key is not None and value is not None:
        name = set_config(door.workspace.repository, key, value)
        shown = Setting(name, value or None, f"git config (local) {name}")
        done = f"set {name} to {value}" if value else f"unset {name}"
        return _result([shown], [done], *_beyond_limits(door, value if name == TTL else ""))
    table, remote = door.workspace.settings.table(), door.workspace.location.name
    if remote is not None:  # the default remote, if none is configured
        unset = ("lease.remote", None)
        table = tuple(
            Setting(x.key, remote, x.source) if (x.key, x.value) == unset else x for x in table
        )
    return _chosen(table, key, ())


def _beyond_limits(door: DoorOfClone, ttl: str) -> tuple[list[str], list[Hint]]:
    """Warn of a TTL that the ledger, as known here, will refuse, and how to allow it."""
    try:
        # From this clone's copy: setting a value asks no remote.
        policy = door.ledger.known_policy() if ttl else None
    except GitleaseError:  # the next command reports it
        return [], []
    if policy is None or policy.ttl_min <= (seconds := parse_duration(ttl)) <= policy.ttl_max:
        return [], []
    key, kind = ("ttl_max", "more") if seconds > policy.ttl_max else ("ttl_min", "less")
    who = f"its admins, {', '.join(policy.admins)}" if policy.admins else "anyone"
    text = f"{ttl} is {kind} than the ledger allows, {policy_words(policy)[key]}"
    allow = Hint("config", {"ledger": True, "key": key, "value": ttl}, "to change that")
    return [f"{text}, so claims will be refused; {who} may change that"], [allow]


def _policy(door: DoorOfClone, key: str | None, value: str | None, *, cached: bool) -> Result:
    if key is not None and (value is not None or key not in KEYS):
        check_change(key, value or "")  # before any network call; the ledger checks the limits
    if key is not None and value is not None:
        warnings = acts.set_policy(door.ledger, {key: value}).warnings
        reading = read_leases(door.ledger, cached=True)  # what was written just now
    else:
        reading = read_leases(door.ledger, cached=cached)
        warnings = reading.warnings
    source = "ledger" if reading.ledger_id else "built-in"
    table = [Setting(name, x, source) for name, x in policy_words(reading.policy).items()]
    return _chosen(table, key, warnings, changed=value is not None)


def _chosen(
    table: Sequence[Setting],
    key: str | None,
    warnings: Sequence[str],
    *,
    changed: bool = False,
) -> Result:
    """Return the setting of a key, or without one all of them. UsageError for an unknown key."""
    if key is None:
        rows = [(one.key, _text(one), one.source) for one in table]
        return _result(table, [Table(headings=("KEY", "VALUE", "SOURCE"), rows=rows)], warnings)
    shown = [one for one in table if one.key.lower() == key.lower()]
    if not shown:
        known = ", ".join(one.key for one in table)
        raise UsageError(f"unknown setting {key[:60]!r}", hints=(f"known settings: {known}",))
    text = _text(shown[0])
    return _result(shown, [f"set {shown[0].key} to {text}" if changed else text], warnings)


def _result(
    shown: Sequence[Setting],
    lines: Sequence[str | Table],
    warnings: Sequence[str],
    hints: Sequence[Hint] = (),
) -> Result:
    return Result(
        body={"settings": [wire.setting(x) for x in shown]},
        lines=lambda: lines,
        value=tuple(shown),
        warnings=warnings,
        hints=hints,
    )


def _text(one: Setting) -> str:
    """Return a value as typed on the command line."""
    if isinstance(one.value, str):
        return one.value
    return "" if one.value is None else json.dumps(one.value, ensure_ascii=False)


# --- setting up -----------------------------------------------------------------------------------


@verb(
    "init",
    """Set up this repository: create the ledger on the remote, and write .gitlease.yaml if missing.

The file is adapted to the task files that are there, Backlog.md's or any others with front matter:
their folders, the names of their fields and their status words. On a terminal init shows these
settings and asks; otherwise it writes them. It says how many tasks it sees and what it cannot read.
init can be repeated, and accepts the remote's current ledger, even if it was replaced, unless
another remote here has one. It is optional: the first claim also creates the ledger.

It records the ledger's id in the file. Once that is committed, no clone grants a lease on another
ledger, such as that of a fork or a copy. To give a fork or a copy a ledger of its own, use
--new-ledger there, and commit the file.

To move the ledger to another remote, prefix or layer, first change lease.remote, lease.ref_prefix
or lease.layer on the default branch. Everybody stays at the former place until one of the ledger's
admins, or anyone if there are none, uses --move in a clone that has fetched the change. All leases
go along.

A ledger that was rolled back has lost leases, which could now be granted twice. Agree with the
others on the remote which history counts. To restore the lost one, use --undo-rollback in a clone
that reports the rollback. To accept the current one, use --accept-rollback in every clone that
reports it. With both, new fencing tokens continue above those of either history. If a server's hook
refuses --undo-rollback, let an admin of the server reset the ref with git update-ref, and try
again. Where the ledger has admins, one of them has to be the first to do either.

A ledger whose ref was deleted is brought back by --restore, by an admin if there are any. Do it in
the clone that used it last: it puts back what that clone has seen. Leases that it had not seen may
still be held, so nothing new is granted for a day and a little more. Meanwhile holders go on, and
the next command in each clone puts its own leases back. --restore --now, once everybody has been
asked, ends that wait. A new ledger in the place of a deleted one waits in the same way, and so does
that of a fork, unless another remote of the clone shows the recorded ledger.""",
    examples=("gitlease init", "gitlease init --remote upstream"),
    exits=(2, 4, 7, 128),
    done="set up; with a warning if the remote is unreachable",
    session=False,
    doors=AT_A_CLONE,
)
def init_verb(
    door: DoorOfClone,
    *,
    undo_rollback: takes.UndoRollback = False,
    accept_rollback: takes.AcceptRollback = False,
    restore: takes.RestoreLedger = False,
    now: takes.Now = False,
    new_ledger: takes.NewLedger = False,
    move: takes.MoveLedger = False,
) -> Result:
    choices = {
        "undo_rollback": undo_rollback,
        "accept_rollback": accept_rollback,
        "restore": restore,
        "new_ledger": new_ledger,
        "move": move,
    }
    _check_choice(door, choices)
    if now and not restore:
        raise UsageError(f"{door.option('now')} goes with {door.option('restore')} alone")
    workspace = door.workspace
    door.ledger.check_holder()
    try:
        if move:
            from gitlease.wiring.moving import move_ledger

            reading: Reading | None = move_ledger(workspace)
        elif restore:
            from gitlease.kernel.ledger.deleted import restore as restore_ledger

            reading = restore_ledger(door.ledger, at_once=now)
        elif undo_rollback:
            reading = acts.undo_rollback(door.ledger)
        else:
            reading = acts.confirm(door.ledger, rolled_back=accept_rollback, another=new_ledger)
        unreached: tuple[str, ...] = ()
    # A clone that is offline can be set up all the same.
    except Unavailable as error:
        if any(choices.values()):
            raise  # no later claim does that
        later = "the first claim that reaches it will create the ledger"
        reading, unreached = None, (f"{error.message}; {later}",)
    return _set_up(door, reading, unreached)


def _set_up(door: DoorOfClone, reading: Reading | None, unreached: Sequence[str]) -> Result:
    """Write the settings that are missing, and say what there is; no ``reading``: no ledger yet."""
    workspace = door.workspace

    def accepts(suggested: SuggestedSettings) -> bool:
        facts = _proposal("these settings fit the task files here:", suggested)
        return door.agrees(facts, f"write them to {FILE}?", usually=True)

    written = write_default_settings(workspace.repository, accepts)
    path, suggested = written if written else (None, None)
    # Read after the file was written: its settings say which files are tasks.
    seen = tasks_seen(workspace)
    # The file that was just written has them already.
    proposed = None if written else proposed_settings(workspace, seen.tasks)
    found = suggested if suggested and suggested.folder else None
    recognised = None if found is None else _recognised(found)
    tasks, fit, repository = seen.has_tasks, suggested or proposed, workspace.repository
    # A bare repository gets no commits, and the ledger of tests has no repository.
    may_have_hooks = not door.in_memory and repository.toplevel is not None
    from gitlease.guard.opening import has_hooks

    lacks_hooks = may_have_hooks and not has_hooks(repository)
    recorded, unrecorded = record_ledger(workspace, reading.ledger_id if reading else None)
    body: wire.Document = {
        "settings_file": path,
        "recognised": {"kind": "backlog.md", "files": found.files} if found else None,
        "task_files": {
            "tasks": len(seen.tasks),
            "unreadable": [problem.message for problem in seen.problems],
            "others": len(seen.others),
        },
        "ledger": {
            "place": workspace.ledger.store.place,
            "layer": workspace.ledger.layer,
            "id": reading.ledger_id if reading else None,
            "revision": reading.revision if reading else None,
            "recorded": recorded,
        },
    }
    return Result(
        body=body,
        lines=lambda: _init_lines(door, path, recognised, reading, seen, proposed, recorded),
        warnings=(
            *(fit.warnings if fit else ()),
            *(*problem_messages(seen), *unknown_statuses(seen.tasks)),
            *(headed(fit.headed) if fit and not tasks else ()),
            *(reading.warnings if reading else unreached),
            *unrecorded,
        ),
        then=[
            Hint("queue" if tasks else "list", {}),
            *([Hint("hooks install", {})] if lacks_hooks else []),
            *([] if tasks or door.in_memory else _offer_issues(door)),
        ],
        hints=_offer_commits(door) if tasks and not workspace.settings.edges_commit else (),
    )


def _recognised(found: SuggestedSettings) -> str:
    many = {0: "no task files yet", 1: "1 task file"}.get(found.files, f"{found.files} task files")
    return f"recognised Backlog.md: {many} in {found.folder}"


# Which choices of ``init`` are refused beside another, in the order in which that is said: the
# option that is refused, those that exclude it, and how these are called (None: by their names).
_EXCLUDED: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    ("undo_rollback", ("accept_rollback",), None),
    ("new_ledger", ("undo_rollback", "accept_rollback"), "the choice of a history"),
    ("restore", ("undo_rollback", "accept_rollback", "new_ledger", "move"), None),
    ("move", ("undo_rollback", "accept_rollback", "new_ledger"), "another choice"),
)


def _check_choice(door: DoorOfClone, given: Mapping[str, bool]) -> None:
    """Raise UsageError if two choices of ``init`` exclude each other."""
    for option, excluding, called in _EXCLUDED:
        others = [door.option(x) for x in excluding if given[x]]
        if given[option] and others:
            names = " or ".join(others) if called is None else called
            raise UsageError(f"{door.option(option)} cannot be combined with {names}")


def headed(files: Sequence[str]) -> list[str]:
    """Return a warning about files that have a heading alone, if there are any."""
    if not files:
        return []
    named = ", ".join(files[:NAMED]) + (", …" if len(files) > NAMED else "")
    return [
        f"a heading makes no task: {_files(len(files))} without front matter: {named}; a task "
        "begins with the lines ---, id: ABC-1, status: todo and ---"
    ]


def _proposal(about: str, suggested: SuggestedSettings) -> list[str]:
    lines = suggested.text.splitlines()
    shown = (x for x in lines if x and not x.startswith(("#", "schema:")))
    return [about, *(f"  {line}" for line in shown)]


def _offer_commits(door: DoorOfClone) -> list[str]:
    """Offer edges as commits to those whose pulls an edited task file would stop."""
    repository = door.workspace.repository
    config, branch = repository.config, repository.branch()
    own, every = f"branch.{branch}.rebase", "pull.rebase"
    key = own if branch and config.entry(own) else every  # git's order
    rebases = (config.entry(key), config.entry("rebase.autostash"))
    # Whatever is not off is on: pull.rebase may also be `merges` or `interactive`.
    pulls, stashes = (entry is not None and entry.value.lower() not in OFF for entry in rebases)
    if not pulls or stashes:
        return []
    return [
        f"{key} is set, and an edited task file stops such a pull: set edges: "
        f"{{commit: true}} in {FILE}, and claims commit their edit"
    ]


def _offer_issues(door: DoorOfClone) -> list[Hint]:
    policy, host = door.ledger.known_policy(), host_of_work(door.workspace)
    if policy is None or policy.issues is not Issues.NONE or host is Issues.NONE:
        return []
    return [Hint("config", {"key": "issues", "value": host.value, "ledger": True})]


def _init_lines(
    door: DoorOfClone,
    written: str | None,
    recognised: str | None,
    reading: Reading | None,
    seen: TaskList,
    proposed: SuggestedSettings | None,
    recorded: bool,
) -> Iterable[str]:
    in_tree = door.workspace.repository.toplevel is not None
    if written:
        yield f"wrote {written}: commit it"
        yield from [recognised] if recognised else []
    elif not in_tree:
        yield f"no work tree here, so no {FILE}"
    else:
        wrote = "now records the ledger's id: commit it" if recorded else "was not changed"
        yield f"{FILE} exists and {wrote}"
    if in_tree:
        yield _counted(seen)
    if proposed is not None and proposed.fits:
        yield from _proposal(f"for the task files here, set in {FILE}:", proposed)
    if reading is not None:
        ledger = door.ledger
        yield from reading.told
        yield (
            f"the {ledger.layer} ledger is ready on {ledger.store.place}: "
            f"id {reading.ledger_id}, revision {reading.revision}"
        )
    first, what = Hint("claim", {"resources": "F001"}), "a task"
    if seen.has_tasks:
        first, what = Hint("next", {"claim": True}), "the next task"
    task, folder = map(door.command_of, (first, Hint("claim", {"resources": "src/"})))
    yield f"take a lease with `{task}` ({what}) or `{folder}` (a folder)"


def _counted(seen: TaskList) -> str:
    """Say how many tasks there are, and how many files are none."""
    count = len(seen.tasks)
    parts = [f"sees {count} {'task' if count == 1 else 'tasks'}"]
    if seen.problems:
        parts.append(f"cannot use {_files(len(seen.problems))} (see the warnings)")
    if seen.tasks and seen.others:
        named = ", ".join(seen.others[:NAMED]) + (", …" if len(seen.others) > NAMED else "")
        parts.append(f"{_files(len(seen.others))} without an id: {named}")
    elif seen.nothing and not seen.problems:
        parts = [seen.nothing]
    return "; ".join(parts)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
