//! The command line of `perch modules`.

use clap::{Args as ClapArgs, ValueHint};
use std::path::PathBuf;

/// `perch modules`.
#[derive(Debug, ClapArgs)]
#[command(
    disable_version_flag = true,
    after_help = "\
Examples:
  perch modules                   all, and whether each works on this machine
  perch modules energy            what it provides and needs, or why it does not work
  perch modules --check energy    the same; fails if it does not work
  perch modules --module ./my.py  with a module of your own

`perch stat -V NAME` takes a metric, or all metrics of a module (docs/modules.md)."
)]
pub struct ModulesArgs {
    /// Explain these modules, or the modules that have these metrics
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Add a program that speaks JSON lines as a module; repeatable
    #[arg(long = "module", value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub modules: Vec<PathBuf>,
    /// Exit with 1 if one of the modules named, or any without a name, does not work here
    #[arg(long)]
    pub check: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
