//! `toolward bundle`: signed policy bundles.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use toolward_config::bundle::{Bundle, BundleError, BundleKey, SigningKey};
use toolward_config::{Options, PolicyFile, PolicyFlag, sanitize};

use crate::cli::{BundleArgs, BundleCommand, BundleKeygenArgs, BundleSignArgs, BundleVerifyArgs};
use crate::exit::{self, Failure};
use crate::load::{Input, invalid};
use crate::policy_gate::passes;
use crate::reads::Reads;
use crate::render::count;

pub(crate) fn run(args: &BundleArgs) -> Result<u8, Failure> {
    match &args.command {
        BundleCommand::Keygen(args) => keygen(args),
        BundleCommand::Sign(args) => sign(args),
        BundleCommand::Verify(args) => verify(args),
    }
}

fn keygen(args: &BundleKeygenArgs) -> Result<u8, Failure> {
    let (key, document) = SigningKey::generate().map_err(|why| wrong(&args.file, &why))?;
    let mut options = OpenOptions::new();
    // An existing key is never replaced.
    let written = options.write(true).create_new(true).mode(0o600).open(&args.file);
    written
        .and_then(|mut file| file.write_all(&document).and_then(|()| file.sync_all()))
        .map_err(|error| failed(&args.file, &error))?;
    writeln!(anstream::stdout(), "{}", key.public())?;
    Ok(exit::OK)
}

fn sign(args: &BundleSignArgs) -> Result<u8, Failure> {
    let document = std::fs::read(&args.key).map_err(|error| failed(&args.key, &error))?;
    let key = SigningKey::read(&document).map_err(|why| wrong(&args.key, &why))?;
    let reads = Reads::default();
    let file = |path: &std::path::PathBuf| {
        let (path, flag, format) = (path.clone(), PolicyFlag::Policy, None);
        PolicyFile { path, flag, format }
    };
    let policies = args.files.iter().map(file).collect();
    let options = Options { policies, ..Options::default() };
    let input = Input::from(&options, Vec::new(), &reads).map_err(|found| invalid(&found))?;
    passes(&input)?;
    let mut files = Vec::new();
    for path in &args.files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let content = toolward_config::Files::read(&reads, path);
        files.push((name, content.map_err(|error| failed(path, &error))?));
    }
    let bundle = Bundle { revision: args.revision, files };
    let bytes = bundle.seal(&key).map_err(|why| wrong(&args.output, &why))?;
    toolward_gateway::guard::pins::write_file(&args.output, &bytes)
        .map_err(|error| failed(&args.output, &error))?;
    list(&bundle)
}

fn verify(args: &BundleVerifyArgs) -> Result<u8, Failure> {
    let key = BundleKey::parse(&args.key)
        .map_err(|why| Failure::usage(format!("error: --key: {why}")))?;
    let bytes = std::fs::read(&args.file).map_err(|error| failed(&args.file, &error))?;
    list(&Bundle::open(&bytes, &key).map_err(|why| wrong(&args.file, &why))?)
}

fn list(bundle: &Bundle) -> Result<u8, Failure> {
    let mut out = anstream::stdout();
    writeln!(out, "revision {}, {}", bundle.revision, count(bundle.files.len(), "file"))?;
    for (name, content) in &bundle.files {
        writeln!(out, "  {}  {} bytes", sanitize(name), content.len())?;
    }
    Ok(exit::OK)
}

fn wrong(path: &Path, why: &BundleError) -> Failure {
    let path = path.display().to_string();
    Failure::invalid(format!("error: {}: {why}", sanitize(&path)))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display().to_string();
    Failure::invalid(format!("error: {}: {error}", sanitize(&path)))
}
