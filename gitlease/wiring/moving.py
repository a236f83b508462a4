"""Moves a ledger to the place that the default branch names, with all its layers."""

from __future__ import annotations

from functools import partial

from gitlease.kernel.git.mainline import Presence
from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import Reading
from gitlease.kernel.rules.errors import Invalid, UsageError
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.settings.schema import FILE
from gitlease.kernel.store.git_ledger import RefLedgerStore
from gitlease.wiring.places import LAYER, place_word, values_of
from gitlease.wiring.workspace import Workspace


def move_ledger(workspace: Workspace) -> Reading:
    """End the ledgers at the former place, and go on with them where main says that they are.

    The remote is asked what main says now: an old copy of it may name a place that was left.
    Whoever was interrupted does it again, and so does the next change of anybody. Raises UsageError
    if main names no other place, Invalid if that is unknown, and PolicyRefused for whoever is not
    an admin.
    """
    workspace.check_remote()
    place, located = workspace.place, workspace.place.located
    none = UsageError(
        "the default branch names no other place for the ledger than the present one",
        hints=(f"first change lease in {FILE} there, and push it",),
    )
    if located is None:
        raise none
    limit = workspace.time_limit
    main = place.main_now(now=workspace.clock.now().wall_ms / MS, seconds=limit)
    if main.presence is Presence.UNKNOWN:
        raise Invalid(f"where the ledger is to move is unknown: {main.why}", hints=("git fetch",))
    target = values_of(main)
    if target == located.values:
        raise none
    own, to = str(located.values[LAYER]), place_word(target)
    former = {name: x for name, x in located.values.items() if name != LAYER}
    layers = [own]
    if any(target[name] != x for name, x in former.items()):
        # The configured one is the last: until it has moved, this can be done again.
        others = place.refs(time_limit=limit).layers()
        layers = [*(x for x in others if x != own), own]
    for layer in layers:
        session = workspace.in_layer(layer).ledger
        if isinstance(session.store, RefLedgerStore):
            session.store.reopens = True
        there = partial(place.header_at, located, target, layer, time_limit=limit)
        reading = acts.move(session, to, there)
    return reading
