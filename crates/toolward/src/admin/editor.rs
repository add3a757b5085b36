//! Permission to change files through the admin UI.

use super::AdminUi;
use super::admins::SignedIn;

/// The admin who may change policy files: one with `edit: true`. The error tells the person what is missing.
pub(crate) fn policy_editor(page: &AdminUi, signed: &SignedIn) -> Result<String, &'static str> {
    let in_force = page.reloader.state().in_force.clone();
    let admins = in_force.as_ref().and_then(|in_force| in_force.loaded.config.admins.as_ref());
    let Some(admins) = admins else {
        return Err("Saving needs an admin with edit: true, and the configuration has no admins.");
    };
    let Some(name) = &signed.admin else {
        return Err("This token is read-only. Log in with the token of an admin with edit: true.");
    };
    match admins.iter().any(|admin| admin.name == *name && admin.edit) {
        true => Ok(name.clone()),
        false => Err("You may not change files: your admin entry does not have edit: true."),
    }
}

/// The person who may accept definitions: an admin with `edit: true`, or, without admins, the user who runs the gateway.
pub(crate) fn pin_editor(page: &AdminUi, signed: &SignedIn) -> Result<String, &'static str> {
    match page.gateway().active().policy.has_admins() {
        true => policy_editor(page, signed),
        false => Ok("the operator".into()),
    }
}
