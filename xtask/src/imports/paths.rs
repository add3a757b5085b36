//! The paths that an item mentions: `use` trees, inline paths, and paths among the arguments of macros.

use syn::visit::Visit;

/// A module, or an item in one, by names from the root of the crate.
pub type ModulePath = Vec<String>;

/// The paths that one item of a module mentions.
pub struct Paths<'a> {
    module: &'a ModulePath,
    pub mentions: Vec<ModulePath>,
    pub imports: Vec<(String, ModulePath)>,
    pub globs: Vec<ModulePath>,
}

impl Paths<'_> {
    pub fn of<'a>(item: &syn::Item, module: &'a ModulePath) -> Paths<'a> {
        let (mentions, imports, globs) = Default::default();
        let mut found = Paths { module, mentions, imports, globs };
        found.visit_item(item);
        found
    }

    /// The path from the root of the crate. `None` if it does not begin with `crate`, `self` or `super`.
    fn absolute(&self, segments: &[String]) -> Option<ModulePath> {
        let mut at = match segments.first()?.as_str() {
            "crate" => ModulePath::new(),
            "self" => self.module.clone(),
            "super" => self.module[..self.module.len().checked_sub(1)?].to_vec(),
            _ => return None,
        };
        for name in &segments[1..] {
            match name.as_str() {
                "super" => drop(at.pop()),
                "self" => {}
                _ => at.push(name.clone()),
            }
        }
        Some(at)
    }

    /// The path of a `use`, which may name a child without `self`. The names of other crates resolve to
    /// the module itself, which is no edge.
    fn used(&self, segments: &[String]) -> ModulePath {
        let child = || self.module.iter().chain(segments).cloned().collect();
        self.absolute(segments).unwrap_or_else(child)
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| -> Vec<String> {
            before.iter().cloned().chain([name.to_string()]).collect()
        };
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.import(&with(&name.ident), name.ident.to_string()),
            syn::UseTree::Rename(name) => self.import(&with(&name.ident), name.rename.to_string()),
            syn::UseTree::Glob(_) => {
                let from = self.used(before);
                self.mentions.push(from.clone());
                self.globs.push(from);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.tree(before, tree));
            }
        }
    }

    fn import(&mut self, segments: &[String], name: String) {
        let path = self.used(segments);
        self.mentions.push(path.clone());
        // `use a::{self}` brings in `a`.
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name };
        // The name of another crate resolves to itself: following it would not end.
        let own = self.module.iter().chain([&name]);
        if !path.iter().eq(own) {
            self.imports.push((name, path));
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.mentions.extend(self.absolute(&segments));
        syn::visit::visit_path(self, path);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            syn::visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        // Arguments of macros are tokens: `crate :: audit :: Intent`.
        let text = call.tokens.to_string();
        let words: Vec<&str> = text.split_whitespace().collect();
        for start in (0..words.len()).filter(|at| matches!(words[*at], "crate" | "super")) {
            let mut segments = vec![words[start].to_string()];
            let mut at = start + 1;
            while at + 1 < words.len() && words[at] == "::" {
                segments.push(words[at + 1].to_string());
                at += 2;
            }
            self.mentions.extend(self.absolute(&segments));
        }
        syn::visit::visit_macro(self, call);
    }
}

/// Whether an item or a function is compiled for tests alone.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            let mut words = condition.split(|c: char| !c.is_alphanumeric());
            condition == "test" || condition.starts_with("all") && words.any(|word| word == "test")
        }
        _ => false,
    })
}
