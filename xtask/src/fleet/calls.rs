//! Calls through a random hub, and through another one if that fails.

use crate::lab::Lab;
use crate::random::Random;
use adjutant_api::view::{Call, ErrorView, codes};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a hub may take to reply before the next one is called.
const REPLY_LIMIT: Duration = Duration::from_secs(10);
/// How long a call may take, whatever is killed.
const CALL_LIMIT: Duration = Duration::from_secs(90);
/// The pause before the next hub is called.
const PAUSE: Duration = Duration::from_millis(100);

pub type Hubs = Arc<Vec<Arc<Lab>>>;

/// Makes a call with its key, through one hub after another until one has answered it.
pub async fn call<C: Call>(
    hubs: &[Arc<Lab>],
    random: &mut Random,
    call: &C,
    key: &str,
) -> std::result::Result<C::Reply, ErrorView> {
    call_within(hubs, random, call, key, REPLY_LIMIT).await
}

/// Makes a call to which a hub may take so long to reply.
pub async fn call_within<C: Call>(
    hubs: &[Arc<Lab>],
    random: &mut Random,
    call: &C,
    key: &str,
    limit: Duration,
) -> std::result::Result<C::Reply, ErrorView> {
    let began = Instant::now();
    let mut n = usize::try_from(random.below(hubs.len() as u64)).unwrap_or(0);
    loop {
        let client = hubs[n].client();
        let error = match tokio::time::timeout(limit, client.call_with_key(call, key)).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) => error,
            Err(_) => ErrorView {
                code: codes::UNREACHABLE.to_owned(),
                message: "no reply".to_owned(),
                hint: None,
            },
        };
        let can_pass = [
            codes::UNREACHABLE,
            codes::CLOSING,
            codes::STORAGE,
            codes::STORAGE_FULL,
        ]
        .contains(&error.code.as_str());
        if !can_pass || began.elapsed() > CALL_LIMIT {
            return Err(error);
        }
        n = (n + 1) % hubs.len();
        tokio::time::sleep(PAUSE).await;
    }
}
