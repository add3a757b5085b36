// Takes the README's screenshots of the admin UI: the table with an explanation, light and dark.
//
//     cargo xtask picture
import { browse, call, facts, until } from './kit.mjs';
import { some } from './calls.mjs';

await browse(async ({ page, open }) => {
    await some(call);
    await until('the lists', async () => {
        await open('./');
        return (await page.locator('.r').count()) === 12;
    });
    await page.locator('.r[data-tool="write_file"] i').nth(1).click();
    await page.locator('#panel article').waitFor();
    for (const [scheme, name] of [['light', 'page'], ['dark', 'page-dark']]) {
        await page.emulateMedia({ colorScheme: scheme });
        await page.screenshot({ path: `${facts.shots}/${name}.png`, animations: 'disabled', caret: 'hide' });
    }
});
