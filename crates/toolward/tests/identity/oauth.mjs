// The TypeScript MCP client without a token: it discovers the authorization server, gets a token, and prints
// the names of the tools as JSON.
//
//     oauth.mjs URL
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.TOOLWARD_PEERS}/`);
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = require('@modelcontextprotocol/client');

const url = new URL(process.argv[2]);
const kept = {};
let back;
const authProvider = {
    redirectUrl: 'http://127.0.0.1:1/callback',
    clientMetadata: {
        client_name: 'test',
        redirect_uris: ['http://127.0.0.1:1/callback'],
        token_endpoint_auth_method: 'none',
    },
    state: () => 'state',
    clientInformation: () => kept.client,
    saveClientInformation: client => void (kept.client = client),
    tokens: () => kept.tokens,
    saveTokens: tokens => void (kept.tokens = tokens),
    saveCodeVerifier: verifier => void (kept.verifier = verifier),
    codeVerifier: () => kept.verifier,
    discoveryState: () => kept.discovery,
    saveDiscoveryState: state => void (kept.discovery = state),
    // A browser would follow this; the test's authorization server needs no consent.
    async redirectToAuthorization(to) {
        const answer = await fetch(to, { redirect: 'manual' });
        back = new URL(answer.headers.get('location'));
    },
};

function connect() {
    const transport = new StreamableHTTPClientTransport(url, { authProvider });
    const client = new Client({ name: 'typescript-client', version: '1' });
    return [client, transport];
}

setTimeout(() => process.exit(2), 60_000).unref();
let [client, transport] = connect();
try {
    await client.connect(transport);
} catch (error) {
    if (!(error instanceof UnauthorizedError) || !back) throw error;
    await transport.finishAuth(back.searchParams);
    [client, transport] = connect();
    await client.connect(transport);
}
const { tools } = await client.listTools();
const seen = JSON.stringify({ tools: tools.map(tool => tool.name), scope: kept.tokens?.scope ?? null });
await client.close();
process.stdout.write(`${seen}\n`, () => process.exit(0));
