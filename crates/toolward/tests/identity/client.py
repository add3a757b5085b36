"""The Python MCP client with any kind of credential: lists tools and prints their names as JSON.

    client.py URL [--token TOKEN] [--unix SOCKET] [--ca FILE] [--cert FILE] [--oauth]

With `--oauth` the client finds out by itself where tokens come from: challenge, metadata, registration,
authorization code. Nobody has to press a button: the test's authorization server sends it back at once.
"""
import argparse
import asyncio
import json
import ssl
import sys
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

parser = argparse.ArgumentParser()
parser.add_argument("url")
for option in ["--token", "--unix", "--ca", "--cert"]:
    parser.add_argument(option)
parser.add_argument("--oauth", action="store_true")
given = parser.parse_args()


class Storage:
    """Tokens and registration, kept while the client runs."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Browser:
    """Follows the redirect to the authorization server and back."""

    async def go(self, url):
        async with httpx2.AsyncClient() as http:
            self.back = urlsplit((await http.get(url)).headers["location"])

    async def back_with(self):
        sent = {name: values[0] for name, values in parse_qs(self.back.query).items()}
        return AuthorizationCodeResult(code=sent["code"], state=sent["state"], iss=sent.get("iss"))


def provider(storage):
    browser = Browser()
    metadata = OAuthClientMetadata(client_name="test", redirect_uris=["http://127.0.0.1:1/callback"],
                                   token_endpoint_auth_method="none",
                                   grant_types=["authorization_code", "refresh_token"])
    return OAuthClientProvider(given.url, metadata, storage, browser.go, browser.back_with)


async def look():
    storage = Storage()
    headers = {"Authorization": f"Bearer {given.token}"} if given.token else {}
    options = {"uds": given.unix} if given.unix else {}
    if given.ca:
        options["verify"] = context = ssl.create_default_context(cafile=given.ca)
        if given.cert:
            context.load_cert_chain(given.cert)
    http = httpx2.AsyncClient(headers=headers, transport=httpx2.AsyncHTTPTransport(**options),
                              auth=provider(storage) if given.oauth else None,
                              timeout=httpx2.Timeout(30, read=60))
    async with Client(streamable_http_client(given.url, http_client=http)) as client:
        tools = (await client.list_tools()).tools
        scope = storage.tokens and storage.tokens.scope
        return {"tools": [tool.name for tool in tools], "scope": scope}


def words(error):
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


try:
    print(json.dumps(asyncio.run(asyncio.wait_for(look(), 60))))
except Exception as error:
    print(words(error), file=sys.stderr)
    sys.exit(1)
