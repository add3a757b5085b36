// Decisions as they happen: updates, pausing, filters and details.
import { agrees, browse, call, check, facts, same, toolward, until } from './kit.mjs';

const rows = page => page.locator('#rows tr');
const what = page => page.locator('#rows tr .what').allTextContents();

/** Waits until a row is the newest. */
const newest = (page, text, patience) =>
    until(`a row of ${text}`, async () => (await rows(page).first().textContent({ timeout: 50 }).catch(() => '')).includes(text), patience);

await browse(async ({ page, base, open }) => {
    const streams = [];
    page.on('request', request => {
        const live = request.resourceType() === 'eventsource' && request.frame().url().startsWith(`${base}live`);
        if (live) streams.push(new URL(request.url()).pathname.split('/').slice(2).join('/'));
    });
    await open('live');
    await until('a stream', () => streams.length > 0);
    check(await page.locator('#nothing').isVisible(), 'nothing has happened');
    const took = [];
    for (let number = 1; number <= 3; number++) {
        const seen = page.waitForFunction(count => document.querySelectorAll('#rows tr').length >= count, number, { polling: 'raf' });
        const begun = performance.now();
        await call('reader', 'tracker__get_issue', { number: 17 });
        await seen;
        took.push(Math.round(performance.now() - begun));
    }
    console.log(`live: calls appear after ${took.join(', ')} ms`);
    check(Math.min(...took) < 1000, `a call appears after ${took} ms`);
    const row = rows(page).first();
    same(await row.locator('.who').textContent(), 'reader', 'the agent');
    same(await row.locator('.what').textContent(), 'tracker/get_issue', 'the tool');
    same(await row.locator('.verdict').textContent(), 'allow', 'the verdict');
    check((await row.locator('.why').textContent()).includes('hint:read-only'), 'the rule');
    await until('its outcome', async () => (await row.locator('.came').textContent()).includes('ok'));

    await call('reader', 'tracker__delete_issue', { number: 17 });
    await newest(page, 'delete_issue');
    same(await row.locator('.verdict').textContent(), 'deny', 'a refusal');
    const why = await row.locator('.why').textContent();
    check(why.includes('no entry of the allow lists') && !why.includes('6-default-deny'), `why it was refused: ${why}`);
    await call('maintainer', 'tracker__send_digest', { to: 'team@heron.example' });
    await newest(page, 'send_digest');
    await until('it failed', async () => (await row.locator('.came.failed').count()) === 1);

    // Paused with the button, and with a key.
    await page.locator('#pause').click();
    const before = await what(page);
    await call('visitor', 'tracker__search_issues', {});
    await until('one waits', async () => (await page.locator('#pace').textContent()).includes('1 new'));
    same(await what(page), before, 'what is shown while paused');
    await page.locator('main').focus();
    await page.keyboard.press('p');
    await newest(page, 'search_issues');
    same(await what(page), ['tracker/search_issues', ...before], 'and then it is there');

    // Opened with a click, closed with a key.
    await rows(page).filter({ hasText: 'delete_issue' }).click();
    const one = page.locator('#one article.one');
    await until('it is open', () => one.isVisible());
    const recorded = await one.locator('.facts').textContent();
    const id = await one.getAttribute('data-id');
    check(recorded.includes(id) || page.url().includes(id) || id.length > 8, `what is recorded: ${recorded}`);
    await until('the explanation', () => one.locator('article.why').isVisible());
    await agrees(one.locator('article.why'), toolward('explain', '--as', 'reader', 'tracker/delete_issue', '{"number":17}'));
    await page.keyboard.press('Escape');
    check(await page.locator('#one').isHidden(), 'Escape closes it');
    const at = () => page.evaluate(() => document.activeElement.querySelector('.what')?.textContent);
    same(await at(), 'tracker/delete_issue', 'the focus is on the row');
    await page.keyboard.press('ArrowDown');
    same(await at(), 'tracker/get_issue', 'the next row');
    await page.keyboard.press('Enter');
    await until('Enter opens it', async () => (await one.isVisible()) && (await one.locator('h2').first().textContent()).includes('get_issue'));
    const link = await one.locator('.links a').first().getAttribute('href');
    await open(link);
    same(await one.locator('h2 .what').first().textContent(), 'tracker/get_issue', 'the address of one decision');

    // A tab in the background does not follow; missed decisions are loaded when it is visible again.
    await open('live');
    check(streams.every(stream => stream === 'live/events'), `one stream: ${streams}`);
    const hide = hidden => page.evaluate(hidden => {
        Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
    const shown = await what(page);
    await hide(true);
    await call('reader', 'tracker__weekly_report', { seconds: 0 });
    await new Promise(resolve => setTimeout(resolve, 600));
    same(await what(page), shown, 'nothing comes in the background');
    const count = streams.length;
    await hide(false);
    await newest(page, 'weekly_report');
    same(await what(page), ['tracker/weekly_report', ...shown], 'and then it has come');
    same(streams.length, count + 1, 'by one stream');

    // Filters, which are in the URL.
    await open('live');
    await page.locator('select[name=agent]').selectOption('=maintainer');
    await page.waitForURL('**/live?agent=%3Dmaintainer');
    same(await what(page), ['tracker/send_digest'], 'one agent');
    await page.locator('#pause').waitFor();
    await call('reader', 'tracker__get_issue', { number: 17 });
    await call('maintainer', 'tracker__get_issue', { number: 17 });
    await newest(page, 'get_issue');
    same(await what(page), ['tracker/get_issue', 'tracker/send_digest'], 'one agent, live');
    await page.locator('select[name=agent]').selectOption('');
    await page.waitForURL(/live\??$/);
    await page.locator('select[name=verdict]').selectOption('deny');
    await page.waitForURL('**/live?verdict=deny');
    same(await what(page), ['tracker/delete_issue'], 'one verdict');
    await page.goBack();
    await until('back', async () => (await what(page)).length > 4);
    await page.locator('select[name=verdict]').selectOption('failed');
    await page.waitForURL('**/live?verdict=failed');
    same(await what(page), ['tracker/send_digest'], 'what failed');
    await open('live?server=files');
    same(await what(page), [], 'one server');
    await open('live');
    await page.locator('input[name=q]').fill('17');
    await page.locator('input[name=q]').fill('visitor');
    await page.keyboard.press('Enter');
    await page.waitForURL('**/live?q=visitor');
    same(await what(page), ['tracker/search_issues'], 'a text');
});
