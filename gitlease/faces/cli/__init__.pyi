from gitlease.faces.cli.app import ALIASES as ALIASES
from gitlease.faces.cli.app import COMPLETE as COMPLETE
from gitlease.faces.cli.app import DAILY as DAILY
from gitlease.faces.cli.app import GROUPS as GROUPS
from gitlease.faces.cli.app import MODULES as MODULES
from gitlease.faces.cli.app import application as application
from gitlease.faces.cli.app import list_of_verbs as list_of_verbs
from gitlease.faces.cli.app import run as run
from gitlease.faces.cli.board import print_events as print_events
from gitlease.faces.cli.call import Call as Call
from gitlease.faces.cli.output import shortened as shortened
from gitlease.faces.cli.running import PoolReporter as PoolReporter
from gitlease.faces.cli.setup.demo import NEXT as NEXT
from gitlease.faces.cli.setup.demo import PLAY as PLAY
from gitlease.faces.cli.setup.demo import TASKS as TASKS
from gitlease.faces.cli.setup.demo import DemoScene as DemoScene
from gitlease.faces.cli.setup.help import topics as topics
from gitlease.faces.cli.verb import Verb as Verb
from gitlease.faces.cli.verb import shared_options as shared_options
from gitlease.verbs.running import run_verb as run_verb

def import_click() -> None: ...
