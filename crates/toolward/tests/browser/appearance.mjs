// Screenshots of each view in light and dark, wide and narrow; nothing overflows a narrow window.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { browse, call, check, facts, until } from './kit.mjs';
import { some } from './calls.mjs';

const VIEWS = {
    matrix: ['./'],
    explanation: ['./', async page => {
        await page.locator('.r[data-tool="write_file"] i').nth(1).click();
        await page.locator('#panel article').waitFor();
    }],
    collapsed: ['./?fold=tracker'],
    agent: ['agent?name=maintainer'],
    live: ['live'],
    decision: ['live', async page => {
        await page.locator('#rows tr', { hasText: 'write_file' }).first().locator('.verdict').click();
        await page.locator('#one article.why').waitFor();
    }],
    ask: ['ask', async page => {
        await page.locator('#agent').selectOption('=maintainer');
        await page.locator('#tool').fill('files/write_file');
        await page.locator('#args').fill('{"path": "config/production.yaml"}');
        await page.locator('#decide').click();
        await page.locator('#answer article').waitFor();
    }],
    wrong: ['ask', async page => {
        await page.locator('#agent').selectOption('other');
        await page.locator('#args').fill('{"path": }');
        await page.locator('#decide').click();
        await page.locator('#wrong-args').waitFor();
    }],
    policy: ['policy'],
    servers: ['servers'],
    filters: ['./?agent=maintainer&verdict=allow&verdict=depends', async page => {
        await page.locator('#pick-verdict summary').click();
    }],
};

await browse(async ({ browser, page, base, open }) => {
    await some(call);
    await until('the lists', async () => {
        await open('./');
        return (await page.locator('.r').count()) === 12;
    });
    const login = await (await browser.newContext()).newPage();
    for (const scheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme: scheme });
        await login.emulateMedia({ colorScheme: scheme });
        for (const width of [1280, 360]) {
            const size = { width, height: width === 360 ? 740 : 800 };
            await page.setViewportSize(size);
            await login.setViewportSize(size);
            for (const [name, [view, then]] of Object.entries(VIEWS)) {
                await open(view);
                await then?.(page);
                // Tables have bodies with their own scroll bars; other views are as long as their content.
                const fullPage = ['agent', 'ask', 'wrong', 'policy', 'servers'].includes(name);
                await shoot(page, `${name}-${scheme}-${width}`, fullPage);
            }
            await login.goto(new URL('/', base).href);
            await login.screenshot({ path: `${facts.shots}/login-${scheme}-${width}.png` });
        }
    }

    // The changes of a reload.
    const text = readFileSync(facts.policy, 'utf8');
    const other = text.replace('[search_issues, get_issue]', '[search_issues, get_issue, weekly_report]').replace('5/min', '2/min');
    check(other !== text, 'the demo’s policy');
    writeFileSync(`${facts.policy}.new`, other);
    renameSync(`${facts.policy}.new`, facts.policy);
    await open('./');
    await page.locator('.reload').waitFor();
    for (const scheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme: scheme });
        for (const width of [1280, 360]) {
            await page.setViewportSize({ width, height: width === 360 ? 740 : 800 });
            await shoot(page, `changed-${scheme}-${width}`);
        }
    }
});

/** A screenshot; fails if anything overflows. */
async function shoot(page, name, fullPage = false) {
    await page.screenshot({ path: `${facts.shots}/${name}.png`, fullPage, animations: 'disabled' });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    check(wide <= 0, `${name}: ${wide} px too wide`);
}
