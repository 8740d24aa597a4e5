//! Posts to chats of peers. They wait until the peer has accepted or refused them, and are sent in
//! order for each chat.

use crate::store::db::{Connection, Record, params, row};
use crate::store::ids::texts;
use crate::store::{StoreError, Topic, Tx};
use adjutant_core::chat::{ChatId, Participant};
use adjutant_core::peer::REFUSED_POSTS_KEPT;
use adjutant_core::{Time, words};

/// How far a post has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutgoingState {
    Waiting,
    /// The peer has accepted it; its entry has not arrived yet.
    Delivered,
    Refused,
}

words!(OutgoingState { Waiting = "waiting", Delivered = "delivered", Refused = "refused" });
texts! { OutgoingState, "state", Self::from_word; }

row! {
    /// A post to a chat of a peer.
    #[derive(Debug, Clone)]
    pub struct OutgoingPost, named "post {} to a peer" {
        pub no: i64,
        /// Under which the peer accepts it once.
        pub key: String,
        pub chat: ChatId,
        pub author: Participant,
        pub name: String,
        pub text: String,
        pub reply_to: Option<i64>,
        pub at: Time,
        pub state: OutgoingState,
        /// Why it was refused.
        pub problem: Option<String>,
    }
}

/// Returns the next post of a chat to send.
///
/// # Errors
/// A failure of the store.
pub fn next_post(
    connection: &Connection,
    chat: ChatId,
) -> Result<Option<OutgoingPost>, StoreError> {
    let sql = OutgoingPost::select(
        "FROM peer_outbox WHERE chat = ?1 AND state = 'waiting' ORDER BY no LIMIT 1",
    );
    Ok(connection.prepare_cached(&sql)?.find_row([chat.0])?)
}

/// Returns the newest posts of a chat that are not entries yet, and those that were refused, oldest
/// first.
///
/// # Errors
/// A failure of the store.
pub fn posts_of(
    connection: &Connection,
    chat: ChatId,
    limit: u32,
) -> Result<Vec<OutgoingPost>, StoreError> {
    let sql = OutgoingPost::select("FROM peer_outbox WHERE chat = ?1 ORDER BY no DESC LIMIT ?2");
    let mut newest: Vec<OutgoingPost> = connection
        .prepare_cached(&sql)?
        .read_rows(params![chat.0, limit])?;
    newest.reverse();
    Ok(newest)
}

/// Returns how many posts of a chat wait.
///
/// # Errors
/// A failure of the store.
pub fn waiting_posts(connection: &Connection, chat: ChatId) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM peer_outbox WHERE chat = ?1 AND state = 'waiting'";
    let count: i64 = connection.prepare_cached(sql)?.read_row([chat.0])?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Returns how many posts of a chat have not become entries, without the refused ones.
///
/// # Errors
/// A failure of the store.
pub fn unfinished_posts(connection: &Connection, chat: ChatId) -> Result<u64, StoreError> {
    let sql =
        "SELECT count(*) FROM peer_outbox WHERE chat = ?1 AND state IN ('waiting', 'delivered')";
    let count: i64 = connection.prepare_cached(sql)?.read_row([chat.0])?;
    Ok(u64::try_from(count).unwrap_or(0))
}

impl Tx<'_> {
    /// Adds a post.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_outgoing(
        &mut self,
        chat: ChatId,
        key: &str,
        (author, name): (&Participant, &str),
        text: &str,
        reply_to: Option<i64>,
    ) -> Result<i64, StoreError> {
        let no = self
            .prepare("INSERT INTO peer_outbox (key, chat, author, name, text, reply_to, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
            .insert("no", params![key, chat.0, author.to_string(), name, text, reply_to, self.now().0])?;
        self.notify(Topic::Outgoing(chat));
        self.notify(Topic::Chat(chat));
        Ok(no)
    }

    /// Records that the peer has accepted a post.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn post_delivered(&mut self, post: &OutgoingPost) -> Result<(), StoreError> {
        // Its entry may have arrived before, which has removed the post.
        self.prepare(
            "UPDATE peer_outbox SET state = 'delivered' WHERE no = ?1 AND state = 'waiting'",
        )?
        .run([post.no])?;
        self.notify(Topic::Chat(post.chat));
        Ok(())
    }

    /// Records that a post was refused.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn post_refused(&mut self, post: &OutgoingPost, problem: &str) -> Result<(), StoreError> {
        self.prepare("UPDATE peer_outbox SET state = 'refused', problem = ?2 WHERE no = ?1 AND state = 'waiting'")?.run(params![post.no, problem])?;
        trim_refused(self, post.chat)
    }
}

/// Refuses all posts of a chat that wait.
pub(super) fn refuse_waiting(
    tx: &mut Tx<'_>,
    chat: ChatId,
    problem: &str,
) -> Result<(), StoreError> {
    tx.prepare("UPDATE peer_outbox SET state = 'refused', problem = ?2 WHERE chat = ?1 AND state = 'waiting'")?
        .run(params![chat.0, problem])?;
    trim_refused(tx, chat)
}

fn trim_refused(tx: &mut Tx<'_>, chat: ChatId) -> Result<(), StoreError> {
    tx.prepare(
        "DELETE FROM peer_outbox WHERE chat = ?1 AND state = 'refused'
         AND no <= (SELECT no FROM peer_outbox WHERE chat = ?1 AND state = 'refused' ORDER BY no DESC LIMIT 1 OFFSET ?2)",
    )?
    .run(params![chat.0, REFUSED_POSTS_KEPT])?;
    tx.notify(Topic::Chat(chat));
    Ok(())
}

/// Removes the post that has become an entry, and returns it. `None`: there is none with this key
/// and text.
pub(in crate::store) fn take_posted(
    tx: &mut Tx<'_>,
    chat: ChatId,
    key: &str,
    text: &str,
) -> Result<Option<OutgoingPost>, StoreError> {
    let sql = OutgoingPost::select(
        "FROM peer_outbox WHERE key = ?1 AND chat = ?2 AND text = ?3 AND state <> 'refused'",
    );
    let found: Option<OutgoingPost> = tx.prepare(&sql)?.find_row(params![key, chat.0, text])?;
    if let Some(post) = &found {
        tx.prepare("DELETE FROM peer_outbox WHERE no = ?1")?
            .run([post.no])?;
    }
    Ok(found)
}
