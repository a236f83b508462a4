from gitlease.faces.mcp.server import BOARD as BOARD
from gitlease.faces.mcp.server import MINE as MINE
from gitlease.faces.mcp.server import TOOLS as TOOLS
from gitlease.faces.mcp.server import LeaseServer as LeaseServer
from gitlease.faces.mcp.server import LeaseTool as LeaseTool
from gitlease.faces.mcp.stdio import CloneBackend as CloneBackend
