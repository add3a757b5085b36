"""A server of both protocol versions, on stdio or with `http` on loopback, built with PyPI `mcp`. Its tools
have no annotations. Over HTTP it prints its address to stderr."""
import socket
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("plain", version="1")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool()
def get_name() -> str:
    """Reads, without an annotation for it."""
    return "plain"


if sys.argv[1:] == ["http"]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print("loopback port", port, file=sys.stderr, flush=True)
    server.run("streamable-http", host="127.0.0.1", port=port)
else:
    server.run()
