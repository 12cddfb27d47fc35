//! The trait of monitoring modules: what is no plain counter.

use crate::{MachineError, Metrics, Remark, Sharing, ThreadId, ThreadSample, Topology};
use std::sync::Arc;

/// The input of a module at the end of a period.
pub struct ModuleContext<'a> {
    /// The topology in force at the period's end.
    pub topology: &'a Arc<Topology>,
    /// Nanoseconds since the last period's end.
    pub interval: u64,
    /// The threads of this period, by rising id, before modules added to them.
    pub threads: &'a [ThreadSample],
    /// Threads that ended in this period.
    pub ended: &'a [ThreadId],
}

/// Whether each module finds what it needs. Modules run in this order, and each sees what those before it have added.
///
/// # Errors
/// The first need that is not met.
pub fn check_needs<'a>(
    modules: impl IntoIterator<Item = &'a dyn Module>,
) -> Result<(), MachineError> {
    let mut provided: Vec<&str> = Vec::new();
    for module in modules {
        if let Some(missing) = module.needs().iter().find(|need| !provided.contains(need)) {
            let there = match provided.as_slice() {
                [] => "nothing is provided".to_owned(),
                some => format!("provided are: {}", some.join(", ")),
            };
            return Err(MachineError::Other(format!(
                "module `{}` needs the metric `{missing}`, which no module before it provides; {there}",
                module.name()
            )));
        }
        provided.extend(module.provides());
    }
    Ok(())
}

/// Adds metrics to threads: instruction mix by sampling, energy, cache occupancy, a model's prediction.
pub trait Module: Send {
    /// Name of the module, for messages and errors.
    fn name(&self) -> &'static str;

    /// Names of the metrics that it adds to threads.
    fn provides(&self) -> &[&'static str];

    /// The metrics that it must find: modules before it provide them ([`check_needs`]).
    fn needs(&self) -> &[&'static str] {
        &[]
    }

    /// A period is over: metrics for those threads about which it knows something.
    ///
    /// # Errors
    /// A module that cannot go on.
    fn period(
        &mut self,
        context: &ModuleContext<'_>,
    ) -> Result<Vec<(ThreadId, Metrics)>, MachineError>;

    /// Threads of the period that just ended that were seen to share memory.
    fn sharing(&mut self) -> Vec<Sharing> {
        Vec::new()
    }

    /// What the user should know since the last call, such as lost samples.
    fn remarks(&mut self) -> Vec<Remark> {
        Vec::new()
    }

    /// One line for the report: what it does and how, such as rate and privilege.
    fn description(&self) -> String;
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Part(
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
    );

    impl Module for Part {
        fn name(&self) -> &'static str {
            self.0
        }

        fn provides(&self) -> &[&'static str] {
            self.1
        }

        fn needs(&self) -> &[&'static str] {
            self.2
        }

        fn period(
            &mut self,
            _: &ModuleContext<'_>,
        ) -> Result<Vec<(ThreadId, Metrics)>, MachineError> {
            Ok(Vec::new())
        }

        fn description(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn what_a_module_needs_comes_from_those_before_it() {
        let mix = Part("mix", &["fp_share", "load_share"], &[]);
        let power = Part("power", &["watts"], &["fp_share"]);
        let cost = Part("cost", &[], &["watts", "load_share"]);
        let check = |parts: &[&Part]| {
            let parts = parts.iter().map(|part| *part as &dyn Module);
            check_needs(parts).map_err(|error| error.to_string())
        };
        check(&[]).unwrap();
        check(&[&mix, &power, &cost]).unwrap();
        let told = check(&[&power, &mix]).unwrap_err();
        assert!(
            told.contains("`power`") && told.contains("`fp_share`"),
            "{told}"
        );
        assert!(told.contains("nothing is provided"), "{told}");
        let told = check(&[&mix, &cost, &power]).unwrap_err();
        assert!(
            told.contains("`cost`") && told.contains("`watts`") && told.contains("load_share"),
            "{told}"
        );
    }
}
