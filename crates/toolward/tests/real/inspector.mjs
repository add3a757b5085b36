// The MCP Inspector's command line in front of a server: lists tools, makes calls, prints the results as
// JSON. Each step is a separate run, so a stdio server starts again for each.
//
//     inspector.mjs CALLS_JSON [--legacy|--modern|--auto] --stdio COMMAND ARGS…
//     inspector.mjs CALLS_JSON [--legacy|--modern|--auto] --url URL [--token TOKEN]
//
// CALLS_JSON is a list of [name, arguments]. Without a flag the Inspector chooses the protocol version,
// which means `--legacy`. It reports neither progress nor the code of a JSON-RPC error, calls only tools
// that it finds in the list, and converts arguments into the types of the schema ("x" for a number becomes null).
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const peers = process.env.TOOLWARD_PEERS ?? fileURLToPath(new URL('../../../../target/peers', import.meta.url));
const program = join(peers, 'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js');

const [calls, ...rest] = process.argv.slice(2);
const era = ['--legacy', '--modern', '--auto'].includes(rest[0]) ? ['--protocol-era', rest.shift().slice(2)] : [];
const [kind, target, ...more] = rest;
const header = more[0] === '--token' ? ['--header', `Authorization: Bearer ${more[1]}`] : [];
const server =
    kind === '--url'
        ? [...header, '--stored-auth-only', '--transport', 'http', '--server-url', target]
        : ['--transport', 'stdio', '--', target, ...more];

const end = Date.now() + 60_000;
const storage = mkdtempSync(join(tmpdir(), 'inspector-')); // not the user's logins and servers
process.on('exit', () => rmSync(storage, { recursive: true }));
const env = { ...process.env, MCP_STORAGE_DIR: storage, MCP_INSPECTOR_SECRET_STORE: 'memory' };

// The output of one run: {result} on stdout, else {error: {code, message}} on stderr.
function run(...method) {
    const words = [program, '--cli', '--quiet', '--format', 'json', ...era, '--method', ...method, ...server];
    const timeout = Math.max(end - Date.now(), 1);
    const { stdout, stderr, error } = spawnSync(process.execPath, words, { encoding: 'utf8', env, timeout, maxBuffer: 1 << 28 });
    if (error) return { error };
    try {
        return JSON.parse(stdout || stderr);
    } catch {
        return { error: { message: stdout + stderr } };
    }
}

const started = run('initialize');
const listed = started.error ? started : run('tools/list'); // follows all pages
if (listed.error) {
    console.error(listed.error.message, listed.error.cause ?? '');
    process.exit(1);
}
const results = JSON.parse(calls).map(([name, args]) => {
    const { result, error } = run('tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(args));
    return error ? { error: error.message, code: error.code ?? null, data: null } : result;
});
const { protocolVersion: revision, serverInfo } = started.result;
const seen = { revision, server: serverInfo ?? null, tools: listed.result.tools, calls: results, progress: null };
console.log(JSON.stringify(seen));
