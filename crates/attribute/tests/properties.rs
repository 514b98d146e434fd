//! Properties of the accounting over random worlds, named after the invariants they guard.

use std::collections::BTreeMap;

use gpuledger_attribute::rules::RuleBook;
use gpuledger_attribute::{Attribution, Input, attribute};
use gpuledger_model::money::Decimal;
use gpuledger_model::price::PriceList;
use gpuledger_model::tables::charge::{Charge, ChargeCategory, Cloud, Scope};
use gpuledger_model::tables::placement::{Holder, Node, NodeClaim, Outcome, Placements, RecordKind};
use gpuledger_model::tables::telemetry::{Column, Field, HolderLabel, Host, SeriesKey, SightingKey, Telemetry, Unit};
use gpuledger_model::time::{HOUR_MS, floor_to};
use proptest::prelude::*;

const START_MS: i64 = 497_000 * HOUR_MS;

#[derive(Clone, Debug)]
struct World {
    charges: Vec<Charge>,
    placements: Placements,
    telemetry: Telemetry,
}

fn charge(number: usize, raw: (u8, i64, u8, i64, i64, u8, u8)) -> Charge {
    let (kind, mantissa, scale, from_minutes, minutes, machine, status) = raw;
    let category = [
        ChargeCategory::Usage,
        ChargeCategory::Usage,
        ChargeCategory::Usage,
        ChargeCategory::Purchase,
        ChargeCategory::Tax,
        ChargeCategory::Credit,
        ChargeCategory::Adjustment,
    ][kind as usize % 7];
    let effective = Decimal { mantissa: i128::from(mantissa), scale: scale % 16 };
    let from = START_MS + from_minutes * 60_000;
    let usage = category == ChargeCategory::Usage;
    Charge {
        file: format!("bill-{}.csv", number % 3),
        line: number as u64,
        scope: Scope {
            provider: "AWS".into(),
            account: format!("00{}", number % 2),
            period: "2026-09".into(),
            currency: if number.is_multiple_of(5) { "EUR" } else { "USD" }.into(),
        },
        cloud: Cloud::Aws,
        billing_from_ms: START_MS,
        billing_to_ms: START_MS + 720 * HOUR_MS,
        charge_from_ms: from,
        charge_to_ms: from + minutes * 60_000,
        category,
        is_correction: status.is_multiple_of(7),
        billed: effective,
        effective,
        list: None,
        contracted: None,
        invoice_id: None,
        invoice_issuer: None,
        sub_account_id: None,
        service_name: Some(if status.is_multiple_of(11) { "AWS Support" } else { "AmazonEC2" }.into()),
        service_category: Some(if status.is_multiple_of(5) { "Storage" } else { "Compute" }.into()),
        resource_id: usage.then(|| format!("i-{machine}")),
        resource_name: None,
        resource_type: None,
        region_id: None,
        availability_zone: None,
        sku_id: None,
        sku_meter: (machine.is_multiple_of(2)).then(|| "BoxUsage:p4d.24xlarge".into()),
        sku_price_id: None,
        sku_price_details: None,
        charge_description: None,
        pricing_category: None,
        pricing_quantity: None,
        pricing_unit: None,
        consumed_quantity: (!status.is_multiple_of(3)).then_some(Decimal { mantissa: i128::from(minutes) * 100 / 60, scale: 2 }),
        consumed_unit: Some("Hours".into()),
        commitment_id: None,
        commitment_status: (status == 1).then(|| "Unused".into()),
        commitment_type: None,
        capacity_reservation_id: None,
        capacity_reservation_status: (status == 2).then(|| "Unused".into()),
        tags: None,
        extra: None,
    }
}

fn node(machine: u8, devices: u32, record: RecordKind) -> Node {
    Node {
        cluster: "c".into(),
        name: format!("n{machine}"),
        uid: None,
        record,
        machine_id: Some(format!("i-{machine}")),
        cloud: Some(Cloud::Aws),
        instance_type: (machine.is_multiple_of(3)).then(|| "p4d.24xlarge".into()),
        region: None,
        from_ms: (machine.is_multiple_of(2)).then_some(START_MS + 600_000),
        to_ms: None,
        capacity_devices: Some(devices),
        allocatable_devices: Some(devices.saturating_sub(u32::from(machine % 4 == 1))),
        replicas: 1 + u32::from(machine % 3),
        mig_single_profile: None,
        mig_resources: Vec::new(),
        accelerator_model: None,
        is_cordoned: machine % 5 == 4,
        cordoned_from_ms: None,
        last_record_ms: Some(START_MS + HOUR_MS),
        labels: BTreeMap::new(),
    }
}

fn holder(number: usize, raw: (u8, u32, i64, i64, u8)) -> Holder {
    let (machine, count, from, minutes, outcome) = raw;
    let outcomes = [Outcome::Alive, Outcome::Succeeded, Outcome::Failed, Outcome::Preempted, Outcome::Cancelled];
    let outcome = outcomes[outcome as usize % 5];
    Holder {
        key: format!("k8s/c/ns/p{number}/u{number}"),
        record: if machine.is_multiple_of(2) { RecordKind::KubernetesDump } else { RecordKind::SlurmAccounting },
        cluster: "c".into(),
        namespace: Some("ns".into()),
        account: None,
        user: None,
        name: format!("p{number}"),
        uid: format!("u{number}"),
        claims: vec![NodeClaim {
            node: format!("n{machine}"),
            count: 1 + count % 4,
            mig_profile: (number % 9 == 8).then(|| "1g.5gb".into()),
            device_indices: if number % 4 == 3 { vec![count % 3] } else { Vec::new() },
            device_uuids: Vec::new(),
            fraction_ppm: (number % 5 == 4).then_some(300_000 + count * 137),
        }],
        from_ms: START_MS + from * 1_000,
        to_ms: (outcome != Outcome::Alive).then_some(START_MS + from * 1_000 + minutes * 61_003),
        outcome,
        run: format!("r{}", number % 3),
        workload: "Job/r".into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        addresses: Vec::new(),
        bandwidth_expected: number.is_multiple_of(2),
        standby_declared: number.is_multiple_of(7),
        checkpoints_ms: if number.is_multiple_of(3) { vec![START_MS + from * 1_000 + 777_777] } else { Vec::new() },
        resumed_from_ms: None,
        recompute_until_ms: None,
        last_record_ms: None,
    }
}

/// Machine, board, samples (gap, value), instance.
type UnitSeed = (u8, u8, Vec<(u16, u32)>, u8);

fn telemetry(units: &[UnitSeed]) -> Telemetry {
    let mut out = Telemetry::default();
    for (machine, gpu, samples, instance) in units {
        let host = Host { cluster: None, name: format!("n{machine}") };
        let unit = Unit { uuid: format!("GPU-{machine}-{}", gpu % 9), instance: (instance % 5 == 4).then(|| format!("{}", instance % 3)) };
        let fields = [Field::Engine, Field::SmActive, Field::Tensor, Field::Dram, Field::PowerWatts, Field::Util, Field::MemoryUsed];
        let mut time = START_MS + i64::from(*gpu) * 1_234;
        for (gap, value) in samples {
            time += 15_000 + i64::from(*gap) * 500;
            for (at, field) in fields.iter().enumerate() {
                if (value >> at) & 1 == 1 {
                    continue;
                }
                let unit = if matches!(field, Field::PowerWatts) { Unit { uuid: unit.uuid.clone(), instance: None } } else { unit.clone() };
                let key = SeriesKey { host: host.clone(), unit, field: *field, producer: format!("x{}", gpu % 2) };
                out.series.entry(key).or_insert_with(Column::default).push(time, i64::from(value % 1_000_001));
            }
            let key = SightingKey {
                host: host.clone(),
                unit: unit.clone(),
                hour_ms: floor_to(time, HOUR_MS),
                index: Some(u32::from(gpu % 9)),
                model: Some("NVIDIA A100-SXM4-40GB".into()),
                profile: unit.instance.as_ref().map(|_| "1g.5gb".into()),
            };
            let slot = out.sightings.entry(key).or_insert((time, time));
            *slot = (slot.0.min(time), slot.1.max(time));
            out.scrapes.entry((host.clone(), format!("x{}", gpu % 2))).or_default().push(time);
            if value.is_multiple_of(3) {
                let label = HolderLabel::Pod { namespace: "ns".into(), pod: format!("p{}", value % 8) };
                out.holder_labels.entry((host.clone(), unit.clone(), label)).or_default().push(time);
            }
        }
    }
    out.canonicalize();
    out
}

prop_compose! {
    fn world()(
        charges in prop::collection::vec((0u8..7, -4_000_000i64..40_000_000, 0u8..16, 0i64..600, 0i64..1_500, 0u8..6, 0u8..12), 1..25),
        nodes in prop::collection::btree_map(0u8..6, (0u32..9, any::<bool>()), 0..5),
        holders in prop::collection::vec((0u8..6, 0u32..9, 0i64..20_000, 0i64..300, 0u8..5), 0..12),
        units in prop::collection::vec((0u8..6, 0u8..18, prop::collection::vec((0u16..900, any::<u32>()), 0..60), 0u8..10), 0..8),
    ) -> World {
        let mut charges: Vec<Charge> = charges.into_iter().enumerate().map(|(at, raw)| charge(at, raw)).collect();
        charges.sort_by_key(Charge::content_key);
        let nodes = nodes.into_iter().map(|(machine, (devices, slurm))| {
            node(machine, devices, if slurm { RecordKind::SlurmAccounting } else { RecordKind::KubernetesDump })
        }).collect();
        let holders = holders.into_iter().enumerate().map(|(at, raw)| holder(at, raw)).collect();
        World { charges, placements: Placements { nodes, holders, reservations: Vec::new() }, telemetry: telemetry(&units) }
    }
}

fn run(world: &World) -> Attribution {
    let prices = PriceList::bundled();
    let book = RuleBook::shipped();
    attribute(&world.telemetry, &Input { placements: &world.placements, charges: &world.charges, prices: &prices, book: &book })
}

fn total(result: &Attribution, currency: &str) -> Decimal {
    result.ledger.postings.iter().filter(|p| p.scope.currency == currency).fold(Decimal::ZERO, |sum, p| sum.checked_add(p.amount).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn attr_1_postings_sum_to_the_bill_in_its_own_digits(world in world()) {
        let result = run(&world);
        for closing in &result.ledger.closings {
            prop_assert!(closing.difference.is_zero(), "{closing:?}");
        }
        let mut pools: BTreeMap<&str, Decimal> = BTreeMap::new();
        for posting in &result.ledger.postings {
            let slot = pools.entry(&posting.pool).or_insert(Decimal::ZERO);
            *slot = slot.checked_add(posting.amount).unwrap();
        }
        // Row by row, not only in sum.
        let mut rows: Vec<Decimal> = world.charges.iter().map(|c| c.effective).filter(|d| !d.is_zero()).collect();
        let mut posted: Vec<Decimal> = pools.iter().filter(|(id, _)| !id.starts_with("estimate.")).map(|(_, d)| *d).filter(|d| !d.is_zero()).collect();
        rows.sort();
        posted.sort();
        prop_assert_eq!(rows, posted);
    }

    #[test]
    fn attr_2_same_inputs_same_bytes(world in world()) {
        let (a, b) = (run(&world), run(&world));
        prop_assert_eq!(a.ledger, b.ledger);
    }

    #[test]
    fn attr_3_each_posting_names_its_rule(world in world()) {
        for posting in run(&world).ledger.postings {
            prop_assert!(posting.rule.ends_with("@1") && posting.rule.len() > 2, "{:?}", posting);
        }
    }

    #[test]
    fn device_time_of_an_hour_is_counted_once(world in world()) {
        let result = run(&world);
        let mut hours: BTreeMap<(&str, i64), i64> = BTreeMap::new();
        for posting in &result.ledger.postings {
            prop_assert!(posting.device_ms >= 0);
            let board = posting.device.split('/').next().unwrap();
            if !board.is_empty() {
                *hours.entry((board, posting.hour_ms)).or_default() += posting.device_ms;
            }
        }
        for ((board, hour), ms) in hours {
            prop_assert!(ms <= HOUR_MS, "{board} {hour}: {ms} ms");
        }
    }

    #[test]
    fn adding_telemetry_never_raises_a_total(world in world()) {
        let without = World { telemetry: Telemetry::default(), ..world.clone() };
        let (with, without) = (run(&world), run(&without));
        for currency in ["USD", "EUR"] {
            let billed = |r: &Attribution| r.ledger.closings.iter().filter(|c| c.state != "estimated" && c.scope.currency == currency)
                .fold(Decimal::ZERO, |sum, c| sum.checked_add(c.posted).unwrap());
            prop_assert_eq!(billed(&with), billed(&without));
        }
        prop_assert!(total(&with, "EUR") == total(&without, "EUR"));
    }
}
