// A server of 2026-07-28 only, on stdio, written with the TypeScript SDK. It offers one thing of each kind, and
// asks the client a question.
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.TOOLWARD_PEERS}/`);
const { acceptedContent, fromJsonSchema, inputRequired, McpServer } = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');

const text = value => ({ content: [{ type: 'text', text: value }] });
const object = properties => ({ type: 'object', properties, required: Object.keys(properties) });

function make() {
    const server = new McpServer({ name: 'revisions', version: '1' });
    const numbers = object({ a: { type: 'integer' }, b: { type: 'integer' } });
    server.registerTool('add', { inputSchema: fromJsonSchema(numbers) }, ({ a, b }) => text(String(a + b)));
    server.registerTool('ask', { inputSchema: fromJsonSchema(object({})) }, (_, { mcpReq }) => {
        const answered = acceptedContent(mcpReq.inputResponses, 'who');
        if (answered) return text(`accept ${answered.name}`);
        const requestedSchema = object({ name: { type: 'string' } });
        const who = inputRequired.elicit({ message: 'What is your name?', requestedSchema });
        return inputRequired({ inputRequests: { who } });
    });
    const argsSchema = fromJsonSchema(object({ name: { type: 'string' } }));
    server.registerPrompt('greet', { argsSchema }, ({ name }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Greet ${name}.` } }]
    }));
    server.registerResource('notes', 'test://notes/today', {}, uri => ({
        contents: [{ uri: uri.href, text: 'grüße' }]
    }));
    return server;
}

serveStdio(make, { legacy: 'reject' });
