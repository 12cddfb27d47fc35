//! The workload's command line.

use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What a thread does.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Floating-point arithmetic in registers, 8 of 10 instructions.
    Fp,
    /// Integer arithmetic in registers, no floating point at all.
    Int,
    /// Sleeps nearly always.
    Idle,
    /// Integer arithmetic in short bits with a nap after each: thousands of switches a second.
    Switcher,
}

/// How a thread came to be.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SpawnKind {
    /// `clone` in the same process.
    Thread,
    /// `fork` without `execve`.
    Fork,
    /// `fork` and `execve`.
    Program,
    /// Forked twice, in a session of its own: its parent is process 1.
    Daemon,
}

/// The number of threads of each role, as in `fp:4,int:4`.
#[derive(Clone, Debug)]
pub struct Mix(pub Vec<Role>);

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut roles = Vec::new();
        for part in text.split(',') {
            let (role, count) = part
                .split_once(':')
                .ok_or_else(|| format!("{part} is not ROLE:COUNT"))?;
            let role = Role::from_str(role, false)?;
            let count: usize = count.parse().map_err(|_| format!("{count} is no number"))?;
            roles.extend(std::iter::repeat_n(role, count));
        }
        Ok(Self(roles))
    }
}

/// One late start, as in `2.5:daemon:int`: when (seconds), how, and the newcomer's role.
#[derive(Clone, Copy, Debug)]
pub struct Spawn {
    /// Seconds after the workload's start.
    pub at: f64,
    /// The way.
    pub kind: SpawnKind,
    /// The newcomer's role.
    pub role: Role,
}

impl FromStr for Spawn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let [at, kind, role] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(format!("{text} is not SECONDS:KIND:ROLE"));
        };
        Ok(Self {
            at: at
                .parse()
                .map_err(|_| format!("{at} is no number of seconds"))?,
            kind: SpawnKind::from_str(kind, false)?,
            role: Role::from_str(role, false)?,
        })
    }
}

/// Orders to the workload while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Deal the roles anew.
    Shuffle,
    /// One of the first threads starts another.
    Spawn(SpawnKind, Role),
    /// All threads end now.
    End,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            ["shuffle"] => Ok(Self::Shuffle),
            ["end"] => Ok(Self::End),
            ["spawn", kind, role] => Ok(Self::Spawn(
                SpawnKind::from_str(kind, false)?,
                Role::from_str(role, false)?,
            )),
            _ => Err(format!("{text} is no order: shuffle, spawn KIND ROLE, end")),
        }
    }
}

/// Counter rates of a role, as in `fp=instructions=900000 wibble=400000`, in events a second.
#[derive(Clone, Debug)]
pub struct Rates {
    /// The role.
    pub role: Role,
    /// The rates as the stand-in PMU's `rules` take them.
    pub rates: String,
}

impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (role, rates) = text
            .split_once('=')
            .ok_or_else(|| format!("{text} is not ROLE=RATES"))?;
        Ok(Self {
            role: Role::from_str(role, false)?,
            rates: rates.to_owned(),
        })
    }
}

/// What to run.
#[derive(clap::Parser, Clone, Debug)]
#[command(about = "Threads of known roles in random order under random names, as JSON lines")]
pub struct Options {
    /// Threads of each role: fp, int, idle, switcher
    #[arg(long, value_name = "ROLE:COUNT,...")]
    pub threads: Mix,
    /// How long everything runs, in seconds
    #[arg(long)]
    pub seconds: f64,
    /// Decides order, names and shuffles
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Redistribute the roles of the first threads after this many seconds (repeatable)
    #[arg(long, value_name = "SECONDS")]
    pub shuffle: Vec<f64>,
    /// Let one of the first threads start another: thread, fork, program or daemon (repeatable)
    #[arg(long, value_name = "SECONDS:KIND:ROLE")]
    pub spawn: Vec<Spawn>,
    /// Read orders from this FIFO, one a line: `shuffle`, `spawn KIND ROLE`, `end`
    #[arg(long, value_name = "FILE")]
    pub orders: Option<std::path::PathBuf>,
    /// Tell the stand-in PMU each thread's event rates (repeatable)
    #[arg(long, value_name = "ROLE=EVENT=RATE ...")]
    pub rates: Vec<Rates>,
    /// Pause for a random time, up to this many milliseconds, between the starts of the first threads
    #[arg(long, default_value_t = 20)]
    pub gap: u64,
    /// Become a daemon first, by two forks
    #[arg(long, hide = true)]
    pub daemon: bool,
    /// The thread that started this program
    #[arg(long, hide = true, default_value_t = 0)]
    pub parent: i32,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn the_command_line_is_read() {
        let options = Options::try_parse_from([
            "guest-load",
            "--threads",
            "fp:2,int:1",
            "--seconds",
            "3",
            "--spawn",
            "2.5:daemon:int",
            "--rates",
            "fp=instructions=5 x=7",
        ])
        .unwrap();
        assert_eq!(options.threads.0, [Role::Fp, Role::Fp, Role::Int]);
        assert_eq!(
            (options.spawn[0].kind, options.spawn[0].role),
            (SpawnKind::Daemon, Role::Int)
        );
        assert_eq!(
            (options.rates[0].role, options.rates[0].rates.as_str()),
            (Role::Fp, "instructions=5 x=7")
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["fp", "fp:x", "gpu:1", ""] {
            assert!(bad.parse::<Mix>().is_err(), "{bad:?} was taken");
        }
        for bad in ["", "spawn", "spawn fork gpu", "shuffle twice"] {
            assert!(bad.parse::<Order>().is_err(), "{bad:?} was taken");
        }
        for bad in ["1:fork", "x:fork:fp", "1:spoon:fp", "1:fork:gpu"] {
            assert!(bad.parse::<Spawn>().is_err(), "{bad:?} was taken");
        }
    }
}
