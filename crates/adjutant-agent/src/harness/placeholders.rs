//! Replaces the placeholders in a preset's texts. Pure.

/// A text of a preset names a value that does not exist there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("has a preset with an unknown placeholder {{{name}}} in {text:?}")]
pub(super) struct UnknownPlaceholder {
    pub name: String,
    pub text: String,
}

/// Replaces the placeholders in a text. Other braces stay unchanged.
///
/// # Errors
/// A placeholder has no value.
pub(super) fn fill(
    text: &str,
    value: &dyn Fn(&str) -> Option<String>,
) -> Result<String, UnknownPlaceholder> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(inner) = placeholder_at(rest) else {
            filled.push('{');
            rest = &rest[1..];
            continue;
        };
        let (name, as_json) = inner
            .strip_suffix(":json")
            .map_or((inner, false), |name| (name, true));
        let Some(value) = value(name) else {
            return Err(UnknownPlaceholder {
                name: inner.to_owned(),
                text: text.to_owned(),
            });
        };
        if as_json {
            filled.push_str(&serde_json::Value::String(value).to_string());
        } else {
            filled.push_str(&value);
        }
        rest = &rest[inner.len() + 2..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Returns the name in the braces with which a text begins. `None`: they are no placeholder.
fn placeholder_at(text: &str) -> Option<&str> {
    let end = text[1..].find(['{', '}'])?;
    let inner = &text[1..=end];
    let is_name = inner.starts_with(|c: char| c.is_ascii_lowercase())
        && inner
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_:.-".contains(&b));
    (text.as_bytes()[end + 1] == b'}' && is_name).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_and_other_braces_stay() {
        let value = |name: &str| (name == "cwd").then(|| "/a \"b\"".to_owned());
        assert_eq!(
            fill(r#"projects={ {cwd:json} = { level = "x" } } {cwd}"#, &value),
            Ok(r#"projects={ "/a \"b\"" = { level = "x" } } /a "b""#.to_owned())
        );
        for unchanged in [r#"{"a":{"b":1}}"#, "{", "{cwd", "{}", "{Cwd}", "{cwd{"] {
            assert_eq!(fill(unchanged, &value).as_deref(), Ok(unchanged));
        }
        assert_eq!(
            fill("Bearer {mcp_token}", &value).map_err(|unknown| unknown.to_string()),
            Err(
                "has a preset with an unknown placeholder {mcp_token} in \"Bearer {mcp_token}\""
                    .to_owned()
            )
        );
    }
}
