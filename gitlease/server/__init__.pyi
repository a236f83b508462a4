from gitlease.server.receive import PushVerdict as PushVerdict
from gitlease.server.receive import RefMove as RefMove
from gitlease.server.work import FINDINGS as FINDINGS
from gitlease.server.work import WorkGuard as WorkGuard
from gitlease.server.work import changes_of as changes_of
