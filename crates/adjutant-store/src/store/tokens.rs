//! Tokens for callers over HTTP. The store has a hash of each, so a copy of the database opens
//! nothing.

use super::{StoreError, Topic, Tx};
use crate::store::db::{self, Connection, Record, params, row, select};
use adjutant_core::token::{TokenIdentity, TokenRole};
use adjutant_core::{ClientName, Time};

/// How many revoked tokens stay listed.
const REVOKED_KEPT: u32 = 100;
/// How exact the time of the last use is, in milliseconds.
const USED_EXACT_TO_MS: i64 = 60 * 60 * 1000;

row! {
    /// One stored token.
    #[derive(Debug, Clone)]
    pub struct Token, named "token {}" {
        pub id: i64,
        pub name: String,
        pub identity: TokenIdentity [IdentityRow] as IdentityRow::decode,
        pub created_at: Time,
        /// To the hour.
        pub used_at: Option<Time>,
        pub revoked_at: Option<Time>,
        /// The program from which alone the token of a browser counts. `None`: no process could be seen
        /// at the sign-in.
        pub program: Option<String>,
        /// When the page of a browser's token was left.
        pub left_at: Option<Time>,
    }
}

impl Token {
    /// Returns whether a use now changes the stored time.
    #[must_use]
    pub fn must_record_use(&self, now: Time) -> bool {
        self.used_at
            .is_none_or(|used| now.0 - used.0 >= USED_EXACT_TO_MS)
    }
}

/// The data of a new token.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    /// The SHA-256 of the token, in hexadecimal.
    pub hash: String,
    pub identity: TokenIdentity,
}

/// The secrets of a page that is signed in, as SHA-256 in hexadecimal.
#[derive(Debug, Clone)]
pub struct PageSecrets {
    pub hash: String,
    /// With it, the page continues after a reload.
    pub resume: String,
}

row! {
    /// The columns of an identity.
    struct IdentityRow {
        role: String,
        client: Option<String>,
    }
}

impl IdentityRow {
    fn decode(self) -> db::Result<TokenIdentity> {
        let Self { role, client } = self;
        let client = client.as_deref().map(ClientName::parse).transpose();
        client
            .ok()
            .zip(TokenRole::from_word(&role))
            .and_then(|(client, role)| TokenIdentity::new(role, client).ok())
            .ok_or_else(|| db::Error::unreadable(format!("role {role}")))
    }
}

/// Returns the token with this hash, unless it was revoked.
///
/// # Errors
/// A failure of the store.
pub fn token_by_hash(connection: &Connection, hash: &str) -> Result<Option<Token>, StoreError> {
    Ok(connection
        .prepare_cached(select!(Token, "FROM tokens WHERE hash = ?1"))?
        .find_row([hash])?)
}

/// Returns the token of the page that continues with this code.
///
/// # Errors
/// A failure of the store.
pub fn token_by_resume(connection: &Connection, resume: &str) -> Result<Option<Token>, StoreError> {
    Ok(connection
        .prepare_cached(select!(Token, "FROM tokens WHERE resume = ?1"))?
        .find_row([resume])?)
}

/// Returns the token with this name that is in use.
///
/// # Errors
/// A failure of the store.
pub fn token_by_name(connection: &Connection, name: &str) -> Result<Option<Token>, StoreError> {
    Ok(connection
        .prepare_cached(select!(
            Token,
            "FROM tokens WHERE name = ?1 AND revoked_at IS NULL"
        ))?
        .find_row([name])?)
}

/// Returns whether a token exists that is not revoked.
///
/// # Errors
/// A failure of the store.
pub fn is_token_valid(connection: &Connection, id: i64) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM tokens WHERE id = ?1 AND revoked_at IS NULL")?
        .exists([id])?)
}

/// Returns all tokens: those in use, then those that were revoked, newest first.
///
/// # Errors
/// A failure of the store.
pub fn tokens(connection: &Connection) -> Result<Vec<Token>, StoreError> {
    let sql = Token::select("FROM tokens ORDER BY revoked_at IS NOT NULL, id DESC");
    Ok(connection.prepare_cached(&sql)?.read_rows([])?)
}

impl Tx<'_> {
    /// Stores a new token. Its name and hash must not be in use.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_token(&mut self, new: &NewToken) -> Result<(), StoreError> {
        let NewToken {
            name,
            hash,
            identity,
        } = new;
        self.prepare(
            "INSERT INTO tokens (name, hash, role, client, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .run(params![
            name,
            hash,
            identity.role().word(),
            identity.client().map(ClientName::as_str),
            self.now().0
        ])?;
        Ok(())
    }

    /// Gives the token of a browser new secrets, from now on. The earlier ones are forgotten.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn renew_page(
        &mut self,
        id: i64,
        secrets: &PageSecrets,
        program: Option<&str>,
    ) -> Result<(), StoreError> {
        let PageSecrets { hash, resume } = secrets;
        let sql = "UPDATE tokens SET hash = ?2, resume = ?3, program = ?4, created_at = ?5, left_at = NULL WHERE id = ?1 AND revoked_at IS NULL";
        self.prepare(sql)?
            .run(params![id, hash, resume, program, self.now().0])?;
        Ok(())
    }

    /// Records that the page of a token was left, so that the token expires soon.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn leave_page(&mut self, id: i64) -> Result<(), StoreError> {
        self.prepare("UPDATE tokens SET left_at = ?2 WHERE id = ?1 AND left_at IS NULL AND revoked_at IS NULL")?.run(params![id, self.now().0])?;
        self.notify(Topic::Tokens);
        Ok(())
    }

    /// Records that a token was used.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn note_token_used(&mut self, id: i64) -> Result<(), StoreError> {
        let hour = self.now().0 - self.now().0.rem_euclid(USED_EXACT_TO_MS);
        self.prepare(
            "UPDATE tokens SET used_at = ?2 WHERE id = ?1 AND (used_at IS NULL OR used_at < ?2)",
        )?
        .run(params![id, hour])?;
        Ok(())
    }
}

/// Revokes a token. Its hash is forgotten, and its connections are notified. Returns its name.
/// `None`: it was revoked already.
pub(in crate::store) fn forget_token(
    tx: &mut Tx<'_>,
    id: i64,
) -> Result<Option<String>, StoreError> {
    let name = tx
        .prepare("SELECT name FROM tokens WHERE id = ?1 AND revoked_at IS NULL")?
        .find_row::<String>([id])?;
    tx.prepare("UPDATE tokens SET hash = NULL, resume = NULL, revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL")?
        .run(params![id, tx.now().0])?;
    tx.prepare(
        "DELETE FROM tokens WHERE revoked_at IS NOT NULL
         AND id NOT IN (SELECT id FROM tokens WHERE revoked_at IS NOT NULL ORDER BY revoked_at DESC, id DESC LIMIT ?1)",
    )?
    .run([REVOKED_KEPT])?;
    tx.notify(Topic::Tokens);
    Ok(name)
}
