"""A process that uses the library: one call a line in, one answer a line out, until its input ends.

It is killed and stopped like any other client. An answer has the shape of the command line's.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import gitlease


def main() -> None:
    """Serve calls: ``{"directory", "session", "verb", "resources", "ttl"}``."""
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = _done(call)
        except gitlease.GitleaseError as error:
            said = {"code": error.code, "message": str(error)}
            answer = {"ok": False, "error": said | {"conflicts": _leases(error.views)}}
        except Exception:
            answer = {"ok": False, "error": {"code": "internal"}, "trace": traceback.format_exc()}
        print(json.dumps(answer, default=_plain), flush=True)


def _done(call: dict[str, Any]) -> dict[str, Any]:
    words, ttl = call["resources"], call["ttl"]
    with gitlease.open(call["directory"], session=call["session"]) as leases:
        found: list[gitlease.Lease] = []
        status = None
        if call["verb"] == "claim":
            found += leases.claim_all(words, ttl=ttl)
            status = "renewed" if all(lease.renewals for lease in found) else "claimed"
        elif call["verb"] == "renew":
            found.append(leases.renew(words[0]))
            status = "renewed"
        elif call["verb"] == "extend":
            found.append(leases.extend(words[0], ttl))
            status = "extended"
        else:
            found += leases.list()
    return {"ok": True, "status": status, "leases": _leases(found)}


def _leases(found: Iterable[gitlease.Lease]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(lease) for lease in found]


def _plain(value: object) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"{value!r} is no answer")
    return value.strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    main()
