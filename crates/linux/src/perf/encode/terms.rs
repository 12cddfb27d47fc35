//! The kernel's little languages: bit ranges of a format file, and terms of an event
//! (`Documentation/ABI/testing/sysfs-bus-event_source-devices-{format,events}`).

/// Which bits of which field a term fills, such as `config:0-7,32-35`: the value's low bits go to the first range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits {
    /// The field of `perf_event_attr` that holds the bits.
    pub field: Field,
    /// First and last bit of each range, both included, in the value's order.
    pub ranges: Vec<(u32, u32)>,
}

/// A field of `perf_event_attr` that a term may fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Field {
    /// `config`.
    Config,
    /// `config1`.
    Config1,
    /// `config2`.
    Config2,
    /// `config3`.
    Config3,
}

impl Field {
    /// A field's name, as the kernel writes it.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "config" => Self::Config,
            "config1" => Self::Config1,
            "config2" => Self::Config2,
            "config3" => Self::Config3,
            _ => return None,
        })
    }
}

impl Bits {
    /// Reads a format file's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` is no bit range such as config:0-7", text.trim());
        let (field, list) = text.trim().split_once(':').ok_or_else(wrong)?;
        let field = Field::from_name(field).ok_or_else(wrong)?;
        let bit = |digits: &str| {
            let bit: u32 = digits.trim().parse().ok()?;
            (bit < 64).then_some(bit)
        };
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (bit(first)?, bit(last)?);
            (first <= last).then_some((first, last))
        };
        let ranges: Option<Vec<_>> = list.split(',').map(range).collect();
        let ranges = ranges.ok_or_else(wrong)?;
        Ok(Self { field, ranges })
    }

    /// How many bits the value may have.
    pub fn width(&self) -> u32 {
        let widths = self.ranges.iter().map(|(first, last)| last - first + 1);
        widths.sum::<u32>().min(64)
    }

    /// The value that stands in its place.
    pub fn taken(&self, config: &[u64; 4]) -> u64 {
        let (mut value, mut at) = (0, 0);
        for (first, last) in &self.ranges {
            for bit in *first..=*last {
                if at < 64 {
                    value |= (config[self.field as usize] >> bit & 1) << at;
                    at += 1;
                }
            }
        }
        value
    }

    /// Puts a value into its place.
    ///
    /// # Errors
    /// A value with more bits than there is place for.
    pub fn place(&self, value: u64, config: &mut [u64; 4]) -> Result<(), String> {
        if self.width() < 64 && value >> self.width() != 0 {
            return Err(format!(
                "{value:#x} does not fit into {} bits",
                self.width()
            ));
        }
        let mut rest = value;
        for (first, last) in &self.ranges {
            let mask = u64::MAX >> (63 - (last - first));
            let field = &mut config[self.field as usize];
            *field = *field & !(mask << first) | (rest & mask) << first;
            rest = rest.checked_shr(last - first + 1).unwrap_or(0);
        }
        Ok(())
    }
}

/// Reads `name=value,name,…`; a term without a value has none.
///
/// # Errors
/// A value that is no number.
pub(super) fn parse_terms(text: &str) -> Result<Vec<(&str, Option<u64>)>, String> {
    let terms = text.trim().split(',').map(str::trim);
    terms.filter(|term| !term.is_empty()).map(term).collect()
}

fn term(text: &str) -> Result<(&str, Option<u64>), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Ok((text, None));
    };
    let (name, value) = (name.trim(), value.trim());
    let number = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    };
    match number {
        Some(number) => Ok((name, Some(number))),
        None if value == "?" => Err(format!("the event wants a value for `{name}`")),
        None => Err(format!("`{value}` of `{name}` is no number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ranges that do not overlap, in any order.
    fn bits() -> impl Strategy<Value = Bits> {
        let cuts = proptest::collection::btree_set(0u32..=64, 2..10);
        (0usize..4, cuts).prop_perturb(|(field, cuts), mut random| {
            let cuts: Vec<u32> = cuts.into_iter().collect();
            let mut ranges: Vec<(u32, u32)> =
                cuts.windows(2).map(|pair| (pair[0], pair[1] - 1)).collect();
            if ranges.len() > 1 {
                ranges.swap_remove(random.next_u32() as usize % ranges.len());
            }
            let field = [
                Field::Config,
                Field::Config1,
                Field::Config2,
                Field::Config3,
            ][field];
            Bits { field, ranges }
        })
    }

    proptest! {
        #[test]
        fn a_value_comes_back_and_nothing_else_changes(bits in bits(), value: u64, before: [u64; 4]) {
            let value = if bits.width() == 64 { value } else { value & ((1 << bits.width()) - 1) };
            let mut config = before;
            bits.place(value, &mut config).expect("it fits");
            prop_assert_eq!(bits.taken(&config), value);
            bits.place(bits.taken(&before), &mut config).expect("it fits");
            prop_assert_eq!(config, before);
            if bits.width() < 64 {
                prop_assert!(bits.place(1 << bits.width(), &mut config).is_err());
                prop_assert_eq!(config, before);
            }
        }

        #[test]
        fn formats_come_back(bits in bits()) {
            let name = ["config", "config1", "config2", "config3"][bits.field as usize];
            let ranges: Vec<String> = bits
                .ranges
                .iter()
                .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
                .collect();
            prop_assert_eq!(Bits::parse(&format!("{name}:{}\n", ranges.join(","))), Ok(bits));
        }

        #[test]
        fn any_text_is_survived(text in "\\PC{0,40}") {
            let _ = Bits::parse(&text);
            let _ = parse_terms(&text);
            let _ = Bits::parse(&format!("config:{text}"));
        }
    }

    #[test]
    fn terms_are_read() {
        let terms = parse_terms("event=0xc0, umask=1,edge\n");
        let expected = vec![("event", Some(0xc0)), ("umask", Some(1)), ("edge", None)];
        assert_eq!(terms, Ok(expected));
        assert!(parse_terms("event=?").is_err_and(|why| why.contains("wants a value")));
        assert!(parse_terms("event=x1").is_err());
        assert!(Bits::parse("config:0-64").is_err());
        assert!(Bits::parse("config:7-0").is_err());
        assert!(Bits::parse("flags:0").is_err());
    }
}
