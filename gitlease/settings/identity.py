"""Who speaks: the holder that git knows, and which of its runs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gitlease.core.errors import MAX_WORD, Invalid, UsageError, shown
from gitlease.core.frozen import dataclass
from gitlease.core.lease import Actor
from gitlease.core.policy import is_holder
from gitlease.git.files import load_json, notes_of
from gitlease.git.repository import Repository, short_host
from gitlease.settings.schema import SESSION_KEY, read_session
from gitlease.settings.sources import checked, git_source

VARIABLE = "GITLEASE_SESSION"
TOKENS = "GITLEASE_TOKEN"  # of a run, for what it starts
MAX_TOKENS = 65_536

# Variables in which a coding agent names its session; mere signs that one is running are of no
# use here. An agent started by another one inherits its variables, so that order matters: Codex
# is run from within Claude Code more often than the reverse, and any of them in Cursor's terminal.
AGENTS = (
    ("codex", "CODEX_THREAD_ID"),
    ("claude", "CLAUDE_CODE_SESSION_ID"),
    ("cursor", "CURSOR_TRACE_ID"),
)
AGENT_DIGITS = 8
CONTINUED = "continued"  # a kind of notes: by conversation the session that it continues


@dataclass(frozen=True, slots=True)
class Identity:
    """The resolved actor, and in words where holder and session came from.

    ``below_agent``: a coding agent started this process, by its variables.
    ``run_tokens`` are those of the run that this process works below, in the same session.
    ``no_holder`` is the refusal of whatever needs a holder, where git names none.
    """

    actor: Actor
    holder_source: str
    session_source: str
    below_agent: bool = False
    run_tokens: frozenset[int] = frozenset()
    no_holder: Invalid | None = None

    @property
    def is_agent(self) -> bool:
        """Whether a coding agent, or the command of a run, speaks and reads the answer."""
        session = self.actor.session or ""
        below = self.below_agent or bool(self.run_tokens)
        return below or session.startswith(tuple(f"{name}:" for name, _ in AGENTS))


def resolve_identity(
    repository: Repository,
    *,
    environ: Mapping[str, str],
    session_flag: str | None,
    no_session: bool,
    anonymous: bool = False,
) -> Identity:
    """The holder is git's ``user.email``; the session comes from the first source that has one.

    Raises Invalid without a usable email, unless ``anonymous``, and UsageError for a bad
    ``--session``.
    """
    no_holder = None
    try:
        holder, holder_source = _holder(repository)
    except Invalid as error:
        if not anonymous:
            raise
        holder, holder_source, no_holder = "", "none", error
    session, session_source = _session(repository, environ, session_flag or None, no_session)
    branch, leader = repository.branch(), os.getsid(0)  # 0: outside of this container
    words = environ.get(TOKENS, "")[:MAX_TOKENS].split()
    tokens = (int(x) for x in words if x.isdecimal() and x.isascii() and len(x) < 20)
    return Identity(
        actor=Actor(
            holder=holder,
            session=session,
            session_explicit=session_source in (_FLAG, _ENVIRONMENT),
            host=here(leader, repository.worktree),
            branch=branch if branch and branch.isprintable() and len(branch) <= MAX_WORD else None,
        ),
        holder_source=holder_source,
        session_source=session_source,
        below_agent=any(environ.get(variable) for _, variable in AGENTS),
        run_tokens=frozenset(tokens if session == environ.get(VARIABLE) else ()),
        no_holder=no_holder,
    )


def here(pid: int, worktree: str | None = None) -> str | None:
    """A process of this machine, as ``Actor.host`` has it; 0: only the machine.

    A linked work tree is named if its name can be recorded.
    """
    name = short_host()
    if name and worktree and worktree.isprintable() and len(worktree) <= MAX_TREE:
        name = f"{name}/{worktree}"
    return f"{name}:{pid}" if name and pid else name


MAX_TREE = 64  # characters of a work tree's name beside that of its machine
_FLAG = "flag --session"
_ENVIRONMENT = f"environment {VARIABLE}"
_HINT = "git config user.email you@example.com"


def _holder(repository: Repository) -> tuple[str, str]:
    entry = repository.config.entry("user.email")
    email = entry.value.strip() if entry else ""
    if entry is None or not email:
        raise Invalid("git has no user.email, which names the holder of a lease", hints=(_HINT,))
    source = git_source(entry)
    if not is_holder(email):
        raise Invalid(
            f"{source} {shown(email)} is not 1-{MAX_WORD} printable characters without spaces",
            hints=(_HINT,),
        )
    return email, source


def _session(
    repository: Repository, environ: Mapping[str, str], flag: str | None, no_session: bool
) -> tuple[str | None, str]:
    if no_session:
        if flag:
            raise UsageError("a session and no session exclude each other")
        return None, "flag --no-session"
    if flag:
        return read_session(flag, "--session"), _FLAG
    if named := environ.get(VARIABLE):
        return checked(read_session, named, _ENVIRONMENT), _ENVIRONMENT
    entry = repository.config.entry(SESSION_KEY)
    if entry and entry.value:
        source = git_source(entry)
        return checked(read_session, entry.value, source), source
    for agent, variable in AGENTS:
        if number := environ.get(variable):
            source = f"environment {variable}"
            session = checked(read_session, agent_session(agent, number), source)
            return continued(repository.common_dir, session), source
    if repository.worktree:
        name = "".join(c if c.isprintable() else "_" for c in repository.worktree)[:100]
        return f"worktree:{name}-{repository.clone_id}", f"linked worktree {shown(name)}"
    return None, "none"


def continued(common_dir: str, session: str) -> str:
    """The session that an agent's conversation continues, else its own.

    What an older gitlease noted of it is in a file of its own.
    """
    if found := notes_of(common_dir).get(CONTINUED, session):
        return str(found)
    match load_json(os.path.join(common_dir, "gitlease", "conversations.json"), MAX_TOKENS):
        case {"names": {**names}} if isinstance(name := names.get(session), str):
            return name
    return session


def agent_session(agent: str, number: str) -> str:
    """The session of an agent's conversation that continues no other."""
    return f"{agent}:{short_number(agent, number)}"


def short_number(agent: str, number: str) -> str:
    """The first eight characters; of a number of Codex that begins with the time, the last eight.

    Codex numbers its threads so (UUIDv7): two of them started in the same minute begin alike.
    """
    timed = agent == "codex" and len(number) == 36 and number[14] == "7" and number.count("-") == 4
    return number[-AGENT_DIGITS:] if timed else number[:AGENT_DIGITS]
