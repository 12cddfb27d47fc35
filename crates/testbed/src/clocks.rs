//! Clocks that the kernel can set, for a guest whose emulated processors have none: an ACPI table (SSDT) with the steps of
//! `testbed/clocks.json`, in AML (ACPI specification 6.5, chapter 20), for the kernel's driver `acpi-cpufreq`.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::topology::Topology;

const DATA: &str = include_str!("../../../testbed/clocks.json");

/// What QEMU must have for the register: a second serial port that leads nowhere.
pub(crate) const ARGUMENTS: [&str; 4] = [
    "-chardev",
    "null,id=scratch",
    "-device",
    "isa-serial,index=1,chardev=scratch",
];

#[derive(Deserialize)]
struct Data {
    register: u16,
    latency: u32,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    frequency: u32,
    power: u32,
}

/// The table: one domain of clocks for each package.
///
/// # Errors
/// Data that make no sense.
pub(crate) fn table(topology: Topology) -> Result<Vec<u8>> {
    let data: Data = serde_json::from_str(DATA).context("testbed/clocks.json")?;
    let (packages, ..) = topology.shape();
    let each = topology.pus() / packages;
    let mut body = Vec::new();
    for pu in 0..topology.pus() {
        let parts = [
            name("_PPC", &[0]),
            name(
                "_PCT",
                &package(&[register(data.register), register(data.register)]),
            ),
            name(
                "_PSS",
                &package(
                    &data
                        .steps
                        .iter()
                        .zip(1..)
                        .map(|(step, control)| {
                            let Step { frequency, power } = *step;
                            package(
                                &[
                                    frequency,
                                    power,
                                    data.latency,
                                    data.latency,
                                    control,
                                    control,
                                ]
                                .map(number),
                            )
                        })
                        .collect::<Vec<_>>(),
                ),
            ),
            // Five entries, revision 0, the domain, all PUs of which software sets (0xfc), and how many these are.
            name(
                "_PSD",
                &package(&[package(
                    &[5, 0, (pu / each) as u32, 0xfc, each as u32].map(number),
                )]),
            ),
        ];
        body.extend(scope(pu, &parts.concat()));
    }
    Ok(definition_block(&body))
}

/// The header of a table (section 5.2.6) and what is in it.
fn definition_block(body: &[u8]) -> Vec<u8> {
    const HEADER: usize = 36;
    let mut table = b"SSDT".to_vec();
    table.extend(((HEADER + body.len()) as u32).to_le_bytes());
    // Revision, and the checksum, which comes last.
    table.extend([2, 0]);
    table.extend(b"PERCH ");
    table.extend(b"CLOCKS  ");
    table.extend(1u32.to_le_bytes());
    table.extend(b"PRCH");
    table.extend(1u32.to_le_bytes());
    table.extend(body);
    let sum = table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    table[9] = sum.wrapping_neg();
    table
}

/// What comes behind an opcode, with the length of the whole before it (PkgLength, section 20.2.4).
fn with_length(opcode: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![opcode];
    match content.len() + 1 {
        short @ ..0x40 => bytes.push(short as u8),
        _ => {
            // Two bytes more: enough for a million.
            let length = content.len() + 3;
            bytes.push(0x80 | (length & 0xf) as u8);
            bytes.extend([(length >> 4) as u8, (length >> 12) as u8]);
        }
    }
    bytes.extend(content);
    bytes
}

/// `Scope (\_SB.CPUS.C000)`: where QEMU describes the PU of that number.
fn scope(pu: usize, content: &[u8]) -> Vec<u8> {
    let path = format!("\\\x2f\x03_SB_CPUSC{pu:03X}");
    with_length(0x10, &[path.as_bytes(), content].concat())
}

/// `Name (NAME, value)`.
fn name(name: &str, value: &[u8]) -> Vec<u8> {
    [&[0x08], name.as_bytes(), value].concat()
}

/// `Package () { … }`.
fn package(elements: &[Vec<u8>]) -> Vec<u8> {
    with_length(
        0x12,
        &[&[elements.len() as u8], &elements.concat()[..]].concat(),
    )
}

/// An integer.
fn number(number: u32) -> Vec<u8> {
    match number {
        // `Zero` and `One` have opcodes of their own.
        0 | 1 => vec![number as u8],
        _ => [&[0x0c], &number.to_le_bytes()[..]].concat(),
    }
}

/// `ResourceTemplate () { Register (SystemIO, 8, 0, port) }` (section 6.4.3.7).
fn register(port: u16) -> Vec<u8> {
    // Tag, length, system I/O space, 8 bits from bit 0, any access.
    let mut resource = vec![0x82, 12, 0, 1, 8, 0, 0];
    resource.extend(u64::from(port).to_le_bytes());
    // The end tag; with 0 its checksum is not looked at.
    resource.extend([0x79, 0]);
    let length = [&[0x0a], &[resource.len() as u8][..]].concat();
    with_length(0x11, &[length, resource].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        for topology in Topology::ALL {
            let table = table(topology).unwrap();
            let length = u32::from_le_bytes(table[4..8].try_into().unwrap());
            assert_eq!(length as usize, table.len());
            let sum = table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
            assert_eq!(sum, 0, "{topology:?}");
            // Its body is one scope a PU, and nothing else.
            let (mut rest, mut scopes) = (&table[36..], 0);
            while let [0x10, first, second, third, ..] = rest {
                assert_eq!(first >> 6, 2);
                let (low, high) = (usize::from(*second), usize::from(*third));
                rest = &rest[1 + (usize::from(first & 0xf) | low << 4 | high << 12)..];
                scopes += 1;
            }
            assert_eq!((rest.len(), scopes), (0, topology.pus()), "{topology:?}");
        }
    }

    /// `Name (_PSD, Package (1) { Package (2) { Zero, One } })`.
    #[test]
    fn packages_are_nested() {
        let made = name("_PSD", &package(&[package(&[0, 1].map(number))]));
        assert_eq!(made, b"\x08_PSD\x12\x07\x01\x12\x04\x02\x00\x01");
    }
}
