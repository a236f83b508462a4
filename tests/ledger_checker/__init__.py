"""An independent judge of a ledger: it shares no rule with what wrote it.

``checker`` judges the bytes of a history, ``answers`` what clients were told by it, ``beliefs`` and
``ties`` a ledger in memory as it moves, and ``laws`` each state of a small world. What holds of
every move is in ``moves``.
"""
