//! What a plan does to threads besides binding them: CPU weights, and ways of caches.

use crate::{control::Control, observer::ActionTaken, ways::is_about_ways};
use perch_core::Plan;

impl Control {
    /// What a plan that [`Control::moves`] has checked does to threads besides binding them.
    pub fn actions(&self, plan: &Plan) -> Vec<ActionTaken> {
        let mut actions = self.nices.difference(plan);
        actions.extend(self.ways.difference(plan));
        actions
    }

    /// Takes in what would become of actions in a dry run.
    pub fn actions_in_dry_run(&mut self, actions: &[ActionTaken]) {
        for taken in actions {
            match is_about_ways(taken) {
                true => self.ways.taken(taken, true),
                false => self.nices.taken(taken, None, true),
            }
        }
    }
}
