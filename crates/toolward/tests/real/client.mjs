// The TypeScript MCP client in front of a server: lists tools, makes calls, prints the results as JSON.
//
//     client.mjs CALLS_JSON [--legacy|--modern|--auto] --stdio COMMAND ARGS…
//     client.mjs CALLS_JSON [--legacy|--modern|--auto] --url URL [--token TOKEN]
//
// CALLS_JSON is a list of [name, arguments]. Without a flag the client chooses the protocol version, which
// for this one means `--legacy`. With another flag and stdio it starts the command twice: a first process only
// answers `server/discover`.
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const peers = process.env.TOOLWARD_PEERS ?? fileURLToPath(new URL('../../../../target/peers', import.meta.url));
const require = createRequire(`${peers}/`);
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const modes = { '--legacy': 'legacy', '--modern': { pin: '2026-07-28' }, '--auto': 'auto' };
const [calls, ...rest] = process.argv.slice(2);
const options = rest[0] in modes ? { versionNegotiation: { mode: modes[rest.shift()] } } : {};
const [kind, target, ...more] = rest;
const headers = more[0] === '--token' ? { Authorization: `Bearer ${more[1]}` } : {};
const transport =
    kind === '--url'
        ? new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers } })
        : new StdioClientTransport({ command: target, args: more });
const client = new Client({ name: 'typescript-client', version: '1' }, options);

function fail(message) {
    console.error(message);
    process.exit(1);
}
setTimeout(() => fail('no end after 60 seconds'), 60_000).unref();

let tools;
try {
    await client.connect(transport);
    ({ tools } = await client.listTools()); // follows all pages
} catch (error) {
    fail(`${error.name}: ${error.message}${error.cause ? ` (${error.cause})` : ''}`);
}
const results = [];
const progress = [];
// Counted where they arrive: `onprogress` does not fire for one that is read together with the result.
const deliver = transport.onmessage;
transport.onmessage = (message, extra) => {
    if (message.method === 'notifications/progress') progress[progress.length - 1]++;
    deliver(message, extra);
};
for (const [name, args] of JSON.parse(calls)) {
    progress.push(0);
    try {
        results.push(await client.callTool({ name, arguments: args }, { onprogress() {} }));
    } catch (error) {
        results.push({ error: error.message, code: error.code ?? null, data: error.data ?? null });
    }
}
const revision = client.getNegotiatedProtocolVersion();
const server = client.getServerVersion() ?? null;
try {
    await transport.terminateSession?.(); // closing alone does not end a session
    await client.close();
} catch (error) {
    console.error(error.message);
}
const seen = JSON.stringify({ revision, server, tools, calls: results, progress });
process.stdout.write(`${seen}\n`, () => process.exit(0));
