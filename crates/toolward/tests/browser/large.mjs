// 10,000 tools by 50 agents: the table opens quickly, has few elements, and ends where it should.
import { browse, check, facts, same, until } from './kit.mjs';

const nodes = page => page.evaluate(() => document.querySelectorAll('*').length);

await browse(async ({ page, base, open }) => {
    const all = `${facts.tools} tools`;
    page.setDefaultTimeout(60_000);
    const begun = Date.now();
    await until('the list is known', async () => (await page.locator('.filters .count').textContent()) === all, 60_000);
    console.log(`large: a server's first list is shown ${Date.now() - begun} ms after the page`);
    const times = [];
    for (let times_left = 3; times_left > 0; times_left--) {
        await open('./');
        const painted = await page.evaluate(() => new Promise(resolve => {
            const look = () => {
                const shown = document.querySelector('#grid .r i') && performance.getEntriesByName('first-contentful-paint')[0];
                if (!shown) return requestAnimationFrame(look);
                requestAnimationFrame(() => setTimeout(() => resolve(Math.max(shown.startTime, 0)), 0));
            };
            look();
        }));
        times.push(Math.round(painted));
    }
    console.log(`large: first rows of ${facts.tools} × ${facts.agents} are painted after ${times.join(', ')} ms`);
    check(Math.min(...times) < 5000, `first rows after ${times} ms`);
    same(await page.locator('.head .c').count(), facts.agents, 'the columns');

    // Scrolls through everything, one step per frame, and now and then waits for the visible rows.
    const told = await page.evaluate(async () => {
        const frame = () => new Promise(requestAnimationFrame);
        const scroll = document.getElementById('scroll');
        const slow = [];
        let most = 0;
        let frames = 0;
        let before = performance.now();
        for (let at = 0; scroll.scrollTop + scroll.clientHeight < scroll.scrollHeight - 1; at++) {
            scroll.scrollTop += 3000;
            if (at % 10 === 9) for (let wait = 0; wait < 30; wait++) await frame();
            await frame();
            frames++;
            const now = performance.now();
            if (at % 10 !== 9 && now - before > 100) slow.push(Math.round(now - before));
            before = now;
            most = Math.max(most, document.querySelectorAll('*').length);
        }
        return { most, frames, slow };
    });
    console.log(`large: at most ${told.most} elements; ${told.slow.length} of ${told.frames} steps took over 100 ms`);
    check(told.most < 40_000, `${told.most} elements`);
    const last = await until('the last row', async () => {
        const row = page.locator(`.r[aria-rowindex="${facts.tools + 2}"]`);
        return (await row.count()) === 1 && row.locator('.n').textContent();
    });
    same(last, facts.last, 'the last row');
    await until('few elements are left', async () => (await nodes(page)) < 30_000);

    // Found with a filter, and reached with the keyboard.
    await page.locator('#q').fill(facts.last);
    await until('one is left', async () => (await page.locator('.filters .count').textContent()) === `1 of ${all}`);
    await open('./');
    await page.locator('.r i').first().focus();
    await page.keyboard.press('Control+End');
    await until('the last cell', () => page.evaluate(last => document.activeElement.parentElement.dataset.tool === last, facts.last));
    await page.keyboard.press('Enter');
    await until('its explanation', () => page.locator('#panel article').isVisible());
    await page.screenshot({ path: `${facts.shots}/large-light-1280.png` });
});
