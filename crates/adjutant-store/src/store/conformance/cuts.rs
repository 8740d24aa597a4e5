//! The connection to PostgreSQL is cut at each message of a call. Its key decides what happened.

use crate::store::testing::address_of_this_run;
use crate::store::testing::fixture::new_run;
use crate::store::*;
use adjutant_core::Principal;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// When the connection is cut.
#[derive(Default)]
struct Cut {
    /// The number of messages before it. Negative: it is not cut.
    countdown: AtomicI64,
    /// Whether the last message is lost. Otherwise it arrives, and its reply is lost.
    loses_message: AtomicBool,
}

/// Passes connections on to a server.
fn serve_proxy(listener: UnixListener, server: PathBuf, cut: Arc<Cut>) {
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, upstream) = (
                client.expect("a client"),
                UnixStream::connect(&server).expect("the server"),
            );
            let (back, forth) = (
                upstream.try_clone().expect("a socket"),
                client.try_clone().expect("a socket"),
            );
            let (is_mute, cut) = (Arc::new(AtomicBool::new(false)), Arc::clone(&cut));
            let mutes = Arc::clone(&is_mute);
            std::thread::spawn(move || pass_back(back, forth, &is_mute));
            std::thread::spawn(move || pass_on(client, upstream, &cut, &mutes));
        }
    });
}

/// Passes on the server's messages, unless it `is_mute`. Closes the client's side after the
/// server's.
fn pass_back(
    mut upstream: UnixStream,
    mut client: UnixStream,
    is_mute: &AtomicBool,
) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        match upstream.read(&mut bytes)? {
            0 => return client.shutdown(Shutdown::Both),
            _ if is_mute.load(Ordering::SeqCst) => {}
            count => client.write_all(&bytes[..count])?,
        }
    }
}

/// Passes on a client's messages until the cut. If the last message is lost, both sides are closed;
/// otherwise the client's side is closed when the server has dealt with it, because a new session
/// would end the old one before.
fn pass_on(
    mut client: UnixStream,
    mut upstream: UnixStream,
    cut: &Cut,
    mutes: &AtomicBool,
) -> std::io::Result<()> {
    // The first message has no type.
    let mut head = vec![0; 4];
    loop {
        client.read_exact(&mut head)?;
        let length = u32::from_be_bytes(head[head.len() - 4..].try_into().expect("four bytes"));
        let mut body = vec![0; usize::try_from(length).expect("it fits") - 4];
        client.read_exact(&mut body)?;
        let is_cut = cut.countdown.fetch_sub(1, Ordering::SeqCst) == 0;
        if is_cut && cut.loses_message.load(Ordering::SeqCst) {
            client.shutdown(Shutdown::Both)?;
            return upstream.shutdown(Shutdown::Write);
        }
        mutes.store(is_cut, Ordering::SeqCst);
        upstream.write_all(&[head.as_slice(), &body].concat())?;
        if is_cut {
            return upstream.shutdown(Shutdown::Write);
        }
        head = vec![0; 5];
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_has_one_effect_wherever_the_connection_is_cut() {
    let Some((address, socket)) = address_of_this_run() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home::at(&dir.path().join("home")).expect("a home");
    home.ensure().expect("a home");
    let cut = Arc::new(Cut {
        countdown: AtomicI64::new(-1),
        ..Cut::default()
    });
    let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).expect("a socket");
    serve_proxy(listener, socket, Arc::clone(&cut));
    let behind = crate::config::PostgresAddress {
        host: dir.path().to_str().expect("a path").to_owned(),
        ..address.clone()
    };
    let store = Store::open_at(&home, StoreLocation::Postgres(behind)).expect("a store");
    // Its messages are not cut.
    let direct = StoreLocation::Postgres(address)
        .read_only(None)
        .expect("a connection");
    let runs = || {
        direct.begin_read().expect("begun");
        let runs = runs_newest(&direct, None, true, 1_000)
            .expect("runs")
            .runs
            .len();
        direct.end_read().expect("ended");
        runs
    };
    let (mut keys, mut refused, mut decided) = (0, 0, 0);
    for countdown in 0.. {
        let mut was_cut = false;
        for loses_message in [true, false] {
            keys += 1;
            let call = || {
                let (key, new) = (
                    Key::new(&format!("k{keys}"), "dispatch", b"body"),
                    new_run(&Principal::Person, None),
                );
                store.write(move |tx| {
                    tx.once(&Principal::Person, Some(&key), |tx| {
                        Ok(tx.dispatch(&new)?.name)
                    })
                })
            };
            cut.loses_message.store(loses_message, Ordering::SeqCst);
            cut.countdown.store(countdown, Ordering::SeqCst);
            let first = call().await;
            let is_cut = cut.countdown.swap(-1, Ordering::SeqCst) < 0;
            was_cut |= is_cut;
            assert_eq!(
                runs(),
                if first.is_ok() { keys } else { keys - 1 },
                "{countdown} {loses_message}: the reply is what the database has"
            );
            match &first {
                Ok(_) => decided += usize::from(is_cut),
                Err(StoreError::Lost(_)) => refused += 1,
                Err(error) => panic!("{countdown}: {error}"),
            }
            let again = call().await.expect("the repeated call succeeds");
            assert!(
                first.is_err() || first.is_ok_and(|name| name == again),
                "{countdown} {loses_message}"
            );
            assert_eq!(runs(), keys, "{countdown} {loses_message}");
        }
        if !was_cut {
            break;
        }
    }
    assert!(
        refused > 0 && decided > 0 && keys > 20,
        "{refused} and {decided} of {keys}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_ends_after_the_last_statement_is_reported_as_lost() {
    let Some((address, _)) = address_of_this_run() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home::at(&dir.path().join("home")).expect("a home");
    home.ensure().expect("a home");
    let store = Store::open_at(&home, StoreLocation::Postgres(address.clone())).expect("a store");
    let call = |ends_session: bool| {
        let (key, new, address) = (
            Key::new("k", "dispatch", b"body"),
            new_run(&Principal::Person, None),
            address.clone(),
        );
        store.write(move |tx| {
            let name = tx.once(&Principal::Person, Some(&key), |tx| Ok(tx.dispatch(&new)?.name))?;
            if ends_session {
                let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
                crate::store::db::postgres_batch(&address, others).expect("ended");
                while !tx.connection().is_lost() {
                    std::thread::yield_now();
                }
            }
            Ok(name)
        })
    };
    assert!(
        matches!(call(true).await, Err(StoreError::Lost(_))),
        "nothing was changed, and the call can be repeated"
    );
    call(false).await.expect("the repeated call succeeds");
}
