"""A legacy server on stdio, written with PyPI `mcp` 1.x; the version decides the newest revision it knows. It
offers one thing of each kind, and asks the client a question if the version has elicitation."""
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("revisions")


class Answer(BaseModel):
    name: str


@server.tool()
def add(a: int, b: int) -> str:
    return str(a + b)


@server.prompt()
def greet(name: str) -> str:
    return f"Greet {name}."


@server.resource("test://notes/today")
def notes() -> str:
    return "grüße"


if hasattr(Context, "elicit"):

    @server.tool()
    async def ask(context: Context) -> str:
        answered = await context.elicit("What is your name?", Answer)
        return f"{answered.action} {answered.data.name}"


server.run()
