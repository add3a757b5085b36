// Calls that wait for a person: they appear by themselves, and are decided with the mouse and the keyboard.
import { browse, check, facts, same, until } from './kit.mjs';

let id = 0;
/** A call whose response is awaited without a stream. */
const call = async (name, args) => {
    const meta = 'io.modelcontextprotocol/';
    const answer = await fetch(facts.mcp, {
        method: 'POST',
        headers: {
            Authorization: `Bearer ${facts.tokens.a}`,
            'Content-Type': 'application/json',
            Accept: 'application/json',
            'MCP-Protocol-Version': '2026-07-28',
            'Mcp-Method': 'tools/call',
            'Mcp-Name': name,
        },
        body: JSON.stringify({
            jsonrpc: '2.0', id: ++id, method: 'tools/call',
            params: { name, arguments: args, _meta: { [`${meta}protocolVersion`]: '2026-07-28', [`${meta}clientCapabilities`]: {} } },
        }),
    });
    return answer.json();
};

await browse(async ({ page, open, context }) => {
    await open('live');
    const waits = call('hub__delete_repo', { repo: 'acme/shop', note: 'line 1\nline 2', who: 'аdmin\u202eevil' });
    await until('the badge appears', async () => (await page.locator('.badge').textContent({ timeout: 100 }).catch(() => '')) === '1');
    await open('approvals');
    const ticket = page.locator('.ticket');
    same(await ticket.count(), 1, 'the tickets');
    const text = await ticket.textContent();
    for (const part of ['a → ', 'hub/delete_repo', '"acme/shop"', 'line 1\\nline 2', 'not only ASCII', 'delete_*']) {
        check(text.includes(part), `${part} is not in ${text}`);
    }
    check(!text.includes('\u202e'), 'a bidi character is shown');
    await page.locator('details summary', { hasText: 'Definition' }).click();
    check((await page.locator('details[open] pre').textContent()).includes('inputSchema'), 'the definition');
    await page.locator('details summary', { hasText: 'Definition' }).click();
    await page.screenshot({ path: `${facts.shots}/approvals.png`, fullPage: true });

    // Another call appears while no one is deciding.
    const second = call('hub__delete_repo', { repo: 'acme/site' });
    await until('the second ticket appears', async () => (await ticket.count()) === 2);

    // A key that comes at once is not taken for a decision.
    await page.keyboard.press('j');
    await page.waitForTimeout(600);
    await page.keyboard.press('a');
    await until('the first call is approved', async () => (await ticket.count()) === 1);
    const answer = await waits;
    check(!answer.result?.isError, `the call is made: ${JSON.stringify(answer)}`);

    // Typing is not interrupted by news.
    await page.locator('input[name=reason]').fill('not this one');
    const third = call('hub__delete_repo', { repo: 'acme/third' });
    await until('the news is mentioned', async () => page.locator('#arrived').isVisible());
    same(await page.locator('input[name=reason]').first().inputValue(), 'not this one', 'the reason stays');
    await page.locator('button[value=deny]').first().click();
    const denied = await second;
    check(denied.result.isError && denied.result.content[0].text.includes('not this one'), JSON.stringify(denied));

    await until('the third ticket is shown', async () => (await ticket.count()) === 1);
    await page.locator('input[value=tool]').check();
    await page.locator('select[name=for]').selectOption('3600');
    await page.locator('button[value=approve]').click();
    check(!(await third).result.isError, 'the third call is made');
    check(!(await call('hub__delete_repo', { repo: 'acme/fourth' })).result.isError, 'the grant covers another call');
    same(await page.locator('.grants tbody tr').count(), 1, 'the grants');
    for (const [name, size, colorScheme] of [['dark', { width: 1280, height: 800 }, 'dark'], ['narrow', { width: 390, height: 800 }, 'light']]) {
        await page.setViewportSize(size);
        await page.emulateMedia({ colorScheme });
        await page.screenshot({ path: `${facts.shots}/approvals-${name}.png`, fullPage: true });
        const wide = await page.evaluate(() => [...document.querySelectorAll('body *')]
            .filter(one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('nav, .grants'))
            .map(one => one.outerHTML.slice(0, 80)));
        same(wide, [], 'elements that do not fit a narrow screen');
    }
    await page.locator('button[value=revoke]').click();
    await until('the grant is gone', async () => (await page.locator('.grants').count()) === 0);
    void context;
});
