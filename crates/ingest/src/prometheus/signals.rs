//! From the parts of a signal (one per processor, container or engine) to the signal.

use std::collections::BTreeMap;

use gpuledger_model::tables::telemetry::{Column, SignalField, SignalSource};

use super::collected::SignalPartKey;
use super::names::SignalPart;

/// Sums the parts of each signal: gauges at equal times; counters by their increases, so that a part that
/// begins, ends or restarts is no jump of the sum. Where several producers give one signal, the one with
/// the most samples gives it, then the smaller name.
pub fn sum_parts(parts: &BTreeMap<SignalPartKey, Column>) -> BTreeMap<(SignalSource, SignalField), Column> {
    let mut groups: BTreeMap<(SignalSource, SignalField, &str), Vec<&Column>> = BTreeMap::new();
    let limits = limits_from_quotas(parts);
    for (key, column) in parts {
        if let SignalPart::Whole(field) = key.part {
            groups.entry((key.source.clone(), field, &key.producer)).or_default().push(column);
        }
    }
    for ((source, producer), columns) in &limits {
        groups.entry((source.clone(), SignalField::HolderCpuLimit, producer)).or_insert_with(|| columns.iter().collect());
    }
    let mut best: BTreeMap<(SignalSource, SignalField), Column> = BTreeMap::new();
    for ((source, field, _), columns) in groups {
        let sum = if is_counter(field) { sum_of_increases(&columns) } else { sum_of_values(&columns) };
        if sum.times_ms.is_empty() {
            continue;
        }
        // Groups come in the order of the producers' names, so that an equal count leaves the smaller.
        match best.get_mut(&(source.clone(), field)) {
            Some(own) if own.times_ms.len() >= sum.times_ms.len() => {}
            Some(own) => *own = sum,
            None => {
                best.insert((source, field), sum);
            }
        }
    }
    best
}

fn is_counter(field: SignalField) -> bool {
    match field {
        SignalField::HostCpuTotal | SignalField::HostCpuIdle | SignalField::HostCpuIowait | SignalField::HolderCpuUsed => true,
        SignalField::HolderCpuLimit | SignalField::RequestsRunning | SignalField::RequestsWaiting => false,
    }
}

fn limits_from_quotas(parts: &BTreeMap<SignalPartKey, Column>) -> BTreeMap<(SignalSource, String), Vec<Column>> {
    let mut limits: BTreeMap<(SignalSource, String), Vec<Column>> = BTreeMap::new();
    for (key, quota) in parts {
        if key.part != SignalPart::CpuQuota {
            continue;
        }
        let period_key = SignalPartKey { part: SignalPart::CpuPeriod, ..key.clone() };
        let Some(period) = parts.get(&period_key) else { continue };
        let mut limit = Column::default();
        for (time_ms, quota) in quota.times_ms.iter().zip(&quota.values) {
            let Ok(at) = period.times_ms.binary_search(time_ms) else { continue };
            let period = period.values.get(at).copied().unwrap_or(0);
            if period > 0
                && let Ok(cores) = i64::try_from(i128::from(*quota) * 1_000_000 / i128::from(period))
            {
                limit.push(*time_ms, cores);
            }
        }
        limits.entry((key.source.clone(), key.producer.clone())).or_default().push(limit);
    }
    limits
}

fn sum_of_values(columns: &[&Column]) -> Column {
    let mut sums: BTreeMap<i64, i64> = BTreeMap::new();
    for column in columns {
        for (time_ms, value) in column.times_ms.iter().zip(&column.values) {
            let sum = sums.entry(*time_ms).or_insert(0);
            *sum = sum.saturating_add(*value);
        }
    }
    Column { times_ms: sums.keys().copied().collect(), values: sums.values().copied().collect() }
}

fn sum_of_increases(columns: &[&Column]) -> Column {
    let mut increases: BTreeMap<i64, i64> = BTreeMap::new();
    for column in columns {
        let mut before: Option<i64> = None;
        for (time_ms, value) in column.times_ms.iter().zip(&column.values) {
            let increase = before.map_or(0, |before| value.saturating_sub(before).max(0));
            let sum = increases.entry(*time_ms).or_insert(0);
            *sum = sum.saturating_add(increase);
            before = Some(*value);
        }
    }
    let mut total = 0i64;
    let mut out = Column::default();
    for (time_ms, increase) in increases {
        total = total.saturating_add(increase);
        out.push(time_ms, total);
    }
    out
}
