//! Reads the workspace: its packages from `cargo metadata`, and from their sources the paths that the code names and
//! the types that it declares. Test code (`tests.rs`, `tests/` and `#[cfg(test)]`) is left out, since it may use
//! anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use serde_json::Value;
use syn::visit::Visit;

pub static WORKSPACE: LazyLock<Vec<Package>> = LazyLock::new(read_workspace);

/// A package of the workspace.
pub struct Package {
    pub name: String,
    /// Names of the packages that it depends on, with those of its tests apart.
    pub dependencies: BTreeSet<String>,
    pub test_dependencies: BTreeSet<String>,
    pub files: Vec<Source>,
}

impl Package {
    /// Paths of all modules that are files.
    pub fn modules(&self) -> BTreeSet<Vec<String>> {
        self.files.iter().map(|file| file.module.clone()).collect()
    }

    /// A package of these top-level modules, each with its code.
    pub fn example(modules: &[(&str, &str)]) -> Self {
        let file = |(name, text): &(&str, &str)| Source {
            path: format!("{name}.rs").into(),
            module: path(&format!("crate::{name}")),
            lines: text.lines().count(),
            says_what_it_owns: false,
            code: Code::read(text),
        };
        let (dependencies, test_dependencies) = Default::default();
        Self { name: "example".to_owned(), dependencies, test_dependencies, files: modules.iter().map(file).collect() }
    }
}

/// A file without its test code.
pub struct Source {
    /// Relative to the root of the repository.
    pub path: PathBuf,
    /// Module path, starting with `crate`.
    pub module: Vec<String>,
    pub lines: usize,
    pub says_what_it_owns: bool,
    pub code: Code,
}

/// Names that the code of a file uses and declares.
#[derive(Debug, Default)]
pub struct Code {
    /// Imported names, each with its path.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths as they are written, those of imports with braces resolved.
    paths: Vec<Vec<String>>,
    /// Structs, enums, unions, traits and type aliases, public or private.
    pub types: Vec<String>,
    /// Number of calls of `unwrap`.
    pub unwraps: usize,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read_workspace() -> Vec<Package> {
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().iter().map(read_package).collect()
}

fn read_package(package: &Value) -> Package {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    let mut folder = manifest.parent().unwrap().to_path_buf();
    if folder.join("src").is_dir() {
        folder.push("src");
    }
    let (mut dependencies, mut test_dependencies) = (BTreeSet::new(), BTreeSet::new());
    for dependency in package["dependencies"].as_array().unwrap() {
        let name = dependency["name"].as_str().unwrap().to_owned();
        match dependency["kind"].as_str() {
            None => dependencies.insert(name),
            Some(_) => test_dependencies.insert(name),
        };
    }
    let files = files(&folder).iter().map(|path| read_source(&folder, path)).collect();
    Package { name: package["name"].as_str().unwrap().to_owned(), dependencies, test_dependencies, files }
}

/// Source files below this folder, except those of tests and of packages in subfolders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_package = path.join("Cargo.toml").is_file() || path.join("plan/Cargo.toml").is_file();
        if path.is_dir() && !path.ends_with("tests") && !is_package {
            found.extend(files(&path));
        } else if path.extension() == Some("rs".as_ref()) && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read_source(folder: &Path, path: &Path) -> Source {
    let text = fs::read_to_string(path).unwrap();
    Source {
        path: path.strip_prefix(root()).unwrap().to_path_buf(),
        module: module(path.strip_prefix(folder).unwrap()),
        lines: text.lines().count(),
        says_what_it_owns: text.starts_with("//! "),
        code: Code::read(&text),
    }
}

/// Module path of a file of a package.
fn module(file: &Path) -> Vec<String> {
    let stem = file.with_extension("");
    let mut module = vec!["crate".to_owned()];
    module.extend(stem.iter().map(|part| part.to_str().unwrap().to_owned()));
    if ["lib", "main", "mod"].contains(&module.last().unwrap().as_str()) {
        module.pop();
    }
    module
}

/// The parts of a path.
pub fn path(text: &str) -> Vec<String> {
    text.split("::").map(str::to_owned).collect()
}

impl Code {
    pub fn read(text: &str) -> Self {
        let mut file = syn::parse_file(text).unwrap();
        file.items.retain(|item| !is_test(attributes(item)));
        for item in &mut file.items {
            if let syn::Item::Impl(block) = item {
                block.items.retain(|item| !matches!(item, syn::ImplItem::Fn(function) if is_test(&function.attrs)));
            }
        }
        let mut code = Self::default();
        code.visit_file(&file);
        code.read_paths(file.to_token_stream());
        code
    }

    /// The paths that the code names, resolved by `use` and `self`, `super` and `crate`: those within the package start
    /// with `crate`.
    pub fn used(&self, module: &[String], modules: &BTreeSet<Vec<String>>) -> Vec<Vec<String>> {
        self.paths.iter().filter_map(|path| self.resolve(path, module, modules)).collect()
    }

    /// None if `super` leads out of the package, as in a module within a file.
    fn resolve(&self, path: &[String], module: &[String], modules: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(path.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let levels = path.iter().take_while(|part| *part == "super").count();
                Some([&module[..module.len().checked_sub(levels)?], &path[levels..]].concat())
            }
            _ if modules.contains(&[module, std::slice::from_ref(first)].concat()) => Some([module, path].concat()),
            _ => match self.imports.get(first) {
                Some(import) if import.first() != Some(first) => {
                    Some([self.resolve(import, module, modules)?, rest.to_vec()].concat())
                }
                _ => Some(path.to_vec()),
            },
        }
    }

    fn read_import(&mut self, tree: &syn::UseTree, mut before: Vec<String>) {
        match tree {
            syn::UseTree::Path(step) => {
                before.push(step.ident.to_string());
                self.read_import(&step.tree, before);
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.read_import(tree, before.clone())),
            syn::UseTree::Name(name) => self.add_import(&name.ident, &name.ident, before),
            syn::UseTree::Rename(name) => self.add_import(&name.ident, &name.rename, before),
            syn::UseTree::Glob(_) => self.paths.push(before),
        }
    }

    fn add_import(&mut self, item: &syn::Ident, name: &syn::Ident, mut path: Vec<String>) {
        if item != "self" {
            path.push(item.to_string());
        }
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name.to_string() };
        self.imports.insert(name, path.clone());
        self.paths.push(path);
    }

    /// Adds the paths in these tokens, those in the arguments of macros too, except those of `use`.
    fn read_paths(&mut self, tokens: TokenStream) {
        let (mut path, mut colons, mut in_import, mut after_dot) = (Vec::new(), 0, false, false);
        for token in tokens {
            let is_dot = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
            let is_method = std::mem::replace(&mut after_dot, is_dot);
            match token {
                TokenTree::Ident(word) => {
                    in_import |= word == "use";
                    self.unwraps += usize::from(is_method && word == "unwrap");
                    if colons != 2 {
                        self.add_path(&mut path);
                    }
                    colons = 0;
                    if !in_import {
                        path.push(word.to_string());
                    }
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                // `;` ends an import; `use<'a>` is the capture of a lifetime.
                TokenTree::Punct(punct) if [';', '<'].contains(&punct.as_char()) => in_import = false,
                TokenTree::Group(group) if !in_import => self.read_paths(group.stream()),
                _ => {}
            }
            self.add_path(&mut path);
            colons = 0;
        }
        self.add_path(&mut path);
    }

    fn add_path(&mut self, path: &mut Vec<String>) {
        if path.len() > 1 {
            self.paths.push(std::mem::take(path));
        }
        path.clear();
    }
}

impl Visit<'_> for Code {
    fn visit_item_use(&mut self, import: &syn::ItemUse) {
        self.read_import(&import.tree, Vec::new());
    }

    fn visit_item(&mut self, item: &syn::Item) {
        match item {
            syn::Item::Struct(item) => self.types.push(item.ident.to_string()),
            syn::Item::Enum(item) => self.types.push(item.ident.to_string()),
            syn::Item::Union(item) => self.types.push(item.ident.to_string()),
            syn::Item::Trait(item) => self.types.push(item.ident.to_string()),
            syn::Item::Type(item) => self.types.push(item.ident.to_string()),
            _ => {}
        }
        syn::visit::visit_item(self, item);
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.to_token_stream().to_string().replace(' ', "") == "#[cfg(test)]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(text: &str, module: &str) -> Vec<String> {
        let modules = ["crate", "crate::a", "crate::a::b"].map(path).into();
        Code::read(text).used(&path(module), &modules).iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn paths_are_read_wherever_they_stand() {
        let text =
            "use crate::{c, d::{E as F, self}};\nfn f() { g!(x, super::h::I); let y: F = F::new(b::J, \"k::L\"); }";
        let used = used(text, "crate::a");
        for expected in ["crate::c", "crate::d::E", "crate::d", "crate::h::I", "crate::d::E::new", "crate::a::b::J"] {
            assert!(used.iter().any(|path| path == expected), "{expected} in {used:?}");
        }
        assert!(!used.iter().any(|path| path.ends_with("k::L")), "{used:?}");
    }

    #[test]
    fn imports_resolve_names() {
        assert_eq!(
            used("use jiff::Timestamp; fn f() { Timestamp::now(); }", "crate"),
            ["jiff::Timestamp", "jiff::Timestamp::now"]
        );
        assert_eq!(used("fn f() -> impl Fn() + use<'_> { std::env::var(x) }", "crate"), ["std::env::var"]);
    }

    #[test]
    fn test_code_is_left_out() {
        let text = "#[cfg(test)] mod tests { struct A; } impl B { #[cfg(test)] fn c() { d::e(); } }";
        let code = Code::read(text);
        assert!(code.types.is_empty() && code.paths.is_empty(), "{code:?}");
    }

    #[test]
    fn types_are_read_wherever_they_stand() {
        let text = "pub struct A; enum B {} trait C { type D; } fn f() { struct E; } mod m { type F = A; }";
        assert_eq!(Code::read(text).types, ["A", "B", "C", "E", "F"]);
    }

    #[test]
    fn unwraps_are_counted() {
        let text = "fn f() { g(h.unwrap(), i!(j.k().unwrap()), l.unwrap_or(m)) } #[test] fn n() {}";
        assert_eq!(Code::read(text).unwraps, 2);
    }

    #[test]
    fn modules_are_named_by_their_files() {
        for (file, expected) in [("lib.rs", "crate"), ("a/mod.rs", "crate::a"), ("a/b.rs", "crate::a::b")] {
            assert_eq!(module(Path::new(file)), path(expected));
        }
    }
}
