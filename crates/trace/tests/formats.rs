//! What is written is read back; what is damaged is refused; nothing panics.

use perch_trace::{
    Access, Branch, Class, Code, CodeTable, Cursor, Encoder, Limits, Recording, Summary, champsim,
    file, read_from, registers,
};
use proptest::{collection::vec, prelude::*};
use std::{io::Write, sync::Arc};

/// An execution: instruction, addresses, whether it branched.
type Executed = (Code, Vec<u64>, bool);

fn code() -> impl Strategy<Value = Code> {
    let registers = || vec(1u8..=255, 0..5).prop_map(Into::into);
    let accesses = vec((0u16..=600, any::<bool>()), 0..4).prop_map(|list| {
        let access = |(bytes, store)| Access { bytes, store };
        list.into_iter().map(access).collect()
    });
    (
        // Neighbours, so that there are runs, and some far away.
        prop_oneof![3 => 0x1000u64..0x1010, 1 => any::<u64>()],
        1u8..16,
        0..Class::COUNT,
        0..Branch::ALL.len(),
        (registers(), registers(), registers()),
        accesses,
    )
        .prop_map(
            |(address, length, class, branch, (bases, sources, destinations), accesses)| {
                let class = Class::ALL[class];
                Code {
                    address,
                    length,
                    class,
                    branch: (class == Class::Branch).then(|| Branch::ALL[branch]),
                    bases,
                    sources,
                    destinations,
                    accesses,
                }
            },
        )
}

/// Threads that execute instructions of a small program.
fn threads() -> impl Strategy<Value = Vec<Vec<Executed>>> {
    vec(code(), 1..12).prop_flat_map(|codes| {
        let executed = (0..codes.len(), any::<[u64; 4]>(), any::<bool>());
        let executed = executed.prop_map(move |(at, addresses, taken)| {
            let code = codes[at].clone();
            let taken = taken && code.branch.is_some();
            (
                code.clone(),
                addresses[..code.accesses.len()].to_vec(),
                taken,
            )
        });
        vec(vec(executed, 0..60), 1..4)
    })
}

fn recording(threads: &[Vec<Executed>]) -> Recording {
    let mut table = CodeTable::default();
    let mut encoders = Vec::new();
    for thread in threads {
        let mut encoder = Encoder::default();
        for (code, addresses, taken) in thread {
            let id = table.id(code.clone());
            encoder.push(&table, id, addresses, *taken);
        }
        encoders.push(encoder);
    }
    Recording::from_parts("prog --with arguments", table, encoders)
}

fn executed(recording: Recording) -> Vec<Vec<Executed>> {
    let recording = Arc::new(recording);
    let thread = |number| {
        let mut cursor = Cursor::new(Arc::clone(&recording), number).unwrap();
        let mut executed = Vec::new();
        loop {
            let next = cursor.peek();
            let Some(instruction) = cursor.next() else {
                assert_eq!(next, None);
                return executed;
            };
            assert_eq!(next, Some(instruction.code.address));
            executed.push((
                instruction.code.clone(),
                instruction.addresses.to_vec(),
                instruction.taken,
            ));
        }
    };
    (0..recording.threads().len()).map(thread).collect()
}

fn read(bytes: &[u8]) -> Result<Recording, String> {
    read_from(bytes, &Limits::default())
}

fn perch(recording: &Recording) -> Vec<u8> {
    file::write(recording, Vec::new()).unwrap()
}

fn champsim_bytes(recording: Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    champsim::write_thread(&Arc::new(recording), 0, &mut bytes).unwrap();
    bytes
}

proptest! {
    #[test]
    fn perchs_own_format_keeps_everything(threads in threads()) {
        let before = recording(&threads);
        let after = read(&perch(&before)).unwrap();
        prop_assert_eq!(&after.program, "prog --with arguments");
        prop_assert_eq!(executed(after), threads);
    }

    #[test]
    fn a_file_that_was_cut_off_or_changed_is_refused(threads in threads(), at in any::<prop::sample::Index>(), flip in 1u8..=255) {
        let bytes = perch(&recording(&threads));
        let at = at.index(bytes.len());
        prop_assert!(read(&bytes[..at]).is_err());
        let mut changed = bytes.clone();
        changed[at] ^= flip;
        // Whatever it says now, it says without a panic; the program's content is guarded by checksums, so that only the
        // numbers of threads can be others.
        if let Ok(other) = read(&changed) {
            let before: u64 = recording(&threads).threads().iter().map(|t| t.instructions).sum();
            let after: u64 = other.threads().iter().map(|t| t.instructions).sum();
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..300), own in any::<bool>()) {
        let mut all = if own { [&file::MAGIC[..], &[1, 0, 0, 0]].concat() } else { Vec::new() };
        all.extend(bytes);
        let _ = read_from(&all[..], &Limits { bytes: 1 << 20 });
    }

    #[test]
    fn champsim_keeps_what_it_has_room_for(threads in threads()) {
        let bytes = champsim_bytes(recording(&threads));
        prop_assert_eq!(bytes.len(), 64 * threads[0].len());
        prop_assume!(!threads[0].is_empty());
        let once = read(&bytes).unwrap();
        for ((code, addresses, taken), (back, back_addresses, back_taken)) in threads[0].iter().zip(&executed(once.clone())[0]) {
            prop_assert_eq!(back.address, code.address);
            prop_assert_eq!(back.branch, code.branch);
            prop_assert_eq!(back_taken, taken);
            for store in [false, true] {
                let of = |code: &Code, list: &[u64]| -> Vec<u64> {
                    let pairs = code.accesses.iter().zip(list);
                    pairs.filter(|(access, at)| access.store == store && **at != 0).map(|(_, at)| *at).take(if store { 2 } else { 4 }).collect()
                };
                prop_assert_eq!(of(back, back_addresses), of(code, addresses));
            }
        }
        // What it had room for once, it has room for again.
        prop_assert_eq!(champsim_bytes(once), bytes);
    }

    #[test]
    fn packed_traces_are_the_same(threads in threads()) {
        prop_assume!(!threads[0].is_empty());
        let recording = Arc::new(recording(&threads[..1]));
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| {
            let files = champsim::write(&recording, &folder.path().join(name)).unwrap();
            executed(perch_trace::read(&files[0], &Limits::default()).unwrap())
        };
        let plain = read("t.champsimtrace");
        prop_assert_eq!(&read("t.champsimtrace.gz"), &plain);
        prop_assert_eq!(&read("t.champsimtrace.xz"), &plain);
    }
}

/// A file of perch's own, packed once more, is still one.
#[test]
fn what_a_file_is_its_content_tells() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&perch(&recording(&[Vec::new()]))).unwrap();
    let back = read(&packer.finish().unwrap()).unwrap();
    assert_eq!(Summary::of(&Arc::new(back)).instructions(), 0);
}

#[test]
fn refusals_say_why() {
    let why = |bytes: &[u8]| read(bytes).unwrap_err();
    assert_eq!(why(b""), "it is empty");
    assert!(why(&[b'a'; 64]).contains("is 97 in record 0, not 0 or 1"));
    assert!(why(&[0; 65]).contains("record 1 has 1 of 64 bytes"));
    assert!(why(b"perchtrc\x02\0\0\0").contains("version 2"));
    let whole = perch(&recording(&[Vec::new()]));
    assert!(why(&whole[..whole.len() - 1]).contains("ends too early"));
    let large = champsim_bytes(recording(&[vec![
        (
            Code {
                address: 1,
                length: 1,
                class: Class::Alu,
                branch: None,
                bases: Box::default(),
                sources: Box::new([registers::FLAGS]),
                destinations: Box::default(),
                accesses: Box::default(),
            },
            Vec::new(),
            false
        );
        4
    ]]));
    let error = read_from(&large[..], &Limits { bytes: 100 }).unwrap_err();
    assert!(error.contains("too large"), "{error}");
}
