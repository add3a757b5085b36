// A server for the conformance suite, written with the TypeScript SDK, over stdio, or over HTTP on a loopback
// port. It offers what `fixture.json` contains.
//
//     typescript.mjs [PORT]
import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';

// Installed beside the interpreter, which is started through a link there.
const require = createRequire(`${dirname(process.argv0)}/`);
const { acceptedContent, CLIENT_CAPABILITIES_META_KEY, classifyInboundRequest, createMcpHandler } =
    require('@modelcontextprotocol/server');
const { createRequestStateCodec, fromJsonSchema, inputRequired, isInitializeRequest, McpServer, ProtocolError } =
    require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { NodeStreamableHTTPServerTransport, toNodeHandler } = require('@modelcontextprotocol/node');

const fixture = JSON.parse(readFileSync(new URL('fixture.json', import.meta.url)));
const states = createRequestStateCodec({ key: randomBytes(32) });
// The lists that calls have added an entry to, until the next call removes it.
const extended = { tools: false, prompts: false };
const text = value => ({ content: [{ type: 'text', text: value }] });
const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
const capability = { 'elicitation/create': 'elicitation', 'sampling/createMessage': 'sampling', 'roots/list': 'roots' };

// Fills `{name}` placeholders in every string of a value.
function fill(value, values) {
    if (typeof value === 'string') return value.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
    if (Array.isArray(value)) return value.map(one => fill(one, values));
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, fill(one, values)]));
}

// Whether a response can be used: an accepted form must have the properties that were required.
function usable(request, key, responses) {
    if (request.method !== 'elicitation/create') return typeof responses?.[key] === 'object';
    const { properties, required } = request.params.requestedSchema;
    const content = acceptedContent(responses, key);
    return content !== undefined && required.every(name => typeof content[name] === properties[name].type);
}

// The result that asks for input, or nothing once all rounds have their responses.
async function ask({ asks, state, declared_only }, { mcpReq }) {
    const known = mcpReq.requestState();
    const round = known?.round ?? 0;
    const answered = Object.entries(asks[round]).every(([key, one]) => usable(one, key, mcpReq.inputResponses));
    // Without a state, responses alone show that the client has been asked.
    const done = answered && (known !== undefined || !state);
    const next = done ? round + 1 : round;
    if (next === asks.length) return undefined;
    const declared = mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? {};
    const wanted = Object.entries(asks[next]).filter(([, one]) => !declared_only || capability[one.method] in declared);
    return inputRequired({
        inputRequests: Object.fromEntries(wanted),
        ...(state && { requestState: await states.mint({ round: next, nonce: randomUUID() }) })
    });
}

async function act(does, args, context, announce) {
    const { mcpReq } = context;
    if (does.returns) return { content: does.returns };
    if (does.fails) return { ...text(does.fails), isError: true };
    if (does.asks) return (await ask(does, context)) ?? text('state-ok: all input was received');
    if (does.changes) announce(does.changes);
    for (const message of does.logs ?? []) {
        await mcpReq.log('info', message);
        await pause(20);
    }
    for (const progress of mcpReq._meta?.progressToken === undefined ? [] : (does.reports ?? [])) {
        const params = { progressToken: mcpReq._meta.progressToken, progress, total: 100 };
        await mcpReq.notify({ method: 'notifications/progress', params });
        await pause(20);
    }
    if (does.closes_stream) {
        sessions.get(context.sessionId)?.closeSSEStream(mcpReq.id);
        await pause(100);
    }
    if (does.needs) {
        const request = { method: 'sampling/createMessage', params: sampling('Answer.') };
        return (await ask({ asks: [{ answer: request }] }, context)) ?? text('done');
    }
    if (does.requests) {
        const { method, params } = does.requests;
        const all = method === 'sampling/createMessage' ? sampling(args.prompt) : { ...params };
        if (args.message) all.message = args.message;
        return text(JSON.stringify(await mcpReq.send({ method, params: all })));
    }
    return text('done');
}

function sampling(prompt) {
    return { messages: [{ role: 'user', content: { type: 'text', text: prompt } }], maxTokens: 50 };
}

function make(announce) {
    const changes = { listChanged: true };
    const capabilities = {
        tools: changes, prompts: changes, resources: { ...changes, subscribe: true }, logging: {}, completions: {}
    };
    const info = { name: 'conformance-typescript', version: '1.0.0' };
    const server = new McpServer(info, { capabilities, requestState: { verify: states.verify } });
    const { name, description } = fixture.added.tools;
    const added = server.registerTool(name, { description }, () => text('done'));
    if (!extended.tools) added.disable();
    for (const { definition, does } of fixture.tools) {
        const { name, description, inputSchema } = definition;
        const options = { description, inputSchema: fromJsonSchema(inputSchema) };
        server.registerTool(name, options, (args, context) => act(does, args, context, announce(server, added)));
    }
    const handle = (method, handler) => server.server.setRequestHandler(method, handler);
    server.server.registerCapabilities(capabilities);
    handle('prompts/list', () => {
        const prompts = fixture.prompts.map(one => one.definition);
        return { prompts: extended.prompts ? [...prompts, fixture.added.prompts] : prompts };
    });
    handle('prompts/get', async ({ params }, context) => {
        const prompt = fixture.prompts.find(one => one.definition.name === params.name);
        if (!prompt) throw new ProtocolError(-32602, `unknown prompt: ${params.name}`);
        const asked = prompt.asks && (await ask(prompt, context));
        return asked ?? { messages: fill(prompt.messages, params.arguments ?? {}) };
    });
    handle('resources/list', () => ({ resources: fixture.resources.map(one => one.definition) }));
    handle('resources/templates/list', () => ({ resourceTemplates: fixture.templates.map(one => one.definition) }));
    handle('resources/read', ({ params: { uri } }, { mcpReq }) => {
        const found = fixture.resources.find(one => one.definition.uri === uri);
        const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
        const entry = found ?? (id && fixture.templates[0]);
        const code = mcpReq.envelope ? -32602 : -32002;
        if (!entry) throw new ProtocolError(code, `resource not found: ${uri}`, { uri });
        return { contents: [{ uri, mimeType: entry.definition.mimeType, ...fill(entry.contents, { id }) }] };
    });
    for (const method of ['resources/subscribe', 'resources/unsubscribe', 'logging/setLevel']) handle(method, () => ({}));
    handle('completion/complete', () => ({ completion: { values: [], total: 0, hasMore: false } }));
    return server;
}

// Changes a list, and announces it. In the modern version over HTTP a handler announces changes to the streams
// that listen; over stdio, and in a legacy session, the server itself does.
const own = (server, added) => kind => {
    extended[kind] = !extended[kind];
    if (kind === 'tools') added.update({ enabled: extended.tools });
    else server.sendPromptListChanged();
};

const sessions = new Map();
const events = [];
const eventStore = {
    async storeEvent(stream, message) {
        events.push({ stream, message });
        return String(events.length);
    },
    async replayEventsAfter(last, { send }) {
        const { stream } = events[last - 1];
        for (let at = Number(last); at < events.length; at++) {
            const { stream: other, message } = events[at];
            if (other === stream && message.jsonrpc) await send(String(at + 1), message);
        }
        return stream;
    }
};

async function session(request, body) {
    const id = request.headers['mcp-session-id'];
    if (id || !isInitializeRequest(body)) return sessions.get(id);
    const transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        eventStore,
        retryInterval: 100,
        onsessioninitialized: id => sessions.set(id, transport)
    });
    transport.onclose = () => sessions.delete(transport.sessionId);
    await make(own).connect(transport);
    return transport;
}

function serveHttp(port) {
    const announce = () => kind => {
        extended[kind] = !extended[kind];
        if (kind === 'tools') modern.notify.toolsChanged();
        else modern.notify.promptsChanged();
    };
    const modern = createMcpHandler(() => make(announce));
    const handleModern = toNodeHandler(modern);
    const refuse = (response, status, message) => {
        const error = { jsonrpc: '2.0', id: null, error: { code: -32000, message } };
        response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(error));
    };
    const server = createServer(async (request, response) => {
        const host = new URL(`http://${request.headers.host}`).hostname;
        const origin = request.headers.origin && new URL(request.headers.origin).hostname;
        for (const name of [host, origin ?? host]) {
            if (!['127.0.0.1', 'localhost'].includes(name)) return refuse(response, 403, `unknown host: ${name}`);
        }
        const chunks = await request.toArray();
        let body;
        try {
            body = chunks.length ? JSON.parse(Buffer.concat(chunks)) : undefined;
        } catch {
            return refuse(response, 400, 'malformed JSON');
        }
        const { method: httpMethod, headers } = request;
        const protocolVersionHeader = headers['mcp-protocol-version'];
        const inbound = { httpMethod, protocolVersionHeader, mcpMethodHeader: headers['mcp-method'], body };
        if (httpMethod === 'POST' && classifyInboundRequest(inbound).kind !== 'legacy') {
            return handleModern(request, response, body);
        }
        const transport = await session(request, body);
        if (transport) return transport.handleRequest(request, response, body);
        refuse(response, headers['mcp-session-id'] ? 404 : 400, 'unknown session');
    });
    server.listen(port, '127.0.0.1');
}

const port = process.argv[2];
if (port) serveHttp(Number(port));
else serveStdio(() => make(own));
