"""``mcp``: the tools for agents that speak the Model Context Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gitlease.core.errors import Invalid, UsageError
from gitlease.faces.cli.verb import Verb

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call

EXTRA = "pip install 'gitlease[mcp]'"


@click.command(
    "mcp",
    cls=Verb,
    help="""Serve the Model Context Protocol on standard input and output, for an agent that starts
this.

The tools are claim, renew, extend, release, next, status, wait and note, and mean what the verbs
mean. A refusal says who holds it, until when, and what to do. This needs what
pip install 'gitlease[mcp]' brings.""",
    examples=("gitlease mcp",),
    exits=(2, 7, 128),
    session=False,
)
@click.pass_obj
def mcp_verb(call: Call) -> int:
    from importlib.util import find_spec

    elsewhere = {"--layer": call.layer, "--local": call.local, "--remote": call.remote}
    if odd := [word for word, given in elsewhere.items() if given]:
        raise UsageError(f"{odd[0]} does not go with mcp: the clone's settings name the ledger")
    if find_spec("mcp") is None:
        raise Invalid("mcp needs mcp, which is not installed here", hints=(EXTRA,))
    from gitlease.faces.mcp.stdio import serve

    return serve(call.directory)
