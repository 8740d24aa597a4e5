//! Links that answer one request. A code names the request, the text that was shown, its deadline
//! and the person to whom it was sent, and is signed with a key in the home. Nothing is stored for
//! a link: a request is answered once, so each link is.

use super::{OpError, Ops, random, render};
use crate::config::Home;
use crate::store::{Request, Store, request_by_id};
use crate::view::{AnswerOne, DecisionWord, RequestView};
use crate::{clock, files};
use adjutant_core::request::LinkName;
use adjutant_core::{Denied, RequestId, RequestState, SteadyTime};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use http::Uri;
use sha2::Sha256;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The path of a link, before its code.
pub const LINK_PATH: &str = "/a/";
const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 32;
/// Longest code, in characters.
const CODE_CHARS_MAX: usize = 512;
/// Separates this use of the key from any other.
const PURPOSE: &[u8] = b"adjutant answer link 1\n";

/// A link whose code has a valid signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerLink {
    pub request: RequestId,
    /// The deadline that was shown.
    expires_at: SteadyTime,
    /// The text that was shown.
    content_hash: String,
    /// The person to whom it was sent.
    pub name: LinkName,
}

/// What a link leads to.
#[derive(Debug)]
pub enum LinkedRequest {
    /// The request can be answered.
    Open(Box<RequestView>),
    /// The request is answered, withdrawn or expired.
    Settled(Box<RequestView>),
    /// The text of the request is not the one that was shown.
    Changed,
    /// The request was removed.
    Gone,
}

/// An answer that a person gives with a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkAnswer {
    /// An option of a question, by its number from 1.
    Option(usize),
    Words(String),
    Decision {
        decision: DecisionWord,
        reason: String,
    },
}

impl AnswerLink {
    fn payload(&self) -> String {
        format!(
            "{}\n{}\n{}\n{}",
            self.request,
            self.expires_at.0,
            self.content_hash,
            self.name.as_str()
        )
    }

    /// Returns the code of the link.
    fn code(&self, key: &[u8]) -> String {
        let payload = self.payload();
        let mut code = payload_mac(key, payload.as_bytes())
            .finalize()
            .into_bytes()
            .to_vec();
        code.extend_from_slice(payload.as_bytes());
        URL_SAFE_NO_PAD.encode(code)
    }

    /// Parses a code. `None`: its signature is not valid.
    fn of_code(code: &str, key: &[u8]) -> Option<Self> {
        if code.len() > CODE_CHARS_MAX {
            return None;
        }
        let decoded = URL_SAFE_NO_PAD.decode(code).ok()?;
        let (signature, payload) = decoded.split_at_checked(SIGNATURE_BYTES)?;
        payload_mac(key, payload).verify_slice(signature).ok()?;
        let mut parts = std::str::from_utf8(payload).ok()?.splitn(4, '\n');
        let (request, expires_at, content_hash, name) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            request: RequestId::parse(request).ok()?,
            expires_at: SteadyTime(expires_at.parse().ok()?),
            content_hash: content_hash.to_owned(),
            name: LinkName::parse(name).ok()?,
        })
    }

    /// Returns what a person who uses the link answers to its request.
    ///
    /// # Errors
    /// The request has expired, or there is no such option.
    pub(super) fn answered(
        &self,
        request: &Request,
        answer: LinkAnswer,
        now: SteadyTime,
    ) -> Result<AnswerOne, Denied> {
        if now >= self.expires_at && request.state == RequestState::Pending {
            return Err(Denied::Expired);
        }
        let mut one = AnswerOne {
            message_id: Some(self.request.to_string()),
            content_hash: Some(self.content_hash.clone()),
            ..AnswerOne::default()
        };
        match answer {
            LinkAnswer::Option(number) => {
                let option = number
                    .checked_sub(1)
                    .and_then(|place| request.options.get(place));
                one.answer = option
                    .ok_or_else(|| Denied::invalid("option", "there is no such option"))?
                    .clone();
            }
            LinkAnswer::Words(words) => one.answer = words,
            LinkAnswer::Decision { decision, reason } => {
                one.decision = Some(decision);
                let is_missing = reason.trim().is_empty();
                one.reason = match decision {
                    DecisionWord::Deny if is_missing => Some("no reason given".to_owned()),
                    _ => (!is_missing).then_some(reason),
                };
            }
        }
        Ok(one)
    }
}

fn payload_mac(key: &[u8], payload: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    mac.update(PURPOSE);
    mac.update(payload);
    mac
}

/// The links of a home, which are signed with its key.
#[derive(Debug, Clone)]
pub struct AnswerLinks {
    home: Arc<Home>,
}

impl AnswerLinks {
    pub fn of(ops: &Ops) -> Self {
        Self {
            home: Arc::clone(&ops.home),
        }
    }

    /// Returns a link with which a person can answer a request.
    pub(super) fn link(
        &self,
        public_url: &Uri,
        request: &Request,
        name: &LinkName,
    ) -> Result<String, OpError> {
        let (expires_at, content_hash) = (request.expires_at, render::content_hash(request));
        let code = AnswerLink {
            request: request.id,
            expires_at,
            content_hash,
            name: name.clone(),
        }
        .code(&self.key()?);
        Ok(format!(
            "{}{LINK_PATH}{code}",
            public_url.to_string().trim_end_matches('/')
        ))
    }

    /// Checks the code of a link. `None`: it is unknown.
    ///
    /// # Errors
    /// The key cannot be read.
    pub fn read(&self, code: &str) -> Result<Option<AnswerLink>, OpError> {
        let key = match self.read_key() {
            Ok(key) => key,
            // Without a key, there are no links.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(OpError::Io(format!(
                    "the key of links cannot be read: {error}"
                )));
            }
        };
        Ok(AnswerLink::of_code(code, &key))
    }

    fn read_key(&self) -> io::Result<Vec<u8>> {
        let key = files::read(&self.home.dir, &self.home.link_key(), KEY_BYTES as u64)?;
        if key.len() == KEY_BYTES {
            Ok(key)
        } else {
            Err(io::Error::other(format!(
                "{} is damaged: remove it",
                self.home.link_key().display()
            )))
        }
    }

    /// Returns the key of links, which is made when it is needed first. Links with an earlier key
    /// are not valid.
    fn key(&self) -> Result<Vec<u8>, OpError> {
        /// Only one key is made.
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let key = match self.read_key() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = random::<KEY_BYTES>();
                files::write_atomically(&self.home.dir, &self.home.link_key(), &key)
                    .map(|()| key.to_vec())
            }
            read => read,
        };
        key.map_err(|error| OpError::Io(format!("the key of links cannot be used: {error}")))
    }
}

/// Returns what a link leads to, which changes nothing.
///
/// # Errors
/// A failure of the store.
pub fn resolve_link(store: &Store, link: &AnswerLink) -> Result<LinkedRequest, OpError> {
    let Some(request) = store.read(|connection| request_by_id(connection, link.request))? else {
        return Ok(LinkedRequest::Gone);
    };
    if render::content_hash(&request) != link.content_hash {
        return Ok(LinkedRequest::Changed);
    }
    let view = Box::new(render::request(&request));
    // The loop that expires requests may not have run yet.
    let is_open = request.state == RequestState::Pending
        && clock::steady() < link.expires_at.min(request.expires_at);
    Ok(if is_open {
        LinkedRequest::Open(view)
    } else {
        LinkedRequest::Settled(view)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::Time;

    fn link() -> AnswerLink {
        let (request, name) = (
            RequestId::new(Time(1), [7; 10]),
            LinkName::parse("anna").expect("a name"),
        );
        AnswerLink {
            request,
            expires_at: SteadyTime(5),
            content_hash: "0a".to_owned(),
            name,
        }
    }

    #[test]
    fn only_codes_of_this_key_are_valid() {
        let code = link().code(b"key");
        assert_eq!(AnswerLink::of_code(&code, b"key"), Some(link()));
        assert_eq!(AnswerLink::of_code(&code, b"another"), None);
        for (place, _) in code.char_indices() {
            let other = if code.as_bytes()[place] == b'A' {
                "B"
            } else {
                "A"
            };
            let mut changed = code.clone();
            changed.replace_range(place..=place, other);
            assert_eq!(AnswerLink::of_code(&changed, b"key"), None, "{place}");
            assert_eq!(AnswerLink::of_code(&code[..place], b"key"), None, "{place}");
        }
        for wrong in [
            "",
            "A",
            "..",
            &"A".repeat(CODE_CHARS_MAX + 1),
            &format!("{code}A"),
            &format!("{code}="),
        ] {
            assert_eq!(AnswerLink::of_code(wrong, b"key"), None, "{wrong}");
        }
    }
}
