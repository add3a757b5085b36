// A few calls as the demo's agents would make them: allowed, refused, failed.
export async function some(call) {
    await call('reader', 'tracker__search_issues', { query: 'export' });
    await call('reader', 'tracker__get_issue', { number: 17 });
    await call('reader', 'tracker__board', { action: 'show' });
    await call('visitor', 'tracker__search_issues', {});
    await call('visitor', 'files__list_files', {});
    await call('maintainer', 'files__read_file', { path: 'README.md' });
    await call('maintainer', 'tracker__create_issue', { title: 'Dates are off by one in the export' });
    await call('maintainer', 'tracker__add_comment', { number: 17, text: 'Seen in 2.1 as well.' });
    await call('maintainer', 'tracker__send_digest', { to: 'team@heron.example' });
    await call('maintainer', 'tracker__board', { action: 'clear' });
    await call('maintainer', 'files__write_file', { path: 'drafts/release.md', content: '# Release' });
    await call('maintainer', 'files__write_file', { path: 'config/production.yaml', content: 'debug: true' });
    await call('reader', 'tracker__delete_issue', { number: 17 });
    await call('reader', 'tracker__weekly_report', { seconds: 0.3 });
}
