"""All faults on purpose, in the order of the table."""

from __future__ import annotations

from mutants.ledgers import LEDGERS
from mutants.outside import OUTSIDE
from mutants.records import RECORDS
from mutants.rules import RULES
from mutants.ties import TIES

MUTANTS = (*RULES, *TIES, *LEDGERS, *RECORDS, *OUTSIDE)
