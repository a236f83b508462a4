"""The methods of the library that are made of the table: ``made.pyi`` has their signatures."""

from collections.abc import Iterable as Iterable
from datetime import datetime as datetime
from typing import Protocol, TypedDict

from gitlease.core.edge import Task as Task
from gitlease.faces.library.methods import (
    KEYWORD,
    OF_A_CLONE,
    OF_A_GATEWAY,
    TERMS,
    OpenOptions,
    make_methods,
)
from gitlease.faces.library.methods import Duration as Duration
from gitlease.faces.library.methods import ResourceLike as ResourceLike
from gitlease.faces.library.methods import StrPath as StrPath
from gitlease.faces.library.values import Lease as Lease


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
_TERMS = {x.name: x.annotation for x in TERMS.signature.parameters.values() if x.name != "self"}
_RUN = next(x for x in OF_A_CLONE if x.name == "run").signature.parameters.values()
_OF_RUN = {x.name: x.annotation for x in _RUN if x.kind is KEYWORD}
ClaimTerms = TypedDict("ClaimTerms", _TERMS, total=False)
HoldOptions = TypedDict("HoldOptions", _TERMS | OpenOptions.__annotations__, total=False)
RunOptions = TypedDict("RunOptions", _OF_RUN | OpenOptions.__annotations__, total=False)
