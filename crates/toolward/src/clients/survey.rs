//! The client files that exist on a machine, and the entries in them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toolward_config::node::Node;
use toolward_config::splice::{FileFormat, SourceText, Step};

use crate::clients::entry::Entry;
use crate::clients::locate::{Candidate, Machine};
use crate::clients::replace_file;
use crate::clients::table::{Base, CLIENTS, Client, Shape};

/// A client's file that exists.
#[derive(Debug)]
pub(crate) struct ClientFile {
    pub(crate) client: &'static Client,
    pub(crate) file: PathBuf,
    pub(crate) format: FileFormat,
    /// The bytes and the text, or why the file cannot be used.
    pub(crate) content: Result<(Vec<u8>, SourceText), String>,
    pub(crate) entries: Vec<FoundEntry>,
}

/// One server in a client's file.
#[derive(Debug)]
pub(crate) struct FoundEntry {
    /// Its name in the file.
    pub(crate) name: String,
    /// The project that it belongs to, if the file has entries of several.
    pub(crate) project: Option<String>,
    /// The mapping that has the command.
    pub(crate) path: Vec<Step>,
    pub(crate) json: Value,
    pub(crate) entry: Entry,
    /// The client does not start it.
    pub(crate) is_disabled: bool,
    /// The directory in which the client starts the program, if that is known.
    pub(crate) base: Option<PathBuf>,
}

/// The files to look for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Only these clients; empty: all.
    pub(crate) clients: Vec<String>,
    /// Further files, by client.
    pub(crate) paths: Vec<(String, PathBuf)>,
}

/// All files of the wanted clients.
pub(crate) fn survey(machine: &Machine, wanted: &Wanted) -> Vec<ClientFile> {
    let mut files: Vec<ClientFile> = Vec::new();
    let mut seen = Vec::new();
    let is_wanted = |client: &&Client| {
        wanted.clients.is_empty() || wanted.clients.iter().any(|id| id == client.id)
    };
    for client in CLIENTS.iter().filter(is_wanted) {
        let mut candidates = machine.candidates(client);
        let named = wanted.paths.iter().filter(|(id, _)| id == client.id);
        candidates.extend(named.filter_map(|(_, file)| {
            let location = client.files.first()?;
            Some(Candidate { client, location, file: file.clone() })
        }));
        for candidate in candidates {
            // A dangling link counts too: the client's file is unreadable, not absent.
            if candidate.file.symlink_metadata().is_err() {
                continue;
            }
            let real = candidate.file.canonicalize().unwrap_or_else(|_| candidate.file.clone());
            if !seen.contains(&real) {
                seen.push(real);
                files.push(read(candidate, machine));
            }
        }
    }
    files
}

fn read(Candidate { client, location, file }: Candidate, machine: &Machine) -> ClientFile {
    let format = match file.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => FileFormat::Toml,
        Some("yaml" | "yml") => FileFormat::Yaml,
        _ => location.format,
    };
    let content = replace_file::read(&file).map_err(|why| why.to_string()).and_then(|bytes| {
        let text = SourceText::decode(&bytes, format).map_err(|refused| refused.to_string())?;
        Ok((bytes, text))
    });
    let project = (location.base == Base::Project).then(|| machine.project.clone()).flatten();
    let entries = match content.as_ref().map(|(_, text)| text.tree()) {
        Ok(Ok(tree)) => entries(&tree, client, location.shape, project.as_deref()),
        _ => Vec::new(),
    };
    ClientFile { client, file, format, content, entries }
}

fn entries(
    tree: &Node<'_>,
    client: &Client,
    shape: Shape,
    project: Option<&Path>,
) -> Vec<FoundEntry> {
    let mut found = Vec::new();
    let mut add = |above: &[Step],
                   step: Step,
                   node: &Node<'_>,
                   project: Option<&Path>,
                   label: Option<&str>| {
        let (Step::Key(name) | Step::Named(name)) = &step;
        let name = name.clone();
        let mut path: Vec<Step> = above.to_vec();
        path.push(step);
        let mut json = node.to_json();
        let is_disabled = json["disabled"] == true || json["enabled"] == false;
        // Cline may nest the fields.
        if json["transport"].is_object() {
            json = json["transport"].take();
            path.push(Step::key("transport"));
        }
        let entry = Entry::read(&json, client.fields);
        let (base, project) = (project.map(PathBuf::from), label.map(String::from));
        found.push(FoundEntry { name, project, path, json, entry, is_disabled, base });
    };
    match shape {
        Shape::Map(key) => {
            for (name, node) in tree.get(key).into_iter().flat_map(Node::entries) {
                add(&[Step::key(key)], Step::key(name.name.to_string()), node, project, None);
            }
        }
        Shape::List(key) => {
            for node in tree.get(key).map(Node::items).unwrap_or_default() {
                if let Some(name) = node.get("name").and_then(Node::as_str) {
                    add(&[Step::key(key)], Step::Named(name.into()), node, project, None);
                }
            }
        }
        Shape::ClaudeCode => {
            let servers = "mcpServers";
            for (name, node) in tree.get(servers).into_iter().flat_map(Node::entries) {
                add(&[Step::key(servers)], Step::key(name.name.to_string()), node, project, None);
            }
            for (directory, node) in tree.get("projects").into_iter().flat_map(Node::entries) {
                let directory = directory.name.as_ref();
                let above = [Step::key("projects"), Step::key(directory), Step::key(servers)];
                for (name, node) in node.get(servers).into_iter().flat_map(Node::entries) {
                    let project = Some(Path::new(directory));
                    add(&above, Step::key(name.name.to_string()), node, project, Some(directory));
                }
            }
        }
    }
    found
}
