from gitlease.push.fenced_push import UNFENCED as UNFENCED
from gitlease.push.fenced_push import FencedPush as FencedPush
from gitlease.push.fenced_push import PushAnswer as PushAnswer
from gitlease.push.fenced_push import PushCase as PushCase
from gitlease.push.fenced_push import PushRefused as PushRefused
from gitlease.push.plan import GitWork as GitWork
from gitlease.push.plan import PlannedPush as PlannedPush
from gitlease.push.plan import PushRequest as PushRequest
