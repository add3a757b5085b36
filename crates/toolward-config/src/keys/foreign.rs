//! Keys of other systems' files.

use super::{EXPOSED_TOOL, NAME, SELECTOR, key};
use crate::keys::shape::KeySpec;
use crate::keys::shape::Shape::{self, Any, Bool, Integer, Keys, List, Table};

/// Another system's plugin file.
pub(crate) const PLUGIN_FILE: Shape = Keys(&[PLUGIN_FILE_KEYS]);

table! { PLUGIN_FILE_KEYS:
    "plugins": Keys(&[PLUGINS]), required =>
        "The system's plugins.";
    "proxy": Any =>
        "The system's own settings; ignored.";
    "logging": Any =>
        "The system's own settings; ignored.";
}

table! { PLUGINS:
    "middleware": PLUGIN_SECTION =>
        "Plugins that modify messages; only `tool_manager` is read.";
    "security": PLUGIN_SECTION =>
        "Plugins that are not read.";
    "auditing": PLUGIN_SECTION =>
        "Plugins that are not read.";
}

const PLUGIN_SECTION: Shape =
    Table { key: "server", value: &List(&Keys(&[PLUGIN, PLUGIN_SETTINGS])) };

table! { PLUGIN:
    "handler": NAME, required =>
        "The plugin.";
    "config": Any =>
        "Its settings.";
}

// Accepted on a plugin's entry and in its `config`.
table! { PLUGIN_SETTINGS:
    "enabled": Bool, default("true") =>
        "Whether the plugin is used.";
    "priority": Integer { least: 0, most: 100, } =>
        "Checked, without effect.";
    "critical": Bool =>
        "Checked, without effect.";
}

/// `config` of the plugin `tool_manager`.
pub(crate) const TOOL_MANAGER: Shape = Keys(&[TOOL_MANAGER_KEYS, PLUGIN_SETTINGS]);

table! { TOOL_MANAGER_KEYS:
    "tools": List(&EXPOSED_TOOL), required =>
        "The tools that exist for clients.";
}

/// The list of another system's TOML file.
pub(crate) const TOML_TOOLS: Shape = List(&SELECTOR);
