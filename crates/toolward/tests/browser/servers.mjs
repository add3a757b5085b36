// Servers: states, calls and latency as they change, and a killed server.
import { readFileSync, readdirSync } from 'node:fs';
import { browse, call, check, facts, same, until } from './kit.mjs';

/** The gateway's child with this argument. */
function child(argument) {
    const pids = readdirSync('/proc').filter(name => /^\d+$/.test(name));
    const found = pids.find(pid => {
        try {
            const parent = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ')[1];
            const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
            return Number(parent) === facts.pid && words.includes(argument);
        } catch {
            return false;
        }
    });
    return found && Number(found);
}

/** Ends a process, which may have ended already. */
function kill(pid) {
    try {
        process.kill(pid, 'SIGKILL');
    } catch (error) {
        check(error.code === 'ESRCH', error.message);
    }
}

/** A change that arrives while the view is being replaced causes another refresh. */
async function changes_during_a_refresh_are_shown(page) {
    let refreshes = 0;
    let release;
    const released = new Promise(resolve => (release = resolve));
    await page.route(url => url.pathname.endsWith('/servers'), async route => {
        refreshes += 1;
        await released;
        await route.continue();
    });
    const change = () => page.evaluate(() => htmx.trigger(document.body, 'changed'));
    await change();
    await until('a refresh', () => refreshes > 0);
    await change();
    release();
    await until('another refresh', () => refreshes > 1);
}

await browse(async ({ page, open }) => {
    await open('servers');
    await page.evaluate(() => (window.stays = true));
    const card = page.locator('.server[aria-label="tracker"]');
    const number = async name => {
        const told = await card.locator('.numbers > div', { hasText: name }).first().locator('dd').textContent();
        return Number(told);
    };
    await until('it is up', async () => (await card.locator('.is').textContent()).includes('up'));
    check((await card.locator('.name').textContent()).includes('2026-07-28'), 'its revision');
    await until('its tools', async () => (await card.locator('.tools').textContent()).includes('9 tools offered, 8 shown'));
    await card.locator('summary').click();
    const seen = await card.locator('details tr').allTextContents();
    same(seen.map(row => row.replace(/\s+/g, ' ').trim()), ['reader4', 'maintainer8', 'default2', 'visitor2'], 'by agent');

    await changes_during_a_refresh_are_shown(page);

    for (let times = 0; times < 5; times++) await call('reader', 'tracker__get_issue', { number: 17 });
    await call('maintainer', 'tracker__send_digest', { to: 'team@heron.example' });
    await until('calls are counted', async () => (await number('Calls')) === 6);
    await until('the plot', async () => (await card.locator('polyline.p50').count()) > 0);
    check(/p50 [\d.]+ ?[µm]?s.*p95 [\d.]+ ?[µm]?s.*of 6/.test(await card.locator('figcaption').textContent()), 'latency');
    const points = await card.locator('polyline.p50').first().getAttribute('points');
    check(/^[\d., ]+$/.test(points), `the plot's points: ${points}`);
    check((await card.locator('details').getAttribute('open')) !== null, 'what was opened stays open');

    // A killed server is shown, and restarts with the next call. The gateway itself replaces a process
    // that ran for some seconds, to list its tools again: that one is killed too, and is not replaced so soon.
    check(child('tracker'), 'the server is a child of the gateway');
    const before = await number('Restarts');
    const state = () => card.locator('.is b').textContent();
    await until('it is down', async () => {
        const pid = child('tracker');
        if (pid) kill(pid);
        return (await state()) === 'down';
    });
    // Calls fail until the gateway's restart backoff is over.
    await until('a call is answered', async () => {
        const { result } = await call('reader', 'tracker__get_issue', { number: 17 });
        return result && !result.isError;
    });
    await until('it is up again', async () => (await state()) === 'up');
    await until('a restart', async () => (await number('Restarts')) > before);
    check(await card.locator('.failure').isVisible(), 'the last failure is told');
    check((await card.locator('details').getAttribute('open')) !== null, 'what was opened is still open');
    check(await page.evaluate(() => window.stays), 'the page was never loaded anew');
});
