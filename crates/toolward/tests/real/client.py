"""The Python MCP client in front of a server: lists tools, makes calls, prints what it got as JSON.

    client.py CALLS_JSON COMMAND ARGS…
"""
import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    calls, command, *args = sys.argv[1:]
    seen = {"calls": []}
    async with Client(stdio_client(StdioServerParameters(command=command, args=args))) as client:
        listed = await client.list_tools()
        seen["tools"] = [tool.model_dump(by_alias=True, mode="json") for tool in listed.tools]
        for name, arguments in json.loads(calls):
            try:
                result = await client.call_tool(name, arguments)
                seen["calls"].append(result.model_dump(by_alias=True, mode="json"))
            except Exception as error:  # the client's own words for a JSON-RPC error
                seen["calls"].append({"error": str(error)})
    print(json.dumps(seen))


asyncio.run(asyncio.wait_for(main(), 60))
