"""``serve``: the gateway to a ledger over HTTP, and its tokens."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Sequence

import click

from gitlease.cli import output
from gitlease.cli.app import option, read_by, refuse_options, verb
from gitlease.cli.call import Call
from gitlease.gateway.opening import open_tokens
from gitlease.gateway.tokens import SCOPES, Token
from gitlease.kernel.rules.errors import Hint, Invalid, NotFound, UsageError, shown
from gitlease.verbs import wire
from gitlease.verbs.sentences import date_time
from gitlease.verbs.table import DURATION, Result, Table, Whole
from gitlease.wiring.words import to_add_extras
from gitlease.wiring.workspace import discover

ACTIONS = ("add", "list", "revoke")
HOST, PORT = "127.0.0.1", 8470
PORTS = click.IntRange(1, 65_535)
NEEDED = ("starlette", "uvicorn")
ADD = Hint("serve token add", {"resources": ["EMAIL"]})

_NAME = r"[A-Za-z0-9_-]{1,64}"  # compiled where it is used


def read_host(text: str) -> str:
    """Return a name or an address to listen on. UsageError if it cannot be one."""
    if not re.fullmatch(r"[A-Za-z0-9.:_%-]{1,253}", text):
        raise UsageError(f"invalid host {shown(text)}: expected a name or an address")
    return text


def read_scopes(text: str) -> frozenset[str]:
    """Return the scopes of a token. UsageError for unknown ones."""
    words = frozenset(word.strip() for word in text.split(","))
    if not words <= SCOPES:
        raise UsageError(f"invalid scopes {shown(text)}: expected read, write or read,write")
    return words


@verb(
    "serve",
    """Serve this clone's ledger over HTTP, or manage the tokens for it (token add, list, revoke).

Through this gateway, services, dashboards, agents without git and people who cannot push use the
same ledger as everyone else. Every answer is given only after the remote has stored the change. The
gateway runs until a signal stops it, and then completes pending requests. --repo serves several
clones, each under /repos/NAME; by default, the clone around this folder is served. This needs
the extra `server` of gitlease; without it, the command that adds it is printed.

A token identifies the caller: every request with it acts as EMAIL. add prints the secret once,
alone on standard output; only its hash is kept, in the clone's git directory. Clients send it as
Authorization: Bearer TOKEN, as the password of a login, or in X-API-Key. --scopes read makes a
token read-only. revoke takes effect at once, also in a running gateway.

HTTP is not encrypted: by default the gateway only listens on this machine. If you use --host, put a
TLS proxy in front. The gateway answers requests for localhost, for --host and, if others can reach
it, for any address; --allow-host adds the names they use.""",
    examples=(
        "gitlease serve token add ada@example.com --name dashboard --scopes read --expires 90d",
        "gitlease serve token list",
        "gitlease serve token revoke dashboard",
        "gitlease serve",
        "gitlease serve --port 9000 --repo web=/srv/web --repo api=/srv/api",
    ),
    exits=(2, 7, 128),
    session=False,
    refuses=("layer", "local", "remote"),
)
@click.argument("part", metavar="[token]", required=False, type=click.Choice(("token",)))
@click.argument(
    "action", metavar=f"[{'|'.join(ACTIONS)}]", required=False, type=click.Choice(ACTIONS)
)
@click.argument("who", metavar="[EMAIL|ID|NAME]", required=False)
@option("--name", metavar="N", help="The name of the token (default: its id).")
@option(
    "--scopes",
    metavar="S",
    type=read_scopes,
    help="The token's rights: read, write or read,write (default: both).",
)
@option(
    "--expires",
    metavar="D",
    type=read_by(DURATION, "--expires"),
    help="How long the token is valid (default: until it is revoked).",
)
@option("--host", metavar="H", type=read_host, help=f"The host to listen on (default: {HOST}).")
@option("--port", metavar="P", type=PORTS, help=f"The port to listen on (default: {PORT}).")
@option(
    "--allow-host",
    "names",
    metavar="NAME",
    multiple=True,
    type=read_host,
    help="Also answer requests for this name, for example from a proxy; repeatable.",
)
@option(
    "--rate",
    metavar="N",
    type=click.IntRange(1, 999_999),
    help="The requests a second that each token may send (default: 1000).",
)
@option(
    "--repo", metavar="NAME=DIR", multiple=True, help="Serve the clone in DIR as NAME; repeatable."
)
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
    rate: int | None,
    repo: Sequence[str],
) -> int:
    if part is not None and action is None:
        raise UsageError(f"token needs one of {', '.join(ACTIONS)}")
    of_add = {"--name": name, "--scopes": scopes, "--expires": expires}
    of_server = {"--host": host, "--port": port, "--repo": repo, "--allow-host": names}
    of_server |= {"--rate": rate}
    if part is not None:
        refuse_options(of_server, f"token {action}")
    if action != "add":
        refuse_options(of_add, f"token {action}" if part else "serve")
    if part is None or action is None:
        return _serve(call, host or HOST, port or PORT, names, rate, repo)
    if (who is None) != (action == "list"):
        needs = {"add": "needs an EMAIL", "list": "takes no more words"}
        raise UsageError(f"token {action} {needs.get(action, 'needs an ID or a NAME')}")
    if action == "add":
        return call.respond(_add(call, who or "", name, scopes, expires))
    if action == "list":
        return call.respond(_list(call))
    try:
        token = open_tokens(call.directory).revoke(who or "")
    except NotFound as unknown:
        raise unknown.with_(hints=(Hint("serve token list", {}),)) from None
    body = {"action": "revoke", "tokens": [wire.access(token, _now())]}
    revoked = f"revoked {token.name}, which acted as {token.email}"
    return call.respond(Result(body=body, lines=lambda: [revoked]))


def _serve(
    call: Call, host: str, port: int, names: Sequence[str], rate: int | None, repo: Sequence[str]
) -> int:
    from importlib.util import find_spec

    elsewhere = {"--layer": call.layer, "--local": call.local, "--remote": call.remote}
    refuse_options(elsewhere, "serve: the clone's settings name the ledger")
    folders = _repositories(call, repo)
    # Both are of an extra: whoever only uses git need not install them.
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        what = f"serve needs {' and '.join(missing)}, which is not installed"
        raise Invalid(what, hints=(to_add_extras(),))
    from gitlease.gateway.request_handler import is_loopback

    if not is_loopback(host):
        output.warn(
            [
                f"HTTP is not encrypted: anyone between {host} and a client can read its token; "
                "put a TLS proxy in front, and listen on this machine only"
            ]
        )
    # The program starts without the collector of garbage; this may last for months.
    gc.enable()
    from gitlease.gateway.app import serve
    from gitlease.gateway.request_handler import RATE

    return serve(folders, host, port, call.prog, names=names, rate=rate or RATE)


def _repositories(call: Call, repo: Sequence[str]) -> dict[str, str]:
    """Return the clones to serve by name, or the one around this folder as ``""``."""
    folders, seen = _folders(call, repo), dict[str, str]()
    for name, folder in folders.items():
        home = os.path.realpath(discover(folder).common_dir)
        if home in seen:
            raise UsageError(f"{seen[home]} and {name} are the same clone: serve it once")
        seen[home] = name
        if not open_tokens(folder).listed():
            there = call.with_words(directory=folder) if name else call
            output.warn([f"{name or 'this gateway'} has no token yet, so nobody may use it"])
            output.hint([there.command_of(ADD)])
    return folders


def _folders(call: Call, repo: Sequence[str]) -> dict[str, str]:
    here = call.directory or "."
    if not repo:
        return {"": os.path.abspath(here)}
    folders: dict[str, str] = {}
    for word in repo:
        name, equals, folder = word.partition("=")
        if not re.fullmatch(_NAME, name) or not equals or not folder:
            raise UsageError(
                f"invalid --repo {shown(word)}: expected NAME=DIR, with A-Z a-z 0-9 _ - in NAME"
            )
        if name in folders:
            raise UsageError(f"--repo has {name} twice")
        folders[name] = os.path.abspath(os.path.join(here, folder))
    return folders


def _add(
    call: Call, email: str, name: str | None, scopes: frozenset[str] | None, expires: int | None
) -> Result:
    now, tokens = _now(), open_tokens(call.directory)
    made, secret = tokens.add(email, name=name, scopes=scopes or SCOPES, expires=expires, now=now)
    return Result(
        body={"action": "add", "secret": secret, "tokens": [wire.access(made, now)]},
        lines=lambda: [Whole(secret)],
        then=[Hint("serve token revoke", {"resources": [made.name]}, "revoke it")],
        hints=(
            f"this token acts as {made.email}, and is not shown again: keep it secret",
            "clients send it as Authorization: Bearer TOKEN",
        ),
    )


def _list(call: Call) -> Result:
    now, here, tokens = _now(), call.now(), open_tokens(call.directory).listed()

    def row(x: Token) -> tuple[str, ...]:
        head = (x.id, x.name, x.email, ",".join(sorted(x.scopes)), date_time(x.created_at, here))
        ends = "never" if x.expires_at is None else date_time(x.expires_at, here)
        return (*head, "expired" if x.is_over(now) else ends)

    table = Table(
        headings=("ID", "NAME", "EMAIL", "SCOPES", "CREATED", "EXPIRES"),
        rows=[*map(row, tokens)],
        styles=["dim" if x.is_over(now) else "" for x in tokens],
        otherwise="there are no tokens",
    )
    return Result(
        body={"action": "list", "tokens": [wire.access(x, now) for x in tokens]},
        lines=lambda: [table],
        then=[] if tokens else [ADD],
    )


def _now() -> int:
    return time.time_ns() // 1_000_000
