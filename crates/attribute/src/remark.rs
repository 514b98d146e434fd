//! Rules that make findings and post nothing: power-capped (11), straggler (14), wrong board (17). Rule 16 asks for the
//! cache, latency and objective of a serving process, which no source gives yet: a rule that lacks a field does not fire.

use std::collections::BTreeMap;

use gpuledger_model::tables::placement::Holder;
use gpuledger_model::time::{DAY_MS, MINUTE_MS, WINDOW_MS, Window, floor_to};

use crate::facts::Facts;
use crate::ladder::{Remark, holders_of_row};
use crate::observe::MachineRecord;
use crate::rules::RuleBook;
use crate::window::WindowField;

/// What the remarks look at: the record, the facts and the fires of rule 6 of each machine.
pub(crate) struct Ground<'a> {
    pub(crate) records: &'a [MachineRecord],
    pub(crate) facts: &'a [BTreeMap<&'a str, Vec<Facts>>],
    pub(crate) fires: &'a [BTreeMap<&'a str, Vec<Vec<bool>>>],
    pub(crate) holders: &'a [Holder],
    pub(crate) book: &'a RuleBook,
}

/// A window of a device that one holder has alone.
struct Place<'a> {
    machine: usize,
    unit: &'a str,
    row: usize,
    window: Window,
    waits: bool,
}

impl Ground<'_> {
    /// All of them, in order of kind and subject.
    pub(crate) fn remarks(&self) -> Vec<Remark> {
        let mut by_holder: BTreeMap<usize, Vec<Place<'_>>> = BTreeMap::new();
        for (machine, record) in self.records.iter().enumerate() {
            for (unit, own) in &record.unit_records {
                for row in 0..own.windows.len() {
                    if let [(at, _)] = holders_of_row(own, row) {
                        let waits = self.fires[machine].get(unit.as_str()).is_some_and(|rows| rows[row].first() == Some(&true));
                        let place = Place { machine, unit, row, window: own.windows.window(row), waits };
                        by_holder.entry(record.holdings.rows[*at].holder).or_default().push(place);
                    }
                }
            }
        }
        let mut out = Vec::new();
        let mut by_run: BTreeMap<(&str, &str), Vec<&Place<'_>>> = BTreeMap::new();
        let mut last_of_run: BTreeMap<(&str, &str), &Holder> = BTreeMap::new();
        for (holder, places) in &by_holder {
            let holder = &self.holders[*holder];
            self.power_capped(holder, places, &mut out);
            let run = (holder.cluster.as_str(), holder.run.as_str());
            by_run.entry(run).or_default().extend(places);
            let last = last_of_run.entry(run).or_insert(holder);
            if (holder.from_ms, &holder.key) > (last.from_ms, &last.key) {
                *last = holder;
            }
        }
        for (run, places) in &by_run {
            self.stragglers(places, &mut out);
            self.wrong_board(last_of_run[run], places, &mut out);
        }
        out.sort_by(|a, b| (a.kind, &a.subject, a.window).cmp(&(b.kind, &b.subject, b.window)));
        out
    }

    fn facts(&self, place: &Place<'_>) -> &Facts {
        &self.facts[place.machine][place.unit][place.row]
    }

    /// Rule 11: at its power limit, and slowed down by it. Being at the cap is often what one wants.
    fn power_capped(&self, holder: &Holder, places: &[Place<'_>], out: &mut Vec<Remark>) {
        let capped: Vec<&Place<'_>> = places.iter().filter(|p| self.facts(p).power_capped).collect();
        for window in self.spells(capped.iter().map(|p| p.window).collect()) {
            let mut devices: Vec<&str> = capped.iter().filter(|p| p.window.overlaps(window)).map(|p| p.unit).collect();
            devices.sort_unstable();
            devices.dedup();
            out.push(Remark {
                kind: "power_capped",
                subject: holder.key.clone(),
                window,
                evidence: format!(
                    "{} device(s) at {:.0} % of the power limit or more, and slowed down by it, for {} min",
                    devices.len(),
                    self.book.power_capped.power_of_limit_ratio_min * 100.0,
                    window.duration_ms() / MINUTE_MS
                ),
                would_change: "a higher power limit, or work per watt that says that the cap is right",
            });
        }
    }

    /// Rule 14: one device draws far less or more than its peers, or fills few of its SMs while all of them spin.
    fn stragglers(&self, places: &[&Place<'_>], out: &mut Vec<Remark>) {
        let rule = &self.book.straggler;
        let mut slots: BTreeMap<i64, BTreeMap<(usize, &str), Vec<&Place<'_>>>> = BTreeMap::new();
        for place in places {
            let slot = slots.entry(floor_to(place.window.from_ms, WINDOW_MS)).or_default();
            slot.entry((place.machine, place.unit)).or_default().push(place);
        }
        let mut found: BTreeMap<&str, Vec<Window>> = BTreeMap::new();
        for (start, devices) in &slots {
            let spinning = |own: &[&Place<'_>]| own.iter().all(|p| p.waits);
            let slot = Window::new(*start, *start + WINDOW_MS);
            let watts: Vec<Option<f64>> = devices.values().map(|own| self.mean_watts(own)).collect();
            let known: Vec<f64> = watts.iter().copied().flatten().collect();
            let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
            let deviation = (known.iter().map(|w| (w - mean) * (w - mean)).sum::<f64>() / known.len().max(1) as f64).sqrt();
            let others_spin = devices.len() > 2 && devices.values().filter(|own| !spinning(own)).count() == 1;
            for (((_, unit), own), watts) in devices.iter().zip(&watts) {
                let is_far = watts.is_some_and(|w| deviation > 0.0 && (w - mean).abs() > rule.z_score_min * deviation);
                let is_low = others_spin && !spinning(own) && own.iter().all(|p| self.facts(p).sm.is_some_and(|sm| sm < rule.sm_ratio_max));
                if is_far || is_low {
                    found.entry(unit).or_default().push(slot);
                }
            }
        }
        for (unit, windows) in found {
            for window in self.spells(windows) {
                out.push(Remark {
                    kind: "straggler",
                    subject: unit.to_string(),
                    window,
                    evidence: format!(
                        "power or SM activity far from its peers' in the same run for {} min",
                        window.duration_ms() / MINUTE_MS
                    ),
                    would_change: "step times of the ranks that are alike, or unequal shards by design",
                });
            }
        }
    }

    fn mean_watts(&self, places: &[&Place<'_>]) -> Option<f64> {
        let sums = places.iter().filter_map(|p| self.records[p.machine].unit_records[p.unit].windows.sum(WindowField::Power, p.row));
        let (covered, sum) = sums.fold((0, 0), |(covered, sum), own| (covered + own.0, sum + own.1));
        (covered >= self.book.interconnect_wait.busy_power_seconds_min * 1000).then(|| sum as f64 / covered as f64 / 1e6)
    }

    /// Rule 17: the run never used half of the memory of its boards in two weeks.
    fn wrong_board(&self, holder: &Holder, places: &[&Place<'_>], out: &mut Vec<Remark>) {
        let rule = &self.book.wrong_board;
        let mut seen: Option<(Window, i64)> = None;
        for place in places {
            let windows = &self.records[place.machine].unit_records[place.unit].windows;
            let Some((_, greatest)) = windows.extremes(WindowField::MemoryRatio, place.row) else { continue };
            let (window, peak) = seen.unwrap_or((place.window, greatest));
            let window = Window::new(window.from_ms.min(place.window.from_ms), window.to_ms.max(place.window.to_ms));
            seen = Some((window, peak.max(greatest)));
        }
        let Some((window, peak)) = seen else { return };
        let peak = peak as f64 / 1e6;
        if window.duration_ms() >= rule.days_min * DAY_MS && peak <= rule.memory_ratio_max {
            out.push(Remark {
                kind: "wrong_board",
                subject: holder.key.clone(),
                window,
                evidence: format!("at most {:.1} % of memory in {} days", peak * 100.0, window.duration_ms() / DAY_MS),
                would_change: "a need for the board's memory bandwidth or links, or more memory in use",
            });
        }
    }

    /// Windows less than ten minutes apart, from fifteen minutes up.
    fn spells(&self, mut windows: Vec<Window>) -> Vec<Window> {
        windows.sort_unstable();
        let mut out: Vec<Window> = Vec::new();
        for window in windows {
            match out.last_mut() {
                Some(last) if window.from_ms - last.to_ms < self.book.findings.gap_minutes_max * MINUTE_MS => {
                    last.to_ms = last.to_ms.max(window.to_ms);
                }
                _ => out.push(window),
            }
        }
        out.retain(|w| w.duration_ms() >= self.book.findings.minutes_min * MINUTE_MS);
        out
    }
}
