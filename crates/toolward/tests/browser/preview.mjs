// A candidate policy, pasted or chosen: changed cells, wider rules, failed tests, past calls. Nothing is applied.
import { readFileSync } from 'node:fs';
import { browse, call, check, facts, same, until } from './kit.mjs';

await browse(async ({ page, open }) => {
    for (let number = 0; number < 2; number++) await call('reader', 'tracker__get_issue', { number: 17 });
    await call('maintainer', 'tracker__create_issue', { title: 'x' });
    await open('policy');
    const version = await page.locator('.in-force dd code').first().textContent();
    await page.locator('#to-preview').click();
    await page.locator('#text').waitFor();
    await page.evaluate(() => (window.stays = true));

    const compare = async () => {
        await page.evaluate(() => (document.getElementById('preview').dataset.old = ''));
        await page.locator('#compare').click();
        await until('the result', async () => (await page.locator('#preview:not([data-old]) #result, #preview:not([data-old]) .wrong').count()) > 0);
    };
    // The active policy, from a file: nothing changes.
    const text = readFileSync(facts.policy, 'utf8');
    await page.locator('#file').setInputFiles(facts.policy);
    await until('the file is in the field', async () => (await page.locator('#text').inputValue()) === text);
    await compare();
    check((await page.locator('.widens').textContent()).includes('allows nothing that the active policy denies'), 'nothing is wider');
    check((await page.locator('.changed-cells').textContent()).includes('No cell changes'), 'no cell changes');
    check((await page.locator('.past').textContent()).includes('0 of 3 calls'), await page.locator('.past').textContent());

    // A deny is removed, and a read-only agent loses its hint.
    const changed = text.replace('"*": ["hint:destructive"]', '"*": ["no_such_tool"]').replace('"*": ["hint:read-only"]', '"*": ["search_*"]');
    check(changed !== text, 'the demo’s policy');
    await page.locator('#text').fill(changed);
    await compare();
    check((await page.locator('.widens').textContent()).includes('allows calls that the active policy denies'), 'it is wider');
    const cell = (tool, agent) => page.locator('.compared tr', { hasText: tool }).locator('td').nth(agent);
    const head = await page.locator('.compared thead th').allTextContents();
    const [reader, maintainer] = ['reader', 'maintainer'].map(name => head.indexOf(name) - 1);
    same(await cell('tracker/delete_issue', maintainer).getAttribute('class'), 'gains', 'a gain');
    check((await cell('tracker/delete_issue', maintainer).textContent()).startsWith('+'), 'a plus');
    same(await cell('tracker/get_issue', reader).getAttribute('class'), 'loses', 'a loss');
    check((await cell('tracker/get_issue', reader).textContent()).startsWith('−'), 'a minus');
    check((await page.locator('.tests').textContent()).includes('failed'), 'a test fails');
    const past = page.locator('.past tbody tr', { hasText: 'tracker/get_issue' });
    check((await past.textContent()).includes('allow → deny'), 'a past call');
    check((await page.locator('.past').textContent()).includes('2 of 3 calls'), 'the summary');
    check(await page.evaluate(() => window.stays), 'the page was not loaded again');
    await page.screenshot({ path: `${facts.shots}/preview-light-1280.png`, fullPage: true });

    // A mistake is shown, and the text stays.
    await page.locator('#text').fill('agents:\n  reader:\n    alow: {}\n');
    await compare();
    check((await page.locator('.refused').textContent()).includes('did you mean `allow`?'), 'the mistake');
    same(await page.locator('#text').inputValue(), 'agents:\n  reader:\n    alow: {}\n', 'the text stays');

    // It fits a narrow screen.
    await page.setViewportSize({ width: 360, height: 740 });
    await page.locator('#text').fill(changed);
    await compare();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    check(width <= 360, `${width} pixels wide`);
    await page.screenshot({ path: `${facts.shots}/preview-light-360.png`, fullPage: true });

    await open('policy');
    same(await page.locator('.in-force dd code').first().textContent(), version, 'nothing was applied');
    same(readFileSync(facts.policy, 'utf8'), text, 'nothing was written');
});
