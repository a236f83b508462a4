from gitlease.faces.agents.events import MAX_BYTES as MAX_BYTES
from gitlease.faces.agents.events import EventKind as EventKind
