//! Every client, at every place of its files, on every platform, in every style of writing.

use super::fixtures::FIXTURES;
use super::{Home, text};
use crate::clients::locate::Machine;
use crate::clients::plan::{Plan, Request};
use crate::clients::survey::Wanted;
use crate::clients::table::{CLIENTS, Platform};
use crate::clients::undo::Undo;

/// A name, and the change to the content.
type Style = (&'static str, fn(&str) -> String);

/// The same content, written in other ways.
const STYLES: &[Style] = &[
    ("a byte order mark", |content| format!("\u{feff}{}", content.trim_start_matches('\u{feff}'))),
    ("CRLF", |content| content.replace("\r\n", "\n").replace('\n', "\r\n")),
    ("LF", |content| content.replace("\r\n", "\n")),
    ("no line break at the end", |content| content.trim_end().into()),
    ("empty lines around it", |content| {
        let (bom, rest) = match content.strip_prefix('\u{feff}') {
            Some(rest) => ("\u{feff}", rest),
            None => ("", content),
        };
        format!("{bom}\n\n{rest}\n\n")
    }),
];

/// Only for JSON: TOML and YAML give a meaning to them.
const JSON_STYLES: &[Style] = &[
    ("tabs", |content| content.replace("  ", "\t")),
    ("one line", |content| {
        let has_comments = content.contains("//") && content.contains("\n");
        if has_comments { content.into() } else { content.replace(['\n', '\t', '\r'], " ") }
    }),
    ("comments", |content| {
        let at = content.find('{').map_or(0, |at| at + 1);
        let (begin, rest) = content.split_at(at);
        format!("{begin} // {{\n/* \"mcpServers\": {{}} */{rest}// end")
    }),
    ("trailing commas", |content| content.replace("\"]", "\", ]").replace("}}", "},}")),
];

#[test]
fn init_and_uninit_are_exact_in_every_style() {
    for client in CLIENTS {
        let fixture = FIXTURES.iter().find(|fixture| fixture.client == client.id).unwrap();
        let mut formats = Vec::new();
        for location in
            client.files.iter().filter(|location| location.on.contains(&Platform::Linux))
        {
            let ending = location.path.rsplit('.').next().unwrap();
            if formats.contains(&ending) {
                continue;
            }
            formats.push(ending);
            let is_json = !["toml", "yaml"].contains(&ending);
            let styles = STYLES.iter().chain(JSON_STYLES.iter().filter(|_| is_json));
            for (style, write) in styles {
                let content = write(fixture.content);
                round_trip(client.id, location.path, Platform::Linux, &content, style);
            }
        }
    }
}

#[test]
fn init_and_uninit_are_exact_at_every_place_on_every_platform() {
    for client in CLIENTS {
        let fixture = FIXTURES.iter().find(|fixture| fixture.client == client.id).unwrap();
        for location in client.files {
            for platform in location.on {
                round_trip(client.id, location.path, *platform, fixture.content, "as it is");
            }
        }
    }
}

fn round_trip(client: &str, path: &str, platform: Platform, content: &str, style: &str) {
    let home = Home::new(platform);
    let machine = Machine { project: Some(home.path("project")), ..home.machine() };
    let found = CLIENTS.iter().find(|known| known.id == client).unwrap();
    let place = found.files.iter().find(|location| location.path == path).unwrap();
    let base = machine.base(place.base).unwrap();
    let file = home.write(base.join(path.replace('*', "3f2a")).to_str().unwrap(), content);
    let name = format!("{client} {platform:?} {path}: {style}");
    let init = || {
        let request = Request {
            wanted: Wanted::default(),
            program: "/opt/bin/toolward".into(),
            config: home.config(),
            is_default_config: true,
        };
        let mut plan = Plan::new(&machine, &request).unwrap();
        plan.apply().unwrap();
        assert!(plan.files.iter().all(|file| file.problem.is_none()), "{name}: {plan:#?}");
        plan.changes()
    };
    let is_planned = init();
    assert!(is_planned > 0, "{name}");
    let wrapped = text(&file);
    assert_eq!(init(), 0, "{name}");
    assert_eq!(text(&file), wrapped, "{name}");
    let mut undo = Undo::new(home.directory.path(), &[]).unwrap();
    undo.apply().unwrap();
    assert_eq!(text(&file), content, "{name}");
    assert!(!home.config().exists(), "{name}");
}
