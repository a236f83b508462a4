"""Runs a gateway: one process, one port, any number of repositories."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from types import FrameType

import uvicorn

from gitlease.faces.http.app import application, gateway_app
from gitlease.wiring.gateway.gateway import open_gateway
from gitlease.wiring.gateway.tokens import open_tokens

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
DRAIN = 30  # seconds in which what was asked is answered, once it is to stop


def serve(repositories: Mapping[str, str], host: str, port: int, prog: str) -> int:
    """Serve clones until a signal ends it: names with their folders, ``""`` is at the root.

    Raises what opening a clone may.
    """
    hosts = LOOPBACK if host in LOOPBACK else None
    apps = {
        name: gateway_app(open_gateway(folder), open_tokens(folder).holder_of, hosts=hosts)
        for name, folder in repositories.items()
    }
    config = uvicorn.Config(
        application(apps),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN,
        h11_max_incomplete_event_size=32 * 1024,
    )
    shown = f"[{host}]" if ":" in host else host
    for name in repositories:
        path = f"/repos/{name}" if name else ""
        print(f"{prog}: serving http://{shown}:{port}{path}/v1", file=sys.stderr, flush=True)
    server = uvicorn.Server(config)
    end = server.handle_exit

    def end_in_order(number: int, frame: FrameType | None) -> None:
        for app in apps.values():  # streams would keep it until its patience is over
            app.end_streams()
        end(number, frame)

    server.handle_exit = end_in_order  # type: ignore[method-assign,assignment]
    for number in (signal.SIGTERM, signal.SIGINT):  # which uvicorn raises anew once it has drained
        signal.signal(number, lambda *_: None)
    server.run()
    return 0 if server.started else 1
