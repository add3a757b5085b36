"""The Python MCP client in front of a server: lists tools, makes calls, prints the results as JSON.

    client.py CALLS_JSON [--legacy|--modern|--auto] --stdio COMMAND ARGS…
    client.py CALLS_JSON [--legacy|--modern|--auto] --url URL [--token TOKEN]

CALLS_JSON is a list of [name, arguments]. `--modern` calls without any handshake or discovery; without
a flag the client chooses the era itself, which for this one means `--auto`.
"""
import asyncio
import json
import sys

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

MODES = {"--legacy": "legacy", "--modern": "2026-07-28", "--auto": "auto"}


def arguments():
    calls, *rest = sys.argv[1:]
    mode = MODES[rest.pop(0)] if rest[0] in MODES else "auto"
    if rest[0] == "--url":
        token = rest[3] if rest[2:3] == ["--token"] else None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300))
        transport = streamable_http_client(rest[1], http_client=http)
    else:  # `--stdio` may be left out
        command, *args = rest[1:] if rest[0] == "--stdio" else rest
        transport = stdio_client(StdioServerParameters(command=command, args=args))
    return json.loads(calls), Client(transport, mode=mode)


def plain(model):
    """The message as received, as far as the client keeps it, without defaults that it adds."""
    return model.model_dump(by_alias=True, mode="json", exclude_unset=True) if model else None


async def look(calls, client, seen):
    async with client:
        seen |= {"revision": client.protocol_version, "server": plain(client.server_info)}
        tools, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            tools += map(plain, page.tools)
            if (cursor := page.next_cursor) is None:
                break
        seen |= {"tools": tools, "calls": [], "progress": [0] * len(calls)}
        for index, (name, arguments) in enumerate(calls):

            async def progress(*_, index=index):
                seen["progress"][index] += 1

            try:
                result = await client.call_tool(name, arguments, progress_callback=progress)
                seen["calls"].append(plain(result))
            except MCPError as error:
                seen["calls"].append({"error": str(error), "code": error.code, "data": error.data})
            except Exception as error:  # an error of the client itself
                seen["calls"].append({"error": str(error), "code": None, "data": None})


def words(error):
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


seen = {}
calls, client = arguments()
try:
    asyncio.run(asyncio.wait_for(look(calls, client, seen), 60))
except Exception as error:
    print(words(error), file=sys.stderr)
    if len(seen.get("calls", [])) < len(calls) or "tools" not in seen:
        sys.exit(1)
print(json.dumps(seen))
