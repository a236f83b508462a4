from gitlease.faces.codes import CODES as CODES
from gitlease.faces.codes import exit_of as exit_of
from gitlease.faces.codes import http_of as http_of
from gitlease.faces.run_text import OUTCOMES as OUTCOMES
