//! Metrics that users define: `-m ipc=instructions/cycles`.

use crate::{Amounts, Readings, names::canonical};
use perch_core::{Metric, MetricSource};
use perch_profile::formula::{Formula, is_name};
use std::sync::Arc;

/// A metric with its formula.
#[derive(Debug, Clone, PartialEq)]
pub struct Derived {
    /// Its name.
    pub name: Arc<str>,
    /// Its unit, for people; may be empty.
    pub unit: String,
    formula: Formula,
    /// The formula's names as aliases of events, in its order.
    inputs: Vec<String>,
}

/// A text that defines no metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DerivedError(pub String);

/// A metric's value, and what must be said about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluated {
    /// The value.
    pub metric: Metric,
    /// Counts in it are scaled up.
    pub is_scaled: bool,
    /// It is a lower bound, as counts in it are.
    pub is_partial: bool,
}

/// Names that formulas may use besides events.
pub const BESIDES: [(&str, &str); 6] = [
    (
        "cpu_seconds",
        "seconds on a PU; in a formula with events, those in which events were counted",
    ),
    ("wait_seconds", "seconds runnable without a PU"),
    ("seconds", "length of the interval"),
    ("switches", "context switches"),
    ("migrations", "moves to another PU"),
    (
        "threads",
        "threads or PUs in the row; in totals, their mean number",
    ),
];

/// What the kernel accounts for every thread, as formulas: the virtual counters by name.
pub const ACCOUNTED: [(&str, &str); 3] = [
    ("run_delay", "run_delay[s]=wait_seconds"),
    ("context_switches", "context_switches=switches"),
    ("cpu_migrations", "cpu_migrations=migrations"),
];

impl Derived {
    /// Reads `NAME=FORMULA` or `NAME[UNIT]=FORMULA`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, DerivedError> {
        let wrong = |why: String| DerivedError(format!("-m {text}: {why}"));
        let (name, formula) = text.split_once('=').ok_or_else(|| {
            wrong("a metric is NAME=FORMULA, such as ipc=instructions/cycles".to_owned())
        })?;
        let (name, unit) = match name.split_once('[') {
            Some((name, unit)) => match unit.strip_suffix(']') {
                Some(unit) => (name, unit),
                None => {
                    return Err(wrong(
                        "the unit's bracket is not closed: NAME[UNIT]=FORMULA".to_owned(),
                    ));
                }
            },
            None => (name, ""),
        };
        if !is_name(name) {
            return Err(wrong(format!(
                "`{}` cannot name a metric: use letters, digits and _, and no name of a function",
                name.escape_debug()
            )));
        }
        if BESIDES.iter().any(|(known, _)| known == &name) {
            return Err(wrong(format!(
                "`{name}` cannot name a metric: formulas have it already"
            )));
        }
        let written = formula;
        let formula = without_exponents(written);
        let formula = Formula::parse(&formula).map_err(|error| {
            // Exponents that were written out have moved what is behind them.
            wrong(match formula == *written {
                true => {
                    let before = text.len() - written.len() + error.at.start;
                    let column = text[..before].chars().count() + 1;
                    format!("column {column}: {}", error.message)
                }
                false => error.message,
            })
        })?;
        let inputs = formula.names().iter().map(|name| canonical(name)).collect();
        Ok(Self {
            name: name.into(),
            unit: unit.to_owned(),
            formula,
            inputs,
        })
    }

    /// The aliases of the events that it needs, and the names of modules' metrics.
    pub fn events(&self) -> impl Iterator<Item = &str> {
        let names = self.inputs.iter().map(String::as_str);
        names.filter(|name| !BESIDES.iter().any(|(known, _)| known == name))
    }

    /// Whether the formula uses this name, which is no event ([`BESIDES`]).
    pub fn uses(&self, besides: &str) -> bool {
        self.inputs.iter().any(|name| name == besides)
    }

    /// Its title in tables: with the unit, if it has one.
    pub fn title(&self) -> String {
        match self.unit.as_str() {
            "" => self.name.to_string(),
            unit => format!("{}[{unit}]", self.name),
        }
    }

    /// The names in its formula, as events and metrics have them.
    pub fn inputs(&self) -> &[String] {
        &self.inputs
    }

    /// Its value for these amounts and readings over this many nanoseconds; `None` where an event was not counted, a
    /// module told nothing, or the formula has no value.
    ///
    /// A formula gets each count as it is shown: that of the covered time. If it has counts, its CPU time is the covered
    /// time too. So a ratio is that of the covered time, and needs no mark where its counts are lower bounds.
    pub fn of(&self, amounts: &Amounts, readings: &Readings, interval: u64) -> Option<Evaluated> {
        let is_count =
            |name: &String| readings.get(name).is_none() && amounts.value(name).is_some();
        let counts = self.inputs.iter().any(is_count);
        // What if as much again was done where nothing is known of it?
        let again = |unknown: bool| if unknown { 2.0 } else { 1.0 };
        let uncounted = counts && amounts.is_partial();
        let (mut values, mut more) = (Vec::new(), Vec::new());
        let (mut confidence, mut is_scaled) = (1.0f64, false);
        for name in &self.inputs {
            if matches!(name.as_str(), "switches" | "migrations") {
                confidence = confidence.min(amounts.known_switches());
            }
            let mut factor = 1.0;
            let value = match name.as_str() {
                "cpu_seconds" if counts => {
                    factor = again(uncounted);
                    amounts.covered as f64 / 1e9
                }
                "cpu_seconds" => amounts.cpu_time as f64 / 1e9,
                "wait_seconds" => {
                    factor = again(amounts.unknown_end);
                    amounts.wait_time as f64 / 1e9
                }
                "seconds" => interval as f64 / 1e9,
                "switches" => {
                    factor = again(amounts.unknown_end);
                    amounts.switches? as f64
                }
                "migrations" => {
                    factor = again(amounts.unknown_migrations);
                    amounts.migrations? as f64
                }
                "threads" => amounts.threads(),
                name => match readings.get(name) {
                    Some(metric) => {
                        confidence = confidence.min(metric.confidence);
                        metric.value
                    }
                    None => {
                        let value = amounts.value(name)?;
                        confidence = confidence.min(value.share(amounts.cpu_time));
                        is_scaled |= value.is_scaled(amounts.covered);
                        factor = again(uncounted);
                        value.estimate(amounts.covered)?
                    }
                },
            };
            values.push(value);
            // Instead of nothing there may have been something.
            let besides = BESIDES.iter().any(|(known, _)| known == name);
            more.push(match value == 0.0 && besides {
                true => factor - 1.0,
                false => value * factor,
            });
        }
        let value = self.formula.evaluate(&values).ok()?;
        let mut is_partial = false;
        if more != values {
            match self.formula.evaluate(&more) {
                Ok(more) if (more - value).abs() <= 1e-9 * value.abs() => {}
                Ok(more) if more > value => is_partial = true,
                _ => is_scaled = true,
            }
        }
        Some(Evaluated {
            metric: Metric {
                value,
                confidence,
                source: MetricSource::Counters,
            },
            is_scaled,
            is_partial,
        })
    }
}

/// The formula with numbers such as `1e9` written out, as [`Formula`] wants them.
fn without_exponents(formula: &str) -> String {
    let mut out = String::new();
    let mut rest = formula;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        out += before;
        let in_name = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut end = digits(number);
        if number[end..].starts_with('.') {
            end += 1 + digits(&number[end + 1..]);
        }
        let exponent = number[end..].strip_prefix(['e', 'E']);
        let sign = exponent.map_or(0, |text| usize::from(text.starts_with(['+', '-'])));
        let size = exponent.map_or(0, |text| digits(&text[sign..]));
        let whole = end + 1 + sign + size;
        let value = match size {
            1..=3 if !in_name => number[..whole].parse::<f64>().ok(),
            _ => None,
        };
        let length = match value.filter(|value| value.is_finite()) {
            Some(value) => {
                out += &value.to_string();
                whole
            }
            None => {
                out += &number[..end];
                end
            }
        };
        rest = &number[length..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    #[test]
    fn texts() {
        let metric = Derived::parse("mpki[misses/ki]=1000*llc_misses/instructions").unwrap();
        assert_eq!((&*metric.name, metric.unit.as_str()), ("mpki", "misses/ki"));
        assert_eq!(
            metric.events().collect::<Vec<_>>(),
            ["instructions", "llc_misses"]
        );
        let why = |text: &str| Derived::parse(text).unwrap_err().0;
        assert!(why("ipc").contains("NAME=FORMULA"));
        assert!(why("a[b=c").contains("not closed"));
        assert!(why("2x=3").contains("cannot name a metric"));
        assert!(why("sin=3").contains("cannot name a metric"));
        assert_eq!(why("a=(b"), "-m a=(b: column 3: `(` without `)`");
        // The column is that of the text as it was written.
        assert_eq!(why("a=1e3*(b"), "-m a=1e3*(b: `(` without `)`");
    }

    #[test]
    fn numbers_with_exponents() {
        for (text, plain) in [
            (
                "energy_pkg*1e9/instructions",
                "energy_pkg*1000000000/instructions",
            ),
            ("x/1.5e-3+2E2", "x/0.0015+200"),
            // Names may look like numbers from their second character on.
            ("x1e9+l2e3*r1", "x1e9+l2e3*r1"),
            ("1e+4*0.25", "10000*0.25"),
            ("1e", "1e"),
            ("1e9999", "1e9999"),
            ("3*x2", "3*x2"),
        ] {
            assert_eq!(without_exponents(text), plain);
        }
    }

    #[test]
    fn values() {
        let mut amounts = Amounts::default();
        (amounts.cpu_time, amounts.members, amounts.switches) = (2_000_000_000, 1, Some(6));
        amounts.switches_known = 1_500_000_000;
        amounts.covered = 2_000_000_000;
        let value = |counted: f64, time: f64| Value {
            counted,
            time,
            doubt: None,
        };
        amounts.values.insert("llc_misses".into(), value(10.0, 1e9));
        amounts.values.insert("cycles".into(), value(0.0, 2e9));
        let of = |text: &str| {
            let derived = Derived::parse(text).unwrap();
            derived.of(&amounts, &Readings::default(), 4_000_000_000)
        };
        let found = of("x=llc_misses/cpu_seconds").unwrap();
        assert_eq!((found.metric.value, found.metric.confidence), (10.0, 0.5));
        assert!(found.is_scaled && !found.is_partial);
        let switches = of("x=switches/seconds").unwrap().metric;
        assert_eq!((switches.value, switches.confidence), (1.5, 0.75));
        assert_eq!(of("x=llc_misses/cycles"), None);
        assert_eq!(of("x=branches"), None);
        assert_eq!(of("x=migrations"), None);
    }

    /// What threads waited after they were last looked at, and how often they switched, is not known.
    #[test]
    fn marks_of_ends() {
        let mut amounts = Amounts::default();
        (amounts.cpu_time, amounts.switches, amounts.migrations) = (1_000, Some(0), Some(3));
        let partial = |text: &str, amounts: &Amounts| {
            let derived = Derived::parse(text).unwrap();
            let found = derived.of(amounts, &Readings::default(), 4_000);
            found.unwrap().is_partial
        };
        for text in ["x=wait_seconds", "x=switches/seconds", "x=migrations"] {
            assert!(!partial(text, &amounts), "{text}");
        }
        let mut later = amounts.clone();
        (later.unknown_end, later.unknown_migrations) = (true, true);
        amounts.add(&later);
        for text in ["x=wait_seconds", "x=switches/seconds", "x=migrations"] {
            assert!(partial(text, &amounts), "{text}");
        }
        assert!(!partial("x=cpu_seconds/seconds", &amounts));
    }

    /// Half of the CPU time is covered: what grows with counts is a lower bound, ratios are those of the covered half.
    #[test]
    fn marks() {
        let mut amounts = Amounts::default();
        (amounts.cpu_time, amounts.covered) = (2_000_000_000, 1_000_000_000);
        for (event, counted) in [("faults", 10.0), ("cycles", 1e9), ("instructions", 3e9)] {
            let value = Value {
                counted,
                time: 1e9,
                doubt: None,
            };
            amounts.values.insert(event.into(), value);
        }
        let of = |text: &str| {
            let derived = Derived::parse(text).unwrap();
            let found = derived.of(&amounts, &Readings::default(), 4_000_000_000);
            let found = found.unwrap();
            (found.metric.value, found.is_scaled, found.is_partial)
        };
        assert_eq!(of("half=faults/2"), (5.0, false, true));
        assert_eq!(of("f=faults/seconds"), (2.5, false, true));
        assert_eq!(of("ipc=instructions/cycles"), (3.0, false, false));
        assert_eq!(of("f=faults/cpu_seconds"), (10.0, false, false));
        // More faults would make it less.
        assert_eq!(of("apart=seconds/faults"), (0.4, true, false));
        assert_eq!(of("t=cpu_seconds"), (2.0, false, false));
    }
}
