"""A server of both eras, on stdio or with `http` on loopback, made with PyPI `mcp`. Its tools carry no
annotations. Over HTTP it says on stderr where it listens."""
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
    """Reads, but does not say so."""
    return "plain"


if sys.argv[1:] == ["http"]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print("loopback port", port, file=sys.stderr, flush=True)
    server.run("streamable-http", host="127.0.0.1", port=port)
else:
    server.run()
