"""The check of `doctor` on coding agents: their hooks and their tool servers."""

from __future__ import annotations

from collections import Counter
from functools import partial
from importlib.util import find_spec
from itertools import product

from gitlease.agents.setup import distrust, set_up_agent, set_up_server
from gitlease.kernel.rules.errors import GitleaseError, Hint
from gitlease.kernel.settings.identity import AGENTS
from gitlease.wiring.examined import BAD, GOOD, UNKNOWN, WARNING, Examined, Row, Rows, row_of
from gitlease.wiring.words import to_add_extras


def agents(of: Examined) -> Rows:
    # Outside of one there are a person's own files.
    clone = of.clone if of.clone is not None and of.clone.toplevel else None
    times = Counter[tuple[str, Hint]]()
    for user, (name, host) in product((False, True) if clone else (True,), AGENTS.items()):
        act = partial(set_up_agent, of.directory, name, user=user, section=False)
        try:
            setup, personal = act("status", keep=False), {"user": True}
            state = setup.state
            if state.events:
                times[f"{host.title} has our hooks", Hint(f"agent {name} uninstall", personal)] += 1
            if state.problem:
                yield Row(WARNING, state.problem)
            elif state.events and state.missing:
                what = f"{state.file} lacks hooks: {', '.join(dict.fromkeys(state.missing))}"
                fix = Hint(f"agent {name} install", {"user": user, "keep": state.keep})
                yield Row(BAD, what, fix, partial(act, "install", keep=state.keep))
            elif state.events and setup.warnings:
                yield Row(BAD, "; ".join(setup.warnings))
            elif state.events:
                trust = distrust(host, clone, user=user, servers=False)
                yield trusted(f"{state.file} has all hooks", *trust)
            there = set_up_server(of.directory, name, "status", user=user)
            if there.server is None or not there.server.ours:
                continue
            times[f"{host.title} has our tools", Hint(f"mcp uninstall {name}", personal)] += 1
            what = f"{there.file} starts our tool server"
            if find_spec("mcp") is None:
                yield Row(BAD, f"{what}, which needs the Python package mcp", to_add_extras())
            else:
                yield trusted(what, *distrust(host, clone, user=user, servers=True))
        except GitleaseError as error:
            yield row_of(error, WARNING)
    for (what, fix), many in times.items():
        if many > 1:
            yield Row(WARNING, f"{what} twice: in this work tree, and in your own file", fix)
    if not times:
        yield Row(GOOD, "no coding agent has hooks or tools of gitlease here")


def trusted(what: str, known: bool, why: str) -> Row:
    """The row about sound entries, which an agent may pass over."""
    if not why:
        return Row(GOOD, what)
    return Row(WARNING if known else UNKNOWN, f"{what}; {why}")
