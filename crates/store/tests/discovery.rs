//! What is no file is no input, and what cannot be recognised says why.

use std::fs;
use std::path::Path;
use std::process::Command;

use gpuledger_store::discover::{Found, PathSpec, find};

fn find_path(path: &Path) -> Found {
    find(&[PathSpec::parse(&path.display().to_string())])
}

#[test]
#[cfg(unix)]
fn pipes_and_devices_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("bill.csv");
    if !Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
        println!("no mkfifo here: not tested");
        return;
    }
    for found in [
        find_path(&pipe),
        find(&[PathSpec::parse(&format!("focus={}", pipe.display()))]),
        find_path(&folder.path().join("*.csv")),
        find_path(Path::new("/dev/zero")),
    ] {
        assert!(found.files.is_empty());
        assert_eq!(found.rejects.len(), 1);
        assert!(found.rejects[0].reason.contains("pipe or a device"), "{:?}", found.rejects);
    }
    // In a folder they are passed over.
    let found = find_path(folder.path());
    assert!(found.files.is_empty() && found.rejects.is_empty());
}

#[test]
fn a_table_whose_header_cannot_be_read_says_why() {
    let columns = "BilledCost,EffectiveCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,\
                   ChargePeriodStart,ChargePeriodEnd,ChargeCategory";
    let folder = tempfile::tempdir().unwrap();
    for (text, reason) in [
        (columns.replace(',', ";") + "\n", "separated by ';'"),
        (columns.replace(',', "\t") + "\n", "separated by '\\t'"),
        (format!("{columns}\n1\0,"), "zero bytes"),
        (format!("{columns},{}\n", "x,".repeat(100_000)), "too long for a header"),
    ] {
        let path = folder.path().join("bill.csv");
        fs::write(&path, text).unwrap();
        for found in [find_path(&path), find_path(folder.path())] {
            assert!(found.files.is_empty() && found.notices.is_empty());
            assert!(found.rejects[0].reason.contains(reason), "{:?}", found.rejects);
        }
    }
    fs::write(folder.path().join("bill.csv"), "a,b\n1,2\n").unwrap();
    assert_eq!(find_path(folder.path()).notices.len(), 1, "another table is no mistake");
}
