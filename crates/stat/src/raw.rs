//! Event sets as PMCTrack writes them: `pmc0,pmc3=0x2e,umask3=0x41` ("PMCTrack", section 3.2.2; version 4.0,
//! `pmu_config_x86.c`). The number after a key tells which counter it is for; perch leaves the choice of the counter to
//! the kernel and uses the number only to tell which keys belong together.

use crate::{
    events::{RequestError, Requested},
    names::{Space, in_space},
};
use perch_core::EventChoice;
use std::{collections::BTreeMap, sync::Arc};

/// What `pmcN` without a code counts: the fixed counters of Intel's processors (Intel SDM, volume 3, "Fixed-Function
/// Performance Counters").
const FIXED: [&str; 3] = ["instructions", "cycles", "ref-cycles"];

/// The threshold of `ebsN` without a number (PMCTrack 4.0).
const DEFAULT_THRESHOLD: u64 = 500_000_000;

/// One counter's keys.
#[derive(Debug, Default)]
struct Counter {
    code: Option<u64>,
    /// Terms of the PMU besides the code.
    terms: Vec<(&'static str, u64)>,
    user: Option<bool>,
    kernel: Option<bool>,
    every: Option<u64>,
}

/// Whether a text is in that format: its first key is `pmcN`.
pub fn is_raw(text: &str) -> bool {
    let first = text.split([',', '=']).next().unwrap_or("").trim();
    first.strip_prefix("pmc").is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The events of a set.
pub(crate) fn parse(text: &str, space: Space) -> Result<Vec<Requested>, RequestError> {
    let mut counters: BTreeMap<u32, Counter> = BTreeMap::new();
    for token in text
        .split(',')
        .map(str::trim)
        .filter(|token| !token.is_empty())
    {
        key(token, &mut counters).map_err(|why| RequestError(format!("-e {text}: {why}")))?;
    }
    counters
        .into_iter()
        .map(|(number, counter)| {
            event(number, &counter, space).map_err(|why| RequestError(format!("-e {text}: {why}")))
        })
        .collect()
}

/// PMCTrack's form of an event of the cores' PMU, for the counter of that number: `cpu/event=0x2e,umask=0x41/` is
/// `pmc0=0x2e,umask0=0x41`. `None` for events with terms that PMCTrack has no keys for.
pub fn write(number: u32, device: &str) -> Option<String> {
    let (_, rest) = device.split_once('/')?;
    let terms = rest.strip_suffix('/')?;
    let mut keys = Vec::new();
    for term in terms.split(',') {
        let (name, value) = term.split_once('=')?;
        keys.push(match name {
            "event" => format!("pmc{number}={value}"),
            "umask" | "cmask" => format!("{name}{number}={value}"),
            "edge" | "inv" | "any" => format!("{name}{number}={}", value.strip_prefix("0x")?),
            _ => return None,
        });
    }
    // The code comes first, and an event without one has the code 0.
    if !keys.first()?.starts_with("pmc") {
        keys.insert(0, format!("pmc{number}=0x0"));
    }
    Some(keys.join(","))
}

fn key(token: &str, counters: &mut BTreeMap<u32, Counter>) -> Result<(), String> {
    let (key, value) = match token.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (token, None),
    };
    let digits = key.len() - key.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (name, number) = key.split_at(digits);
    let number: u32 = number
        .parse()
        .ok()
        .filter(|number| *number < 64)
        .ok_or_else(|| format!("`{token}`: a counter's number is missing, as in pmc0 or umask0"))?;
    if name != "pmc" && !counters.contains_key(&number) {
        return Err(format!("`{token}`: there is no pmc{number} before it"));
    }
    let counter = counters.entry(number).or_default();
    let hexadecimal = || {
        let text = value.ok_or_else(|| format!("`{token}`: a value is missing"))?;
        let digits = text.strip_prefix("0x").unwrap_or(text);
        u64::from_str_radix(digits, 16)
            .map_err(|_| format!("`{token}`: `{text}` is not a hexadecimal number"))
    };
    let flag = || match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(other) => Err(format!("`{token}`: `{other}` is neither 0 nor 1")),
    };
    match name {
        "pmc" if value.is_some() => counter.code = Some(hexadecimal()?),
        "pmc" => {}
        "umask" | "um" => counter.terms.push(("umask", hexadecimal()?)),
        "cmask" | "cm" => counter.terms.push(("cmask", hexadecimal()?)),
        "edge" => counter.terms.push(("edge", u64::from(flag()?))),
        "inv" => counter.terms.push(("inv", u64::from(flag()?))),
        "any" => counter.terms.push(("any", u64::from(flag()?))),
        "usr" => counter.user = Some(flag()?),
        "os" => counter.kernel = Some(flag()?),
        "ebs" => {
            counter.every = Some(match value {
                None => DEFAULT_THRESHOLD,
                Some(number) => number
                    .parse()
                    .ok()
                    .filter(|number| *number > 0)
                    .ok_or_else(|| format!("`{token}`: `{number}` is not a number of events"))?,
            });
        }
        _ => {
            return Err(format!(
                "`{token}`: unknown key; known are pmc, umask, cmask, edge, inv, any, usr, os and ebs, each with the \
                 counter's number"
            ));
        }
    }
    Ok(())
}

fn event(number: u32, counter: &Counter, space: Space) -> Result<Requested, String> {
    let space = match (counter.user, counter.kernel) {
        (None, None) => space,
        (Some(false), None | Some(false)) => {
            return Err(format!(
                "pmc{number} would count nothing: neither usr{number} nor os{number}"
            ));
        }
        (Some(false), Some(true)) => Space::Kernel,
        // User space counts unless it is switched off.
        (None | Some(true), Some(true)) => Space::All,
        (None | Some(true), None | Some(false)) => Space::User,
    };
    let spelled = match counter.code {
        Some(code) => {
            let terms = counter
                .terms
                .iter()
                .map(|(name, value)| format!(",{name}={value:#x}"));
            format!("cpu/event={code:#x}{}/", terms.collect::<String>())
        }
        None if !counter.terms.is_empty() => {
            return Err(format!(
                "pmc{number} has no event code: write pmc{number}=0x…"
            ));
        }
        None => (*FIXED.get(number as usize).ok_or_else(|| {
            format!(
                "pmc{number} has no event code, and only pmc0, pmc1 and pmc2 have a fixed meaning"
            )
        })?)
        .to_owned(),
    };
    let name: Arc<str> = format!("pmc{number}").into();
    // A fixed counter keeps the name that formulas know.
    let alias: Arc<str> = match counter.code {
        None => crate::names::canonical(&spelled).into(),
        Some(_) => Arc::clone(&name),
    };
    Ok(Requested {
        choices: vec![EventChoice {
            alias: Arc::clone(&alias),
            spellings: vec![in_space(&spelled, space)],
            pmu: None,
        }],
        name,
        alias,
        every: counter.every,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spelled(text: &str) -> Result<Vec<String>, String> {
        let events = parse(text, Space::All).map_err(|error| error.0)?;
        Ok(events
            .iter()
            .map(|event| event.choices[0].spellings[0].clone())
            .collect())
    }

    #[test]
    fn the_papers_example() {
        // Section 3.2.2: instructions and LLC misses of an Intel processor.
        assert_eq!(
            spelled("pmc0,pmc3=0x2e,umask3=0x41"),
            Ok(vec![
                "instructions".to_owned(),
                "cpu/event=0x2e,umask=0x41/".to_owned()
            ])
        );
    }

    #[test]
    fn keys() {
        assert_eq!(
            spelled("pmc1=0xa3,umask1=4,cmask1=4,edge1,inv1=0,usr1=1,os1=0"),
            Ok(vec![
                "cpu/event=0xa3,umask=0x4,cmask=0x4,edge=0x1,inv=0x0/u".to_owned()
            ])
        );
        assert_eq!(
            spelled("pmc4=c0,os4,usr4=0"),
            Ok(vec!["cpu/event=0xc0/k".to_owned()])
        );
        assert_eq!(
            parse("pmc0,ebs0", Space::All).unwrap()[0].every,
            Some(500_000_000)
        );
        assert_eq!(
            parse("pmc0,ebs0=1000", Space::All).unwrap()[0].every,
            Some(1000)
        );
    }

    #[test]
    fn errors_name_the_key() {
        let why = |text: &str| spelled(text).unwrap_err();
        assert!(why("pmc0=zz").contains("not a hexadecimal number"));
        assert!(why("pmc0,umask=1").contains("number is missing"));
        assert!(why("pmc0,umask1=1").contains("no pmc1 before"));
        assert!(why("pmc0=0xc0,hot0=1").contains("unknown key"));
        assert!(why("pmc7").contains("only pmc0, pmc1 and pmc2"));
        assert!(why("pmc0,umask0=1").contains("no event code"));
        assert!(why("pmc0=0xc0,usr0=0").contains("count nothing"));
        assert!(why("pmc0,usr0=2").contains("neither 0 nor 1"));
        assert!(why("pmc0,ebs0=0").contains("not a number of events"));
    }

    #[test]
    fn terms_without_a_key_cannot_be_written() {
        assert_eq!(write(0, "cpu/event=0xcd,umask=0x1,ldlat=0x1e/"), None);
        assert_eq!(
            write(1, "cpu/umask=0x1/").as_deref(),
            Some("pmc1=0x0,umask1=0x1")
        );
        assert_eq!(write(0, "cycles"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_as_the_same(
            number in 0u32..64, code in 0u64..0xfff, umask in 1u64..0x100, cmask in 1u64..0x100, edge: bool
        ) {
            let edge = if edge { ",edge=0x1" } else { "" };
            let device = format!("cpu/event={code:#x},umask={umask:#x},cmask={cmask:#x}{edge}/");
            let written = write(number, &device).unwrap();
            prop_assert!(is_raw(&written));
            prop_assert_eq!(spelled(&written), Ok(vec![device]));
        }

        #[test]
        fn any_text_is_survived(text in "pmc0[a-z0-9=,x]{0,30}|\\PC{0,20}") {
            let _ = is_raw(&text);
            let _ = parse(&text, Space::User);
        }
    }
}
