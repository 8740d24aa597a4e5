//! The network of the machines: a namespace for each, and a switch between them in another one. All
//! faults are in the switch and on its cables, so that no machine can see them.

use super::namespace::Namespace;
use crate::lab::Result;

/// What is wrong with the network of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Cut(Way),
    /// Loses packets at random, both ways.
    Lossy {
        percent: u64,
    },
    /// Delays packets in a queue, both ways.
    Slow {
        kbit_per_s: u64,
    },
}

/// Which packets are lost, as the machine sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Both,
    Sent,
    Received,
}

#[derive(Debug)]
pub struct Network {
    switch: Namespace,
    pub machines: Vec<Namespace>,
    /// Cables with a queue, each with the namespace in which it is limited: the machine's or
    /// (`None`) the switch.
    slow: Vec<(Option<usize>, String)>,
}

impl Network {
    /// Connects machines, which have the addresses of [`address`].
    pub fn new(machines: usize) -> Result<Self> {
        let switch = Namespace::new()?;
        switch.run("ip", &["link", "add", "switch", "type", "bridge"])?;
        switch.run(
            "ip",
            &["link", "set", "switch", "addrgenmode", "none", "up"],
        )?;
        let machines = (0..machines)
            .map(|_| Namespace::new())
            .collect::<Result<Vec<_>>>()?;
        for (n, machine) in machines.iter().enumerate() {
            let port = port(n);
            machine.run(
                "ip",
                &[
                    "link",
                    "add",
                    "eth0",
                    "type",
                    "veth",
                    "peer",
                    "name",
                    &port,
                    "netns",
                    &switch.path(),
                ],
            )?;
            machine.run(
                "ip",
                &[
                    "address",
                    "add",
                    &format!("{}/24", address(n)),
                    "dev",
                    "eth0",
                ],
            )?;
            // Without IPv6, so that no packets come but those of hubs, runners and PostgreSQL.
            machine.run("ip", &["link", "set", "eth0", "addrgenmode", "none", "up"])?;
            switch.run(
                "ip",
                &[
                    "link",
                    "set",
                    &port,
                    "master",
                    "switch",
                    "addrgenmode",
                    "none",
                    "up",
                ],
            )?;
        }
        Ok(Self {
            switch,
            machines,
            slow: Vec::new(),
        })
    }

    /// Causes trouble for a machine, with all others or with one of them. Being slow concerns all.
    pub fn disturb(&mut self, machine: usize, peer: Option<usize>, trouble: Trouble) -> Result<()> {
        let (from, to) = match peer {
            None => (
                format!("iifname {}", port(machine)),
                format!("oifname {}", port(machine)),
            ),
            Some(peer) => {
                let (own, other) = (port(machine), port(peer));
                (
                    format!("iifname {own} oifname {other}"),
                    format!("iifname {other} oifname {own}"),
                )
            }
        };
        match trouble {
            Trouble::Cut(Way::Both) => self.drop_packets(&[from, to], ""),
            Trouble::Cut(Way::Sent) => self.drop_packets(&[from], ""),
            Trouble::Cut(Way::Received) => self.drop_packets(&[to], ""),
            Trouble::Lossy { percent } => {
                self.drop_packets(&[from, to], &format!("numgen random mod 100 < {percent}"))
            }
            Trouble::Slow { kbit_per_s } => {
                self.slow = vec![(Some(machine), "eth0".to_owned()), (None, port(machine))];
                for (namespace, device) in &self.slow {
                    let rate = format!("{kbit_per_s}kbit");
                    let queue = ["rate", &rate, "burst", "2000", "limit", "100000"];
                    self.namespace(*namespace).run(
                        "tc",
                        &[&["qdisc", "add", "dev", device, "root", "tbf"], &queue[..]].concat(),
                    )?;
                }
                Ok(())
            }
        }
    }

    fn drop_packets(&self, links: &[String], which: &str) -> Result<()> {
        let rules: String = links
            .iter()
            .map(|link| format!("{link} {which} counter drop\n"))
            .collect();
        let table = format!(
            "table bridge fault {{ chain forward {{ type filter hook forward priority 0;\n{rules} }}\n}}"
        );
        self.switch.feed("nft", &["-f", "-"], &table).map(drop)
    }

    /// Ends all trouble. Returns the number of packets that were lost or delayed.
    pub fn heal(&mut self) -> Result<u64> {
        let mut hit = 0;
        for (namespace, device) in std::mem::take(&mut self.slow) {
            let namespace = self.namespace(namespace);
            hit += numbers_after(
                "overlimits",
                &namespace.run("tc", &["-s", "qdisc", "show", "dev", &device])?,
            );
            namespace.run("tc", &["qdisc", "del", "dev", &device, "root"])?;
        }
        if self
            .switch
            .run("nft", &["list", "tables"])?
            .contains("fault")
        {
            hit += numbers_after(
                "packets",
                &self
                    .switch
                    .run("nft", &["list", "table", "bridge", "fault"])?,
            );
            self.switch
                .run("nft", &["delete", "table", "bridge", "fault"])?;
        }
        Ok(hit)
    }

    fn namespace(&self, machine: Option<usize>) -> &Namespace {
        machine.map_or(&self.switch, |machine| &self.machines[machine])
    }
}

/// Returns the address of a machine. The certificate in `fixtures` names those of seven.
pub fn address(machine: usize) -> String {
    format!("10.77.0.{}", machine + 1)
}

/// Returns the name of a machine's port at the switch.
fn port(machine: usize) -> String {
    format!("port{machine}")
}

/// Returns the sum of the numbers that follow a word.
fn numbers_after(word: &str, text: &str) -> u64 {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    words
        .windows(2)
        .filter(|pair| pair[0] == word)
        .filter_map(|pair| pair[1].parse::<u64>().ok())
        .sum()
}
