from gitlease.faces.hooks.entry import HOOKS as HOOKS
from gitlease.faces.hooks.entry import IN_BACKGROUND as IN_BACKGROUND
from gitlease.faces.hooks.entry import SHOWN as SHOWN
from gitlease.faces.hooks.entry import run_hook as run_hook
