"""``serve``: the gateway to a ledger for whoever has no clone, and the tokens that let them in."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import Invalid, NotFound, UsageError, shown
from gitlease.faces.cli import output, types
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.verb import Verb, option

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call
    from gitlease.gateway.tokens import Token

ACTIONS = ("add", "list", "revoke")
HOST, PORT = "127.0.0.1", 8470
NEEDED = ("starlette", "uvicorn")
EXTRA = "pip install 'gitlease[server]'"

_NAME = r"[A-Za-z0-9_-]{1,64}"  # compiled where it is used


def read_port(text: str) -> int:
    """A TCP port. UsageError for what is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65_535):
        raise UsageError(f"{shown(text)} is no port: 1-65535")
    return int(text)


def read_host(text: str) -> str:
    """A name or an address to listen on. UsageError for what can be none."""
    if not re.fullmatch(r"[A-Za-z0-9.:_%-]{1,253}", text):
        raise UsageError(f"{shown(text)} is no host: a name or an address, such as {HOST}")
    return text


def read_scopes(text: str) -> frozenset[str]:
    """What a token is good for. UsageError for anything else."""
    from gitlease.gateway.tokens import SCOPES

    words = frozenset(word.strip() for word in text.split(","))
    if not words <= SCOPES:
        raise UsageError(f"scopes are read, write or both (read,write), not {shown(text)}")
    return words


@click.command(
    "serve",
    cls=Verb,
    help="""Serve this clone's ledger over HTTP, or say who may use it (token add, list, revoke).

Services, dashboards, agents without git and people who cannot push claim, renew and release through
it as everyone else does, on the same ledger: each answer is given only after the remote has it. It
runs until a signal ends it, and answers first what it was asked. --repo serves several clones, each
below /repos/NAME; without it the clone around this folder is served. This needs what
pip install 'gitlease[server]' brings.

A token says who asks: whatever comes with it is done in the name of EMAIL, which the request cannot
change. add prints the secret once, alone on standard output; what is kept of it, in the clone's git
directory, is a hash. A client sends it as Authorization: Bearer TOKEN, as the password of a login,
or in X-API-Key. --scopes read lets it look and change nothing. revoke ends it at once, in a gateway
that is running as well.

HTTP is not encrypted: the gateway listens on this machine alone unless --host says otherwise, and
then something that speaks TLS belongs in front of it. It answers to localhost, to --host and, where
others get there, to every address; --allow-host has the names by which they reach it.""",
    examples=(
        "gitlease serve token add ada@example.com --name dashboard --scopes read --expires 90d",
        "gitlease serve token list",
        "gitlease serve token revoke dashboard",
        "gitlease serve",
        "gitlease serve --port 9000 --repo web=/srv/web --repo api=/srv/api",
    ),
    exits=(2, 7, 128),
    session=False,
)
@click.argument("part", metavar="[token]", required=False, type=click.Choice(("token",)))
@click.argument(
    "action", metavar=f"[{'|'.join(ACTIONS)}]", required=False, type=click.Choice(ACTIONS)
)
@click.argument("who", metavar="[EMAIL|ID|NAME]", required=False)
@option("--name", metavar="N", help="What to call the token (default: its id).")
@option(
    "--scopes",
    metavar="S",
    type=read_scopes,
    help="What it is good for: read, write or read,write (default: both).",
)
@option(
    "--expires",
    metavar="D",
    type=types.duration("--expires"),
    help="How long it is good for (default: until it is revoked).",
)
@option("--host", metavar="H", type=read_host, help=f"Where to listen (default: {HOST}).")
@option("--port", metavar="P", type=read_port, help=f"On which port (default: {PORT}).")
@option(
    "--allow-host",
    "names",
    metavar="NAME",
    multiple=True,
    type=read_host,
    help="Answer requests to this name too, as from a proxy in front; may be repeated.",
)
@option(
    "--repo",
    metavar="NAME=DIR",
    multiple=True,
    help="Serve the clone in DIR as NAME; may be repeated.",
)
@click.pass_obj
def serve_verb(
    call: Call,
    *,
    part: str | None,
    action: str | None,
    who: str | None,
    name: str | None,
    scopes: frozenset[str] | None,
    expires: int | None,
    host: str | None,
    port: int | None,
    names: Sequence[str],
    repo: Sequence[str],
) -> int | None:
    made: dict[str, Any] = {"--name": name, "--scopes": scopes, "--expires": expires}
    served: dict[str, Any] = {"--host": host, "--port": port, "--repo": repo or None}
    served["--allow-host"] = names or None
    if part is not None and action is None:
        raise UsageError(f"token needs one of {', '.join(ACTIONS)}")
    wrong = (served if part else {}) | (made if action != "add" else {})
    if odd := [option for option, value in wrong.items() if value is not None]:
        raise UsageError(f"{odd[0]} does not go with {f'token {action}' if part else 'serve'}")
    if part is None or action is None:
        return _serve(call, host or HOST, port or PORT, names, repo)
    if (who is None) != (action == "list"):
        needs = {"add": "needs an EMAIL", "list": "takes no more words"}
        raise UsageError(f"token {action} {needs.get(action, 'needs an ID or a NAME')}")
    if action == "add":
        _add(call, who or "", name, scopes, expires)
    elif action == "revoke":
        _revoke(call, who or "")
    else:
        _list(call)
    return None


def _serve(call: Call, host: str, port: int, names: Sequence[str], repo: Sequence[str]) -> int:
    from importlib.util import find_spec

    elsewhere = {"--layer": call.layer, "--local": call.local, "--remote": call.remote}
    if odd := [word for word, given in elsewhere.items() if given]:
        raise UsageError(f"{odd[0]} does not go with serve: the clone's settings name the ledger")
    found = _repositories(call, repo)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise Invalid(f"serve needs {' and '.join(missing)}, not installed here", hints=(EXTRA,))
    from gitlease.faces.http.access import is_loopback

    if not is_loopback(host):
        output.warn(
            [
                f"HTTP is not encrypted: whoever is between {host} and a client can read its "
                "token; put a proxy that speaks TLS in front, and listen on this machine alone"
            ]
        )
    from gitlease.faces.http.serving import serve

    gc.enable()  # this may last for months
    return serve(found, host, port, call.prog, names=names)


def _repositories(call: Call, repo: Sequence[str]) -> dict[str, str]:
    """The clones to serve by their names; ``""`` is the one around this folder, alone."""
    from gitlease.wiring.gateway.tokens import open_tokens
    from gitlease.wiring.workspace import find_repository

    folders, seen = _folders(call, repo), dict[str, str]()
    for name, folder in folders.items():
        home = os.path.realpath(find_repository(folder).common_dir)
        if home in seen:
            raise UsageError(f"{seen[home]} and {name} are one clone: serve it once")
        seen[home] = name
        if not open_tokens(folder).listed():
            there = call.with_words(directory=folder) if name else call
            output.warn([f"nobody may use {name or 'this gateway'} yet: it has no token"])
            output.hint([there.typed("serve", "token", "add", "EMAIL")])
    return folders


def _folders(call: Call, repo: Sequence[str]) -> dict[str, str]:
    here = call.directory or "."
    if not repo:
        return {"": os.path.abspath(here)}
    folders: dict[str, str] = {}
    for word in repo:
        name, equals, folder = word.partition("=")
        if not re.fullmatch(_NAME, name) or not equals or not folder:
            raise UsageError(f"{shown(word)} is not NAME=DIR, with a NAME of A-Z a-z 0-9 _ -")
        if name in folders:
            raise UsageError(f"--repo has {name} twice")
        folders[name] = os.path.abspath(os.path.join(here, folder))
    return folders


def _add(
    call: Call, email: str, name: str | None, scopes: frozenset[str] | None, expires: int | None
) -> None:
    from gitlease.gateway.tokens import SCOPES
    from gitlease.wiring.gateway.tokens import open_tokens

    now, tokens = _now(), open_tokens(call.directory)
    made, secret = tokens.add(email, name=name, scopes=scopes or SCOPES, expires=expires, now=now)
    call.answer(
        {"action": "add", "secret": secret, "tokens": [_told(made, now)]},
        next_steps={call.typed("serve", "token", "revoke", made.name): "ends it"},
        hints=(
            f"this speaks for {made.email} and is not shown again: keep it as a secret",
            "a client sends it as Authorization: Bearer TOKEN",
        ),
        show=lambda: output.whole(secret),
    )


def _list(call: Call) -> None:
    from gitlease.core.instant import rfc3339
    from gitlease.faces.sentences import date_time
    from gitlease.wiring.gateway.tokens import open_tokens

    now, found = _now(), open_tokens(call.directory).listed()

    def show() -> None:
        rows, here = [], call.now()
        for x in found:
            ends = "" if x.expires_at is None else rfc3339(x.expires_at)
            shared = (x.id, x.name, x.email, ",".join(sorted(x.scopes)))
            over = "never" if x.expires_at is None else date_time(x.expires_at, here)
            over = "expired" if x.is_over(now) else over
            fields = (*shared, rfc3339(x.created_at), ends)
            cells = (*shared, date_time(x.created_at, here), over)
            rows.append(Row(cells, fields, "dim" if x.is_over(now) else ""))
        headings = ("ID", "NAME", "EMAIL", "SCOPES", "CREATED", "EXPIRES")
        output.table(headings, rows, otherwise="there are no tokens")

    steps = [] if found else [call.typed("serve", "token", "add", "EMAIL")]
    call.answer(
        {"action": "list", "tokens": [_told(x, now) for x in found]}, next_steps=steps, show=show
    )


def _revoke(call: Call, word: str) -> None:
    from gitlease.wiring.gateway.tokens import open_tokens

    try:
        token = open_tokens(call.directory).revoke(word)
    except NotFound as unknown:
        unknown.hints = (call.typed("serve", "token", "list"),)
        raise
    call.answer(
        {"action": "revoke", "tokens": [_told(token, _now())]},
        show=lambda: output.line(f"revoked {token.name}, which spoke for {token.email}"),
    )


def _told(token: Token, now: int) -> Mapping[str, Any]:
    from gitlease.core.instant import rfc3339

    return {
        "id": token.id,
        "name": token.name,
        "email": token.email,
        "scopes": sorted(token.scopes),
        "created_at": rfc3339(token.created_at),
        "expires_at": None if token.expires_at is None else rfc3339(token.expires_at),
        "expired": token.is_over(now),
    }


def _now() -> int:
    return time.time_ns() // 1_000_000
