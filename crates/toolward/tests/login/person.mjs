// A person in Chromium who logs in at the provider's page.
//
//     node person.mjs FACTS_JSON
//
// FACTS_JSON: `url` (the address that `toolward login` prints), `button` (the button of the provider's page), `title` (of
// the page at which the browser must end), `redirect` (its address).
import { check, facts, launch, until } from '../browser/kit.mjs';

const browser = await launch();
try {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(facts.url);
    await page.click(facts.button);
    await until(`the page ${facts.title}`, async () => (await page.title()) === facts.title);
    check(page.url().startsWith(facts.redirect), page.url());
    // The page has no scripts and loads nothing, so that no one else gets the code in its address.
    check((await page.locator('script, img, link').count()) === 0, await page.content());
    const code = new URL(page.url()).searchParams.get('code') ?? 'none';
    check(!(await page.content()).includes(code), 'the code is in the page');
    // The address a second time belongs to no login: the port is closed, or the response is refused.
    const again = await page.goto(page.url()).catch(() => null);
    check(again === null || again.status() === 400, `status ${again?.status()}`);
} finally {
    await browser.close();
}
