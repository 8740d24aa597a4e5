//! The text of the configuration files that Adjutant writes for its own repositories.

/// Quotes a value for a configuration file.
pub(super) fn quote(value: &str) -> String {
    let escaped = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
        .replace('\t', "\\t");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_a_configuration() {
        assert_eq!(quote("/a b/\"c\"\\d;#"), "\"/a b/\\\"c\\\"\\\\d;#\"");
        assert_eq!(quote("x\n[core]"), "\"x\\n[core]\"");
    }
}
