"""The Python SDK's server for the conformance suite, over stdio, or over HTTP on a loopback port.

    python.py [PORT]
"""
import logging
import sys
from pathlib import Path

# Installed beside the interpreter's environment.
sys.path.insert(0, str(Path(sys.prefix).parent / "source"))

from mcp_everything_server.server import event_store, mcp

logging.basicConfig(level=logging.WARNING)
if sys.argv[1:]:
    mcp.run("streamable-http", port=int(sys.argv[1]), event_store=event_store, retry_interval=100)
else:
    mcp.run("stdio")
