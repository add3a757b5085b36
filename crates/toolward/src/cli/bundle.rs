//! The flags of `bundle`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Make signed policy bundles, which gateways fetch
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
#[command(after_help = "Examples:
  toolward bundle keygen bundle.key
  toolward bundle sign --key bundle.key --revision 12 -o policy.tgz policy.yaml
  toolward bundle verify --key ed25519:… policy.tgz")]
pub struct BundleArgs {
    #[command(subcommand)]
    pub command: BundleCommand,
}

#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    Keygen(BundleKeygenArgs),
    Sign(BundleSignArgs),
    Verify(BundleVerifyArgs),
}

/// Generate a signing key, and print the public key for the configuration
#[derive(Debug, Args)]
pub struct BundleKeygenArgs {
    /// The file for the private key, which must not exist
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Make a bundle of policy files
///
/// The files are loaded and their tests are run first, as layers on top of each other. Gateways apply a bundle
/// only if its revision is higher than that of every bundle before.
#[derive(Debug, Args)]
pub struct BundleSignArgs {
    /// The private key
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The revision, which must increase; the time in seconds is a good one
    #[arg(long, value_name = "NUMBER")]
    pub revision: u64,
    /// The bundle
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Policy files, in the order in which calls pass them
    #[arg(value_name = "POLICY", required = true)]
    pub files: Vec<PathBuf>,
}

/// Verify a bundle, and list its files
#[derive(Debug, Args)]
pub struct BundleVerifyArgs {
    /// The public key
    #[arg(long, value_name = "KEY")]
    pub key: String,
    /// The bundle
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}
