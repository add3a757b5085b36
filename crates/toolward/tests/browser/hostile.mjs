// Names, titles, descriptions, arguments and errors that would have an effect if shown unescaped.
import { ask, browse, call, check, facts, injected, same, until } from './kit.mjs';

await browse(async ({ page, open }) => {
    const harmless = async where => {
        same(await injected(page), [], `elements on ${where}`);
        const text = await page.evaluate(() => document.documentElement.outerHTML);
        const acting = text.match(/[\u0000-\u0008\u000b-\u001f\u007f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/);
        check(!acting, `${where} holds U+${acting?.[0].charCodeAt(0).toString(16)}`);
        // A long name makes no line wider than the window.
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        check(wide <= 0, `${where} is ${wide} px wider than the window`);
    };

    // Each of them is a row whose cells open explanations.
    await until('the tools', async () => (await page.locator('.r').count()) >= facts.names.length);
    await harmless('the table');
    const shown = await page.locator('.r .n').allTextContents();
    check(shown.some(name => name.includes('<img src=x')), `markup is text: ${shown[0]}`);
    const rows = page.locator('.r');
    for (let at = 0; at < (await rows.count()); at++) {
        const tool = decodeURIComponent(await rows.nth(at).getAttribute('data-tool'));
        check(facts.names.includes(tool), `the tool ${JSON.stringify(tool)}`);
        const answered = page.waitForResponse(answer => answer.url().includes('/explain?'));
        await rows.nth(at).locator('i').nth(at % 2).click();
        if (tool.length > 5000) {
            // This one is too long for a URL, and nothing else is shown instead.
            same((await answered).status(), 414, 'the explanation');
            await until('it is said', async () => (await page.locator('#panel .wrong').count()) === 1);
            same(await page.locator('#panel article').count(), 0, 'explanations of other tools');
        } else {
            same((await answered).status(), 200, 'the explanation');
            await until('it is shown', async () => (await page.locator('#panel article .sees').count()) > 0);
        }
        await harmless(`the explanation of ${JSON.stringify(tool.slice(0, 40))}`);
        await page.keyboard.press('Escape');
    }
    await rows.first().hover();
    // An agent whose name is shown in another form can still be chosen.
    await page.locator('#pick-agent summary').click();
    await page.locator('#pick-agent label', { hasText: '<i onclick=pwned=1>' }).locator('input').click();
    await until('one column', async () => (await page.locator('.head .c').count()) === 1);
    check(await page.locator('#pick-agent input:checked').isVisible(), 'it is shown as chosen');
    await harmless('one agent');

    // Calls of hidden, nonexistent and allowed names, while a browser is watching.
    await open('live');
    for (const name of facts.names) {
        const args = { [name.slice(0, 200)]: name, text: '</td></tr></table><script>pwned=1</script>' };
        await call('a', `s__${name}`, args);
        await call('b', `s__${name}`, args);
        await call('b', name, args);
    }
    // As clients see them.
    const { tools } = (await ask('a', 'tools/list', {})).result;
    same(tools.length, facts.names.length, 'the tools that are listed');
    for (const tool of tools) await call('a', tool.name, { text: tool.description });
    await until('allowed calls', async () => (await page.locator('#rows tr .word.allow').count()) >= tools.length);
    await until('rows', async () => (await page.locator('#rows tr').count()) >= 2 * facts.names.length);
    await harmless('live');
    const decisions = page.locator('#rows tr');
    for (let at = 0; at < Math.min(12, await decisions.count()); at++) {
        await decisions.nth(at).locator('.verdict').click();
        await until('it is open', () => page.locator('#one article.one').isVisible());
        // The longest arguments do not fit in a URL: then the link stays.
        const long = (await page.locator('#one h2 .what').first().textContent()).length > 150;
        await until('its explanation', async () => long || (await page.locator('#one [hx-get] > a').count()) === 0);
        await harmless('one decision');
        await page.keyboard.press('Escape');
    }
    await open(`live?q=${encodeURIComponent(facts.names[0])}&agent=${encodeURIComponent('="><script>pwned=1</script>')}`);
    await harmless('a filter of live');

    // Typed text, and text in URLs.
    await open('ask');
    for (const name of facts.names) {
        await page.locator('#agent').selectOption('other');
        await page.locator('#name').fill(name.slice(0, 500));
        await page.locator('#tool').fill(`s/${name.slice(0, 2000)}`);
        await page.locator('#args').fill(JSON.stringify({ [name.slice(0, 500)]: '</textarea><script>pwned=1</script>' }));
        const answered = page.waitForResponse(answer => answer.request().method() === 'POST');
        await page.locator('#decide').click();
        same((await answered).status(), 200, 'the answer');
        await page.locator('#answer').waitFor({ state: 'attached' });
        await harmless('ask');
    }
    for (const name of facts.names) {
        const word = encodeURIComponent(name.slice(0, 1000));
        await open(`./?q=${word}&server=${word}&agent=${word}&verdict=${word}&hint=${word}`);
        await harmless('filters');
        await page.goto(new URL(`explain?agent=${word}&server=${word}&tool=${word}`, page.url()).href);
        await harmless('a question about nothing');
    }
    for (const agent of ['a', 'b', '<i onclick=pwned=1>\u202e"\'`', ...facts.names]) {
        await open(`agent?name=${encodeURIComponent(agent.slice(0, 1000))}`);
        await harmless('an agent');
    }
    for (const view of ['policy', 'servers']) {
        await open(view);
        await harmless(view);
    }
}, { allowed: said => /(status of|Error Code) 4(00|14)/.test(said) });
