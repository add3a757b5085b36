//! The modules of a crate, read from its files: what each defines, imports and mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::graph::Graph;
use super::paths::{ModulePath, Paths, is_for_tests};

/// A chain of re-exports longer than this is a loop.
const MAX_HOPS: usize = 16;

/// One crate. Paths start at its root.
#[derive(Default)]
pub struct Modules {
    modules: BTreeMap<ModulePath, Module>,
}

#[derive(Default)]
struct Module {
    /// Items defined here, children excepted.
    items: BTreeSet<String>,
    /// Names that `use` brings in, with the path of each. Children of this module see them too.
    imports: BTreeMap<String, ModulePath>,
    /// Modules all of whose names are brought in.
    globs: Vec<ModulePath>,
    /// Every path mentioned here.
    mentions: BTreeSet<ModulePath>,
}

impl Modules {
    /// Reads the library, or else the program, in this directory.
    pub fn read(source: &Path) -> Result<Modules, String> {
        let mut modules = Modules::default();
        for root in ["lib.rs", "main.rs"] {
            if source.join(root).is_file() {
                modules.file(&source.join(root), source, Vec::new())?;
                return Ok(modules);
            }
        }
        Err("neither lib.rs nor main.rs".into())
    }

    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// For each module with children: which child imports which sibling.
    pub fn graphs(&self) -> BTreeMap<ModulePath, Graph> {
        let mut graphs: BTreeMap<ModulePath, Graph> = BTreeMap::new();
        for (from, module) in &self.modules {
            for to in module.mentions.iter().map(|path| self.resolve(path, 0)) {
                let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                    let graph = graphs.entry(from[..shared].to_vec()).or_default();
                    graph.add(a, b, from.join("::"));
                }
            }
        }
        graphs
    }

    /// Reads one file and its child modules. `children` is the directory that holds them.
    fn file(&mut self, file: &Path, children: &Path, path: ModulePath) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
        let parsed = syn::parse_file(&text).map_err(|error| failed(&error))?;
        self.items(&parsed.items, children, &path)
    }

    fn items(
        &mut self,
        items: &[syn::Item],
        children: &Path,
        path: &ModulePath,
    ) -> Result<(), String> {
        let mut module = Module::default();
        for item in items {
            if is_for_tests(attributes(item)) {
                continue;
            }
            let syn::Item::Mod(child) = item else {
                let found = Paths::of(item, path);
                module.items.extend(name(item));
                module.imports.extend(found.imports);
                module.globs.extend(found.globs);
                module.mentions.extend(found.mentions);
                continue;
            };
            let name = child.ident.to_string();
            let path = path.iter().cloned().chain([name.clone()]).collect();
            match &child.content {
                Some((_, items)) => self.items(items, &children.join(&name), &path)?,
                None => {
                    self.file(&children.join(format!("{name}.rs")), &children.join(&name), path)?
                }
            }
        }
        self.modules.insert(path.clone(), module);
        Ok(())
    }

    /// The module that defines the item at the end of a path.
    fn resolve(&self, path: &[String], hops: usize) -> ModulePath {
        let mut at = ModulePath::new();
        for (index, name) in path.iter().enumerate() {
            at.push(name.clone());
            if self.modules.contains_key(&at) {
                continue;
            }
            at.pop();
            let from = self.imported(&at, name, hops).filter(|_| hops < MAX_HOPS);
            return match from {
                Some(from) => {
                    let whole: ModulePath =
                        from.iter().chain(&path[index + 1..]).cloned().collect();
                    self.resolve(&whole, hops + 1)
                }
                None => at,
            };
        }
        at
    }

    /// The origin of a name that a module does not define itself.
    fn imported(&self, at: &[String], name: &str, hops: usize) -> Option<ModulePath> {
        let module = self.modules.get(at)?;
        if module.items.contains(name) {
            return None;
        }
        if let Some(from) = module.imports.get(name) {
            return Some(from.clone());
        }
        module.globs.iter().find_map(|from| {
            let from = self.resolve(from, hops + 1);
            let there = self.modules.get(&from)?;
            let known = there.items.contains(name) || there.imports.contains_key(name);
            known.then(|| from.iter().cloned().chain([name.to_string()]).collect())
        })
    }
}

fn name(item: &syn::Item) -> Option<String> {
    use syn::Item;
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item;
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
