//! Where samples of every source come together: label sets to identities, samples to series.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gpuledger_model::tables::telemetry::{Column, Field, FieldScope, HolderLabel, Host, SeriesKey, SightingKey, SignalSource, Unit};
use gpuledger_model::time::{HOUR_MS, floor_to};

use super::collected::{Collected, SignalPartKey, TargetScrapes};
use super::gate::{Reason, admit, admit_float, admit_signal, admit_time};
use super::labels::{Labels, RowIdentity};
use super::names::{Destination, MetricId, NameTable, SignalPart};
use super::number::{Number, Scale};

/// A set of labels met before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LabelSetId(u32);

/// Collects samples. One intake may read many inputs; its caches make a known series cost a lookup.
#[derive(Debug, Default)]
pub struct Intake {
    cluster: Option<String>,
    sets: Vec<LabelSet>,
    targets: HashMap<String, Target>,
    series: Slots<(SeriesKey, bool), Column>,
    parts: Slots<SignalPartKey, Column>,
    sightings: Slots<SightingKey, Option<(i64, i64)>>,
    holders: Slots<(Host, Unit, HolderLabel), TimeSet>,
    scrapes: Slots<(Host, String), TimeSet>,
    exporter_pods: BTreeSet<(String, String)>,
    device_rows: u64,
}

#[derive(Debug, Default)]
struct Target {
    by_text: HashMap<Box<[u8]>, LabelSetId>,
    scrapes: TargetScrapes,
}

#[derive(Debug)]
struct LabelSet {
    target: String,
    labels: Labels,
    identity: RowIdentity,
    /// By metric; empty where none of its samples has come yet.
    routes: Vec<Option<Routes>>,
    /// The time at which scrape and labels were last noted.
    noted_ms: Option<i64>,
    /// The time and hour of the last accepted sample, and that hour's sighting.
    sighted_ms: Option<i64>,
    hour_ms: i64,
    sighting: Option<usize>,
    scrape: Option<usize>,
    holders: Vec<usize>,
}

/// Where samples of one metric with one label set go.
#[derive(Clone, Copy, Debug)]
enum Route {
    Device { slot: usize, scale: Scale, field: Field },
    Signal { slot: usize, scale: Scale },
    Refused(Reason),
}

/// The routes of a metric: nearly always one.
#[derive(Clone, Debug)]
enum Routes {
    One(Route),
    Several(Vec<Route>),
}

/// Values by key, reached by index once the key is known.
#[derive(Debug)]
struct Slots<K, V> {
    ids: HashMap<K, usize>,
    values: Vec<V>,
}

impl<K, V> Default for Slots<K, V> {
    fn default() -> Self {
        Slots { ids: HashMap::new(), values: Vec::new() }
    }
}

impl<K: std::hash::Hash + Eq + Ord, V: Default> Slots<K, V> {
    fn slot(&mut self, key: K) -> usize {
        *self.ids.entry(key).or_insert_with(|| {
            self.values.push(V::default());
            self.values.len() - 1
        })
    }

    fn get(&mut self, slot: usize) -> Option<&mut V> {
        self.values.get_mut(slot)
    }

    fn into_pairs(self) -> impl Iterator<Item = (K, V)> {
        let mut values: Vec<Option<V>> = self.values.into_iter().map(Some).collect();
        let pairs: BTreeMap<K, usize> = self.ids.into_iter().collect();
        pairs.into_iter().filter_map(move |(key, slot)| Some((key, values.get_mut(slot)?.take()?)))
    }
}

/// Times with cheap repeats: sources that go metric by metric walk through the same times again and again.
#[derive(Debug)]
struct TimeSet {
    times_ms: Vec<i64>,
    /// The place after the time met last.
    cursor: usize,
    is_sorted: bool,
    compact_at: usize,
}

impl Default for TimeSet {
    fn default() -> Self {
        TimeSet { times_ms: Vec::new(), cursor: 0, is_sorted: true, compact_at: 4_096 }
    }
}

impl TimeSet {
    fn push(&mut self, time_ms: i64) {
        let place = |at: usize| self.times_ms.get(at).copied();
        if self.cursor > 0 && place(self.cursor - 1) == Some(time_ms) {
            return;
        }
        if place(self.cursor) == Some(time_ms) {
            self.cursor += 1;
            return;
        }
        if self.is_sorted && self.times_ms.last().is_some_and(|last| time_ms < *last) {
            if let Ok(at) = self.times_ms.binary_search(&time_ms) {
                self.cursor = at + 1;
                return;
            }
            self.is_sorted = false;
        }
        self.times_ms.push(time_ms);
        if !self.is_sorted && self.times_ms.len() >= self.compact_at {
            self.times_ms.sort_unstable();
            self.times_ms.dedup();
            self.is_sorted = true;
            self.compact_at = self.times_ms.len() * 2;
        }
        self.cursor = self.times_ms.len();
    }
}

/// Label texts remembered per target; beyond, the memory is started anew.
const LABEL_TEXTS_PER_TARGET: usize = 200_000;

impl Intake {
    /// An empty one, for series that name their cluster or stand in none.
    pub fn new() -> Intake {
        Intake::default()
    }

    /// An empty one for series of a cluster that they do not name.
    pub fn in_cluster(cluster: Option<&str>) -> Intake {
        Intake { cluster: cluster.map(str::to_string), ..Intake::default() }
    }

    /// The id of labels known by their raw text.
    pub fn known_labels(&self, target: &str, text: &[u8]) -> Option<LabelSetId> {
        self.targets.get(target)?.by_text.get(text).copied()
    }

    /// Remembers labels under their raw text.
    pub fn remember_labels(&mut self, target: &str, text: &[u8], labels: Labels) -> LabelSetId {
        let id = self.add_labels(target, labels);
        let texts = &mut self.targets.entry(target.to_string()).or_default().by_text;
        if texts.len() >= LABEL_TEXTS_PER_TARGET {
            texts.clear();
        }
        texts.insert(text.into(), id);
        id
    }

    /// A new set of labels of a target.
    pub fn add_labels(&mut self, target: &str, labels: Labels) -> LabelSetId {
        let identity = labels.identify(target, self.cluster.as_deref());
        if let Some(pod) = &identity.exporter_pod {
            self.exporter_pods.insert(pod.clone());
        }
        let id = LabelSetId(u32::try_from(self.sets.len()).unwrap_or(u32::MAX));
        self.sets.push(LabelSet {
            target: target.to_string(),
            labels,
            identity,
            routes: Vec::new(),
            noted_ms: None,
            sighted_ms: None,
            hour_ms: 0,
            sighting: None,
            scrape: None,
            holders: Vec::new(),
        });
        id
    }

    /// Begins a scrape file.
    pub fn begin_scrape(&mut self) {
        self.device_rows = 0;
    }

    /// Ends a scrape file: one without a device row still says that its target was scraped.
    pub fn end_scrape(&mut self, target: &str, time_ms: Option<i64>) {
        if let Some(time_ms) = time_ms
            && self.device_rows == 0
            && admit_time(time_ms).is_ok()
        {
            let target = self.targets.entry(target.to_string()).or_default();
            target.scrapes.empty_times_ms.insert(time_ms);
        }
    }

    /// Takes one sample of text; `Ok(false)` if its labels make it none of ours.
    pub fn sample(&mut self, id: LabelSetId, metric: MetricId, time_ms: i64, number: &Number) -> Result<bool, Reason> {
        self.take(id, metric, time_ms, Value::Exact(number))
    }

    /// Takes one sample of a float column.
    pub fn sample_float(&mut self, id: LabelSetId, metric: MetricId, time_ms: i64, value: f64) -> Result<bool, Reason> {
        self.take(id, metric, time_ms, Value::Float(value))
    }

    /// All that was read.
    pub fn finish(self) -> Collected {
        let mut collected = Collected { exporter_pods: self.exporter_pods, ..Collected::default() };
        for ((key, is_secondary), column) in self.series.into_pairs() {
            let telemetry = &mut collected.telemetry;
            let into = if is_secondary { &mut telemetry.vgpu_series } else { &mut telemetry.series };
            if !column.times_ms.is_empty() {
                into.insert(key, column);
            }
        }
        collected.signal_parts = self.parts.into_pairs().filter(|part| !part.1.times_ms.is_empty()).collect();
        for (key, span) in self.sightings.into_pairs() {
            if let Some(span) = span {
                collected.telemetry.sightings.insert(key, span);
            }
        }
        collected.telemetry.holder_labels = self.holders.into_pairs().map(|(k, set)| (k, set.times_ms)).collect();
        collected.telemetry.scrapes = self.scrapes.into_pairs().map(|(k, set)| (k, set.times_ms)).collect();
        for (name, target) in self.targets {
            if target.scrapes != TargetScrapes::default() {
                collected.targets.insert(Host { cluster: self.cluster.clone(), name }, target.scrapes);
            }
        }
        collected
    }

    fn take(&mut self, id: LabelSetId, metric: MetricId, time_ms: i64, value: Value<'_>) -> Result<bool, Reason> {
        let at = id.0 as usize;
        let known = |sets: &[LabelSet]| match sets.get(at)?.routes.get(metric.index())? {
            Some(Routes::One(route)) => Some(Ok(*route)),
            Some(Routes::Several(routes)) => Some(Err(routes.clone())),
            None => None,
        };
        let routes = match known(&self.sets) {
            Some(routes) => routes,
            None => {
                self.add_routes(at, metric);
                known(&self.sets).unwrap_or(Err(Vec::new()))
            }
        };
        match routes {
            Ok(route) => self.follow(at, route, time_ms, value).map(|()| true),
            Err(routes) => {
                let mut is_ours = false;
                let mut first_reason = None;
                for route in routes {
                    match self.follow(at, route, time_ms, value) {
                        Ok(()) => is_ours = true,
                        Err(reason) => first_reason = first_reason.or(Some(reason)),
                    }
                }
                match first_reason {
                    Some(reason) if !is_ours => Err(reason),
                    _ => Ok(is_ours),
                }
            }
        }
    }

    fn follow(&mut self, at: usize, route: Route, time_ms: i64, value: Value<'_>) -> Result<(), Reason> {
        match route {
            Route::Refused(reason) => Err(reason),
            _ if admit_time(time_ms).is_err() => Err(Reason::TimeOutOfRange),
            Route::Device { slot, scale, field } => {
                self.note(at, time_ms);
                let steps = match value {
                    Value::Exact(number) => admit(field, &scale, number),
                    Value::Float(value) => admit_float(field, &scale, value),
                }?;
                if let Some(column) = self.series.get(slot) {
                    column.push(time_ms, steps);
                }
                self.sight(at, time_ms);
                Ok(())
            }
            Route::Signal { slot, scale } => {
                let number = match value {
                    Value::Exact(number) => *number,
                    Value::Float(value) => Number::from_f64(value),
                };
                let steps = admit_signal(&scale, &number)?;
                if let Some(column) = self.parts.get(slot) {
                    column.push(time_ms, steps);
                }
                Ok(())
            }
        }
    }

    fn add_routes(&mut self, at: usize, metric: MetricId) {
        let mut routes = Vec::new();
        let Some(set) = self.sets.get_mut(at) else { return };
        for mapping in NameTable::get().mappings(metric) {
            if let Some(condition) = &mapping.condition
                && !condition.holds(|name| set.labels.get(name))
            {
                continue;
            }
            let identity = &set.identity;
            routes.push(match mapping.destination {
                Destination::Device(field) => match &identity.unit {
                    None => Route::Refused(Reason::NoDevice),
                    Some(unit) => {
                        let instance = match field.scope() {
                            FieldScope::Unit => unit.instance.clone(),
                            // Board values repeat on the rows of a board's instances.
                            FieldScope::Board => None,
                        };
                        let key = SeriesKey {
                            host: identity.host.clone(),
                            unit: Unit { uuid: unit.uuid.clone(), instance },
                            field,
                            producer: identity.producer.clone(),
                        };
                        let is_secondary = identity.is_virtual || mapping.is_secondary;
                        Route::Device { slot: self.series.slot((key, is_secondary)), scale: mapping.scale, field }
                    }
                },
                Destination::Signal(part) => match signal_source(part, set) {
                    None => Route::Refused(Reason::NoHolder),
                    Some(source) => {
                        let key =
                            SignalPartKey { source, part, producer: identity.producer.clone(), key: set.labels.part_key(&mapping.parts) };
                        let target = self.targets.entry(set.target.clone()).or_default();
                        target.scrapes.gives_signals = true;
                        Route::Signal { slot: self.parts.slot(key), scale: mapping.scale }
                    }
                },
            });
        }
        if set.routes.len() <= metric.index() {
            set.routes.resize(metric.index() + 1, None);
        }
        if let Some(entry) = set.routes.get_mut(metric.index()) {
            *entry = Some(match routes.as_slice() {
                [route] => Routes::One(*route),
                _ => Routes::Several(routes),
            });
        }
    }

    /// A device row stands at this time: its producer was scraped, its labels stood.
    fn note(&mut self, at: usize, time_ms: i64) {
        self.device_rows += 1;
        let Some(set) = self.sets.get_mut(at) else { return };
        if set.noted_ms == Some(time_ms) {
            return;
        }
        set.noted_ms = Some(time_ms);
        let scrape = match set.scrape {
            Some(slot) => slot,
            None => {
                let producer = (set.identity.host.clone(), set.identity.producer.clone());
                let slot = self.scrapes.slot(producer.clone());
                set.scrape = Some(slot);
                let target = self.targets.entry(set.target.clone()).or_default();
                target.scrapes.producers.insert(producer);
                if let Some(unit) = &set.identity.unit {
                    let key = |label: &HolderLabel| (set.identity.host.clone(), unit.clone(), label.clone());
                    set.holders = set.identity.holders.iter().map(|label| self.holders.slot(key(label))).collect();
                }
                slot
            }
        };
        if let Some(times) = self.scrapes.get(scrape) {
            times.push(time_ms);
        }
        for slot in &set.holders {
            if let Some(times) = self.holders.get(*slot) {
                times.push(time_ms);
            }
        }
    }

    /// A sample was accepted at this time.
    fn sight(&mut self, at: usize, time_ms: i64) {
        let Some(set) = self.sets.get_mut(at) else { return };
        if set.sighted_ms == Some(time_ms) {
            return;
        }
        set.sighted_ms = Some(time_ms);
        let hour_ms = floor_to(time_ms, HOUR_MS);
        let slot = match set.sighting {
            Some(slot) if set.hour_ms == hour_ms => slot,
            _ => {
                let Some(unit) = &set.identity.unit else { return };
                let slot = self.sightings.slot(SightingKey {
                    host: set.identity.host.clone(),
                    unit: unit.clone(),
                    hour_ms,
                    index: set.identity.index,
                    model: set.identity.model.clone(),
                    profile: set.identity.profile.clone(),
                });
                set.hour_ms = hour_ms;
                set.sighting = Some(slot);
                slot
            }
        };
        if let Some(span) = self.sightings.get(slot) {
            let (first, last) = span.unwrap_or((time_ms, time_ms));
            *span = Some((first.min(time_ms), last.max(time_ms)));
        }
    }
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Exact(&'a Number),
    Float(f64),
}

fn signal_source(part: SignalPart, set: &LabelSet) -> Option<SignalSource> {
    use gpuledger_model::tables::telemetry::SignalField;
    let cluster = || set.identity.host.cluster.clone();
    let pod = || {
        let named = set.labels.pod();
        named.map(|(namespace, pod)| SignalSource::Pod { cluster: cluster(), namespace: namespace.into(), pod: pod.into() })
    };
    match part {
        SignalPart::Whole(SignalField::HostCpuTotal | SignalField::HostCpuIdle | SignalField::HostCpuIowait) => {
            Some(SignalSource::Host(set.identity.host.clone()))
        }
        SignalPart::Whole(SignalField::RequestsRunning | SignalField::RequestsWaiting) => {
            Some(pod().unwrap_or_else(|| SignalSource::Address(set.identity.address.clone())))
        }
        SignalPart::Whole(SignalField::HolderCpuUsed | SignalField::HolderCpuLimit) | SignalPart::CpuQuota | SignalPart::CpuPeriod => pod(),
    }
}
