from gitlease.verbs.codes import CODES as CODES
from gitlease.verbs.codes import exit_of as exit_of
from gitlease.verbs.codes import http_of as http_of
from gitlease.verbs.run_text import OUTCOMES as OUTCOMES
from gitlease.verbs.table import TABLE as TABLE
