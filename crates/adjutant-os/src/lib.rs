//! What speaks to the operating system: processes, files, sockets, clocks.
//!
//! It may use the rules, for values such as a range of ports or a reading of the clocks. It takes
//! paths, marks and environments as arguments: it knows no home, no run and no order, reads no
//! configuration (only a debug build reads the name of a failpoint) and makes no call. It never
//! decides to end a process or to replace a file. `process` has the only `unsafe` of the product.
//!
//! What belongs here needs an interface of a system that differs between systems. What is only
//! stored in files, such as the layout of a home or the format of a log, does not.

pub mod clock;
pub mod failpoint;
pub mod files;
pub mod ports;
pub mod process;
pub mod sock;
pub mod tcp;
pub mod user_files;
