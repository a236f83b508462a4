from collections.abc import Callable
from typing import Any

from gitlease.check.replay import BrokenRule as BrokenRule
from gitlease.check.replay import Verified as Verified
from gitlease.check.rules import CheckResult as CheckResult
from gitlease.kernel.ledger.answers import Taken as Taken
from gitlease.kernel.ledger.sessions import OwnSession as OwnSession
from gitlease.kernel.rules.edge import Progress as Progress
from gitlease.kernel.rules.edge import Task as Task
from gitlease.kernel.rules.errors import ConflictError as ConflictError
from gitlease.kernel.rules.errors import Denied as Denied
from gitlease.kernel.rules.errors import GitleaseError as GitleaseError
from gitlease.kernel.rules.errors import Invalid as Invalid
from gitlease.kernel.rules.errors import LeaseHeld as LeaseHeld
from gitlease.kernel.rules.errors import LeaseLost as LeaseLost
from gitlease.kernel.rules.errors import Loss as Loss
from gitlease.kernel.rules.errors import NotARepository as NotARepository
from gitlease.kernel.rules.errors import NotFound as NotFound
from gitlease.kernel.rules.errors import NothingLeft as NothingLeft
from gitlease.kernel.rules.errors import NotHolder as NotHolder
from gitlease.kernel.rules.errors import PolicyRefused as PolicyRefused
from gitlease.kernel.rules.errors import Rollback as Rollback
from gitlease.kernel.rules.errors import Unavailable as Unavailable
from gitlease.kernel.rules.errors import UnknownOutcome as UnknownOutcome
from gitlease.kernel.rules.errors import UsageError as UsageError
from gitlease.kernel.rules.errors import WaitTimeout as WaitTimeout
from gitlease.kernel.rules.resources import Resource as Resource
from gitlease.kernel.rules.work import Became as Became
from gitlease.kernel.rules.work import WorkRef as WorkRef
from gitlease.landing.landing import Landed as Landed
from gitlease.library.connection import AsyncConnection as AsyncConnection
from gitlease.library.connection import Connection as Connection
from gitlease.library.connection import GatewayEvent as GatewayEvent
from gitlease.library.connection import connect as connect
from gitlease.library.connection import connect_async as connect_async
from gitlease.library.holding import Holding as Holding
from gitlease.library.holding import hold as hold
from gitlease.library.leases import CannotExecute as CannotExecute
from gitlease.library.leases import Leases as Leases
from gitlease.library.leases import NoCommand as NoCommand
from gitlease.library.leases import PushAnswer as PushAnswer
from gitlease.library.leases import PushRefused as PushRefused
from gitlease.library.leases import Session as Session
from gitlease.library.leases import Subscription as Subscription
from gitlease.library.leases import WatchEvent as WatchEvent
from gitlease.library.opening import AsyncLeases as AsyncLeases
from gitlease.library.opening import open as open
from gitlease.library.opening import open_async as open_async
from gitlease.library.opening import run as run
from gitlease.library.opening import session as session
from gitlease.library.values import Board as Board
from gitlease.library.values import BoardEntry as BoardEntry
from gitlease.library.values import BoardNews as BoardNews
from gitlease.library.values import InitResult as InitResult
from gitlease.library.values import Lease as Lease
from gitlease.library.values import LedgerStatus as LedgerStatus
from gitlease.library.values import LeftNote as LeftNote
from gitlease.library.values import LogEntry as LogEntry
from gitlease.library.values import QueueReading as QueueReading
from gitlease.library.values import RunResult as RunResult
from gitlease.library.values import WhoAmI as WhoAmI
from gitlease.library.values import WorkResult as WorkResult
from gitlease.runs.verbs import WorkEvent as WorkEvent
from gitlease.tasks.queue import Carried as Carried
from gitlease.tasks.queue import Carry as Carry
from gitlease.tasks.queue import Entry as Entry
from gitlease.tasks.queue import WhyNot as WhyNot
from gitlease.verbs.findings import CheckRule as CheckRule
from gitlease.verbs.findings import Finding as Finding
from gitlease.verbs.findings import Level as Level
from gitlease.wiring.workspace import Setting as Setting

__version__: str
__all__: list[str]

def exports(package: str) -> Callable[[str], Any]: ...
