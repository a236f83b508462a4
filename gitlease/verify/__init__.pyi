from gitlease.verify.replay import NoLedger as NoLedger
from gitlease.verify.replay import Verified as Verified
from gitlease.verify.replay import check_past as check_past
from gitlease.verify.replay import several as several
from gitlease.verify.replay import verify as verify
