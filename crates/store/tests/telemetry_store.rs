//! STORE-1 to STORE-3: the folder that keeps what was read.

use std::fs;
use std::path::{Path, PathBuf};

use gpuledger_ingest::focus::Assume;
use gpuledger_model::tables::reject::Reject;
use gpuledger_store::discover::PathSpec;
use gpuledger_store::folder::{Batch, Folder, StoreError};
use gpuledger_store::inputs::{Inputs, Progress, Request, read};
use gpuledger_store::keep::{Kept, refresh};

const START_S: i64 = 1_791_277_200;

fn scrape(step: i64) -> String {
    let mut text = String::new();
    for board in 0..2 {
        let labels = format!(
            "gpu=\"{board}\",UUID=\"GPU-0000000{board}-aaaa\",modelName=\"NVIDIA L4\",Hostname=\"n1\",namespace=\"ml\",pod=\"p{board}\""
        );
        text.push_str(&format!("DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} 0.{step}5\n"));
        text.push_str(&format!(
            "DCGM_FI_DEV_POWER_USAGE{{{labels}}} {}\n",
            if step == 3 { "NaN".to_string() } else { format!("{}.507", 90 + step) }
        ));
        text.push_str(&format!("DCGM_FI_DEV_FB_USED{{{labels},vgpu=\"0\",hpc_job=\"7\"}} {step}\n"));
    }
    text.push_str(&format!("node_cpu_seconds_total{{cpu=\"0\",mode=\"idle\",node=\"n1\"}} {}\n", 100 + step));
    text
}

const BILL: &str = "BilledCost,EffectiveCost,ListCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ResourceId,ProviderName,Tags\n\
1.2300000001,1.23,2,00123,USD,2026-10-01T00:00:00Z,2026-11-01T00:00:00Z,2026-10-06T09:00:00Z,2026-10-06T10:00:00Z,Usage,i-1,AWS,\"{\"\"a\"\":\"\"b\"\"}\"\n\
-0.5,-0.5,,00123,USD,2026-10-01T00:00:00Z,2026-11-01T00:00:00Z,2026-10-06T09:00:00Z,2026-10-06T10:00:00Z,Credit,,AWS,\n";

const DUMP: &str = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","uid":"u1","creationTimestamp":"2026-10-06T08:00:00Z"},"spec":{"providerID":"aws:///us-east-1a/i-1"},"status":{"capacity":{"nvidia.com/gpu":"2"},"allocatable":{"nvidia.com/gpu":"2"}}}]}"#;

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let world = World { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(world.path("scrapes/n1")).unwrap();
        for step in 0..5 {
            world.write(&format!("scrapes/n1/{}.prom", START_S + 15 * step), &scrape(step));
        }
        world.write(&format!("scrapes/n1/{}.prom", START_S + 75), "");
        world.write("dump.prom", &scrape(6).replace('\n', &format!(" {}\n", START_S + 90)));
        world.write("bill.csv", BILL);
        world.write("nodes.json", DUMP);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn request(&self, names: &[&str]) -> Request {
        let telemetry = names.iter().map(|name| PathSpec::parse(&self.path(name).display().to_string())).collect();
        Request { telemetry, assume: Assume::default(), ..Request::default() }
    }

    fn everything(&self) -> Request {
        self.request(&["scrapes", "dump.prom", "bill.csv", "nodes.json"])
    }
}

/// Opens, refreshes and closes; with the number of files that were opened to be read.
fn keep(root: &Path, request: &Request) -> (Kept, Inputs, usize) {
    let mut folder = Folder::open(root).unwrap();
    let mut files = 0;
    let kept = refresh(request, &mut folder, &mut |step| {
        if let Progress::Reading { total, .. } = step {
            files = total;
        }
    })
    .unwrap();
    let mut inputs = kept.inputs.clone();
    inputs.telemetry = kept.load_telemetry(&folder).unwrap();
    (kept, inputs, files)
}

fn assert_same(got: &Inputs, want: &Inputs) {
    assert!(got.telemetry == want.telemetry, "telemetry differs");
    assert_eq!(got.bills, want.bills);
    assert_eq!(got.placements, want.placements);
    assert_eq!(got.files, want.files);
    assert_eq!(got.rejects, want.rejects);
    assert_eq!(got.notices, want.notices);
}

#[test]
fn store_3_the_folder_gives_what_reading_gives_and_reads_only_what_changed() {
    let world = World::new();
    let root = world.path("store");
    let want = read(&world.everything(), &mut |_| {});
    assert!(!want.rejects.is_empty() && want.bills[0].charges.len() == 2 && want.placements.nodes.len() == 1);
    let (first, inputs, files) = keep(&root, &world.everything());
    assert_same(&inputs, &want);
    assert_eq!(files, 9);
    // Nothing has changed: nothing is opened.
    let (second, inputs, files) = keep(&root, &world.everything());
    assert_same(&inputs, &want);
    assert_eq!((files, &second.telemetry_id, &second.placements_id), (0, &first.telemetry_id, &first.placements_id));
    // Without any path, the folder alone gives it.
    let (_, inputs, files) = keep(&root, &Request::default());
    assert_same(&inputs, &want);
    assert_eq!(files, 0);
    // A late bill leaves telemetry alone.
    world.write("late.csv", &BILL.replace("00123", "00456"));
    let (late, inputs, files) = keep(&root, &world.request(&["late.csv"]));
    assert_eq!((files, inputs.bills.len(), &late.telemetry_id), (1, 2, &first.telemetry_id));
    // A scrape more is one day of scrapes read again, and a restated bill replaces the former.
    world.write(&format!("scrapes/n1/{}.prom", START_S + 60), &scrape(4));
    world.write(&format!("scrapes/n1/{}.prom", START_S + 120), &scrape(7));
    world.write("bill.csv", &BILL.replace("1.2300000001", "3.5"));
    let all = world.request(&["scrapes", "dump.prom", "bill.csv", "nodes.json", "late.csv"]);
    let (third, inputs, _) = keep(&root, &all);
    assert_same(&inputs, &read(&all, &mut |_| {}));
    assert_ne!(third.telemetry_id, first.telemetry_id);
}

#[test]
fn store_3_the_same_bytes_at_another_place_are_not_parsed_again() {
    let world = World::new();
    let root = world.path("store");
    let (first, ..) = keep(&root, &world.everything());
    fs::create_dir_all(world.path("copy/n1")).unwrap();
    for entry in fs::read_dir(world.path("scrapes/n1")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), world.path("copy/n1").join(entry.file_name())).unwrap();
    }
    fs::copy(world.path("bill.csv"), world.path("copy.csv")).unwrap();
    let (second, inputs, _) = keep(&root, &world.request(&["copy", "copy.csv"]));
    assert_eq!(second.telemetry_id, first.telemetry_id);
    assert_eq!(inputs.bills.len(), 1);
    assert!(inputs.notices.iter().any(|notice| notice.kind == "duplicate_file"));
}

#[test]
fn store_1_what_an_interrupted_run_left_is_not_seen() {
    let world = World::new();
    let root = world.path("store");
    let (_, want, _) = keep(&root, &world.everything());
    fs::write(root.join("tables/samples/half.tmp"), b"PAR1 half").unwrap();
    fs::write(root.join("tables/samples/whole-but-unnamed.parquet"), b"PAR1").unwrap();
    fs::write(root.join("catalog.json.tmp"), b"{").unwrap();
    let (_, inputs, files) = keep(&root, &world.everything());
    assert_same(&inputs, &want);
    assert_eq!(files, 0);
    assert!(!root.join("tables/samples/half.tmp").exists());
    assert!(!root.join("tables/samples/whole-but-unnamed.parquet").exists());
}

#[test]
fn store_2_a_batch_is_appended_once() {
    let world = World::new();
    let mut folder = Folder::open(&world.path("store")).unwrap();
    let row = |line: u64| Reject { file: "f".into(), line, field: String::new(), reason: "r".into(), count: 1 };
    let batch = |rows: &[Reject]| {
        let mut batch = Batch::new("one");
        batch.add_rows("rejects", rows).unwrap();
        batch
    };
    folder.append(vec![batch(&[row(1)])], Vec::new()).unwrap();
    folder.append(vec![batch(&[row(2), row(3)])], Vec::new()).unwrap();
    assert_eq!(folder.get_rows::<Reject>("rejects", "one").unwrap(), Some(vec![row(1)]));
    assert_eq!(folder.get_rows::<Reject>("rejects", "two").unwrap(), None);
    folder.put_rows("windows", "any key/with: signs", &[row(9)]).unwrap();
    folder.put_rows("windows", "b", &[] as &[Reject]).unwrap();
    assert_eq!(folder.get_rows::<Reject>("windows", "any key/with: signs").unwrap(), Some(vec![row(9)]));
    assert_eq!(folder.get_rows::<Reject>("windows", "b").unwrap(), Some(Vec::new()));
    folder.keep_only("windows", &["b"]).unwrap();
    assert!(!folder.has_table("windows", "any key/with: signs"));
}

#[test]
fn a_folder_of_others_or_in_use_is_refused() {
    let world = World::new();
    let root = world.path("store");
    let open = Folder::open(&root).unwrap();
    assert!(matches!(Folder::open(&root), Err(StoreError::InUse(_))));
    drop(open);
    fs::write(root.join("catalog.json"), r#"{"schema":"gpuledger.store/99","tables":{},"batches":{},"sources":{}}"#).unwrap();
    assert!(matches!(Folder::open(&root), Err(StoreError::Foreign { .. })));
    fs::write(root.join("catalog.json"), "not json").unwrap();
    let error = Folder::open(&root).unwrap_err().to_string();
    assert!(error.contains("catalog.json") && error.contains("remove this one"), "{error}");
}

/// Every table file of a store.
fn table_files(store: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in fs::read_dir(store.join("tables")).unwrap().flatten() {
        files.extend(fs::read_dir(folder.path()).unwrap().flatten().map(|file| file.path()));
    }
    files.sort();
    files
}

#[test]
fn store_a_table_that_was_cut_changed_swapped_or_removed_is_an_error() {
    let world = World::new();
    let store = world.path("store");
    let read_all = || -> Result<(), StoreError> {
        let mut folder = Folder::open(&store)?;
        let kept = refresh(&world.everything(), &mut folder, &mut |_| {})?;
        kept.load_telemetry(&folder).map(|_| ())
    };
    read_all().unwrap();
    let files = table_files(&store);
    assert!(files.len() > 5);
    for (at, file) in files.iter().enumerate() {
        let bytes = fs::read(file).unwrap();
        let mut changed = bytes.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        let other = fs::read(&files[(at + 1) % files.len()]).unwrap();
        for damage in [Some(&bytes[..bytes.len() / 2]), Some(&changed[..]), Some(&other[..]), Some(&b""[..]), None] {
            match damage {
                Some(damage) => fs::write(file, damage).unwrap(),
                None => fs::remove_file(file).unwrap(),
            }
            if damage == Some(&bytes[..]) {
                continue;
            }
            let error = read_all().unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains("remove the store folder to read the inputs anew"), "{error}");
        }
        fs::write(file, &bytes).unwrap();
    }
    read_all().unwrap();
}

#[test]
fn store_a_folder_of_somebody_else_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let theirs = folder.path().join("tables/sales/2026.parquet");
    fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    fs::write(&theirs, b"theirs").unwrap();
    let error = Folder::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
    // A first run that was cut off before it wrote anything is no reason to refuse.
    let fresh = tempfile::tempdir().unwrap();
    fs::write(fresh.path().join("lock"), b"").unwrap();
    fs::write(fresh.path().join("catalog.json.tmp"), b"{").unwrap();
    drop(Folder::open(fresh.path()).unwrap());
    drop(Folder::open(fresh.path()).unwrap());
}
