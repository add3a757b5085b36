// The active policy: calls by rule, applied and rejected reloads, checks and tests.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { browse, call, check, facts, same, toolward, until } from './kit.mjs';

/** The count in the margin of the line with this text. */
const hits = (page, text) => page.locator('.source .l', { hasText: text }).first().locator('.hit').first();

/** Replaces a file by renaming another one over it, as editors do. */
function save(file, text) {
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
}

await browse(async ({ page, open }) => {
    await open('policy');
    await page.evaluate(() => (window.stays = true));
    const read = '"*": ["hint:read-only"]';
    same(await hits(page, read).textContent(), '0', 'before any call');
    same(await page.locator('#decided').textContent(), '0', 'nothing is decided');
    for (let number = 0; number < 3; number++) await call('reader', 'tracker__get_issue', { number: 17 });
    await call('maintainer', 'tracker__board', { action: 'clear' });
    await call('reader', 'tracker__delete_issue', { number: 17 });
    await until('three calls', async () => (await hits(page, read).textContent()) === '3');
    await until('the action that is denied', async () => (await hits(page, '[board.clear]').textContent()) === '1');
    await until('what is decided', async () => (await page.locator('#decided').textContent()) === '4');
    await until('what is not seen', async () => (await page.locator('#unseen').textContent()) === '1');

    // Its tests and checks match the commands.
    const cases = page.locator('.tests tbody tr');
    const tested = toolward('test');
    const passed = await cases.filter({ hasText: 'passed' }).count();
    same([passed, await cases.count()], [tested.passed, tested.passed + tested.failed], 'the tests');
    check(passed > 5, `${passed} tests`);
    check((await page.locator('.check').textContent()).includes('No problems were found'), 'the check');

    // A reload is shown without user action.
    const version = await page.locator('.in-force dd code').first().textContent();
    const text = readFileSync(facts.policy, 'utf8');
    check(text.includes('[search_issues, get_issue]'), 'the demo’s policy');
    save(facts.policy, text.replace('[search_issues, get_issue]', '[search_issues, get_issue, weekly_report]'));
    await until('the new version', async () => (await page.locator('.in-force dd code').first().textContent()) !== version);
    await until('taken up', async () => (await page.locator('.in-force').textContent()).includes('applied'));
    same(await hits(page, 'get_issue, weekly_report]').textContent(), '0', 'a new policy begins at zero');
    check((await page.locator('.in-force').textContent()).includes('by a reload'), 'since when it is active');

    // So is a rejected one, with the reason, here and in the other views.
    const second = await page.locator('.in-force dd code').first().textContent();
    save(facts.policy, text.replace('servers: [tracker, files]', 'servers: [tracker, <b>nowhere</b>'));
    await until('refused', () => page.locator('.refused').isVisible());
    const why = await page.locator('.refused .findings').textContent();
    check(why.includes('policy.yaml:'), `the place: ${why}`);
    same(await page.locator('.in-force dd code').first().textContent(), second, 'what was in force stays');
    await until('the file is said to differ', async () => (await page.locator('.file .wrong').count()) === 1);
    await until('the banner', async () => (await page.locator('.banner.loud').count()) === 1);
    check(await page.evaluate(() => window.stays), 'the page was never loaded anew');
    await page.screenshot({ path: `${facts.shots}/refused-light-1280.png` });
    await open('./');
    check(await page.locator('.banner.loud').isVisible(), 'the table says so too');
    await page.evaluate(() => (window.stays = true));

    // A policy whose tests fail is rejected too; a valid one removes the banner.
    save(facts.policy, text.replace('hidden: [tracker/board, files/list_files]', 'hidden: [tracker/search_issues]'));
    await until('the failed test', async () => (await page.locator('.banner').textContent()).includes('search_issues'));
    save(facts.policy, text.replace('[search_issues, get_issue]', '[search_issues]'));
    await until('all is well', async () => (await page.locator('.banner').count()) === 0);
    const cell = page.locator('.r[data-tool="get_issue"] i').nth(2);
    await until('the table follows', async () => /^deny( |$)/.test(await cell.getAttribute('class')));
    check(await page.evaluate(() => window.stays), 'the table was never loaded anew');

    // Open panels are refreshed: the explanation next to the table, the one of a decision, and a query result.
    const denied = text.replace('[search_issues, get_issue]', '[search_issues]');
    const follows = async (what, shown) => {
        const is = word => until(`${what}: ${word}`, async () =>
            (await shown.getAttribute('data-verdict', { timeout: 200 }).catch(() => '')) === word);
        await is('deny');
        save(facts.policy, text);
        await is('allow');
        check(await shown.isVisible(), `${what} stays open`);
        save(facts.policy, denied);
        await is('deny');
    };
    await cell.click();
    await follows('the panel', page.locator('#panel-body article.why'));
    await call('visitor', 'tracker__get_issue', { number: 17 });
    await open('live');
    await page.locator('#rows tr', { hasText: 'get_issue' }).first().click();
    await follows('a decision', page.locator('#told article.why'));
    await open('ask');
    await page.locator('#agent').selectOption('other');
    await page.locator('#name').fill('visitor');
    await page.locator('#tool').fill('tracker/get_issue');
    await page.locator('#args').fill('{"number": 17}');
    await page.locator('#decide').click();
    await page.locator('#answer article').waitFor();
    await page.locator('#tool').fill('tracker/something-else');
    await follows('an answer', page.locator('#answer article.why'));
    same(await page.locator('#answer > .large').textContent(), 'deny', 'in large letters too');
    same(await page.locator('#tool').inputValue(), 'tracker/something-else', 'what is typed stays');

    // If the gateway does not respond, that is shown.
    await open('./');
    await page.route('**/explain?*', route => route.abort());
    await cell.click();
    await until('the panel says so', () => page.locator('#panel .wrong').isVisible());
    check((await page.locator('#panel .wrong').textContent()).includes('does not respond'), 'the error is shown');
}, { allowed: said => /ERR_FAILED .*\/explain\?|htmx:(afterRequest|sendError),/.test(said) });
