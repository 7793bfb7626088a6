//! The configuration that a kernel was built with, where a distribution left it as text.

use std::collections::HashMap;

/// The options of a kernel configuration that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    options: HashMap<String, String>,
}

impl Config {
    /// Takes the text of a configuration: `CONFIG_HZ=250`, `# CONFIG_PREEMPT is not set`.
    pub(super) fn parse(text: &str) -> Self {
        let options = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("CONFIG_")?.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
            .collect();
        Self { options }
    }

    /// Reads the configuration of the kernel of this release. `/proc/config.gz` is left alone: it
    /// would need an inflater, for what is only a cross-check and a last resort.
    pub(super) fn read(release: &str) -> Option<Self> {
        [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")]
            .iter()
            .find_map(|path| super::super::read_text(path))
            .map(|text| Self::parse(&text))
            // An empty or foreign file says nothing, not "everything is off".
            .filter(|config| config.hz().is_some())
    }

    /// Whether an option (without `CONFIG_`) is `y`.
    pub(super) fn is_set(&self, option: &str) -> bool {
        self.options.get(option).is_some_and(|value| value == "y")
    }

    /// Ticks per second.
    pub(super) fn hz(&self) -> Option<u32> {
        self.options.get("HZ")?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_set_options_only() {
        let text = "#\n# Automatically generated\n#\nCONFIG_HZ=1000\n\
                    # CONFIG_PREEMPT is not set\r\nCONFIG_PREEMPT_NONE=y\nCONFIG_X=m\n\
                    CONFIG_LOCALVERSION=\"-a=b\"\nCONFIG_BROKEN\n";
        let config = Config::parse(text);
        assert_eq!(config.hz(), Some(1000));
        assert!(config.is_set("PREEMPT_NONE"));
        assert!(!config.is_set("PREEMPT") && !config.is_set("X") && !config.is_set("BROKEN"));
        assert_eq!(config.options.get("LOCALVERSION").map(String::as_str), Some("-a=b"));
    }

    #[test]
    fn odd_text_sets_nothing() {
        for text in ["", "\0\0\u{1f}binary", "CONFIG_", "HZ=250", "CONFIG_HZ=many"] {
            assert_eq!(Config::parse(text).hz(), None, "{text:?}");
        }
    }

    #[test]
    fn a_release_without_a_file_has_no_configuration() {
        assert_eq!(Config::read("0.0.0-no-such-release"), None);
    }
}
