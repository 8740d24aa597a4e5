//! Shows at the start of a campaign that each trouble of the network does what it says.

use super::namespace::Namespace;
use super::network::{Network, Trouble, Way, address};
use crate::lab::Result;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Packets of a measurement, and their size in bytes.
const PACKETS: usize = 30;
const BYTES: usize = 1_000;
/// When no packet has come for so long, the others are lost. Longer than the slowest link needs for
/// one packet.
const QUIET: Duration = Duration::from_millis(150);

/// How many packets arrived on a link, and how long the last one took.
struct Measured {
    arrived: usize,
    took: Duration,
}

/// Measures the links between three machines, healthy and in each trouble.
pub fn check(network: &mut Network) -> Result<()> {
    // The first packets find the machines.
    measure(network, 0, 1)?;
    for (from, to) in [(0, 1), (1, 0), (2, 0)] {
        expect(network, "healthy", from, to, |measured| {
            measured.arrived == PACKETS && measured.took < QUIET
        })?;
    }
    let all = |measured: &Measured| measured.arrived == PACKETS;
    let none = |measured: &Measured| measured.arrived == 0;
    let some = |measured: &Measured| (PACKETS / 10..PACKETS).contains(&measured.arrived);
    // 30 kB at 512 kbit/s take almost half a second.
    let late = |measured: &Measured| {
        measured.arrived == PACKETS && measured.took > Duration::from_millis(350)
    };
    type Expected = fn(&Measured) -> bool;
    let cases: [(Trouble, Option<usize>, [Expected; 3]); 7] = [
        (Trouble::Cut(Way::Both), None, [none, none, none]),
        (Trouble::Cut(Way::Sent), None, [none, all, all]),
        (Trouble::Cut(Way::Received), None, [all, none, none]),
        (Trouble::Cut(Way::Both), Some(1), [none, none, all]),
        (Trouble::Cut(Way::Sent), Some(1), [none, all, all]),
        (Trouble::Lossy { percent: 40 }, None, [some, some, some]),
        (Trouble::Slow { kbit_per_s: 512 }, None, [late, late, late]),
    ];
    for (trouble, peer, expected) in cases {
        network.disturb(0, peer, trouble)?;
        let name = format!(
            "{trouble:?}{}",
            if peer.is_some() { " from a peer" } else { "" }
        );
        for ((from, to), expected) in [(0, 1), (1, 0), (2, 0)].into_iter().zip(expected) {
            expect(network, &name, from, to, expected)?;
        }
        if network.heal()? == 0 {
            return Err(format!("the network: {name}: no packet was counted").into());
        }
    }
    expect(network, "healed", 0, 1, all)
}

fn expect(
    network: &Network,
    name: &str,
    from: usize,
    to: usize,
    is_right: impl Fn(&Measured) -> bool,
) -> Result<()> {
    let measured = measure(network, from, to)?;
    if is_right(&measured) {
        return Ok(());
    }
    Err(format!(
        "the network: {name}: {} of {PACKETS} packets from machine {from} to {to} arrived in {:?}",
        measured.arrived, measured.took
    )
    .into())
}

fn measure(network: &Network, from: usize, to: usize) -> Result<Measured> {
    let socket = |machine: &Namespace, n| machine.inside(|| UdpSocket::bind((address(n), 0)));
    let sender = socket(&network.machines[from], from)?;
    let receiver = socket(&network.machines[to], to)?;
    receiver.set_read_timeout(Some(QUIET))?;
    let began = Instant::now();
    for _ in 0..PACKETS {
        sender.send_to(&[0; BYTES], receiver.local_addr()?)?;
    }
    let mut measured = Measured {
        arrived: 0,
        took: Duration::ZERO,
    };
    while receiver.recv(&mut [0; BYTES]).is_ok() {
        measured = Measured {
            arrived: measured.arrived + 1,
            took: began.elapsed(),
        };
    }
    Ok(measured)
}
