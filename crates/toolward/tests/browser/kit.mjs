// Shared by all scenarios: the browser, the admin UI, the gateway's agents, and the output of commands.
//
//     node SCENARIO.mjs FACTS_JSON
//
// FACTS_JSON: `page` (the address with its token), `mcp`, `tokens` by agent, `program`, `config`, `env`,
// and further input of a scenario. A scenario fails with a message and exit code 1. In every scenario, the
// browser must have contacted no other host, run only the admin UI's scripts, opened no dialog, and logged
// no error.
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.TOOLWARD_PEERS}/`);
const { chromium } = require('playwright-core');

export const facts = JSON.parse(process.argv[2]);
export const origin = new URL(facts.page).origin;
/** The maximum wait, also on a busy machine. */
const PATIENCE = 60_000;

export function check(held, message) {
    if (!held) throw new Error(message);
}

export function same(found, expected, what) {
    const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
    if (one === other) return;
    const at = [...one].findIndex((letter, at) => letter !== other[at]);
    const part = text => text.slice(Math.max(0, at - 80), at + 240);
    check(false, `${what}:\n  found    …${part(one)}\n  expected …${part(other)}`);
}

/** Retries until there is a value. */
export async function until(what, look, patience = PATIENCE) {
    const begun = Date.now();
    for (;;) {
        const found = await look();
        if (found) return found;
        check(Date.now() - begun < patience, `not in time: ${what}`);
        await new Promise(resolve => setTimeout(resolve, 20));
    }
}

/** The output of a command with the same configuration. */
export function toolward(...words) {
    const all = [...words, '-c', facts.config, '--json', ...(facts.lists ?? [])];
    const options = { env: { PATH: process.env.PATH, HOME: '/proc/nonexistent', ...facts.env }, encoding: 'utf8' };
    try {
        return JSON.parse(execFileSync(facts.program, all, { ...options, stdio: ['ignore', 'pipe', 'pipe'] }));
    } catch (error) {
        // Some results are also exit codes.
        if (error.stdout) return JSON.parse(error.stdout);
        throw error;
    }
}

let id = 0;
/** A modern request of an agent, without a session. */
export async function ask(agent, method, params) {
    const meta = 'io.modelcontextprotocol/';
    params._meta = { [`${meta}protocolVersion`]: '2026-07-28', [`${meta}clientCapabilities`]: {} };
    const name = params.name && `=?base64?${Buffer.from(params.name).toString('base64')}?=`;
    const answer = await fetch(facts.mcp, {
        method: 'POST',
        headers: {
            Authorization: `Bearer ${facts.tokens[agent]}`,
            'Content-Type': 'application/json',
            Accept: 'application/json, text/event-stream',
            'MCP-Protocol-Version': '2026-07-28',
            'Mcp-Method': method,
            ...(name ? { 'Mcp-Name': name } : {}),
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: ++id, method, params }),
    });
    return answer.json();
}

export const call = (agent, name, args = {}) => ask(agent, 'tools/call', { name, arguments: args });

const find = () => ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);

/** A browser that can reach only this machine. */
export async function launch() {
    const executablePath = process.env.CHROMIUM ?? find();
    check(executablePath, 'there is no chromium: ./test installs it, or CHROMIUM names one');
    return chromium.launch({
        executablePath,
        args: [
            ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
            '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
            '--disable-background-networking',
            '--force-color-profile=srgb',
        ],
    });
}

/** Collects everything that a page should not do. `allowed` accepts errors that a scenario expects. */
export function watched(context, allowed = () => false) {
    const wrong = [];
    context.on('request', request => {
        const url = new URL(request.url());
        if (url.origin !== origin && !allowed(`asked ${url}`)) wrong.push(`asked ${url}`);
    });
    context.on('console', message => {
        const said = `console ${message.type()}: ${message.text()} ${message.location().url}`;
        if (['error', 'warning', 'assert'].includes(message.type()) && !allowed(said)) wrong.push(said);
    });
    context.on('weberror', error => wrong.push(`script: ${error.error()}`));
    context.on('page', page => {
        page.setDefaultTimeout(PATIENCE);
        page.on('dialog', dialog => {
            wrong.push(`dialog: ${dialog.message()}`);
            void dialog.dismiss();
        });
    });
    return wrong;
}

/** Elements next to a view that the admin UI did not create. */
export const injected = page =>
    page.evaluate(() => {
        const own = ['htmx.min.js', 'page.js', 'approvals.js', 'live.js'];
        const scripts = [...document.scripts].filter(one => !own.includes(one.src.split('/').pop()));
        const elements = document.querySelectorAll(
            'iframe, object, embed, base, video, audio, style, [style*="url("], [onerror], [onload], [onmouseover], [onfocus], main img, main script, main link, main svg script',
        );
        return [...scripts, ...elements].map(one => one.outerHTML.slice(0, 200)).concat(window.pwned ? ['pwned'] : []);
    });

/** Runs a scenario in a browser that has logged in with the token. */
export async function browse(scenario, { size = { width: 1280, height: 800 }, allowed } = {}) {
    const begun = Date.now();
    const browser = await launch();
    try {
        const context = await browser.newContext({ viewport: size, colorScheme: 'light' });
        const wrong = watched(context, allowed);
        const page = await context.newPage();
        await page.goto(facts.page);
        check(!page.url().includes('token'), `the token stays in the address: ${page.url()}`);
        const base = page.url();
        /** Opens a view by its path under the page's. */
        const open = async view => {
            const answer = await page.goto(new URL(view, base).href);
            same(answer.status(), 200, `the status of ${view}`);
        };
        try {
            await scenario({ browser, context, page, base, open });
            same(await injected(page), [], 'elements that are not the page’s own');
        } catch (error) {
            await page.screenshot({ path: `${facts.shots}/failed-${facts.scenario}.png` }).catch(() => {});
            error.message += `\nat ${page.url()}`;
            throw error;
        }
        same(wrong, [], 'what the browser did and said');
    } finally {
        await browser.close();
    }
    console.log(`${facts.scenario}: ${Date.now() - begun} ms`);
}

/** The parts of an explanation, in the order in which `toolward explain --json` has them. */
export function explained(told) {
    // Names are code elements instead of in backticks, and locations have the file's name.
    const reason = told.reason.replaceAll('`', '').replace(/\((?:[^()]*\/)?([^()/]+:\d+:\d+)\)/, '$1');
    const facts = [told.verdict, ...told.hints, reason];
    if (told.rule) facts.push(told.location, told.rule);
    facts.push(told.listed ? 'It is in the agent' : 'It is not in the agent');
    for (const layer of told.layers) {
        facts.push(layer.name, ...(layer.agent ? [layer.agent] : []), layer.verdict);
        for (const step of layer.steps) {
            for (const tried of step.tried) {
                facts.push(tried.selector, ...(tried.when ? [tried.when] : []), tried.location.split('/').pop());
            }
        }
    }
    return facts;
}

/** Whether a shown explanation has all facts of the expected one, in order. */
export async function agrees(article, told) {
    const text = await article.evaluate(shown => shown.textContent.replace(/\s+/g, ' '));
    let at = 0;
    for (const fact of explained(told)) {
        const found = text.indexOf(fact, at);
        check(found >= 0, `${JSON.stringify(fact)} is not in what follows: ${text.slice(at)}\nin: ${text}`);
        at = found + fact.length;
    }
    // Steps are shown as text; their codes are attributes.
    const steps = await article.evaluate(shown => [...shown.querySelectorAll('.layer [data-step]')].map(one => one.dataset.step));
    same(steps, told.layers.flatMap(layer => layer.steps).map(step => step.step), 'the steps');
    same(await article.getAttribute('data-step'), told.step, 'the step that decided');
    const tried = told.layers.flatMap(layer => layer.steps).flatMap(step => step.tried);
    same(await article.locator('.tried').count(), tried.length, 'the rules that were tried');
    same(await article.getAttribute('data-verdict'), told.verdict, 'the verdict');
}

/** Reads all rows of the matrix by scrolling through them. */
export const read = page =>
    page.evaluate(async () => {
        const frame = () => new Promise(requestAnimationFrame);
        let scroll = document.getElementById('scroll');
        const view = scroll.getBoundingClientRect();
        const awaited = () =>
            [...scroll.querySelectorAll('.chunk:empty')].some(chunk => {
                const box = chunk.getBoundingClientRect();
                return box.bottom > view.top && box.top < view.bottom;
            });
        const rows = new Map();
        const kinds = new Map();
        for (scroll.scrollTop = 0; ; scroll.scrollTop += scroll.clientHeight / 2) {
            do await frame();
            while (awaited());
            // The table is replaced as a whole if something has changed.
            if (!scroll.isConnected) {
                scroll = document.getElementById('scroll');
                scroll.scrollTop = 0;
                rows.clear();
                kinds.clear();
                continue;
            }
            for (const row of scroll.querySelectorAll('.r')) {
                const cells = [...row.querySelectorAll('i')].map(cell => {
                    const signs = { allow: '✓', depends: '≈', ask: '?', deny: '–' };
                    const [word] = cell.classList;
                    const label = cell.getAttribute('aria-label').split(',')[0];
                    const said = cell.firstChild.textContent === signs[word] && label === word;
                    return said ? word : cell.outerHTML;
                });
                const name = `${row.dataset.server}/${decodeURIComponent(row.dataset.tool)}`;
                const line = Number(row.getAttribute('aria-rowindex'));
                rows.set(line, [name, ...cells]);
                // Resources that belong to another server are marked.
                const elsewhere = [...row.querySelectorAll('i')].map(cell => cell.classList.contains('elsewhere'));
                kinds.set(line, [row.dataset.kind ?? 'tool', name, ...cells.map((cell, at) => (elsewhere[at] ? `${cell} elsewhere` : cell))]);
            }
            if (scroll.scrollTop + scroll.clientHeight >= scroll.scrollHeight - 1) break;
        }
        const columns = [...scroll.querySelectorAll('.head .c')];
        return {
            rows: [...rows].sort(([a], [b]) => a - b).map(([, row]) => row),
            kinds: [...kinds].sort(([a], [b]) => a - b).map(([, row]) => row),
            agents: columns.map(column => column.dataset.agent ?? null),
            sees: columns.map(column => column.querySelector('.sees').textContent),
        };
    });

/** Selects in one of the lists above the matrix. */
export async function choose(page, field, ...values) {
    const pick = page.locator(`#pick-${field}`);
    await pick.locator('summary').click();
    for (const value of values) {
        const before = page.url();
        await pick.locator(`input[value="${value}"]`).click();
        await until(`${field}=${value} is in the address`, () => page.url() !== before);
    }
    await page.keyboard.press('Escape');
    await until('the list is closed', async () => (await pick.getAttribute('open')) === null);
}
