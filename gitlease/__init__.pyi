from collections.abc import Callable
from typing import Any

from gitlease.check.rules import CheckResult as CheckResult
from gitlease.core.edge import Progress as Progress
from gitlease.core.edge import Task as Task
from gitlease.core.errors import ConflictError as ConflictError
from gitlease.core.errors import Denied as Denied
from gitlease.core.errors import GitleaseError as GitleaseError
from gitlease.core.errors import Invalid as Invalid
from gitlease.core.errors import LeaseHeld as LeaseHeld
from gitlease.core.errors import LeaseLost as LeaseLost
from gitlease.core.errors import Loss as Loss
from gitlease.core.errors import NotARepository as NotARepository
from gitlease.core.errors import NotFound as NotFound
from gitlease.core.errors import NothingLeft as NothingLeft
from gitlease.core.errors import NotHolder as NotHolder
from gitlease.core.errors import PolicyRefused as PolicyRefused
from gitlease.core.errors import Rollback as Rollback
from gitlease.core.errors import Unavailable as Unavailable
from gitlease.core.errors import UnknownOutcome as UnknownOutcome
from gitlease.core.errors import UsageError as UsageError
from gitlease.core.errors import WaitTimeout as WaitTimeout
from gitlease.core.resources import Resource as Resource
from gitlease.core.work import Became as Became
from gitlease.core.work import CheckRule as CheckRule
from gitlease.core.work import Finding as Finding
from gitlease.core.work import Level as Level
from gitlease.core.work import WorkRef as WorkRef
from gitlease.engine.answers import Taken as Taken
from gitlease.engine.queue import Carried as Carried
from gitlease.engine.queue import Carry as Carry
from gitlease.engine.queue import Entry as Entry
from gitlease.engine.queue import WhyNot as WhyNot
from gitlease.engine.sessions import OwnSession as OwnSession
from gitlease.faces.library.connection import AsyncConnection as AsyncConnection
from gitlease.faces.library.connection import Connection as Connection
from gitlease.faces.library.connection import GatewayEvent as GatewayEvent
from gitlease.faces.library.connection import connect as connect
from gitlease.faces.library.connection import connect_async as connect_async
from gitlease.faces.library.holding import Holding as Holding
from gitlease.faces.library.holding import hold as hold
from gitlease.faces.library.leases import CannotExecute as CannotExecute
from gitlease.faces.library.leases import Leases as Leases
from gitlease.faces.library.leases import NoCommand as NoCommand
from gitlease.faces.library.leases import PushAnswer as PushAnswer
from gitlease.faces.library.leases import PushRefused as PushRefused
from gitlease.faces.library.leases import Session as Session
from gitlease.faces.library.leases import Subscription as Subscription
from gitlease.faces.library.leases import WatchEvent as WatchEvent
from gitlease.faces.library.opening import AsyncLeases as AsyncLeases
from gitlease.faces.library.opening import open as open
from gitlease.faces.library.opening import open_async as open_async
from gitlease.faces.library.opening import run as run
from gitlease.faces.library.opening import session as session
from gitlease.faces.library.values import Board as Board
from gitlease.faces.library.values import BoardEntry as BoardEntry
from gitlease.faces.library.values import BoardNews as BoardNews
from gitlease.faces.library.values import InitResult as InitResult
from gitlease.faces.library.values import Lease as Lease
from gitlease.faces.library.values import LedgerStatus as LedgerStatus
from gitlease.faces.library.values import LeftNote as LeftNote
from gitlease.faces.library.values import LogEntry as LogEntry
from gitlease.faces.library.values import QueueReading as QueueReading
from gitlease.faces.library.values import RunResult as RunResult
from gitlease.faces.library.values import WhoAmI as WhoAmI
from gitlease.faces.library.values import WorkResult as WorkResult
from gitlease.push.landing import Landed as Landed
from gitlease.verbs.running import WorkEvent as WorkEvent
from gitlease.verify.replay import BrokenRule as BrokenRule
from gitlease.verify.replay import Verified as Verified
from gitlease.wiring.workspace import Setting as Setting

__version__: str
__all__: list[str]

def exports(package: str) -> Callable[[str], Any]: ...
