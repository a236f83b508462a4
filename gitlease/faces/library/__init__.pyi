from gitlease.faces.library.leases import Leases as Leases
from gitlease.faces.library.methods import OF_A_CLONE as OF_A_CLONE
from gitlease.faces.library.methods import OF_A_GATEWAY as OF_A_GATEWAY
from gitlease.faces.library.methods import Method as Method
from gitlease.faces.library.methods import in_python as in_python
from gitlease.verbs.running import WorkOutcome as WorkOutcome
