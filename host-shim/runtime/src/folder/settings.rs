//! `NAME.json`: the configuration of a plugin, and the limits of its instance.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::error::list;
use crate::folder::PACKAGED;
use crate::{Limits, Problem};

/// A file with settings has at most so many bytes: a configuration of 1 MiB, and room for the limits.
pub(super) const MAX_BYTES: u64 = (1 << 20) + (64 << 10);

/// How a plugin of a folder is to run. The texts are as they stand in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its configuration, a JSON object. None if the file has none.
    pub config: Option<String>,
    /// The limits of its instance, a JSON object. None if the file has none.
    pub limits: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    config: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    limits: Option<&'a RawValue>,
}

/// Also `null` is something that was written.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl Settings {
    /// Reads the file of a plugin; what is wrong with it, in words that follow the file's name.
    pub(super) fn read(plugin: &str, bytes: &[u8]) -> Result<Self, String> {
        let text =
            std::str::from_utf8(bytes).map_err(|_| "it is not text in UTF-8, save it as such".to_owned())?;
        if !text.trim_start().starts_with('{') {
            return Err(r#"expected an object, `{"config": {…}, "limits": {…}}`"#.into());
        }
        let written: Written = serde_json::from_str(text).map_err(|error| {
            if error.is_data() {
                format!("{error}; remove what does not belong there")
            } else {
                format!("it is not JSON: {error}")
            }
        })?;
        let config = object("config", written.config)?;
        let limits = object("limits", written.limits)?;
        if plugin == PACKAGED && config.is_some() {
            return Err(format!(
                "`config` may not stand here, {PACKAGED} has its configuration from the host's own settings; only `limits` may"
            ));
        }
        if let Some(limits) = &limits {
            Self::limits_of(plugin, Some(limits)).map_err(|problems| list(&problems))?;
        }
        Ok(Self { config, limits })
    }

    /// What the instance of a plugin may use, by the text of its `limits`: the host's own what the default is, any other what
    /// somebody else's may.
    ///
    /// # Errors
    ///
    /// Names what is wrong, by its key.
    pub fn limits_of(plugin: &str, limits: Option<&str>) -> Result<Limits, Vec<Problem>> {
        let base = if plugin == PACKAGED { Limits::default() } else { Limits::foreign() };
        limits.map_or_else(|| Ok(base.clone()), |json| Limits::from_json(json, &base))
    }
}

fn object(key: &str, value: Option<&RawValue>) -> Result<Option<String>, String> {
    match value.map(RawValue::get) {
        None => Ok(None),
        Some(text) if text.starts_with('{') => Ok(Some(text.to_owned())),
        Some(text) => {
            let start: String = text.chars().take(20).collect();
            Err(format!("`{key}` has to be an object, found `{start}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        Settings::read("budget", text.as_bytes())
    }

    #[test]
    fn both_keys_may_be_left_out_and_are_kept_as_they_are_written() {
        assert_eq!(read("{}"), Ok(Settings::default()));
        let read =
            read(" {\"config\": {\"perMinute\": 1e400, \"a\":[ ] }, \"limits\":{} }\n").expect("it is right");
        assert_eq!(read.config.as_deref(), Some("{\"perMinute\": 1e400, \"a\":[ ] }"));
        assert_eq!(read.limits.as_deref(), Some("{}"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("", "expected an object"),
            ("[]", "expected an object"),
            ("null", "expected an object"),
            ("{", "it is not JSON: EOF"),
            ("{} {}", "it is not JSON: trailing characters"),
            (r#"{"cofnig": {}}"#, "unknown field `cofnig`, expected `config` or `limits`"),
            (r#"{"config": {}, "config": {}}"#, "duplicate field `config`"),
            (r#"{"config": null}"#, "`config` has to be an object, found `null`"),
            (r#"{"limits": [1, 2]}"#, "`limits` has to be an object, found `[1, 2]`"),
            (r#"{"limits": {"a" 1}}"#, "it is not JSON"),
            (r#"{"limits": {"callMs": "long"}}"#, "callMs"),
            (r#"{"limits": {"callTime": 1}}"#, "callTime"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
        assert!(Settings::read("budget", b"\xff{}").expect_err("no text").contains("UTF-8"));
    }

    #[test]
    fn the_packaged_plugin_has_its_configuration_from_elsewhere() {
        let read = |text: &str| Settings::read("gen-limit", text.as_bytes());
        assert!(read(r#"{"config": {}}"#).expect_err("not here").contains("`config`"));
        assert_eq!(read(r#"{"limits": {}}"#).expect("limits may").limits.as_deref(), Some("{}"));
    }
}
