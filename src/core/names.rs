//! Checks of names that users write and that become part of a URL of the API server, so that no name addresses anything
//! else.

/// Service account of a loop whose spec names none: the default one of its namespace.
pub const DEFAULT_ACCOUNT: &str = "default";

/// Whether an object can have this name.
pub fn is_name(text: &str) -> bool {
    let may = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    text.chars().all(may) && !text.trim_matches('.').is_empty()
}

/// Whether the text is an API version: a version, or a group and a version separated by a slash.
pub fn is_api_version(text: &str) -> bool {
    let (group, version) = text.split_once('/').map_or((None, text), |(group, version)| (Some(group), version));
    group.is_none_or(is_name) && is_name(version)
}

/// Whether Prometheus accepts the text as a label name. Any other text would change the query around it.
pub fn is_label_name(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(is_word) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_lead_elsewhere_is_no_name() {
        for text in ["web", "web.example", "a-b_c:d", "1"] {
            assert!(is_name(text), "{text}");
        }
        for text in ["", ".", "..", "a/b", "../secrets", "a?b", "a%2fb", "a b", "ä"] {
            assert!(!is_name(text), "{text}");
        }
        assert!(is_api_version("apps/v1") && is_api_version("v1"));
        assert!(!is_api_version("apps/v1/replicasets"));
        assert!(!is_api_version("apps/../v1") && !is_api_version("apps/") && !is_api_version("/v1"));
    }
}
