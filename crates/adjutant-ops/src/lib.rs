//! The use cases over the store. All interfaces call nothing else.
//!
//! They may use git and calls of other hubs. They start and end the processes beside an agent, and
//! receive their calls (`process`, `protocol`, `leftovers`), without their code, and know nothing of
//! how they are called.

#![forbid(unsafe_code)]

pub mod ops;

pub(crate) use adjutant_api::{preset, protocol, view};
pub(crate) use adjutant_git::git;
pub(crate) use adjutant_home::{
    clock, config, failpoint, files, leftovers, logs, named_locks, objects, ports, spool,
    user_files, versions,
};
pub(crate) use adjutant_net::{hub_client, peer, webhook};
pub(crate) use adjutant_store::store;
pub(crate) use adjutant_stream::signal;
