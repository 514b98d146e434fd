//! House rules as tests: what a reviewer would otherwise have to say twice. Each failure names the file and what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use gpuledger::cli::Cli;
use gpuledger::exit::Exit;
use gpuledger_attribute::rules::RULES_TOML;
use gpuledger_model::cause::{Cause, Part};

/// Rooms, and the rooms that each may know. Only `app` sees all.
const ROOMS: [(&str, &[&str]); 6] = [
    ("model", &[]),
    ("ingest", &["model"]),
    ("attribute", &["model"]),
    ("sim", &["model"]),
    ("store", &["model", "ingest"]),
    ("app", &["model", "ingest", "attribute", "sim", "store"]),
];

/// Libraries that stay behind one door, so that the accounting builds and is tested without them.
const DOORS: [(&str, &[&str]); 7] = [
    ("parquet", &["store", "sim"]),
    ("arrow-array", &["store", "sim"]),
    ("serde_arrow", &["store"]),
    ("glob", &["store"]),
    ("clap", &["app"]),
    ("indicatif", &["app"]),
    ("ctrlc", &["app"]),
];

/// Lines that a source file may have; a longer one holds two ideas.
const FILE_LINES_MAX: usize = 700;

/// Longer files, each with the lines it may have and the reason.
const LONG_FILES: &[(&str, usize, &str)] = &[];

/// Lines up to which a file needs no exception, however it is laid out.
const FILE_LINES_COMFORTABLE: usize = 600;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "helper", "helpers", "common", "manager", "misc"];

/// Lines that the map may have.
const ARCHITECTURE_LINES_MAX: usize = 200;

#[test]
fn rooms_depend_only_downwards() {
    let found: BTreeSet<String> =
        fs::read_dir(root().join("crates")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    let known: BTreeSet<String> = ROOMS.iter().map(|(room, _)| room.to_string()).collect();
    assert_eq!(found, known, "a new room needs an invariant, a line in docs/ARCHITECTURE.md and one here");
    let mut wrong = Wrong::default();
    for (room, may_know) in ROOMS {
        let manifest: toml::Table = read(&format!("crates/{room}/Cargo.toml")).parse().unwrap();
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(names) = manifest.get(section).and_then(|s| s.as_table()) else { continue };
            for name in names.keys() {
                if let Some(other) = name.strip_prefix("gpuledger-") {
                    // The simulator may serve the tests of any room.
                    let allowed = may_know.contains(&other) || (section == "dev-dependencies" && other == "sim");
                    wrong.unless(allowed, format!("{room} must not know {other} ({section})"));
                }
                if let Some((_, rooms)) = DOORS.iter().find(|(library, _)| library == name) {
                    wrong.unless(
                        rooms.contains(&room) || section != "dependencies",
                        format!("{name} stays behind {rooms:?}, not in {room}"),
                    );
                }
            }
        }
        let has_lints = manifest.get("lints").and_then(|l| l.get("workspace")).and_then(toml::Value::as_bool) == Some(true);
        wrong.unless(has_lints, format!("{room}: `[lints] workspace = true` is missing"));
    }
    wrong.report("rooms");
}

#[test]
fn names_say_what_is_inside() {
    let mut wrong = Wrong::default();
    for path in files() {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_empty = stem.split(['_', '-', '.']).any(|word| EMPTY_NAMES.contains(&word));
        wrong.unless(!is_empty, format!("{}: name it after what is inside", shown(&path)));
    }
    wrong.report("file names");
}

#[test]
fn files_stay_short() {
    let mut wrong = Wrong::default();
    let mut met = BTreeSet::new();
    for path in sources() {
        let (name, lines) = (shown(&path), read(&shown(&path)).lines().count());
        let exception = LONG_FILES.iter().find(|(file, ..)| *file == name);
        let most = exception.map_or(FILE_LINES_MAX, |(_, most, _)| *most);
        wrong.unless(lines < most, format!("{name}: {lines} lines, less than {most} are allowed: look for two ideas"));
        if exception.is_some() {
            met.insert(name.clone());
            wrong.unless(lines > FILE_LINES_COMFORTABLE, format!("{name}: {lines} lines: it needs no exception any more"));
        }
    }
    for (file, _, reason) in LONG_FILES {
        wrong.unless(met.contains(*file), format!("{file}: excepted, but not there"));
        wrong.unless(!reason.is_empty(), format!("{file}: the exception has no reason"));
    }
    let map = read("docs/ARCHITECTURE.md").lines().count();
    wrong.unless(map <= ARCHITECTURE_LINES_MAX, format!("docs/ARCHITECTURE.md: {map} lines; a map has at most {ARCHITECTURE_LINES_MAX}"));
    wrong.report("lengths");
}

#[test]
fn nothing_of_the_writers_machine_is_left_behind() {
    // Written in two halves, so that this file does not find itself.
    let places = [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/Use", "rs/"), concat!("C:", "\\\\Users")];
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X "),
        concat!("<<<", "<<<<"),
        concat!("db", "g!("),
        concat!("lorem", " ipsum"),
    ];
    let mut wrong = Wrong::default();
    for path in files() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        // Scenarios hold what a scheduler printed, with the paths of its users.
        let is_record = path.extension().is_some_and(|e| e == "scn");
        for (line, content) in text.lines().enumerate() {
            for place in places.iter().filter(|_| !is_record) {
                wrong.unless(!content.contains(place), format!("{}:{}: a path of one machine ({place})", shown(&path), line + 1));
            }
            for mark in marks {
                wrong.unless(!content.contains(mark), format!("{}:{}: left over ({mark})", shown(&path), line + 1));
            }
        }
    }
    wrong.report("leftovers");
}

#[test]
fn every_invariant_has_a_test() {
    let names: Vec<String> = sources().iter().flat_map(|path| test_names(&read(&shown(path)))).collect();
    let map = read("docs/ARCHITECTURE.md");
    let mut wrong = Wrong::default();
    for (room, _) in ROOMS {
        let front = front_page(&read(&format!("crates/{room}/src/lib.rs")));
        let ids = invariants(&front);
        wrong.unless(!ids.is_empty(), format!("{room}: its front page names no invariant"));
        let says_absent = front.contains("It knows no") || front.contains("It opens no");
        wrong.unless(says_absent, format!("{room}: its front page does not say what it knows nothing of"));
        for id in ids {
            let word = id.to_lowercase().replace('-', "_");
            let has_test = names.iter().any(|name| {
                *name == word
                    || name.starts_with(&format!("{word}_"))
                    || name.contains(&format!("_{word}_"))
                    || name.ends_with(&format!("_{word}"))
            });
            wrong.unless(has_test, format!("{room}: {id} has no test whose name holds `{word}`"));
            wrong.unless(map.contains(&format!("**{id}**")), format!("docs/ARCHITECTURE.md does not name {id}"));
        }
    }
    wrong.report("invariants");
}

#[test]
fn app_1_no_other_room_reads_clock_environment_or_ends_the_process() {
    let doors = [
        "Timestamp::now(",
        "Zoned::now(",
        "SystemTime::now(",
        "Instant::now(",
        "std::env::",
        "env::var",
        "process::exit(",
        "TimeZone::system(",
    ];
    let mut wrong = Wrong::default();
    for path in sources().into_iter().filter(|path| shown(path).contains("/src/") && !shown(path).starts_with("crates/app/")) {
        for (line, content) in product_lines(&read(&shown(&path))) {
            for door in doors {
                wrong.unless(!content.contains(door), format!("{}:{line}: {door} belongs to app; take it as an argument", shown(&path)));
            }
        }
    }
    wrong.report("the world outside");
}

#[test]
fn app_2_nothing_prints_past_the_result() {
    // The macros panic on a closed pipe, and mix what a script reads with what a person reads.
    let macros = ["println!(", "print!(", "eprintln!(", "eprint!("];
    let mut wrong = Wrong::default();
    for path in sources().into_iter().filter(|path| shown(path).contains("/src/")) {
        for (line, content) in product_lines(&read(&shown(&path))) {
            let prints = macros
                .iter()
                .any(|m| content.match_indices(m).any(|(at, _)| !content[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')));
            wrong.unless(!prints, format!("{}:{line}: write to the output that was handed in", shown(&path)));
        }
    }
    wrong.report("printing");
}

#[test]
fn the_manual_names_every_cause_with_its_class_and_part() {
    let manual = read("docs/WASTE.md");
    let sections: BTreeMap<&str, &str> = manual.split("\n### `").skip(1).filter_map(|section| section.split_once('`')).collect();
    let mut wrong = Wrong::default();
    for cause in Cause::ALL {
        let Some(section) = sections.get(cause.as_str()) else {
            wrong.add(format!("docs/WASTE.md has no section ### `{cause}`"));
            continue;
        };
        let section = section.split("\n## ").next().unwrap_or_default();
        wrong.unless(
            section.contains(&format!("class `{}`", cause.class())),
            format!("{cause}: the manual does not say class `{}`", cause.class()),
        );
        let parts = Part::ALL.iter().filter(|part| section.contains(&format!("`{part}`"))).count();
        wrong.unless(parts > 0, format!("{cause}: the manual names no part"));
        for word in ["**Rule.**", "**Evidence.**", "**Example.**", "**Not this.**", "**Would change it.**"] {
            wrong.unless(section.contains(word), format!("{cause}: the manual has no {word}"));
        }
    }
    for name in sections.keys() {
        wrong.unless(Cause::from_name(name).is_some(), format!("docs/WASTE.md tells of `{name}`, which is no cause"));
    }
    wrong.report("docs/WASTE.md");
}

#[test]
fn the_manual_gives_the_numbers_of_the_rule_book() {
    let manual = read("docs/WASTE.md");
    let book: toml::Table = RULES_TOML.parse().unwrap();
    let mut wrong = Wrong::default();
    for (section, keys) in book.iter().filter_map(|(name, value)| Some((name, value.as_table()?))) {
        for (key, value) in keys {
            let row = format!("| `{section}.{key}` | {} |", shown_value(value));
            wrong.unless(manual.contains(&row), format!("the table of the rule book has no row {row}"));
        }
    }
    wrong.report("docs/WASTE.md");
}

#[test]
fn the_manual_names_every_command_and_flag() {
    let manual = read("docs/REPORT.md") + &read("README.md");
    let words: BTreeSet<&str> = manual.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
    let mut wrong = Wrong::default();
    let mut open = vec![(String::new(), Cli::command())];
    while let Some((path, command)) = open.pop() {
        for argument in command.get_arguments() {
            let Some(long) = argument.get_long().filter(|long| !matches!(*long, "help" | "version")) else { continue };
            wrong.unless(words.contains(format!("--{long}").as_str()), format!("gpuledger{path} --{long} is in no manual"));
        }
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let path = format!("{path} {}", sub.get_name());
            wrong.unless(manual.contains(&format!("gpuledger{path}")), format!("gpuledger{path} is in no manual"));
            open.push((path, sub.clone()));
        }
    }
    let codes = [Exit::Done, Exit::Unexpected, Exit::Usage, Exit::Input, Exit::Refused, Exit::Output, Exit::Interrupted];
    for code in codes.map(Exit::code) {
        wrong.unless(manual.contains(&format!("| {code} |")), format!("exit code {code} is in no table of the manual"));
    }
    wrong.report("README.md and docs/REPORT.md");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut wrong = Wrong::default();
    for path in files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "md")) {
        let text = read(&shown(&path));
        for target in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target) {
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let there = path.parent().unwrap_or(Path::new("")).join(target);
            wrong.unless(there.exists(), format!("{}: no file {target}", shown(&path)));
        }
    }
    wrong.report("links");
}

#[test]
fn scenarios_open_with_what_they_show() {
    let mut wrong = Wrong::default();
    let mut numbers: BTreeMap<String, String> = BTreeMap::new();
    for path in files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "scn")) {
        let (name, text) = (shown(&path), read(&shown(&path)));
        let opening = text.lines().take_while(|line| line.starts_with('#')).collect::<String>();
        wrong.unless(opening.len() > 40, format!("{name}: open with a comment that says what it shows, and the arithmetic"));
        wrong.unless(text.lines().any(|line| line.starts_with("== expect")), format!("{name}: it expects nothing"));
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // `NN-` is ours; `tNN-` shows how a known trap of the field is met.
        let number = file.split('-').next().unwrap_or_default();
        let digits = number.strip_prefix('t').unwrap_or(number);
        let is_numbered = digits.len() >= 2 && digits.bytes().take(2).all(|b| b.is_ascii_digit()) && file.len() > number.len() + 1;
        wrong.unless(is_numbered, format!("{name}: call it NN-what-it-shows.scn"));
        if let Some(other) = numbers.insert(number.to_string(), name.clone()) {
            wrong.add(format!("{name}: has the number of {other}"));
        }
    }
    wrong.unless(numbers.len() >= 20, format!("{} scenarios; twenty at least", numbers.len()));
    wrong.report("scenarios");
}

/// What is wrong, all of it at once.
#[derive(Default)]
struct Wrong {
    lines: Vec<String>,
}

impl Wrong {
    fn add(&mut self, line: String) {
        self.lines.push(line);
    }

    fn unless(&mut self, is_right: bool, line: String) {
        if !is_right {
            self.add(line);
        }
    }

    fn report(self, about: &str) {
        let mut text = String::new();
        for line in &self.lines {
            let _ = write!(text, "\n  {line}");
        }
        assert!(self.lines.is_empty(), "{about}: {} to mend{text}", self.lines.len());
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// A path as the repository knows it.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Files of the project: neither build products nor what a demo wrote.
fn files() -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut open = vec![root()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_product = name == "target" || name == ".git" || name.starts_with("gpuledger-demo") || name == "Cargo.lock";
            if is_product {
                continue;
            }
            if path.is_dir() { open.push(path) } else { out.push(path) }
        }
    }
    out.sort();
    out
}

fn sources() -> Vec<PathBuf> {
    files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
}

/// The comment that opens a crate.
fn front_page(text: &str) -> String {
    text.lines().take_while(|line| line.starts_with("//!")).map(|line| format!("{line}\n")).collect()
}

/// Ids as `**ATTR-1**`.
fn invariants(front: &str) -> BTreeSet<String> {
    front
        .split("**")
        .filter(|word| {
            word.split_once('-')
                .is_some_and(|(room, number)| is_made_of(room, u8::is_ascii_uppercase) && is_made_of(number, u8::is_ascii_digit))
        })
        .map(str::to_string)
        .collect()
}

fn is_made_of(text: &str, fits: fn(&u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(|b| fits(&b))
}

/// Functions under a `#[test]` (or inside `proptest!`).
fn test_names(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
            out.push(rest.split(['(', '<']).next().unwrap_or_default().to_string());
            is_test = false;
        }
    }
    out
}

/// Lines of the product, with their numbers: neither comments nor the tests at the end of a file.
fn product_lines(text: &str) -> Vec<(usize, String)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(at, line)| (at + 1, line.to_string()))
        .collect()
}

/// A value of the rule book as its text shows it.
fn shown_value(value: &toml::Value) -> String {
    match value {
        toml::Value::Array(items) => items.iter().map(shown_value).collect::<Vec<_>>().join(", "),
        toml::Value::String(text) => text.clone(),
        toml::Value::Float(number) => format!("{number:?}"),
        toml::Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}
