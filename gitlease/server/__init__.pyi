from gitlease.server.changes import changes_of as changes_of
from gitlease.server.lines import RefMove as RefMove
from gitlease.server.receive import PushVerdict as PushVerdict
from gitlease.server.step import judge_step as judge_step
from gitlease.server.work import WorkGuard as WorkGuard
