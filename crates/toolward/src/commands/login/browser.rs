//! Opens the person's browser.

use std::ffi::OsString;
use std::process::{Command, Stdio};

/// Opens an address. Returns whether a browser could be started.
///
/// `BROWSER` is a program, as usual on Linux. The address is always an argument of its own, and begins with its scheme,
/// so that it can be neither an option nor a command.
pub(super) fn open(url: &str) -> bool {
    let own = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let system = match cfg!(target_os = "macos") {
        true => vec!["open"],
        false => vec!["xdg-open", "wslview"],
    };
    let programs: Vec<OsString> = match own {
        Some(own) => vec![own],
        // Without a display, `xdg-open` would start a browser in the terminal.
        None if cfg!(target_os = "linux") && !has_display() => Vec::new(),
        None => system.into_iter().map(OsString::from).collect(),
    };
    programs.iter().any(|program| {
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok()
    })
}

fn has_display() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY") || is_set("WSL_DISTRO_NAME")
}
