"""The check of `doctor` on the tokens of a gateway."""

from __future__ import annotations

import os

from gitlease.gateway.tokens import FILE, Tokens
from gitlease.wiring.examined import GOOD, Examined, Row, Rows, changed_mode


def gateway(of: Examined) -> Rows:
    folder = os.path.join(of.private, "serve")
    if not os.path.lexists(folder):
        return
    for path in (folder, os.path.join(folder, FILE)):
        if os.path.lexists(path) and os.lstat(path).st_mode & 0o077:
            yield changed_mode(f"others than its owner can use {path}", path, "go-rwx", less=0o077)
            return
    tokens, now = Tokens(folder).listed(), of.clock.now().wall_ms
    yield Row(GOOD, f"tokens: {len(tokens)}, expired: {sum(x.is_over(now) for x in tokens)}")
