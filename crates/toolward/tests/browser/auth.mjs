// Without the token nothing is shown; a page of another origin cannot fetch, embed, post or read, and does
// not get the cookie, even if it knows the path of the admin UI.
import { createServer } from 'node:http';
import { check, facts, launch, origin, same, until, watched } from './kit.mjs';

const token = new URL(facts.page).searchParams.get('token');
const SECRETS = ['tracker', 'reader', 'get_issue', 'policy.yaml'];

const heard = [];
const other = createServer((request, answer) => {
    heard.push({ url: request.url, cookie: request.headers.cookie });
    answer.setHeader('Content-Type', 'text/html');
    answer.end('<!DOCTYPE html><title>another</title><body></body>');
});
await new Promise(resolve => other.listen(0, '127.0.0.1', resolve));
const foreign = `http://127.0.0.1:${other.address().port}`;

const browser = await launch();
try {
    // Rejected requests are expected here, and browsers log them.
    const means = /status of 40[13]|ERR_FAILED|ERR_BLOCKED|CORS|frame-ancestors|Framing|NotSameOrigin|MIME|blocked|Cross-Origin|Refused|sandbox/;
    const context = await browser.newContext();
    const wrong = watched(context, said => said.startsWith(`asked ${foreign}`) || means.test(said));
    const page = await context.newPage();
    const empty = async what => {
        const html = await page.content();
        for (const secret of SECRETS) check(!html.includes(secret), `${what} shows ${secret}`);
    };

    // Without a token.
    for (const path of ['/', '/live', '/0123456789abcdef/', '/?token=wrong']) {
        same((await page.goto(origin + path)).status(), 401, path);
        await empty(path);
        check(await page.locator('#token').isVisible(), `${path} asks for the token`);
    }
    await page.locator('#token').fill('wrong');
    const [turned] = await Promise.all([
        page.waitForResponse(answer => answer.url() === `${origin}/login`),
        page.locator('form button').click(),
    ]);
    same(turned.status(), 401, 'a wrong token');
    await until('the form is there again', async () => (await page.locator('#token').inputValue().catch(() => '?')) === '');
    check(await page.locator('#token').isVisible(), 'a wrong token does not open it');
    await empty('a wrong token');
    same(await context.cookies(), [], 'there is no cookie');

    // With the form.
    await page.locator('#token').fill(token);
    await page.keyboard.press('Enter');
    await page.locator('#grid').waitFor();
    const base = page.url();
    const [cookie, ...more] = await context.cookies(base);
    same(more, [], 'one cookie');
    check(cookie.httpOnly && cookie.sameSite === 'Strict', 'the cookie’s attributes');
    same(cookie.path, new URL(base).pathname, 'the cookie’s path');
    check(cookie.value !== token && !base.includes(token), 'the token is not kept');
    same(await page.evaluate(() => document.cookie), '', 'no script reads it');

    // A page of another port: for cookies it is the same site.
    const attacker = await context.newPage();
    for (const path of ['/', '/live', '/0123456789abcdef/live']) await attacker.goto(foreign + path);
    const tried = await attacker.evaluate(async base => {
        const outcome = async promise => {
            try {
                const answer = await promise;
                return answer.type === 'opaque' ? 'opaque' : `read: ${await answer.text()}`;
            } catch (error) {
                return 'failed';
            }
        };
        const all = {};
        for (const view of ['', 'live', 'policy', 'explain?server=tracker&tool=get_issue']) {
            all[`cors ${view}`] = await outcome(fetch(base + view, { credentials: 'include' }));
            all[`blind ${view}`] = await outcome(fetch(base + view, { credentials: 'include', mode: 'no-cors' }));
        }
        const form = new URLSearchParams({ agent: '=reader', tool: 'tracker/get_issue', args: '{}' });
        const post = { method: 'POST', body: form, credentials: 'include' };
        all['cors post'] = await outcome(fetch(`${base}ask`, post));
        all['blind post'] = await outcome(fetch(`${base}ask`, { ...post, mode: 'no-cors' }));
        all.events = await new Promise(resolve => {
            const events = new EventSource(`${base}live/events`, { withCredentials: true });
            events.onopen = () => resolve('open');
            events.onerror = () => resolve('failed');
        });
        for (const [tag, field] of [['img', 'src'], ['script', 'src'], ['link', 'href']]) {
            all[tag] = await new Promise(resolve => {
                const element = document.createElement(tag);
                if (tag === 'link') element.rel = 'stylesheet';
                element.onload = () => resolve('loaded');
                element.onerror = () => resolve('failed');
                element[field] = base + (tag === 'link' ? 'policy' : 'live');
                document.body.append(element);
            });
        }
        const frame = document.createElement('iframe');
        const framed = new Promise(resolve => (frame.onload = resolve));
        frame.src = base;
        document.body.append(frame);
        await framed;
        let read = 'not readable';
        try {
            read = frame.contentDocument?.body.innerHTML ?? read;
        } catch {}
        all.frame = read;
        return all;
    }, base);
    for (const [what, outcome] of Object.entries(tried)) {
        check(['failed', 'opaque', 'not readable', ''].includes(outcome), `another origin: ${what}: ${outcome}`);
    }
    // The browser shows an error page of its own in the frame.
    for (const frame of attacker.frames().slice(1)) {
        check(frame.url().startsWith('chrome-error:'), `a frame shows ${frame.url()}`);
    }

    // A form that the page posts is rejected, although the browser sends it.
    const [posted] = await Promise.all([
        attacker.waitForResponse(answer => answer.request().method() === 'POST' && answer.url() === `${base}ask`),
        attacker.evaluate(base => {
            const form = document.createElement('form');
            Object.assign(form, { method: 'post', action: `${base}ask` });
            form.innerHTML = '<input name=agent value="=reader"><input name=tool value="tracker/get_issue">';
            document.body.append(form);
            form.submit();
        }, base),
    ]);
    same(posted.status(), 403, 'a form of another origin');
    const told = await until('its page', () => attacker.content().catch(() => ''));
    for (const secret of SECRETS) check(!told.includes(secret), `a posted form shows ${secret}`);

    // So is a link that it opens.
    await attacker.goto(`${foreign}/again`);
    const [opened] = await Promise.all([context.waitForEvent('page'), attacker.evaluate(base => void window.open(base), base)]);
    await until('it has gone there', () => opened.url() === base);
    const shown = await until('its page', () => opened.content().catch(() => ''));
    for (const secret of SECRETS) check(!shown.includes(secret), `a window that it opened shows ${secret}`);

    check(heard.length > 3, 'the other server was asked');
    same(heard.filter(one => one.cookie), [], 'what was sent to the other server');
    await page.goto(base);
    check(await page.locator('#grid').isVisible(), 'the page itself still works');
    same(wrong, [], 'what the browser did and said');
    console.log('auth: another origin got nothing');
} finally {
    await browser.close();
    other.close();
}
