// The matrix: every cell matches `toolward ls`, also with filters; explanations match `toolward explain`;
// everything can be reached with the keyboard, by URL and with the back button.
import { agrees, browse, check, choose, facts, read, same, toolward, until } from './kit.mjs';

const agents = [...facts.agents, null];
const as = agent => (agent === null ? [] : ['--as', agent]);
const listed = new Map(agents.map(agent => [agent, toolward('ls', '--all', ...as(agent))]));
const first = listed.get(agents[0]);
const verdict = (agent, at) => listed.get(agent)[at].verdict;

/** The expected cells of these agents, for the wanted tools of the list. */
function expected(of, wanted = () => true) {
    const rows = first.map((tool, at) => [tool, at]).filter(([tool, at]) => wanted(tool, at));
    return rows.map(([tool, at]) => [`${tool.server}/${tool.tool}`, ...of.map(agent => verdict(agent, at))]);
}

/** The table after a URL has loaded. */
async function shows(page, of, wanted, what) {
    const rows = expected(of, wanted);
    const count = await until(what, async () => {
        const said = await page.locator('.filters .count').textContent();
        return parseInt(said, 10) === rows.length && said;
    });
    check(count.includes(`${first.length} tools`), `${what}: ${count}`);
    const found = await read(page);
    same(found.agents, of, `${what}: the columns`);
    same(found.rows, rows, what);
}

const cell = (page, name, agent, of = agents) => {
    const [server, tool] = name.split('/');
    const row = page.locator(`.r[data-server="${server}"][data-tool="${tool}"]`);
    return row.locator('i').nth(of.indexOf(agent));
};
const panel = page => page.locator('#panel article');
const about = (agent, name, args = '--list') => toolward('explain', ...as(agent), name, args);

/** The focused element: a cell's tool and column, or an id. */
const focused = page =>
    page.evaluate(() => {
        const at = document.activeElement;
        if (at.matches('#grid a.fold')) return `server ${at.closest('.g').dataset.server}`;
        if (at.matches('#grid .c a')) return `agent ${at.parentElement.dataset.agent ?? ''}`;
        if (at.tagName !== 'I') return at.id || at.parentElement.id || at.textContent;
        const row = at.parentElement;
        return `${row.dataset.server}/${row.dataset.tool} ${[...row.querySelectorAll('i')].indexOf(at)}`;
    });

await browse(async ({ page, base, open }) => {
    await until('all servers have answered', async () => {
        const why = await page.locator('.g .why').count();
        return why === 0;
    });
    await shows(page, agents, undefined, 'everything');
    const verdicts = new Set(expected(agents).flatMap(([, ...words]) => words));
    same([...verdicts].sort(), ['allow', 'deny', 'depends'], 'the verdicts of this policy');
    const { sees } = await read(page);
    same(sees, agents.map(agent => {
        const seen = listed.get(agent).filter(tool => tool.verdict !== 'deny');
        return `${seen.length}/${first.length}`;
    }), 'how many tools each agent sees');

    // Filters, one by one and together.
    const hinted = hint => tool => tool.hints.includes(hint);
    await choose(page, 'server', 'files');
    await shows(page, agents, tool => tool.server === 'files', 'one server');
    await choose(page, 'hint', 'read-only');
    await shows(page, agents, tool => tool.server === 'files' && hinted('read-only')(tool), 'server and hint');
    await page.goBack();
    await shows(page, agents, tool => tool.server === 'files', 'back');
    check(await page.locator('#pick-server input[value="files"]').isChecked(), 'the form agrees after going back');
    await page.goForward();
    await shows(page, agents, tool => tool.server === 'files' && hinted('read-only')(tool), 'forward');
    await page.locator('.clear').click();
    await shows(page, agents, undefined, 'cleared');
    await choose(page, 'verdict', 'depends');
    const any = (word, of = agents) => (tool, at) => of.some(agent => verdict(agent, at) === word);
    await shows(page, agents, any('depends'), 'one verdict');
    await choose(page, 'agent', 'bot');
    await shows(page, ['bot'], any('depends', ['bot']), 'one agent and one verdict');
    await choose(page, 'agent', '');
    await shows(page, ['bot', null], any('depends', ['bot', null]), 'two agents and one verdict');
    const filtered = page.url();
    await open('./');
    await page.keyboard.press('/');
    same(await focused(page), 'q', 'the key / leads to the search');
    await page.keyboard.type('get files');
    const words = tool => `${tool.server}/${tool.tool}`.includes('get') && tool.server.includes('files');
    await shows(page, agents, words, 'two words');
    same(await page.locator('#q').inputValue(), 'get files', 'what was typed stays');
    await open(filtered);
    await shows(page, ['bot', null], any('depends', ['bot', null]), 'an address with filters');
    await open('./?q=nothing+like+it');
    check((await page.locator('.empty').textContent()).includes('No tool matches'), 'nothing is left');

    // With the mouse.
    await open('./');
    await cell(page, 'hub/create_issue', 'bot').click();
    await until('the explanation is there', () => panel(page).isVisible());
    await agrees(panel(page), about('bot', 'hub/create_issue'));
    await cell(page, 'hub/manage', 'keeper').click();
    await until('the other one', async () => (await panel(page).locator('.what').textContent()).endsWith('manage'));
    await agrees(panel(page), about('keeper', 'hub/manage'));
    await cell(page, 'hub/internal', null).click();
    await until('the third', async () => (await panel(page).locator('.what').textContent()).endsWith('internal'));
    await agrees(panel(page), about(null, 'hub/internal'));
    const link = await panel(page).locator('.links a').first().getAttribute('href');
    await page.locator('#panel-close').click();
    check(await page.locator('#panel').isHidden(), 'it can be closed');
    await open(link);
    await agrees(page.locator('main article'), about(null, 'hub/internal'));
    await open(`explain?agent=bot&server=hub&tool=create_issue&args=${encodeURIComponent('{"repo":"a/b"}')}`);
    await agrees(page.locator('main article'), about('bot', 'hub/create_issue', '{"repo":"a/b"}'));

    // With the keyboard.
    await open('./');
    await page.locator('#q').focus();
    const order = [];
    for (let tabs = 0; tabs < 6; tabs++) {
        await page.keyboard.press('Tab');
        order.push(await focused(page));
    }
    const start = `${first[0].server}/${first[0].tool} 0`;
    same(order, ['pick-server', 'pick-agent', 'pick-verdict', 'pick-hint', 'fold-all', start], 'the order of Tab');
    same(await page.locator('#grid [tabindex="0"]').count(), 1, 'places of the table that Tab reaches');
    const press = async (key, wanted) => {
        await page.keyboard.press(key);
        await until(`${key} leads to ${wanted}`, async () => (await focused(page)) === wanted, 5000);
    };
    const name = at => `${first[at].server}/${first[at].tool}`;
    await press('ArrowDown', `${name(1)} 0`);
    await press('ArrowRight', `${name(1)} 1`);
    await press('End', `${name(1)} ${agents.length - 1}`);
    await press('Home', `${name(1)} 0`);
    const next = first.findIndex(tool => tool.server !== first[0].server);
    for (let at = 2; at < next; at++) await press('ArrowDown', `${name(at)} 0`);
    await press('ArrowDown', `server ${first[next].server}`);
    await press('ArrowDown', `${name(next)} 0`);
    await press('ArrowUp', `server ${first[next].server}`);
    await press('ArrowUp', `${name(next - 1)} 0`);
    await press('Control+End', `${name(first.length - 1)} ${agents.length - 1}`);
    await press('Control+Home', `server ${first[0].server}`);

    // A server collapses and expands, with its counts, in place.
    const headline = page.locator('.g').first();
    const expanded = wanted => until(`expanded: ${wanted}`, async () => (await headline.getAttribute('aria-expanded')) === wanted);
    const here = `server ${first[0].server}`;
    const counts = await headline.locator('.s').allTextContents();
    same(counts, agents.map(agent => String(first.filter((tool, at) => tool.server === first[0].server && verdict(agent, at) !== 'deny').length)), 'the counts of a server');
    await page.keyboard.press('ArrowLeft');
    await expanded('false');
    await until('the focus stays', async () => (await focused(page)) === here);
    same(await page.locator(`.r[data-server="${first[0].server}"]`).count(), 0, 'its tools are not shown');
    same(await headline.locator('.s').allTextContents(), counts, 'its counts stay');
    check(page.url().endsWith(`fold=${first[0].server}`), `it is in the address: ${page.url()}`);
    await page.keyboard.press('ArrowRight');
    await expanded('true');
    await until('the focus stays', async () => (await focused(page)) === here);
    await page.keyboard.press('Enter');
    await expanded('false');
    await page.goBack();
    await expanded('true');
    await headline.locator('.fold').click();
    await expanded('false');
    await page.locator('#fold-all').click();
    await until('all are collapsed', async () => (await page.locator('.r').count()) === 0);
    await page.locator('#fold-all').click();
    await until('all are expanded', async () => (await page.locator('.r').count()) > 0);

    // The header of a column opens its agent.
    await open('./');
    await page.locator('.r i').first().focus();
    await press('Control+Home', here);
    await press('ArrowUp', `agent ${agents[0]}`);
    await press('ArrowRight', `agent ${agents[1]}`);
    await page.keyboard.press('Enter');
    await page.waitForURL(`**/agent?name=${agents[1]}`);
    same(await page.locator('h1').allTextContents(), [agents[1]], 'the title of its view');
    const mine = listed.get(agents[1]).filter(tool => tool.verdict !== 'deny').length;
    same(await page.locator('.lead b').allTextContents(), [String(mine), String(first.length)], 'the tools that it may call');
    await open('./');
    await page.locator('.r i').first().focus();
    await press('ArrowRight', `${name(0)} 1`);
    await page.keyboard.press('Enter');
    await until('Enter opens it', () => panel(page).isVisible());
    await agrees(panel(page), about(agents[1], name(0)));
    await page.keyboard.press('Escape');
    check(await page.locator('#panel').isHidden(), 'Escape closes it');
    same(await focused(page), `${name(0)} 1`, 'the focus is where it was');
    same(page.url(), base, 'the address');
});
