// A decision without a call: the facts of `toolward explain`, and errors of a query.
import { agrees, browse, check, facts, same, toolward, until } from './kit.mjs';
import { readdirSync, readFileSync } from 'node:fs';

const record = () => readdirSync(facts.audit).map(name => readFileSync(`${facts.audit}/${name}`, 'utf8')).join('');

await browse(async ({ page, open }) => {
    await open('ask');
    const before = record();
    const decide = async (agent, tool, args) => {
        if (agent.startsWith('other ')) {
            await page.locator('#agent').selectOption('other');
            await page.locator('#name').fill(agent.slice(6));
        } else {
            await page.locator('#agent').selectOption(`=${agent}`);
        }
        await page.locator('#tool').fill(tool);
        await page.locator('#args').fill(args);
        const answered = page.waitForResponse(answer => answer.request().method() === 'POST');
        // The form is replaced with the response: values entered before that would be lost.
        await page.evaluate(() => (document.getElementById('ask').dataset.old = ''));
        await page.locator('#decide').click();
        same((await answered).status(), 200, 'the answer');
        await until('the form comes anew', async () => (await page.locator('#ask:not([data-old])').count()) === 1);
    };
    const is = async (verdict, agent, tool, args) => {
        await decide(agent, tool, args);
        await until(`${agent} ${tool} ${args}: ${verdict}`, async () =>
            (await page.locator('#answer > .large').textContent({ timeout: 100 }).catch(() => '')) === verdict);
        const name = agent.replace('other ', '');
        const told = toolward('explain', ...(name ? ['--as', name] : []), tool, args || '{}');
        same(told.verdict, verdict, 'explain');
        await agrees(page.locator('#answer article'), told);
        same(await page.locator('#tool').inputValue(), tool, 'the tool stays');
        same((await page.locator('#args').inputValue()).trim(), args, 'the arguments stay');
    };
    await is('allow', 'reader', 'tracker/get_issue', '{"number": 17}');
    await is('deny', 'reader', 'tracker/create_issue', '{"title": "<b>no</b>"}');
    await is('allow', 'maintainer', 'files/write_file', '{"path": "drafts/a.md"}');
    await is('deny', 'maintainer', 'files/write_file', '{"path": "drafts/../config"}');
    await is('deny', 'maintainer', 'files/write_file', '');
    await is('allow', 'visitor', 'tracker/search_issues', '{}');
    await is('deny', 'other stranger', 'files/list_files', '{}');
    await is('allow', 'other stranger', 'tracker/search_issues', '{}');
    check((await page.locator('.lead').textContent()).includes('limits and hooks do not run'), 'the lead names what does not run');

    const wrong = async (field, agent, tool, args, said) => {
        await decide(agent, tool, args);
        const why = page.locator(`#wrong-${field}`);
        await until(`${field} is wrong`, () => why.isVisible());
        check((await why.textContent()).includes(said), `${await why.textContent()} says ${said}`);
        const input = page.locator({ args: '#args', tool: '#tool', agent: '#name' }[field]);
        same(await input.getAttribute('aria-invalid'), 'true', `${field} is marked`);
        same(await page.locator('#answer article').count(), 0, 'there is no answer');
    };
    await wrong('args', 'reader', 'tracker/get_issue', '{"number": 17', 'JSON');
    await wrong('args', 'reader', 'tracker/get_issue', '{"number": 17, "number": 18}', 'number');
    await wrong('args', 'reader', 'tracker/get_issue', '[17]', 'object');
    await wrong('tool', 'reader', 'get_issue', '{}', 'SERVER/TOOL');
    await wrong('tool', 'reader', 'trackr/get_issue', '{}', 'Did you mean “tracker”?');
    await wrong('agent', 'other ', 'tracker/get_issue', '{}', 'name');

    // Names are suggested while typing, and links from explanations fill the form.
    await page.locator('#tool').fill('');
    await page.locator('#tool').pressSequentially('fs_');
    await until('one is proposed', async () => {
        const options = await page.locator('#tools option').evaluateAll(all => all.map(one => one.value));
        return options.join() === 'files/fs_get_v2';
    });
    await open('explain?agent=reader&server=tracker&tool=board');
    await page.locator('.links a', { hasText: 'Ask about a call' }).click();
    await until('the form', () => page.locator('#decide').isVisible());
    same(await page.locator('#tool').inputValue(), 'tracker/board', 'the tool');
    same(await page.locator('#agent').inputValue(), '=reader', 'the agent');
    same(record(), before, 'the record');
});
