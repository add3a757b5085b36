"""The Python MCP client of any protocol revision in front of a server that offers one thing of each kind.

    client.py --stdio COMMAND ARGS…
    client.py --url URL TOKEN

Works with every version of PyPI `mcp` from 1.7 on; the version decides the revision, and from 2.0 on the client
uses the newest one without a handshake. Prints what it got as JSON.
"""
import asyncio
import json
import sys
from contextlib import asynccontextmanager
from importlib.metadata import version

import mcp
from mcp.client.stdio import stdio_client

MODERN = int(version("mcp").split(".")[0]) >= 2


async def answer(context, params):
    from mcp.types import ElicitResult

    return ElicitResult(action="accept", content={"name": "Ada"})


def transport():
    kind, target, *more = sys.argv[1:]
    if kind == "--stdio":
        return stdio_client(mcp.StdioServerParameters(command=target, args=more))
    headers = {"Authorization": f"Bearer {more[0]}"}
    if MODERN:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        return streamable_http_client(target, http_client=httpx2.AsyncClient(headers=headers, timeout=60))
    from mcp.client.streamable_http import streamablehttp_client

    return streamablehttp_client(target, headers=headers)


@asynccontextmanager
async def connect():
    """A connected client, and the revision that was negotiated."""
    if MODERN:
        async with mcp.Client(transport(), mode="2026-07-28", elicitation_callback=answer) as client:
            yield client, client.protocol_version
        return
    async with transport() as streams:
        # Elicitation is younger than the oldest clients.
        takes = mcp.ClientSession.__init__.__annotations__
        options = {"elicitation_callback": answer} if "elicitation_callback" in takes else {}
        async with mcp.ClientSession(*streams[:2], **options) as session:
            started = await session.initialize()
            yield session, started.protocolVersion


async def look():
    async with connect() as (client, revision):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        called = await client.call_tool("add", {"a": 1, "b": 2})
        prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        resources = [str(resource.uri) for resource in (await client.list_resources()).resources]
        read = await client.read_resource(resources[0])
        seen = {
            "revision": revision,
            "tools": sorted(tools),
            "call": called.content[0].text,
            "prompts": prompts,
            "prompt": prompt.messages[0].content.text,
            "resources": resources,
            "read": read.contents[0].text,
        }
        if "ask" in tools:
            seen["ask"] = await ask(client)
        return seen


async def ask(client):
    """The result of a call during which the server asks for a name, or `refused`."""
    try:
        asked = await client.call_tool("ask", {})
    except Exception as error:
        return f"refused: {error}"
    failed = getattr(asked, "isError", False) or getattr(asked, "is_error", False)
    return f"refused: {asked.content[0].text}" if failed else asked.content[0].text


print(json.dumps(asyncio.run(asyncio.wait_for(look(), 60))))
