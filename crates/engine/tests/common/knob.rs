//! The actuator (affinity) of the kernel in memory.

use super::kernel::{Kernel, Seen, Task, pass};
use perch_core::{
    Affinity, MaskChange, MaskError, Outcome, ProcessId, PuSet, ThreadId,
    affinity::{Descendant, Image},
};
use std::sync::{Arc, RwLock};

/// Sets affinities on that kernel.
pub struct Knob(pub Arc<RwLock<Kernel>>);

impl Affinity for Knob {
    fn settle(&self) {
        let mut kernel = self.0.write().unwrap();
        kernel.loading = kernel.loading.saturating_sub(1);
    }

    fn settle_births(&self) {
        let mut kernel = self.0.write().unwrap();
        if let Some((creator, mask)) = kernel.creating.take()
            && let Some(child) = kernel.fork(creator, true)
        {
            kernel.tasks.get_mut(&child).unwrap().requested = mask;
        }
    }

    fn belongs_to(&self, _: ThreadId, _: u32) -> bool {
        true
    }

    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        self.0.read().unwrap().mask(thread).ok_or(MaskError::Gone)
    }

    fn change(&mut self, change: &MaskChange) -> Outcome {
        let mut kernel = self.0.write().unwrap();
        pass(1);
        if kernel.killer.before_change() {
            return Outcome::Applied;
        }
        let outcome = match kernel.mask(change.thread) {
            None => Outcome::Gone,
            Some(mask) if mask != change.expect => Outcome::ChangedByOthers,
            Some(_) if !change.to_default && kernel.is_out_of_reach(change) => Outcome::NoUsablePu,
            Some(_) => {
                let set = if change.to_default {
                    kernel.pus.clone()
                } else {
                    change.set.clone()
                };
                let task = kernel.tasks.get_mut(&change.thread).unwrap();
                task.asked = (!change.to_default).then(|| change.set.clone());
                task.requested = set;
                if task.taken_over && matches!(task.seen, Seen::NotYet(_)) {
                    // It had the very mask that perch expected of the thread that had its number before.
                    task.seen = Seen::Veiled;
                }
                Outcome::Applied
            }
        };
        kernel.killer.after_change();
        outcome
    }

    fn allowed(&self, thread: ThreadId) -> Option<PuSet> {
        let kernel = self.0.read().unwrap();
        if let Some(own) = kernel.own_cpusets.get(&thread) {
            return Some(own.clone());
        }
        let group = kernel.tasks.get(&thread)?.group;
        Some(kernel.cpusets[group].clone())
    }

    fn image(&self, process: ProcessId) -> Option<Image> {
        let kernel = self.0.read().unwrap();
        let code = kernel.images.get(&process.pid).copied().unwrap_or_default();
        let code = code.saturating_sub(u64::from(kernel.loading > 0));
        Some(Image { code, stack: 0 })
    }

    fn images_differ(&self, _: ProcessId) -> bool {
        !self.0.read().unwrap().same_images
    }

    /// All processes of this kernel descend from the session's, which shows of all but the daemons.
    fn descendants(
        &self,
        _: &str,
        processes: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        let kernel = self.0.read().unwrap();
        let shows = |pid: &i32| {
            let leader = kernel.leaders.get(pid).unwrap_or(pid);
            let mut known = processes.iter().map(|known| known.pid);
            !kernel.daemons.contains(pid) || known.any(|known| known == *pid || known == *leader)
        };
        let of_these = |task: &Task| {
            let target = |known: &ProcessId| kernel.group_of(known.pid) == Some(task.group);
            processes.is_empty() || processes.iter().any(target)
        };
        let tasks = kernel.tasks.iter();
        let tasks = tasks.filter(|(id, task)| shows(&task.pid) && of_these(task) && !known(**id));
        let descendants = tasks.map(|(thread, task)| Descendant {
            thread: *thread,
            process: ProcessId {
                pid: task.pid,
                // A first thread that has ended shows as a zombie with its start.
                start: kernel.started.get(&task.pid).copied().unwrap_or(0),
            },
            parent: kernel.parent(task.pid),
            by_group: None,
            mask: kernel.mask(*thread).unwrap(),
        });
        Ok(descendants.collect())
    }
}
