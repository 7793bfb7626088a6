//! Finds the machine's Debian mirror in its apt configuration, and names other suites of it.

use std::{fs, path::Path};

use anyhow::{Result, anyhow};

/// Suites by which a Debian mirror is told from other archives.
const DEBIAN_SUITES: &[&str] = &[
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "sid",
    "stable",
    "testing",
    "unstable",
    "oldstable",
    "oldoldstable",
];
/// Fields that say what is fetched; all others say how it is reached and trusted, and are kept.
const WHAT_FIELDS: &[&str] =
    &["types", "uris", "suites", "components", "architectures", "enabled", "languages", "targets"];

/// One source of packages: the fields of a deb822 paragraph, in order, names as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    fields: Vec<(String, String)>,
}

impl Source {
    fn get(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value.trim())
    }

    fn words(&self, name: &str) -> impl Iterator<Item = &str> {
        self.get(name).split_whitespace()
    }

    fn is_usable(&self) -> bool {
        !self.get("enabled").eq_ignore_ascii_case("no")
            && self.words("types").any(|word| word == "deb")
            && self.words("components").any(|word| word == "main")
    }

    /// True for the main archive of Debian (and not its security updates, or another distribution).
    fn is_debian(&self) -> bool {
        self.is_usable() && self.words("suites").any(|word| DEBIAN_SUITES.contains(&word))
    }

    /// The same archive, reached and trusted in the same way, but this suite and no more of it than the
    /// package lists: as a deb822 paragraph.
    pub fn with_suite(&self, suite: &str, architecture: &str) -> String {
        let uris = self.get("uris");
        let mut text = format!(
            "Types: deb\nURIs: {uris}\nSuites: {suite}\nComponents: main\n\
             Architectures: {architecture}\nTargets: Packages\n"
        );
        for (name, value) in &self.fields {
            if !WHAT_FIELDS.contains(&name.to_ascii_lowercase().as_str()) {
                text.push_str(&format!("{name}:{value}\n"));
            }
        }
        text
    }
}

/// Where the machine's apt configuration has this suite; else its Debian mirror, which has all of Debian's own.
///
/// # Errors
/// When its apt configuration names neither.
pub fn of_suite(etc_apt: &Path, suite: &str) -> Result<Source> {
    let has_it =
        |source: &Source| source.is_usable() && source.words("suites").any(|word| word == suite);
    let sources = all(etc_apt);
    let found = sources.iter().find(|source| has_it(source));
    found
        .or_else(|| sources.iter().find(|source| source.is_debian()))
        .cloned()
        .ok_or_else(|| anyhow!("the apt sources in {} name no Debian mirror", etc_apt.display()))
}

/// The suites of a release that the machine itself is kept up to date from.
pub fn suites_of_release(etc_apt: &Path, codename: &str) -> Vec<String> {
    let sources = all(etc_apt);
    let usable = sources.iter().filter(|source| source.is_usable());
    let suites = usable.flat_map(|source| source.words("suites"));
    let is_of_it = |suite: &&str| {
        suite.strip_prefix(codename).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    suites.filter(is_of_it).map(str::to_owned).collect()
}

fn all(etc_apt: &Path) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut files = vec![etc_apt.join("sources.list")];
    if let Ok(folder) = fs::read_dir(etc_apt.join("sources.list.d")) {
        let mut parts: Vec<_> = folder.flatten().map(|entry| entry.path()).collect();
        parts.sort();
        files.append(&mut parts);
    }
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        sources.extend(match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => parse_list(&text),
            Some("sources") => parse_deb822(&text),
            _ => continue,
        });
    }
    sources
}

/// Reads the one-line form, `deb [option=value …] URI SUITE COMPONENT…`.
fn parse_list(text: &str) -> Vec<Source> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter_map(parse_list_line).collect()
}

fn parse_list_line(line: &str) -> Option<Source> {
    let (kind, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let components = words.collect::<Vec<_>>().join(" ");
    let field = |name: &str, value: &str| (name.to_owned(), format!(" {value}"));
    let mut fields = vec![
        field("Types", kind),
        field("URIs", uri),
        field("Suites", suite),
        field("Components", &components),
    ];
    for (name, value) in options.split_whitespace().filter_map(|option| option.split_once('=')) {
        // The names are those of the other form, but for the three that have a short one.
        let name = match name.trim_end_matches(['+', '-']) {
            "arch" => "Architectures",
            "lang" => "Languages",
            "target" => "Targets",
            other => other,
        };
        fields.push(field(name, &value.replace(',', " ")));
    }
    Some(Source { fields })
}

/// Reads paragraphs of `Name: value` with lines that go on after a blank.
fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    // The empty line at the end closes the last paragraph.
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            if !fields.is_empty() {
                sources.push(Source { fields: std::mem::take(&mut fields) });
            }
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.to_owned(), value.to_owned()));
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
Types: deb deb-src
# the archive of that day
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEY865UxYJKwYB
 -----END PGP PUBLIC KEY BLOCK-----

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
";

    fn debian(sources: Vec<Source>) -> Vec<String> {
        let found = sources.iter().filter(|source| source.is_debian());
        found.map(|source| source.with_suite("trixie", "amd64")).collect()
    }

    #[test]
    fn deb822_keeps_the_key_and_leaves_security_out() {
        let found = debian(parse_deb822(DEB822));
        assert_eq!(
            found,
            ["Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\n\
              Architectures: amd64\nTargets: Packages\n\
              Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEY865UxYJKwYB\n \
              -----END PGP PUBLIC KEY BLOCK-----\n"]
        );
    }

    #[test]
    fn a_list_line_keeps_its_options() {
        let text = "\
# deb http://off.example/debian bookworm main
deb https://packages.example/apt cloud-sdk main
deb-src http://src.example/debian bookworm main
deb [ arch=amd64,arm64 signed-by=/k/a.gpg check-valid-until=no ] http://m.example/debian bookworm main contrib # x
";
        let found = debian(parse_list(text));
        assert_eq!(
            found,
            ["Types: deb\nURIs: http://m.example/debian\nSuites: trixie\nComponents: main\n\
              Architectures: amd64\nTargets: Packages\n\
              signed-by: /k/a.gpg\ncheck-valid-until: no\n"]
        );
    }

    #[test]
    fn other_distributions_and_disabled_sources_are_no_mirror() {
        assert_eq!(debian(parse_list("deb http://u.example/ubuntu noble main\n")).len(), 0);
        assert_eq!(debian(parse_list("deb http://s.example/d bookworm-security main\n")).len(), 0);
        assert_eq!(debian(parse_list("deb\ndeb [broken http://x y main\n")).len(), 0);
        let off = format!("Enabled: no\n{DEB822}");
        assert_eq!(debian(parse_deb822(&off)).len(), 0);
    }

    #[test]
    fn the_first_mirror_of_all_files_is_taken() {
        let folder = std::env::temp_dir().join(format!("xtask-apt-{}", std::process::id()));
        let parts = folder.join("sources.list.d");
        fs::create_dir_all(&parts).unwrap();
        assert!(of_suite(&folder, "sid").is_err());
        fs::write(parts.join("z.list.disabled"), "deb http://no.example/d sid main\n").unwrap();
        fs::write(parts.join("b.sources"), DEB822).unwrap();
        fs::write(parts.join("c.list"), "deb http://late.example/d sid main\n").unwrap();
        let uri = |suite: &str| of_suite(&folder, suite).unwrap().get("URIs").to_owned();
        assert_eq!(uri("trixie"), "http://mirror.example/debian");
        assert_eq!(uri("sid"), "http://late.example/d");
        assert_eq!(suites_of_release(&folder, "sid"), ["sid"]);
        assert!(suites_of_release(&folder, "si").is_empty());
        fs::remove_dir_all(folder).unwrap();
    }
}
