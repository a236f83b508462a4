"""What a gateway does, in numbers, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Mapping

from gitlease.gateway.gateway import Gateway


def text(counted: Mapping[tuple[str, int], int], gateway: Gateway) -> str:
    """The exposition: requests by verb and status, steps, and how old what is known is."""
    lines = [
        "# HELP gitlease_requests_total Requests by verb and status.",
        "# TYPE gitlease_requests_total counter",
    ]
    lines += [
        f'gitlease_requests_total{{verb="{verb}",status="{status}"}} {number}'
        for (verb, status), number in sorted(counted.items())
    ]
    lines += [
        "# HELP gitlease_steps_total Steps that were pushed.",
        "# TYPE gitlease_steps_total counter",
        f"gitlease_steps_total {gateway.joiner.steps}",
    ]
    head = gateway.store.newest(gateway.layer)
    if head is not None:
        age = head.received.elapsed_at_most(gateway.clock.now()) / 1_000
        lines += [
            "# HELP gitlease_known_age_seconds Since when the remote was last heard of.",
            "# TYPE gitlease_known_age_seconds gauge",
            f"gitlease_known_age_seconds {age:.3f}",
        ]
    return "\n".join(lines) + "\n"
