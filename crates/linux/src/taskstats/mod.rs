//! What threads did up to their very end: the kernel's taskstats records, one for every thread of the machine that ends
//! (Documentation/accounting/taskstats.rst). They come for a user with CAP_NET_ADMIN, and only in the initial PID, user and
//! network namespaces.

mod message;

pub use message::{ExitRecord, parse};

use crate::{
    limits::{Budget, Kept, Purpose},
    perf::task_events::monotonic,
    topology::possible_pus,
};
use message::{ASK_FOR_TID, DEREGISTER, REGISTER, Taskstats};
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_generic::{
    GenlFamily, GenlMessage,
    ctrl::{GenlCtrl, GenlCtrlCmd, nlas::GenlCtrlAttrs},
};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink,
        netlink::SocketAddrNetlink, recvfrom, sendto, socket_with, sockopt,
    },
    time::{ClockId, clock_gettime},
};

/// Bytes of records that the kernel keeps for perch: some 7,000 threads. They take memory only while they wait.
const QUEUE: usize = 8 << 20;

/// A message takes less than 1,500 bytes: that of a process's last thread holds two records.
const MESSAGE: usize = 16 << 10;

/// Records read at once, so that perch is not held up by threads that end faster than it reads.
const AT_ONCE: usize = 1 << 15;

/// A record and when it was made, in nanoseconds of CLOCK_MONOTONIC: after the first and before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// What the kernel says.
    pub record: ExitRecord,
    /// When.
    pub made: (u64, u64),
}

/// A source of exit records, of all threads of the machine.
#[derive(Debug)]
pub struct ExitRecords {
    socket: Kept<OwnedFd>,
    family: u16,
    /// The list of CPUs whose threads it was registered for.
    cpus: String,
    buffer: Vec<u8>,
    /// Since when records may wait, by CLOCK_MONOTONIC.
    since: u64,
}

impl ExitRecords {
    /// Asks the kernel for them. `None` if it refuses, or tells no run times.
    pub fn open() -> Option<Self> {
        let place = Budget::of_process().reserve(Purpose::TaskEvents, 1)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let generic = Some(netlink::GENERIC);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, generic).ok()?;
        bind(&socket, &SocketAddrNetlink::new(0, 0)).ok()?;
        // With the capability that the records need, this is allowed too.
        sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE).ok()?;
        let mut records = Self {
            socket: place.keep(socket),
            family: 0,
            cpus: String::new(),
            buffer: vec![0; MESSAGE],
            since: monotonic(),
        };
        records.family = records.find_family()?;
        records.check()?;
        records.cpus = possible_pus().to_string();
        let registered = records.register(REGISTER);
        registered.then_some(records)
    }

    /// The records that wait, and whether others were lost.
    pub fn drain(&mut self) -> (Vec<Exit>, bool) {
        let (mut records, mut lost) = (Vec::new(), false);
        let began = monotonic();
        for _ in 0..AT_ONCE {
            match self.receive() {
                Ok(length) => records.extend(parse(&self.buffer[..length], self.family)),
                Err(Errno::NOBUFS) => lost = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let made = (std::mem::replace(&mut self.since, began), monotonic());
        let exits = records.into_iter().map(|record| Exit { record, made });
        (exits.collect(), lost)
    }

    /// Has the kernel keep as few as possible.
    #[cfg(test)]
    pub fn keep_few(&self) {
        sockopt::set_socket_recv_buffer_size(&*self.socket, 0).unwrap();
    }

    /// The number of the family, which the kernel gives out when it starts.
    fn find_family(&mut self) -> Option<u16> {
        let name = Taskstats::family_name().to_owned();
        let request = GenlMessage::from_payload(GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![GenlCtrlAttrs::FamilyName(name)],
        });
        let answer = self.ask(request, NLM_F_REQUEST)?;
        answer.nlas.iter().find_map(|attribute| match attribute {
            GenlCtrlAttrs::FamilyId(id) => Some(*id),
            _ => None,
        })
    }

    /// Asks for what this thread has done so far: whether the record is as it is read here, and tells run times (a kernel
    /// without CONFIG_TASK_DELAY_ACCT tells none).
    fn check(&mut self) -> Option<()> {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        // The kernel brings the run time of a thread that asks for it up to date.
        let _ = clock_gettime(ClockId::ThreadCPUTime);
        let request = self.request(ASK_FOR_TID, own.to_ne_bytes().to_vec());
        let answer = self.ask(request, NLM_F_REQUEST)?;
        matches!(answer, Taskstats::Record(Some(record)) if record.tid == own && record.run > 0)
            .then_some(())
    }

    /// Begins or ends to receive records.
    fn register(&mut self, what: u16) -> bool {
        let mut cpus = self.cpus.clone().into_bytes();
        cpus.push(0);
        let request = self.request(what, cpus);
        if self.send(request, NLM_F_REQUEST | NLM_F_ACK).is_none() {
            return false;
        }
        // Records may come before the answer; of threads that nobody follows yet, or does any more.
        while let Ok(length) = self.receive() {
            let message =
                NetlinkMessage::<GenlMessage<Taskstats>>::deserialize(&self.buffer[..length]);
            if let Ok(NetlinkPayload::Error(answer)) = message.map(|message| message.payload) {
                return answer.code.is_none();
            }
        }
        false
    }

    fn request(&self, kind: u16, value: Vec<u8>) -> GenlMessage<Taskstats> {
        let request = Taskstats::Request(DefaultNla::new(kind, value));
        let mut message = GenlMessage::from_payload(request);
        message.set_resolved_family_id(self.family);
        message
    }

    /// Sends a request; its answer. The kernel has made that when sending returns.
    fn ask<T>(&mut self, request: GenlMessage<T>, flags: u16) -> Option<T>
    where
        GenlMessage<T>: NetlinkSerializable + NetlinkDeserializable,
        T: std::fmt::Debug,
    {
        self.send(request, flags)?;
        let length = self.receive().ok()?;
        let answer = NetlinkMessage::<GenlMessage<T>>::deserialize(&self.buffer[..length]).ok()?;
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => Some(message.payload),
            _ => None,
        }
    }

    fn send<T>(&mut self, request: GenlMessage<T>, flags: u16) -> Option<()>
    where
        GenlMessage<T>: NetlinkSerializable,
        T: std::fmt::Debug,
    {
        let mut message = NetlinkMessage::from(request);
        message.header.flags = flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&*self.socket, &bytes, SendFlags::empty(), &kernel).ok()?;
        Some(())
    }

    /// The length of the kernel's next message, which is in the buffer then; 0 of one that is not the kernel's.
    fn receive(&mut self) -> Result<usize, Errno> {
        let (_, length, from) = recvfrom(&*self.socket, &mut self.buffer, RecvFlags::TRUNC)?;
        let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
        let is_kernel = from.is_some_and(|from| from.pid() == 0);
        Ok(if is_kernel && length <= MESSAGE {
            length
        } else {
            0
        })
    }
}

impl Drop for ExitRecords {
    fn drop(&mut self) {
        // The kernel would notice with the next thread that ends.
        if !self.cpus.is_empty() {
            self.register(DEREGISTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_end_are_told_with_what_they_did() {
        let Some(mut records) = ExitRecords::open() else {
            return perch_skip::skip!(Root, "exit records are refused here");
        };
        let before = monotonic();
        let tid = std::thread::Builder::new().name("brief".to_owned());
        let tid = tid.spawn(|| {
            let end = std::time::Instant::now() + std::time::Duration::from_millis(30);
            while std::time::Instant::now() < end {}
            rustix::thread::gettid().as_raw_nonzero().get()
        });
        let tid = tid.unwrap().join().unwrap();
        // It may not have ended in the kernel yet.
        let mut exits = Vec::new();
        while !exits.iter().any(|exit: &Exit| exit.record.tid == tid) {
            assert!(monotonic() - before < 20_000_000_000, "{exits:?}");
            let (new, lost) = records.drain();
            assert!(!lost);
            exits.extend(new);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let exit = exits.iter().find(|exit| exit.record.tid == tid).unwrap();
        let record = exit.record;
        assert!(record.name.starts_with(b"brief\0"), "{record:?}");
        assert!(
            record.elapsed >= 30_000_000 && record.run <= record.elapsed,
            "{record:?}"
        );
        assert!(record.run > 0 && record.slices > 0, "{record:?}");
        let began = (
            exit.made.0.saturating_sub(record.elapsed),
            exit.made.1 - record.elapsed,
        );
        assert!(
            began.0 <= began.1 && began.1 >= before,
            "{exit:?}, {before}"
        );
        drop(records);
        // Any other process may ask again.
        assert!(ExitRecords::open().is_some());
    }
}
