"""The methods of the library that are made of the table: ``made.pyi`` has their signatures."""

from collections.abc import Iterable as Iterable
from typing import Protocol

from gitlease.core.edge import Task as Task
from gitlease.core.view import Lease as Lease
from gitlease.faces.library.methods import OF_A_CLONE, OF_A_GATEWAY, make_methods
from gitlease.faces.library.methods import Duration as Duration
from gitlease.faces.library.methods import ResourceLike as ResourceLike
from gitlease.faces.library.methods import StrPath as StrPath


class LeaseVerbs(Protocol):
    """The verbs of ``Leases``."""


class AwaitedLeaseVerbs(Protocol):
    """The verbs of ``AsyncLeases``."""


class GatewayVerbs(Protocol):
    """The verbs of ``Connection``."""


class AwaitedGatewayVerbs(Protocol):
    """The verbs of ``AsyncConnection``."""


make_methods(OF_A_CLONE, LeaseVerbs, AwaitedLeaseVerbs)
make_methods(OF_A_GATEWAY, GatewayVerbs, AwaitedGatewayVerbs)
