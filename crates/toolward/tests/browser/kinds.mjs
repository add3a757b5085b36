// Prompts, resources and templates in the matrix: every cell matches `toolward ls`, every explanation matches
// `toolward explain`, and each list of a server has a heading of its own, which collapses it.
import { agrees, browse, check, choose, facts, read, same, toolward, until } from './kit.mjs';

const { agents } = facts;
const NOUNS = ['prompt', 'resource', 'template'];
const ls = (agent, ...flags) => toolward('ls', '--all', ...flags, '--as', agent);
const listed = new Map(agents.map(agent => [agent, [...ls(agent, '--prompts'), ...ls(agent, '--resources')]]));
const noun = entry => NOUNS.find(noun => noun in entry);
const nameOf = entry => `${entry.server}/${entry[noun(entry)]}`;
const all = listed.get(agents[0]);

/** The rows of these entries; the matrix orders them by server. */
function expected(wanted = () => true) {
    const word = (agent, at) => {
        const { verdict, belongs_to } = listed.get(agent)[at];
        return belongs_to ? `${verdict} elsewhere` : verdict;
    };
    const rows = all.map((entry, at) => [noun(entry), nameOf(entry), ...agents.map(agent => word(agent, at))]);
    return rows.filter((row, at) => wanted(all[at], row)).sort();
}

const cell = (page, kind, name, agent) => {
    const [server, ...rest] = name.split('/');
    const tool = encodeURIComponent(rest.join('/'));
    return page.locator(`.r[data-server="${server}"][data-kind="${kind}"][data-tool="${tool}"] i`).nth(agents.indexOf(agent));
};
const panel = page => page.locator('#panel article');
const about = (agent, kind, name) =>
    toolward('explain', '--as', agent, kind === 'prompt' ? '--prompt' : '--resource', name, '--list');
const counts = page => page.locator('.filters .count').textContent();

await browse(async ({ page, base, open }) => {
    const found = NOUNS.map(kind => [kind, all.filter(entry => noun(entry) === kind).length]);
    const said = found.map(([kind, count]) => `${count} ${kind}s`).join(', ');
    await until(`the lists: ${said}`, async () => {
        await open('./');
        return (await counts(page)).endsWith(`tools, ${said}`);
    });

    // Every cell, by kind.
    await choose(page, 'kind', ...NOUNS);
    await until('tools are left out', async () => (await counts(page)).startsWith('0 of'));
    const rows = await read(page);
    same(rows.agents, agents, 'the columns');
    same(rows.kinds.sort(), expected(), 'prompts, resources and templates');
    const words = new Set(rows.kinds.flatMap(([, , ...cells]) => cells));
    same([...words].sort(), ['allow', 'allow elsewhere', 'deny', 'depends'], 'the verdicts that occur');
    await open('./?kind=template&verdict=depends');
    same((await read(page)).kinds.sort(), expected((entry, row) => noun(entry) === 'template' && row.includes('depends')), 'templates that depend on the URI');
    await open('./?q=plan');
    same((await read(page)).kinds, expected(entry => entry.prompt === 'internal_plan'), 'a search by the display name');
    same(await page.locator('.r .as').allTextContents(), ['plan'], 'the display name');
    await open('./?q=nothing+like+it');
    check((await page.locator('.empty').textContent()).includes('Nothing matches'), 'nothing is left');
    check((await cellLabel(page, open, 'prompt', 'notes/review', 'admin')).includes('at most 90/min'), 'the limit on calls');

    // Each list of a server has a heading, with the number of entries that each agent may use.
    await open('./?fold=%2A');
    const headings = await page.locator('.g').evaluateAll(all => all.map(row => [row.dataset.group, row.querySelector('.t').textContent.trim()]));
    const groups = ['notes', 'notes/prompts', 'notes/resources', 'notes/templates', 'docs/prompts', 'docs/resources', 'docs/templates', 'plain'];
    same(headings.map(([group]) => group).filter(group => group !== 'toolward'), groups, 'the headings');
    same(headings.find(([group]) => group === 'docs/resources')[1], 'docs 101 resources', 'the text of a heading');
    for (const [server, kind] of groups.map(group => group.split('/')).filter(([, kind]) => kind)) {
        const shown = await page.locator(`.g[data-group="${server}/${kind}"] .s`).allTextContents();
        const visible = agent => listed.get(agent).filter(entry => entry.server === server && `${noun(entry)}s` === kind && entry.listed).length;
        same(shown, agents.map(agent => String(visible(agent))), `the counts of ${server}/${kind}`);
    }

    // They collapse one by one.
    await open('./');
    const group = page.locator('.g[data-group="notes/prompts"]');
    await group.locator('.fold').click();
    await until('it is collapsed', async () => (await group.getAttribute('aria-expanded')) === 'false');
    same(await page.locator('.r[data-server="notes"][data-kind="prompt"]').count(), 0, 'its prompts are not shown');
    check((await page.locator('.r[data-server="notes"][data-kind="resource"]').count()) > 0, 'its resources are shown');
    check(page.url().endsWith('fold=notes%2Fprompts'), `it is in the address: ${page.url()}`);
    await page.goBack();
    await until('it is expanded', async () => (await group.getAttribute('aria-expanded')) === 'true');

    // Explanations.
    for (const [agent, kind, name] of [
        ['reader', 'prompt', 'notes/summarize'],
        ['reader', 'prompt', 'notes/review'],
        ['reader', 'prompt', 'notes/internal_plan'],
        ['reader', 'resource', 'notes/note://a/1'],
        ['reader', 'resource', 'notes/note://a/2'],
        ['reader', 'resource', 'notes/note://a/../b'],
        ['reader', 'template', 'notes/note://{area}/{page}'],
        ['reader', 'template', 'notes/secret://{id}'],
        ['stepper', 'prompt', 'notes/review'],
        ['stepper', 'resource', 'docs/doc://guide/000'],
        ['nobody', 'template', 'notes/shared://{id}'],
        ['admin', 'resource', 'notes/shared://one'],
    ]) {
        await cell(page, kind, name, agent).click();
        const open = async () => {
            const [who, what] = await Promise.all(['.who', '.what'].map(part => panel(page).locator(part).first().textContent({ timeout: 100 }).catch(() => '')));
            return who === agent && what === name;
        };
        await until(`${name} for ${agent}`, open);
        await agrees(panel(page), about(agent, kind, name));
    }
    const link = await panel(page).locator('.links a').first().getAttribute('href');
    same(await panel(page).locator('.links a').count(), 1, 'Ask is about tools');
    await open(link);
    await agrees(page.locator('main article'), about('admin', 'resource', 'notes/shared://one'));

    // A resource of two servers belongs to the first.
    await open(`explain?agent=admin&server=docs&tool=${encodeURIComponent('shared://one')}&kind=resource`);
    await agrees(page.locator('main article'), { ...about('admin', 'resource', 'docs/shared://one'), listed: false });
    check((await page.locator('main .sees').textContent()).includes('it belongs to notes'), 'the owner is named');
    // The reader may not see it there.
    await open(`explain?agent=reader&server=docs&tool=${encodeURIComponent('shared://one')}&kind=resource`);
    await agrees(page.locator('main article'), about('reader', 'resource', 'docs/shared://one'));

    for (const scheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme: scheme });
        for (const width of [1280, 360]) {
            await page.setViewportSize({ width, height: width === 360 ? 740 : 800 });
            await open('./?fold=notes&fold=plain&fold=toolward');
            await page.screenshot({ path: `${facts.shots}/kinds-${scheme}-${width}.png` });
            await cell(page, 'template', 'notes/note://{area}/{page}', 'reader').click();
            await panel(page).waitFor();
            await page.screenshot({ path: `${facts.shots}/kinds-explanation-${scheme}-${width}.png` });
        }
    }
    check(page.url().startsWith(base), page.url());
});

async function cellLabel(page, open, kind, name, agent) {
    await open(`./?kind=${kind}`);
    return cell(page, kind, name, agent).getAttribute('aria-label');
}
