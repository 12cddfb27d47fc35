//! What came of a tournament, as tables.

use super::{
    count,
    table::{Align, table},
    wrapped,
};
use perch_lab::tournament::{Agreement, Outcome, Standing};

/// The policies over all machines, their regret by machine, and how far both levels of detail agree.
pub fn tournament(outcome: &Outcome) -> String {
    let exhaustive = outcome.matches.iter().filter(|found| found.exhaustive);
    let mut text = wrapped(
        "",
        &format!(
            "{} on {}; the best placement is one of all on {}, else the best that a long search, the default scheduler or any policy found",
            count(outcome.matches.len(), "workload"),
            count(machines(outcome).len(), "machine"),
            exhaustive.count(),
        ),
    );
    text.push('\n');
    text += &all(&outcome.standings);
    text += "\n\n\
        regret, worst: % that the speedup is below the best placement's\n\
        ratio, worst: speedup / the default scheduler's mean\n\
        wins, loss: workloads with more or less than that, by more than 0.5 %\n\
        moves: of threads to another PU, a second\n\
        harm: harmonic speedup, threads / sum of their slowdowns\n\
        fair: smallest slowdown of a thread / largest: 1 is fair\n\n";
    text += "mean regret (%) by machine\n\n";
    text += &by_machine(outcome);
    text.push('\n');
    if let Some(agreement) = Agreement::of(&outcome.again) {
        text.push('\n');
        text += &judged_again(&agreement, outcome.again.len());
    }
    text
}

fn percent(part: f64) -> String {
    format!("{:.2}", 100.0 * part)
}

fn all(standings: &[Standing]) -> String {
    let titles = [
        "regret", "worst", "ratio", "worst", "wins", "loss", "moves", "harm", "fair",
    ];
    let mut columns = vec![("policy", Align::Left)];
    columns.extend(titles.map(|title| (title, Align::Right)));
    let rows = standings.iter().map(|standing| {
        vec![
            standing.name.clone(),
            percent(standing.mean_regret),
            percent(standing.worst_regret),
            format!("{:.3}", standing.ratio),
            format!("{:.3}", standing.worst_ratio),
            standing.wins.to_string(),
            standing.losses.to_string(),
            format!("{:.2}", standing.moves),
            format!("{:.2}", standing.harmonic),
            format!("{:.2}", standing.fairness),
        ]
    });
    table(&columns, rows)
}

/// The machines in the order of the rules.
fn machines(outcome: &Outcome) -> Vec<&str> {
    let standings = outcome.by_machine.iter();
    let mut names: Vec<&str> = standings
        .map(|standing| standing.machine.as_str())
        .collect();
    names.dedup();
    names
}

fn by_machine(outcome: &Outcome) -> String {
    let mut columns = vec![("machine", Align::Left)];
    let policies = outcome.standings.iter();
    columns.extend(policies.map(|standing| (standing.name.as_str(), Align::Right)));
    let rows = machines(outcome).into_iter().map(|machine| {
        let own = outcome.by_machine.iter();
        let own = own.filter(|standing| standing.machine == machine);
        let regrets = own.map(|standing| percent(standing.mean_regret));
        std::iter::once(machine.to_owned()).chain(regrets).collect()
    });
    table(&columns, rows)
}

fn judged_again(agreement: &Agreement, results: usize) -> String {
    wrapped(
        "",
        &format!(
            "{} in which the interval level tells a policy's last placement, or the best one, and the default scheduler's \
             last one apart by more than 0.5 % were judged again at the cycle level: both agree on the better one in {}; \
             the ratio differs by {:.2} % on the mean, by {:.2} % at most; caches had not settled in {}",
            count(results, "result"),
            agreement.agreed,
            100.0 * agreement.mean,
            100.0 * agreement.largest,
            agreement.unsettled,
        ),
    )
}
