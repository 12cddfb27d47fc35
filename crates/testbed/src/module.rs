//! Kernel modules for the guest: the kernel's own, and stand-ins for hardware built against its headers.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::host::{cache_dir, lock, repository, tool};
use crate::kernel::Kernel;

/// The named modules and all that they need, in loading order, without what is built in; paths of the (perhaps compressed)
/// files.
///
/// # Errors
/// When the kernel has no module of such a name.
pub(crate) fn closure(kernel: &Kernel, names: &[String]) -> Result<Vec<PathBuf>> {
    let dir = kernel.modules();
    let list = dir.join("modules.dep");
    let text =
        fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let needs: HashMap<&str, Vec<&str>> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(module, needs)| (module, needs.split_whitespace().collect()))
        .collect();
    let by_name: HashMap<String, &str> = needs
        .keys()
        .map(|path| (module_name(path), *path))
        .collect();
    let mut order: Vec<&str> = Vec::new();
    let built_in = fs::read_to_string(dir.join("modules.builtin")).unwrap_or_default();
    for name in names {
        let name = name.replace('-', "_");
        if built_in.lines().any(|path| module_name(path) == name) {
            continue;
        }
        let Some(&module) = by_name.get(&name) else {
            bail!("kernel {} has no module {name}", kernel.release());
        };
        // modules.dep lists direct and indirect needs, the deepest last.
        for needed in needs[module].iter().rev().chain([&module]) {
            if !order.contains(needed) {
                order.push(needed);
            }
        }
    }
    Ok(order.into_iter().map(|path| dir.join(path)).collect())
}

/// A module's name as the kernel knows it, from its file's path.
pub(crate) fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

/// A module's bytes, decompressed.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => Ok(tool(Command::new("xz").arg("-dc").arg(path), "xz-utils")?.stdout),
        Some("zst") => Ok(tool(Command::new("zstd").arg("-dcq").arg(path), "zstd")?.stdout),
        _ => fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Hardware that guests lack, as modules built from `testbed/NAME` for one kernel.
///
/// In the guest load one with `insmod` from [`StandIn::guest_path`]; its source says what its parameters mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandIn {
    /// A core PMU.
    Pmu,
    /// Energy counters of packages (RAPL).
    Rapl,
}

impl StandIn {
    fn name(self) -> &'static str {
        match self {
            Self::Pmu => "fakepmu",
            Self::Rapl => "fakerapl",
        }
    }

    /// Where a guest that was given the module has it.
    pub fn guest_path(self) -> String {
        format!("/testbed/{}.ko", self.name())
    }

    /// Builds the module for this kernel, unless this very source was built for it before; where it is on the host.
    ///
    /// # Errors
    /// When the kernel's headers cannot be had, or gcc or make is missing or fails.
    pub fn build(self, kernel: &Kernel) -> Result<PathBuf> {
        let name = self.name();
        let source = repository().join("testbed").join(name);
        let dir = kernel.build_dir().join(name);
        let _lock = lock(&cache_dir()?, name)?;
        let module = dir.join(format!("{name}.ko"));
        let files = [format!("{name}.c"), "Kbuild".to_owned()];
        let texts = files.each_ref().map(|name| fs::read(source.join(name)));
        let mut fresh = module.is_file();
        for (name, text) in files.iter().zip(&texts) {
            let text = text
                .as_ref()
                .map_err(|e| anyhow::anyhow!("cannot read {name}: {e}"))?;
            fresh &= fs::read(dir.join(name)).is_ok_and(|old| old == *text);
        }
        if fresh {
            return Ok(module);
        }
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let headers = kernel.headers()?;
        fs::create_dir_all(&dir)?;
        for (name, text) in files.iter().zip(texts) {
            fs::write(dir.join(name), text?)?;
        }
        let built = tool(
            Command::new("make")
                .arg("-C")
                .arg(headers)
                .arg(format!("M={}", dir.display()))
                // The module's type information would need the kernel's image with symbols.
                .args([
                    "CONFIG_DEBUG_INFO_BTF_MODULES=",
                    "CONFIG_MODULE_SIG_ALL=",
                    "modules",
                ])
                .env_remove("MAKEFLAGS")
                .env_remove("MAKELEVEL")
                .env("LC_ALL", "C"),
            "make gcc libelf1",
        );
        if let Err(error) = built {
            // What was copied must not look finished the next time.
            fs::remove_dir_all(&dir)?;
            return Err(error.context(
                "cannot build a stand-in module (needs `apt-get install make gcc libelf1`)",
            ));
        }
        Ok(module)
    }
}

#[cfg(test)]
mod tests {
    use super::module_name;

    #[test]
    fn names_lose_folder_suffix_and_dashes() {
        for path in [
            "kernel/a/virtio-rng.ko",
            "virtio-rng.ko.xz",
            "virtio_rng.ko.zst",
            "virtio-rng",
        ] {
            assert_eq!(module_name(path), "virtio_rng");
        }
    }
}
