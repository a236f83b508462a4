"""The leases of agents' tool servers, noted in the clone's private state for the host's hooks.

A lease that a tool server claimed stays its own for as long as its process lives, whichever
conversations its host begins and ends meanwhile:

- Told a session by its host, a server speaks in it. Told none, it joins the only live conversation
  of its host process, and stays in it while that lives; until there is exactly one it has a session
  of its own.
- When its conversation has ended, it follows the one that is live now. That is for what it claims
  next: what it has it renews, releases and finishes in the session in which it was claimed.
- A conversation that is alone in the host process may edit what the servers there hold.
- The end of a conversation leaves alone what a server claimed that may belong to another one: while
  another lives in the host process, and the server was told no session or the host went on. Such a
  lease ends with its server.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from gitlease.core.frozen import dataclass
from gitlease.git.files import load_json, make_folders, store_json
from gitlease.git.run import still_runs

FOLDER = os.path.join("gitlease", "servers")
LARGEST = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """A tool server of a host process. ``leases`` has the session of each lease that it claimed.

    ``told``: the host named its session. ``machine`` is where these numbers of processes count.
    """

    machine: str
    pid: int
    started: str
    host_pid: int
    host_started: str
    told: bool
    leases: Mapping[str, str]

    @property
    def host(self) -> tuple[int, str]:
        return self.host_pid, self.host_started


def note_server(common_dir: str, server: ToolServer) -> None:
    """Note what a server holds; nothing of one that holds nothing. Never fails."""
    from gitlease.core.as_json import to_json

    folder = os.path.join(common_dir, FOLDER)
    file = os.path.join(folder, f"{server.pid}.json")
    with contextlib.suppress(OSError, ValueError):
        if server.leases:
            make_folders(folder)
            store_json(file, to_json(server))
        else:
            os.unlink(file)
            os.rmdir(folder)


def live_servers(common_dir: str, machine: str) -> list[ToolServer]:
    """The servers of this machine that hold anything. Notes of dead ones are dropped."""
    from gitlease.core.as_json import DAMAGE, from_json

    folder, servers = os.path.join(common_dir, FOLDER), list[ToolServer]()
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [x for x in os.listdir(folder) if x.endswith(".json")]
    for name in names:
        file = os.path.join(folder, name)
        with contextlib.suppress(*DAMAGE):
            server = from_json(ToolServer, load_json(file, LARGEST))
            if server.machine != machine:
                continue
            if still_runs(server.pid, server.started):
                servers.append(server)
                continue
        with contextlib.suppress(OSError):
            os.unlink(file)
    return servers
