//! The machines of a world: on which cloud, under which scheduler, with which boards.

use gpuledger_model::accelerator;
use gpuledger_model::mig;
use gpuledger_model::money::Decimal;
use gpuledger_model::price::PriceList;
use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

use crate::chance::Chance;
use crate::options::{Fault, Options};

/// Which scheduler a cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Kubernetes.
    Kubernetes,
    /// Slurm.
    Slurm,
}

/// How the boards of a machine are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Whole.
    Whole,
    /// Cut into instances.
    Mig,
    /// Time-sliced between two pods.
    TimeSliced,
}

/// How a machine is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payment {
    /// At the list price.
    OnDemand,
    /// At the spot price.
    Spot,
    /// Covered by a commitment that is a little larger than it.
    Committed,
}

/// A part of a board that is held as one: the board, or an instance of it.
#[derive(Clone, Debug)]
pub struct Slot {
    /// GPU instance id and profile under MIG.
    pub instance: Option<(u32, &'static str)>,
    /// Share of the board, of [`SHARE_WHOLE`].
    pub share: u64,
    /// Usable memory, MiB.
    pub memory_mib: u64,
}

/// The whole board in shares: a multiple of every denominator that MIG and two sharers need.
pub const SHARE_WHOLE: u64 = 224;

/// A board.
#[derive(Clone, Debug)]
pub struct Board {
    /// `GPU-…`.
    pub uuid: String,
    /// The exporter's index.
    pub index: u32,
    /// What is held of it.
    pub slots: Vec<Slot>,
    /// Share that its layout leaves without an instance.
    pub stranded: u64,
}

impl Board {
    /// The device id of a slot.
    pub fn device(&self, slot: usize) -> String {
        match self.slots.get(slot).and_then(|s| s.instance) {
            Some((id, _)) => format!("{}/{id}", self.uuid),
            None => self.uuid.clone(),
        }
    }
}

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Cloud.
    pub cloud: Cloud,
    /// Cluster.
    pub cluster: &'static str,
    /// Its scheduler.
    pub scheduler: Scheduler,
    /// Node name.
    pub node: String,
    /// The node object's UID.
    pub uid: String,
    /// As the scheduler names the machine.
    pub provider_id: String,
    /// As the bill names it.
    pub resource_id: String,
    /// Its name in the bill.
    pub resource_name: String,
    /// Instance type.
    pub instance_type: &'static str,
    /// Region.
    pub region: &'static str,
    /// Zone.
    pub zone: String,
    /// List price, USD an hour.
    pub price: Decimal,
    /// How it is paid for.
    pub payment: Payment,
    /// Driver's name of the board.
    pub model_name: &'static str,
    /// Product label.
    pub product: &'static str,
    /// Limit of a board, W.
    pub limit_watts: u32,
    /// PCIe generation of the boards.
    pub pcie_generation: u32,
    /// vCPUs.
    pub vcpus: u32,
    /// Memory, GiB.
    pub memory_gib: u32,
    /// Boards.
    pub boards: Vec<Board>,
    /// How they are given out.
    pub sharing: Sharing,
    /// When the machine came, ms; may lie before the data.
    pub from_ms: i64,
    /// When it was closed to new work, ms.
    pub cordoned_from_ms: Option<i64>,
    /// The exporter's address.
    pub exporter: String,
    /// Scrape times are whole multiples of the interval plus this, ms.
    pub scrape_offset_ms: i64,
}

impl Machine {
    /// From when the machine is paid for within the data.
    pub fn paid_from_ms(&self, options: &Options) -> i64 {
        self.from_ms.max(options.start_ms)
    }
}

struct Blueprint {
    cloud: Cloud,
    cluster: &'static str,
    scheduler: Scheduler,
    instance_type: &'static str,
    region: &'static str,
    zone: &'static str,
    boards: u32,
    accelerator: &'static str,
    sharing: Sharing,
    payment: Payment,
    vcpus: u32,
    memory_gib: u32,
}

#[allow(clippy::too_many_arguments)]
const fn blueprint(
    cloud: Cloud,
    cluster: &'static str,
    scheduler: Scheduler,
    instance_type: &'static str,
    place: (&'static str, &'static str),
    boards: (u32, &'static str),
    sharing: Sharing,
    payment: Payment,
    host: (u32, u32),
) -> Blueprint {
    Blueprint {
        cloud,
        cluster,
        scheduler,
        instance_type,
        region: place.0,
        zone: place.1,
        boards: boards.0,
        accelerator: boards.1,
        sharing,
        payment,
        vcpus: host.0,
        memory_gib: host.1,
    }
}

use Payment::{Committed, OnDemand, Spot};
use Scheduler::{Kubernetes, Slurm};
use Sharing::{Mig, TimeSliced, Whole};

const SMALL: [Blueprint; 3] = [
    blueprint(
        Cloud::Gcp,
        "tune-gke",
        Kubernetes,
        "a2-highgpu-2g",
        ("us-central1", "us-central1-a"),
        (2, "a100-sxm4-40"),
        Mig,
        OnDemand,
        (24, 170),
    ),
    blueprint(
        Cloud::Azure,
        "north-aks",
        Kubernetes,
        "Standard_NC24ads_A100_v4",
        ("eastus", "eastus-1"),
        (1, "a100-pcie-80"),
        TimeSliced,
        OnDemand,
        (24, 220),
    ),
    blueprint(Cloud::Aws, "west-eks", Kubernetes, "g6.xlarge", ("us-east-1", "us-east-1a"), (1, "l4"), Whole, Spot, (4, 16)),
];

const LARGE: [Blueprint; 4] = [
    blueprint(
        Cloud::Aws,
        "west-eks",
        Kubernetes,
        "p5.48xlarge",
        ("us-east-1", "us-east-1a"),
        (8, "h100-sxm5"),
        Whole,
        Committed,
        (192, 2048),
    ),
    blueprint(
        Cloud::Azure,
        "north-aks",
        Kubernetes,
        "Standard_ND96isr_H100_v5",
        ("eastus", "eastus-1"),
        (8, "h100-sxm5"),
        Whole,
        OnDemand,
        (96, 1900),
    ),
    blueprint(
        Cloud::Gcp,
        "tune-gke",
        Kubernetes,
        "a3-highgpu-8g",
        ("us-central1", "us-central1-a"),
        (8, "h100-sxm5"),
        Whole,
        OnDemand,
        (208, 1872),
    ),
    blueprint(
        Cloud::Aws,
        "west-eks",
        Kubernetes,
        "p4d.24xlarge",
        ("us-east-1", "us-east-1b"),
        (8, "a100-sxm4-40"),
        Whole,
        OnDemand,
        (96, 1152),
    ),
];

const BATCH: Blueprint =
    blueprint(Cloud::Oracle, "hpc", Slurm, "BM.GPU.H100.8", ("us-ashburn-1", "AD-1"), (8, "h100-sxm5"), Whole, OnDemand, (224, 2048));

/// MIG layouts: instance id and profile. The second leaves a compute slice without an instance.
const LAYOUTS: [&[(u32, &str)]; 2] = [&[(2, "3g.20gb"), (3, "2g.10gb"), (9, "1g.5gb"), (10, "1g.5gb")], &[(1, "3g.20gb"), (2, "3g.20gb")]];

/// The machines of a seed: the small ones, a Slurm machine, and large ones until there are enough boards.
pub fn fleet(seed: u64, options: &Options, chance: &mut Chance) -> Vec<Machine> {
    let mut order: Vec<&Blueprint> = Vec::new();
    let turn = seed as usize % LARGE.len();
    let mut large = (0..).map(|at| if at % 5 == 4 { &BATCH } else { &LARGE[(turn + at - at / 5) % LARGE.len()] });
    let wanted = |order: &[&Blueprint]| order.iter().map(|b| b.boards).sum::<u32>() < options.gpus;
    if options.gpus >= 12 {
        order.extend(SMALL.iter());
        order.push(&BATCH);
    }
    while wanted(&order)
        && let Some(next) = large.next()
    {
        order.push(next);
    }
    let prices = PriceList::bundled();
    order.iter().enumerate().map(|(at, blueprint)| machine(at, blueprint, options, &prices, chance)).collect()
}

fn machine(at: usize, blueprint: &Blueprint, options: &Options, prices: &PriceList, chance: &mut Chance) -> Machine {
    let model = accelerator::by_name(blueprint.accelerator);
    let memory_mib = model.and_then(|m| m.memory_mib).unwrap_or(81_920);
    let limit_watts = model.and_then(|m| m.tdp_watts).unwrap_or(400) as u32;
    let price = prices.find(None, blueprint.instance_type, Some(blueprint.region)).and_then(|p| p.on_demand_usd_per_hour);
    let sharing = match blueprint.sharing {
        Sharing::Mig if !options.has(Fault::Mig) => Sharing::Whole,
        Sharing::TimeSliced if !options.has(Fault::TimeSlicing) => Sharing::Whole,
        sharing => sharing,
    };
    let number = at + 1;
    let (node, provider_id, resource_id, resource_name) = names(blueprint, number, chance);
    let (model_name, product) = driver_names(blueprint.accelerator);
    let boards = (0..blueprint.boards).map(|index| board(index, sharing, memory_mib, chance)).collect();
    // A machine that came with the autoscaler during the first day is billed by the part of the hour.
    let from_ms = if blueprint.payment == Spot {
        options.start_ms + 5 * HOUR_MS + chance.between(5, 50) * MINUTE_MS + 30 * SECOND_MS
    } else {
        options.start_ms - chance.between(3, 40) * DAY_MS + chance.between(0, 86_399) * SECOND_MS
    };
    Machine {
        cloud: blueprint.cloud,
        cluster: blueprint.cluster,
        scheduler: blueprint.scheduler,
        node,
        uid: chance.uuid(),
        provider_id,
        resource_id,
        resource_name,
        instance_type: blueprint.instance_type,
        region: blueprint.region,
        zone: blueprint.zone.to_string(),
        price: price.unwrap_or(Decimal { mantissa: 40, scale: 0 }),
        payment: blueprint.payment,
        model_name,
        product,
        limit_watts,
        pcie_generation: model.and_then(|m| m.pcie_gen).unwrap_or(4) as u32,
        vcpus: blueprint.vcpus,
        memory_gib: blueprint.memory_gib,
        boards,
        sharing,
        from_ms,
        cordoned_from_ms: None,
        exporter: format!("10.{}.{}.{}:9400", 20 + number / 200, number % 200, 10 + chance.below(200)),
        scrape_offset_ms: i64::from(chance.below(15)) * SECOND_MS + i64::from(chance.below(1000)),
    }
}

fn board(index: u32, sharing: Sharing, memory_mib: u64, chance: &mut Chance) -> Board {
    let uuid = format!("GPU-{}", chance.uuid());
    if sharing != Sharing::Mig {
        return Board { uuid, index, slots: vec![Slot { instance: None, share: SHARE_WHOLE, memory_mib }], stranded: 0 };
    }
    let layout = LAYOUTS[index as usize % LAYOUTS.len()];
    let slots: Vec<Slot> = layout
        .iter()
        .map(|(id, profile)| {
            let known = mig::profile(profile, Some("NVIDIA A100-SXM4-40GB"));
            let share = known.map(|p| p.share()).map_or(0, |s| SHARE_WHOLE * s.numerator / s.denominator);
            Slot { instance: Some((*id, *profile)), share, memory_mib: known.and_then(|p| p.memory_mib).unwrap_or(memory_mib / 8) }
        })
        .collect();
    let held: u64 = slots.iter().map(|s| s.share).sum();
    Board { uuid, index, slots, stranded: SHARE_WHOLE.saturating_sub(held) }
}

fn driver_names(accelerator: &str) -> (&'static str, &'static str) {
    match accelerator {
        "h100-sxm5" => ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"),
        "a100-sxm4-40" => ("NVIDIA A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB"),
        "a100-pcie-80" => ("NVIDIA A100 80GB PCIe", "NVIDIA-A100-80GB-PCIe"),
        _ => ("NVIDIA L4", "NVIDIA-L4"),
    }
}

/// Subscription of the Azure account.
pub const AZURE_SUBSCRIPTION: &str = "5f2c1a90-7d3e-4b6f-8a21-9c0d4e5f6a7b";
/// Google project.
pub const GOOGLE_PROJECT: &str = "atlas-tune";

/// Node name, the scheduler's machine id, the bill's ResourceId and ResourceName.
fn names(blueprint: &Blueprint, number: usize, chance: &mut Chance) -> (String, String, String, String) {
    match blueprint.cloud {
        Cloud::Aws => {
            let id = format!("i-0{}", chance.hex(16));
            let node = format!("ip-10-0-{number}-{}.ec2.internal", 10 + chance.below(200));
            let arn = format!("arn:aws:ec2:{}:111122223333:instance/{id}", blueprint.region);
            (node.clone(), format!("aws:///{}/{id}", blueprint.zone), arn, node)
        }
        Cloud::Azure => {
            let set = format!("aks-gpu{number}-{}-vmss", 10_000_000 + chance.below(80_000_000));
            let index = chance.below(30);
            let head = format!(
                "/subscriptions/{AZURE_SUBSCRIPTION}/resourceGroups/MC_north/providers/Microsoft.Compute/virtualMachineScaleSets/{set}"
            );
            // The node is named by the instance's number in base 36; the bill names the instance as `<set>_<number>`.
            let node = format!("{set}{}", base36(index, 6));
            (
                node,
                format!("azure://{head}/virtualMachines/{index}"),
                format!("{head}/virtualMachines/{set}_{index}"),
                format!("{set}_{index}"),
            )
        }
        Cloud::Gcp => {
            let name = format!("gke-tune-gpu-{}-{}", chance.hex(8), number);
            let path = format!("projects/{GOOGLE_PROJECT}/zones/{}/instances/{name}", blueprint.zone);
            (name.clone(), format!("gce://{GOOGLE_PROJECT}/{}/{name}", blueprint.zone), format!("//compute.googleapis.com/{path}"), name)
        }
        Cloud::Oracle | Cloud::Other => {
            let ocid = format!("ocid1.instance.oc1.iad.{}", chance.hex(56));
            let node = format!("gpu-{number:03}");
            (node.clone(), ocid.clone(), ocid, node)
        }
    }
}

fn base36(mut number: u32, width: usize) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut text = vec![b'0'; width];
    for place in text.iter_mut().rev() {
        *place = DIGITS[number as usize % 36];
        number /= 36;
    }
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_has_its_boards_on_four_clouds() {
        let options = Options::demo();
        for seed in 0..5 {
            let machines = fleet(seed, &options, &mut Chance::new(seed, 1));
            assert!(machines.iter().map(|m| m.boards.len()).sum::<usize>() >= 64);
            for cloud in [Cloud::Aws, Cloud::Azure, Cloud::Gcp, Cloud::Oracle] {
                assert!(machines.iter().any(|m| m.cloud == cloud), "{cloud:?}");
            }
            assert!(machines.iter().any(|m| m.scheduler == Scheduler::Slurm));
            assert!(machines.iter().any(|m| m.sharing == Sharing::Mig && m.boards.iter().any(|b| b.stranded > 0)));
            for board in machines.iter().flat_map(|m| &m.boards) {
                assert_eq!(board.slots.iter().map(|s| s.share).sum::<u64>() + board.stranded, SHARE_WHOLE);
                assert!(board.slots.iter().all(|s| s.share > 0));
            }
            for machine in &machines {
                let bill = gpuledger_model::machine::reduce(&machine.resource_id);
                assert_eq!(bill.id, gpuledger_model::machine::reduce(&machine.provider_id).id);
            }
        }
    }
}
