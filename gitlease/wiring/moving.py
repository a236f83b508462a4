"""Moves a ledger to the place that the default branch names, with all its layers."""

from __future__ import annotations

from gitlease import engine, wiring
from gitlease.core.errors import UsageError
from gitlease.engine import acts
from gitlease.settings.places import LAYER, place_word
from gitlease.settings.schema import FILE


def move_ledger(workspace: wiring.Workspace) -> engine.Reading:
    """End the ledgers at the former place, and go on with them where main says that they are.

    Whoever was interrupted does it again, and so does the next change of anybody. Raises UsageError
    if main names no other place, and PolicyRefused for whoever is not an admin.
    """
    place, located = workspace.place, workspace.place.located
    if located is None or located.target is None:
        raise UsageError(
            "the default branch names no other place for the ledger than the present one",
            hints=(f"first change lease in {FILE} there, push it and fetch it",),
        )
    own, to = str(located.values[LAYER]), place_word(located.target)
    former = {name: x for name, x in located.values.items() if name != LAYER}
    layers = [own]
    if any(located.target[name] != x for name, x in former.items()):
        # The configured one is the last: until it has moved, this can be done again.
        others = place.refs(time_limit=workspace.time_limit).layers()
        layers = [*(x for x in others if x != own), own]
    for layer in layers:
        reading = acts.move(workspace.in_layer(layer).ledger, to)
    return reading
