//! How long transfers wait.

/// How long a thread's transfers wait, in picoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wait {
    /// For the channel of its memory: the mean over all that it uses.
    pub memory: f64,
    /// For the ports of caches and the links, if it uses any whose bandwidth is limited: by place among the servers.
    pub servers: Vec<(usize, f64)>,
    /// The part of its speed for which the ports and links that it uses have bandwidth, 1 at most: threads that hide their
    /// misses are not slowed by waiting for them.
    pub most: f64,
}

impl Default for Wait {
    fn default() -> Self {
        Self {
            memory: 0.0,
            servers: Vec::new(),
            most: 1.0,
        }
    }
}

impl Wait {
    /// For a port or a link.
    pub fn server(&self, server: usize) -> f64 {
        let mut servers = self.servers.iter();
        let found = servers.find(|(known, _)| *known == server);
        found.map_or(0.0, |(_, wait)| *wait)
    }
}
