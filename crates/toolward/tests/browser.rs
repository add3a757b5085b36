//! The admin UI in a real browser: Chromium, driven by playwright-core. `./test` installs both. Each
//! test starts the real program and runs one scenario of `browser/`, which describes what it checks.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, clippy::print_stdout, dead_code)]

#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "serve/harness.rs"]
mod harness;
#[path = "admin/kit.rs"]
mod kit;
#[path = "real/peers.rs"]
mod peers;
#[path = "demo/running.rs"]
mod running;
#[path = "browser/scenario.rs"]
mod scenario;
#[path = "serve/wire.rs"]
mod wire;
#[path = "browser/worlds.rs"]
mod worlds;

use kit::Site;
use scenario::{Facts, browser};

#[test]
fn every_cell_and_every_explanation_matches_the_commands() {
    let Some(browser) = browser() else { return };
    let site = Site::of(worlds::mixed());
    let facts = Facts::of_site(&site).with("agents", worlds::MIXED.into());
    browser.run("matrix", facts.with("lists", worlds::lists(&site)));
}

#[test]
fn prompts_and_resources_have_rows_that_match_the_commands() {
    let Some(browser) = browser() else { return };
    let site = Site::of(worlds::kinds());
    browser.run("kinds", Facts::of_site(&site).with("agents", worlds::KINDS.into()));
}

#[test]
fn decisions_appear_as_they_happen() {
    let Some(browser) = browser() else { return };
    let demo = running::Demo::start(&["--json"]);
    browser.run("live", Facts::of_demo(&demo));
}

#[test]
fn calls_that_wait_for_a_person_are_decided() {
    let Some(browser) = browser() else { return };
    let site = Site::of(worlds::asking());
    browser.run("approvals", Facts::of_site(&site));
}

#[test]
fn questions_are_answered_without_calling() {
    let Some(browser) = browser() else { return };
    let demo = running::Demo::start(&["--json"]);
    browser.run("ask", Facts::of_demo(&demo));
}

#[test]
fn reloads_and_counts_show_by_themselves() {
    let Some(browser) = browser() else { return };
    let demo = running::Demo::start(&["--json"]);
    browser.run("policy", Facts::of_demo(&demo));
}

#[test]
fn a_candidate_policy_is_previewed_and_not_applied() {
    let Some(browser) = browser() else { return };
    let demo = running::Demo::start(&["--json"]);
    browser.run("preview", Facts::of_demo(&demo));
}

#[test]
fn servers_are_shown_working_failing_and_recovering() {
    let Some(browser) = browser() else { return };
    let demo = running::Demo::start(&["--json"]);
    browser.run("servers", Facts::of_demo(&demo));
}

#[test]
fn other_origins_get_nothing() {
    let Some(browser) = browser() else { return };
    let demo = running::Demo::start(&["--json"]);
    browser.run("auth", Facts::of_demo(&demo));
}

#[test]
fn hostile_texts_are_shown_as_text() {
    let Some(browser) = browser() else { return };
    let site = Site::of(worlds::hostile());
    browser.run("hostile", Facts::of_site(&site).with("names", worlds::hostile_names().into()));
}

#[test]
fn ten_thousand_tools_by_fifty_agents_open_soon() {
    let Some(browser) = browser() else { return };
    let site = Site::of(worlds::large());
    let facts = Facts::of_site(&site).with("tools", worlds::TOOLS.into());
    let facts = facts.with("agents", worlds::AGENTS.into());
    browser.run("large", facts.with("last", worlds::large_name(worlds::TOOLS - 1).into()));
}

#[test]
fn every_view_fits_wide_and_narrow_light_and_dark() {
    let Some(browser) = browser() else { return };
    let demo = running::Demo::start(&["--json"]);
    browser.run("appearance", Facts::of_demo(&demo));
}
