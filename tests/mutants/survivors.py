"""Faults that once survived every test, or all that run by default."""

from __future__ import annotations

SURVIVORS = {
    "a landing tried again though nothing moved": (
        "            return not has_moved or refusal.message == before\n",
        "            return refusal.message == before\n",
    ),
    "margins that shrink at a renewal": (
        "        operation=op_id,\n        margins=lease.margins.widest(policy.margins),",
        "        operation=op_id,\n        margins=policy.margins,",
    ),
    "a finished part compared letter by letter": (
        "return fold(lease.scope) == fold(scope)",
        "return lease.scope == scope",
    ),
    "a finished part finished again in other letters": (
        "y is Relation.COMPLETED and fold(x.scope) in scopes",
        "y is Relation.COMPLETED and x.scope in scopes",
    ),
    "one's own part of a task covers nothing": (
        "        own_cover = Cover(mine)",
        "        own_cover = Cover([])",
    ),
    "any task of one's own frees what others cover": (
        "mine[m].resource == against[n][0].resource for m in own_cover",
        "mine[m].resource is not None for m in own_cover",
    ),
    "a part that has lapsed covers still": (
        "        mine = [x for x in mine if self.works_under(x)]\n",
        "",
    ),
    "what the check committed lands": (
        "        if status or self._git.tip() != (self._branch, self._at):",
        "        if status:",
    ),
    "a branch that something else moved is moved on": (
        "        if git.tip() != (self._branch, self._at):  # what",
        "        if git.tip() is None:  # what",
    ),
    "a failed landing leaves the branch where it is": (
        "            kept = self._go_back()\n",
        '            kept = ""\n',
    ),
    "pushed work made anew by a landing": (
        "        if new and folds and self._is_unpushed(tip):",
        "        if new and folds:",
    ),
    "the end of an assignment told too early": (
        "rfc3339(max(ends), round_up=True)",
        "rfc3339(max(ends))",
    ),
    "what is left of a lease rounded up": (
        "        expires_in=(lease.expires_at - moment.now.wall_ms) // MS,",
        "        expires_in=-((moment.now.wall_ms - lease.expires_at) // MS),",
    ),
}
