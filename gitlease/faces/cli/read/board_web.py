"""``board --web``: open the board of the local gateway that serves this clone."""

from __future__ import annotations

import http.client
import time
import webbrowser
from typing import TYPE_CHECKING

from gitlease.core.errors import NotFound, Unavailable
from gitlease.faces.cli import output
from gitlease.faces.cli.setup.serve import HOST, PORT

if TYPE_CHECKING:
    from gitlease.faces.cli.call import Call

PATIENCE = 5.0  # seconds for the gateway to answer


def open_page(call: Call, host: str, port: int, repo: str | None) -> None:
    """Make a link, check that the gateway accepts it, and open it if there is a display.

    Raises Unavailable if no gateway answers, and NotFound if it serves other clones.
    """
    from gitlease.wiring.gateway import open_tokens

    path = f"/repos/{repo}/board" if repo else "/board"
    shown = f"[{host}]" if ":" in host else host
    holder, now = call.actor.holder, time.time_ns() // 1_000_000
    tokens = open_tokens(call.directory)
    secret = tokens.link(holder, now)
    link = f"{path}?link={secret}"
    try:
        _check(call, host, port, link, where=f"http://{shown}:{port}{path}")
    except BaseException:
        tokens.withdraw(secret)
        raise
    address = f"http://{shown}:{port}{link}"
    opened = output.has_display() and webbrowser.open(address)
    call.answer(
        {"url": address, "opened": opened},
        hints=() if opened else ("open it in a browser: it works once, within a minute",),
        show=lambda: output.whole(address),
    )


def _check(call: Call, host: str, port: int, link: str, *, where: str) -> None:
    chosen = ["--host", host] if host != HOST else []
    chosen += ["--port", str(port)] if port != PORT else []
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    try:
        connection.request("HEAD", link)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        raise Unavailable(
            f"no gateway answers at {where}",
            hints=(call.typed("serve", options=chosen), "for another gateway: --host H, --port P"),
        ) from None
    finally:
        connection.close()
    if status != 204:
        raise NotFound(
            f"the gateway at {where} does not serve this clone",
            hints=(
                "if it serves several clones: --repo NAME",
                "for another gateway: --host H, --port P",
            ),
        )
