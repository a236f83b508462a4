from gitlease.faces.library.leases import Leases as Leases
from gitlease.faces.library.refusals import in_python as in_python
from gitlease.faces.library.values import WorkOutcome as WorkOutcome
