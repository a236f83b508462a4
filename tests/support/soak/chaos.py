"""The world around the clients of a soak goes wrong: servers, networks, disks, locks and upkeep."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from support.commands import run_program
from support.faults import cut_after, duplicate, lose_answer, replay, stall, swallow_down
from support.fences import clean_env
from support.served import own_program
from support.soak.client import Journal
from support.soak.disk import Disk
from support.soak.gateway import IDENTITY, Gateway
from support.soak.places import USERS, Place

_SERVICES = ("receive-pack", "upload-pack", "index-pack", "unpack-objects", "http-backend")
_UPKEEP = (
    ("gc", "-q"),
    ("gc", "-q", "--auto"),
    ("repack", "-adq"),
    ("repack", "-dq"),
    ("pack-refs", "--all"),
    ("prune-packed", "-q"),
)
_STORE_LOCKS = ("packed-refs.lock", "HEAD.lock", "config.lock", "refs/known/default/global.lock")
_STALE_SECONDS = 3.0  # how long the lock of a killed server stands before somebody removes it


class Chaos:
    """Brings one fault after the other about, chosen from the seed, until all is done."""

    def __init__(
        self,
        seed: int,
        gateway: Gateway,
        places: Sequence[Place],
        disks: tuple[Disk, Disk],
        journal: Journal,
    ) -> None:
        self._random = random.Random(f"{seed}/chaos")
        self._gateway, self._places, self._journal = gateway, places, journal
        self._small, self._servers_disk = disks
        self._faults: list[Callable[[], None]] = [
            self._upkeep_of_server,
            self._upkeep_of_store,
            self._upkeep_of_clone,
            self._lock_ref,
            self._lock_store,
            self._lock_clone,
            self._fill_small,
            self._fill_server,
            self._kill_service,
            self._kill_service,
            self._stop_service,
        ]
        if gateway.proxy is not None:
            self._faults += [self._cut, self._cut, self._swallow, self._delay, self._restart]
        if gateway.repo is not None:
            self._faults += [self._repeat] * 3

    def rage(self, done: Callable[[], bool], *, hook_after: Callable[[], bool]) -> None:
        """Until it is done; from ``hook_after`` on the server's hook is in place."""
        hooked = False
        while not done():
            time.sleep(self._random.uniform(0.2, 1.5))
            if not hooked and hook_after():
                self.install_hook()
                hooked = True
            try:
                self._random.choice(self._faults)()
            except Exception as error:
                self._journal.violation(f"the soak itself failed: {error!r}")
                raise
            self._remove_stale_locks()

    def calm(self) -> None:
        """Take every fault away, and wait until no server's process is left."""
        if self._gateway.proxy is not None:
            self._gateway.proxy.release()
        if self._gateway.repo is not None:
            self._gateway.repo.disarm()
        self._small.free()
        self._servers_disk.free()
        until = time.monotonic() + 30
        while self._services() and time.monotonic() < until:
            time.sleep(0.2)
        for pid in self._services():
            _send(pid, signal.SIGKILL)
        for lock in self._locks():
            lock.unlink(missing_ok=True)

    def install_hook(self) -> None:
        """Have the server judge every push from now on."""
        bare, identity = self._gateway.bare, IDENTITY[self._gateway.transport]
        for user in USERS:
            words = ["config", f"gitlease.{user}.holder", f"{user}@example.com"]
            subprocess.run(["git", *words], cwd=bare, env=clean_env(), check=True, timeout=60)
        program = own_program(bare.parent)
        done = run_program(
            [str(program), "server", "install", "--identity", identity, str(bare)],
            None,
            {"PATH": f"{program.parent}:{os.environ['PATH']}"},
        )
        if done.returncode:
            raise RuntimeError(f"the hook of the server cannot be installed: {done.stderr}")
        self._journal.fault("server hook on")

    def _upkeep_of_server(self) -> None:
        self._upkeep(self._gateway.bare, "upkeep of the server")

    def _upkeep_of_store(self) -> None:
        store = self._random.choice(self._places).own / "store.git"
        self._upkeep(store, "upkeep of a store")

    def _upkeep_of_clone(self) -> None:
        self._upkeep(self._random.choice(self._places).common, "upkeep of a clone")

    def _upkeep(self, git_dir: Path, kind: str) -> None:
        words = self._random.choice(_UPKEEP)
        killed = self._random.random() < 0.25
        after = self._random.uniform(0, 0.3) if killed else 30.0
        if not git_dir.is_dir():
            return
        self._journal.fault(kind, " ".join(words) + (", killed" if killed else ""))
        process = subprocess.Popen(
            ["git", f"--git-dir={git_dir}", *words],
            cwd=git_dir,
            env=clean_env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _lock_ref(self) -> None:
        name = self._random.choice(("refs/gitlease/global.lock", "packed-refs.lock"))
        self._plant(self._gateway.bare / name, "lock on the server", remove=True)

    def _lock_store(self) -> None:
        place = self._random.choice(self._places)
        lock = place.own / "store.git" / self._random.choice(_STORE_LOCKS)
        self._plant(lock, "lock in a store", remove=False)

    def _lock_clone(self) -> None:
        name = self._random.choice(("index.lock", "config.lock", "HEAD.lock"))
        self._plant(self._random.choice(self._places).common / name, "lock in a clone", remove=True)

    def _plant(self, lock: Path, kind: str, *, remove: bool) -> None:
        lasts = self._random.uniform(0.2, 3)
        with contextlib.suppress(OSError):
            lock.touch(exist_ok=False)
            self._journal.fault(kind, lock.name)
            if remove:
                time.sleep(lasts)
                lock.unlink(missing_ok=True)

    def _fill_small(self) -> None:
        self._fill(self._small, "full disk of a client")

    def _fill_server(self) -> None:
        self._fill(self._servers_disk, "full disk of the server")

    def _fill(self, disk: Disk, kind: str) -> None:
        lasts = self._random.uniform(0.3, 3)
        if disk.how == "nothing":
            return
        self._journal.fault(kind, disk.how)
        disk.fill()
        time.sleep(lasts)
        disk.free()

    def _kill_service(self) -> None:
        if pid := self._some_service():
            self._journal.fault("server killed", _words_of(pid))
            _send(pid, signal.SIGKILL)

    def _stop_service(self) -> None:
        lasts = self._random.uniform(0.3, 6)
        if pid := self._some_service():
            self._journal.fault("server stopped", f"{lasts:.1f}s: {_words_of(pid)}")
            _send(pid, signal.SIGSTOP)
            time.sleep(lasts)
            _send(pid, signal.SIGCONT)

    def _restart(self) -> None:
        self._journal.fault("server killed", "all of it")
        self._gateway.restart()

    def _cut(self) -> None:
        proxy, choose = self._gateway.proxy, self._random
        assert proxy is not None
        side, after = choose.choice(("up", "down")), int(choose.expovariate(1 / 900))
        self._journal.fault("connection cut", f"{side} after {after} bytes")
        proxy.arm(cut_after("up" if side == "up" else "down", after, times=1))

    def _swallow(self) -> None:
        proxy, after = self._gateway.proxy, int(self._random.expovariate(1 / 400))
        assert proxy is not None
        self._journal.fault("answer lost", f"after {after} bytes")
        proxy.arm(swallow_down(after, quiet=1.0, times=1))

    def _delay(self) -> None:
        proxy, choose = self._gateway.proxy, self._random
        assert proxy is not None
        side, after = choose.choice(("up", "down")), int(choose.expovariate(1 / 900))
        lasts = choose.uniform(0.5, 8)
        self._journal.fault("connection delayed", f"{side} after {after} bytes, {lasts:.1f}s")
        proxy.arm(stall("up" if side == "up" else "down", after, times=1))
        time.sleep(lasts)
        proxy.release()

    def _repeat(self) -> None:
        repo, make = self._gateway.repo, self._random.choice((duplicate, lose_answer, replay))
        assert repo is not None
        self._journal.fault("request repeated", make.__name__)
        repo.arm(make(times=1))

    def _some_service(self) -> int | None:
        until = time.monotonic() + 3
        while time.monotonic() < until:  # there is none at most moments
            if found := self._services():
                return self._random.choice(found)
            time.sleep(0.01)
        return None

    def _services(self) -> list[int]:
        bare = os.path.realpath(self._gateway.bare)
        return sorted(
            pid
            for pid, folder in _folders()
            if folder.startswith(bare) and any(x in _words_of(pid) for x in _SERVICES)
        )

    def _locks(self) -> Iterator[Path]:
        bare = self._gateway.bare
        yield from (bare / "refs").rglob("*.lock")
        yield from bare.glob("*.lock")

    def _remove_stale_locks(self) -> None:
        """Do what a server's keeper does: what a killed process left locked is unlocked."""
        for lock in self._locks():
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime < _STALE_SECONDS or self._services():
                    continue
                lock.unlink()
                self._journal.fault("lock of a killed server removed", lock.name)


def _folders() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                yield int(name), os.readlink(f"/proc/{name}/cwd")


def _words_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return ""


def _send(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
