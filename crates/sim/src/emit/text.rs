//! Exposition text of a node's day: one file with times, or a folder of compressed scrapes.

use std::fmt::Write as _;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::series::NodeDay;
use super::table::Block;

/// Labels that the exporter itself prints; those that Prometheus would add are left out.
fn is_printed(label: &str) -> bool {
    !matches!(label, "job" | "instance")
}

fn labels_of(block: &Block, row: usize) -> String {
    let mut out = String::new();
    let set = block.sets.get(row).and_then(|set| block.label_sets.get(*set as usize));
    for (name, value) in set.into_iter().flatten().filter(|(name, _)| is_printed(name)) {
        if !out.is_empty() {
            out.push(',');
        }
        let _ = write!(out, "{name}=\"{value}\"");
    }
    out
}

/// The whole day in one text, family by family, every line with its time.
pub fn exposition(samples: &NodeDay, out: &mut impl Write) -> io::Result<()> {
    let labels: Vec<Vec<String>> =
        samples.blocks.iter().map(|block| (0..block.label_sets.len()).map(|set| labels_of_set(block, set)).collect()).collect();
    for (at, (metric, name)) in samples.metrics.iter().zip(samples.names()).enumerate() {
        writeln!(out, "# HELP {name} of the device\n# TYPE {name} {}", metric.kind)?;
        for (block, labels) in samples.blocks.iter().zip(&labels) {
            for ((value, time), set) in block.values[at].iter().zip(&block.times_ms).zip(&block.sets) {
                if !value.is_nan() {
                    writeln!(out, "{name}{{{}}} {value} {time}", labels[*set as usize])?;
                }
            }
        }
    }
    Ok(())
}

fn labels_of_set(block: &Block, set: usize) -> String {
    let row = block.sets.iter().position(|s| *s as usize == set).unwrap_or(0);
    labels_of(block, row)
}

/// Calls `each` with the Unix second and the text of every scrape.
pub fn scrapes(samples: &NodeDay, mut each: impl FnMut(i64, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let names = samples.names();
    let mut times: Vec<i64> = samples.blocks.iter().flat_map(|b| b.times_ms.iter().copied()).collect();
    times.sort_unstable();
    times.dedup();
    let mut rows = vec![0usize; samples.blocks.len()];
    let mut text = String::new();
    for time in times {
        text.clear();
        let here: Vec<Option<(usize, String)>> = samples
            .blocks
            .iter()
            .zip(&mut rows)
            .map(|(block, row)| {
                (block.times_ms.get(*row) == Some(&time)).then(|| {
                    *row += 1;
                    (*row - 1, labels_of(block, *row - 1))
                })
            })
            .collect();
        for (at, (metric, name)) in samples.metrics.iter().zip(&names).enumerate() {
            let _ = write!(text, "# HELP {name} of the device\n# TYPE {name} {}\n", metric.kind);
            for (block, here) in samples.blocks.iter().zip(&here) {
                if let Some((row, labels)) = here
                    && let Some(value) = block.values[at].get(*row).filter(|v| !v.is_nan())
                {
                    let _ = writeln!(text, "{name}{{{labels}}} {value}");
                }
            }
        }
        each(time.div_euclid(1_000), text.as_bytes())?;
    }
    Ok(())
}

/// Compresses a text, fast.
pub fn compress(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    let mut encoder = GzEncoder::new(out, Compression::new(1));
    encoder.write_all(bytes)?;
    encoder.finish().map(|_| ())
}
