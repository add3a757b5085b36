// The TypeScript MCP client of any protocol revision in front of a server that offers one thing of each kind.
//
//     client.mjs REVISION --stdio COMMAND ARGS…
//     client.mjs REVISION --url URL TOKEN
//
// It offers REVISION and, if that is a legacy one, older ones. Prints the results as JSON.
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.TOOLWARD_PEERS}/`);
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const LEGACY = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];
const [revision, kind, target, ...more] = process.argv.slice(2);
setTimeout(() => {
    console.error('no end after 60 seconds');
    process.exit(1);
}, 60_000).unref();

const headers = { Authorization: `Bearer ${more[0]}` };
const transport =
    kind === '--url'
        ? new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers } })
        : new StdioClientTransport({ command: target, args: more });
const legacy = LEGACY.includes(revision);
// Elicitation is younger than the oldest revisions.
const asks = revision >= '2025-06-18';
const client = new Client(
    { name: 'typescript-client', version: '1' },
    {
        capabilities: asks ? { elicitation: {} } : {},
        versionNegotiation: { mode: legacy ? 'legacy' : { pin: revision } },
        ...(legacy ? { supportedProtocolVersions: LEGACY.slice(LEGACY.indexOf(revision)) } : {}),
    },
);
if (asks) client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: 'Ada' } }));

/** The result of a call during which the server asks for a name, or `refused`. */
async function ask() {
    try {
        const asked = await client.callTool({ name: 'ask', arguments: {} });
        const [{ text }] = asked.content;
        return asked.isError ? `refused: ${text}` : text;
    } catch (error) {
        return `refused: ${error.message}`;
    }
}

// `wrap` answers `server/discover` as its server would, which for a legacy one means that modern requests are not
// offered. They are supported anyway, and a client that knows this from before uses them.
const capabilities = { tools: {}, prompts: {}, resources: {} };
const discover = { supportedVersions: [revision], capabilities, ttlMs: 0, cacheScope: 'private', resultType: 'complete' };
await client.connect(transport, !legacy && kind === '--stdio' ? { prior: { kind: 'modern', discover } } : {});
const tools = (await client.listTools()).tools.map(tool => tool.name).sort();
const called = await client.callTool({ name: 'add', arguments: { a: 1, b: 2 } });
const prompts = (await client.listPrompts()).prompts.map(prompt => prompt.name);
const prompt = await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } });
const resources = (await client.listResources()).resources.map(resource => resource.uri);
const read = await client.readResource({ uri: resources[0] });
const seen = {
    revision: client.getNegotiatedProtocolVersion(),
    tools,
    call: called.content[0].text,
    prompts,
    prompt: prompt.messages[0].content.text,
    resources,
    read: read.contents[0].text,
    ...(tools.includes('ask') ? { ask: await ask() } : {}),
};
await transport.terminateSession?.().catch(() => {});
await client.close();
process.stdout.write(`${JSON.stringify(seen)}\n`, () => process.exit(0));
