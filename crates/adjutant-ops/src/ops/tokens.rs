//! Tokens for callers over HTTP: making, listing, revoking and checking them. The caller that makes
//! a token sends only its hash, so no reply that is stored under an idempotency key contains a
//! secret.

use super::{Caller, OpError, Ops, lookup, random};
use crate::clock::{self, rfc3339};
use crate::store::{
    Connection, NewToken, PageSecrets, Store, StoreError, Subscription, Token, Topic,
    token_by_hash, token_by_name, token_by_resume, tokens,
};
use crate::view::{CreateToken, ListTokens, RevokeToken, TokenList, TokenView};
use adjutant_core::token::{
    BROWSER_PREFIX, LAUNCHED_PREFIX, PEER_PREFIX, TokenIdentity, TokenRole, expires_at,
};
use adjutant_core::{Action, ClientName, Denied, Principal, Time, hex, limits};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// How every token begins, so that scanners for secrets can find one.
pub(crate) const TOKEN_PREFIX: &str = "adj_";
/// Maximum number of tokens in use.
const TOKENS_MAX: usize = 100;
/// Maximum number of browsers that are signed in. A new one replaces the oldest one.
const BROWSERS_MAX: usize = 16;
/// Length of a hash in hexadecimal.
const HASH_BYTES: usize = 64;

/// Generates a token: 256 random bits.
#[must_use]
pub fn fresh_token() -> String {
    format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random::<32>()))
}

/// Returns the hash under which a token is stored.
#[must_use]
pub fn token_hash(token: &str) -> String {
    hex(Sha256::digest(token))
}

/// A token that was checked.
#[derive(Debug, Clone)]
pub struct TokenAccess {
    pub id: i64,
    pub name: String,
    pub identity: TokenIdentity,
    /// It was made for a browser that signed in.
    pub is_browser: bool,
    /// The program from which alone the token of a browser counts. `None`: no process could be seen
    /// at the sign-in.
    pub program: Option<String>,
}

/// A page that has signed in. The page keeps the token in its memory; `resume` is useless to
/// another program.
#[derive(Debug, Clone)]
pub struct SignedIn {
    pub token: String,
    /// With it, the page continues once, after a reload.
    pub resume: String,
    pub view: TokenView,
}

impl SignedIn {
    fn secrets() -> (String, String, PageSecrets) {
        // Without the prefix of a token, as which it cannot be used.
        let (token, resume) = (fresh_token(), URL_SAFE_NO_PAD.encode(random::<32>()));
        let hashes = PageSecrets {
            hash: token_hash(&token),
            resume: token_hash(&resume),
        };
        (token, resume, hashes)
    }
}

/// Checks the values of a new token.
fn checked_token(call: CreateToken) -> Result<NewToken, Denied> {
    let CreateToken {
        name,
        role,
        client,
        sha256,
    } = call;
    let role = role
        .known()
        .ok_or_else(|| Denied::invalid("role", "use client, read-only, person or runner"))?;
    check_token_name(&name, role)?;
    if !is_hash(&sha256) {
        return Err(Denied::invalid(
            "sha256",
            "use the SHA-256 of the token, in lower-case hexadecimal",
        ));
    }
    let client = client
        .map(|client| ClientName::parse(&client))
        .transpose()?;
    Ok(NewToken {
        name,
        hash: sha256,
        identity: TokenIdentity::new(role, client)?,
    })
}

/// Checks the name of a token that a person makes. Some names are for tokens that the hub makes.
fn check_token_name(name: &str, role: TokenRole) -> Result<(), Denied> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let problem = if !(1..=limits::NAME_BYTES_MAX).contains(&name.len())
        || !name.chars().all(is_name)
        || name.starts_with('-')
    {
        format!(
            "use 1 to {} of a-z, A-Z, 0-9, ., _ and -",
            limits::NAME_BYTES_MAX
        )
    } else if role == TokenRole::Peer || name.starts_with(PEER_PREFIX) {
        "tokens of peers are made with adj peer invite".to_owned()
    } else if name.starts_with(BROWSER_PREFIX) {
        format!("names that begin with {BROWSER_PREFIX} are those of browsers (adj ui)")
    } else if name.starts_with(LAUNCHED_PREFIX) {
        format!(
            "names that begin with {LAUNCHED_PREFIX} are those of runners that the hub launches ([pools.NAME] launch)"
        )
    } else {
        return Ok(());
    };
    Err(Denied::invalid("name", problem))
}

/// Refuses a token whose name or secret is in use, and one beyond the limit.
fn check_can_add(connection: &Connection, new: &NewToken) -> Result<(), StoreError> {
    if token_by_name(connection, &new.name)?.is_some() {
        return Err(Denied::conflict(
            "token",
            format!(
                "{} exists; revoke it first, or choose another name",
                new.name
            ),
        )
        .into());
    }
    if token_by_hash(connection, &new.hash)?.is_some() {
        return Err(Denied::conflict("token", "it is stored under another name".to_owned()).into());
    }
    let valid = tokens(connection)?
        .iter()
        .filter(|token| token.revoked_at.is_none())
        .count();
    if valid >= TOKENS_MAX {
        return Err(Denied::Limit {
            what: "tokens",
            limit: TOKENS_MAX as u64,
        }
        .into());
    }
    Ok(())
}

/// The tokens with which callers present themselves over HTTP.
#[derive(Debug, Clone)]
pub struct Tokens {
    store: Store,
}

impl Tokens {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
        }
    }

    /// Stores a token.
    ///
    /// # Errors
    /// The caller is not the person, a value is invalid, or the name is in use.
    pub async fn create(&self, caller: Caller, call: CreateToken) -> Result<TokenView, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        let new = checked_token(call)?;
        caller
            .write(&self.store, move |tx, _| {
                check_can_add(tx.connection(), &new)?;
                tx.add_token(&new)?;
                let stored = token_by_name(tx.connection(), &new.name)?;
                Ok(view(&stored.ok_or_else(|| {
                    StoreError::Corrupt("the new token is not there".to_owned())
                })?))
            })
            .await
    }

    /// Signs a page of this program in to the dashboard. Its token acts as the person and expires.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn sign_page_in(&self, program: Option<String>) -> Result<SignedIn, OpError> {
        let (token, resume, secrets) = SignedIn::secrets();
        let name = format!("{BROWSER_PREFIX}{}", hex(random::<4>()));
        let new = NewToken {
            name,
            hash: secrets.hash.clone(),
            identity: TokenIdentity::new(TokenRole::Person, None)?,
        };
        let made = self
            .store
            .write(move |tx| {
                tx.add_token(&new)?;
                let added = token_by_name(tx.connection(), &new.name)?
                    .ok_or_else(|| StoreError::Corrupt("the new token is not there".to_owned()))?;
                tx.renew_page(added.id, &secrets, program.as_deref())?;
                let browsers: Vec<Token> = in_use(tx.connection())?
                    .into_iter()
                    .filter(|token| token.name.starts_with(BROWSER_PREFIX))
                    .collect();
                for oldest in browsers.iter().skip(BROWSERS_MAX) {
                    tx.revoke_token(oldest.id)?;
                }
                Ok(added)
            })
            .await?;
        Ok(SignedIn {
            token,
            resume,
            view: view(&made),
        })
    }

    /// Continues a page after a reload, with new secrets. `None`: the code is unknown, was used, or
    /// has expired, or the page belongs to another program. Where no process can be seen, the page
    /// must have been left, so that nobody else can use the code of an open page.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn resume_page(
        &self,
        code: &str,
        program: Option<String>,
    ) -> Result<Option<SignedIn>, OpError> {
        let (token, resume, secrets) = SignedIn::secrets();
        let (code, now) = (token_hash(code), clock::now());
        let renewed = self
            .store
            .write(move |tx| {
                let Some(page) = token_by_resume(tx.connection(), &code)? else {
                    return Ok(None);
                };
                if has_expired(&page, now)
                    || page.program != program
                    || (program.is_none() && page.left_at.is_none())
                {
                    return Ok(None);
                }
                tx.renew_page(page.id, &secrets, program.as_deref())?;
                Ok(Some(Token {
                    created_at: now,
                    left_at: None,
                    ..page
                }))
            })
            .await?;
        Ok(renewed.map(|page| SignedIn {
            token,
            resume,
            view: view(&page),
        }))
    }

    /// Returns whether a code for a page that continues is known, without using it.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn is_page_known(&self, code: &str) -> Result<bool, OpError> {
        let hash = token_hash(code);
        Ok(self
            .store
            .read(|connection| token_by_resume(connection, &hash))?
            .is_some_and(|page| !has_expired(&page, clock::now())))
    }

    /// Records that a page was left. Its token expires soon, so that the last calls of the page
    /// still count.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn leave_page(&self, id: i64) -> Result<(), OpError> {
        Ok(self.store.write(move |tx| tx.leave_page(id)).await?)
    }

    /// Revokes the tokens that have expired.
    ///
    /// # Errors
    /// A failure of the store.
    pub(crate) async fn revoke_expired(&self) -> Result<(), OpError> {
        let now = clock::now();
        if !self
            .store
            .read(in_use)?
            .iter()
            .any(|token| has_expired(token, now))
        {
            return Ok(());
        }
        self.store
            .write(move |tx| {
                for expired in in_use(tx.connection())?
                    .iter()
                    .filter(|token| has_expired(token, now))
                {
                    tx.revoke_token(expired.id)?;
                }
                Ok(())
            })
            .await?;
        Ok(())
    }

    /// Lists the tokens.
    ///
    /// # Errors
    /// The caller is not the person.
    pub fn list(&self, who: &Principal, call: &ListTokens) -> Result<TokenList, OpError> {
        lookup::check(who, Action::ManageHub)?;
        let all = self.store.read(tokens)?;
        Ok(TokenList {
            tokens: all
                .iter()
                .filter(|token| call.all || token.revoked_at.is_none())
                .map(view)
                .collect(),
        })
    }

    /// Revokes a token. Its connections are closed before the reply is complete or soon after.
    ///
    /// # Errors
    /// The caller is not the person, or there is no such token.
    pub async fn revoke(&self, caller: Caller, call: RevokeToken) -> Result<TokenView, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        caller
            .write(&self.store, move |tx, _| {
                let token = token_by_name(tx.connection(), &call.name)?
                    .ok_or_else(|| Denied::not_found("token", &call.name))?;
                tx.revoke_token(token.id)?;
                Ok(view(&Token {
                    revoked_at: Some(tx.now()),
                    ..token
                }))
            })
            .await
    }

    /// Checks a token that a caller presents. `None`: it is unknown or revoked.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn check(&self, token: &str) -> Result<Option<TokenAccess>, OpError> {
        // The lookup by hash takes no time that depends on how much of a guess is right.
        let hash = token_hash(token);
        let Some(stored) = self
            .store
            .read(|connection| token_by_hash(connection, &hash))?
        else {
            return Ok(None);
        };
        if has_expired(&stored, clock::now()) {
            return Ok(None);
        }
        if stored.must_record_use(clock::now()) {
            let id = stored.id;
            // The token is good even if its use cannot be recorded, for instance on a full disk.
            if let Err(error) = self.store.write(move |tx| tx.note_token_used(id)).await {
                tracing::warn!(%error, "the use of a token cannot be recorded");
            }
        }
        Ok(Some(TokenAccess {
            id: stored.id,
            is_browser: stored.name.starts_with(BROWSER_PREFIX),
            program: stored.program,
            identity: stored.identity,
            name: stored.name,
        }))
    }

    /// Returns whether a token is in use.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn is_in_use(&self, id: i64) -> Result<bool, OpError> {
        Ok(self
            .store
            .read(tokens)?
            .iter()
            .any(|token| token.id == id && token.revoked_at.is_none()))
    }

    /// Subscribes to revocations.
    #[must_use]
    pub fn revocations(&self) -> Subscription {
        self.store.wake_ups().subscribe(vec![Topic::Tokens])
    }
}

/// Returns whether this is a hash in lower-case hexadecimal.
#[must_use]
pub fn is_hash(text: &str) -> bool {
    text.len() == HASH_BYTES
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn has_expired(token: &Token, now: Time) -> bool {
    expires_at(&token.name, token.created_at, token.left_at).is_some_and(|at| at <= now)
}

/// Returns the tokens that are not revoked, newest first.
fn in_use(connection: &Connection) -> Result<Vec<Token>, StoreError> {
    Ok(tokens(connection)?
        .into_iter()
        .filter(|token| token.revoked_at.is_none())
        .collect())
}

fn view(token: &Token) -> TokenView {
    let Token {
        id: _,
        name,
        identity,
        created_at,
        used_at,
        revoked_at,
        program: _,
        left_at,
    } = token;
    TokenView {
        name: name.clone(),
        role: identity.role().into(),
        client: identity.client().map(|client| client.as_str().to_owned()),
        created_at: rfc3339(*created_at),
        used_at: used_at.map(rfc3339),
        revoked_at: revoked_at.map(rfc3339),
        expires_at: expires_at(name, *created_at, *left_at).map(rfc3339),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tokens_that_the_hub_makes_are_refused() {
        let refused = |name: &str, role| {
            check_token_name(name, role)
                .map_or_else(|denied| denied.to_string(), |()| String::new())
        };
        assert_eq!(refused("ci-1.main_x", TokenRole::Client), "");
        for name in [
            "",
            "-x",
            "a b",
            "é",
            &"n".repeat(limits::NAME_BYTES_MAX + 1),
        ] {
            assert!(refused(name, TokenRole::Client).starts_with("name: use 1 to"));
        }
        let hub = format!("{PEER_PREFIX}hub");
        assert!(refused(&hub, TokenRole::Client).ends_with("adj peer invite"));
        assert!(refused("hub", TokenRole::Peer).ends_with("adj peer invite"));
        let browser = format!("{BROWSER_PREFIX}1");
        assert!(refused(&browser, TokenRole::Person).ends_with("(adj ui)"));
        let launched = format!("{LAUNCHED_PREFIX}ci-1");
        assert!(refused(&launched, TokenRole::Runner).ends_with("launch)"));
    }

    #[test]
    fn token_has_256_random_bits() {
        let (one, other) = (fresh_token(), fresh_token());
        assert!(
            one != other && one.len() == TOKEN_PREFIX.len() + 43,
            "{one}"
        );
        assert_eq!(
            token_hash("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
