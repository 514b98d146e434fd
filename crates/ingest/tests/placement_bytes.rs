//! No bytes make a placement parser panic, and what it gives does not depend on luck.

use gpuledger_ingest::{inventory, kubernetes, owners, slurm};
use jiff::tz::TimeZone;
use proptest::prelude::*;

fn read_everything(bytes: &[u8]) {
    let utc = TimeZone::UTC;
    let kubernetes = kubernetes::parse("f", bytes, "c", &kubernetes::Options::default());
    assert_eq!(kubernetes, kubernetes::parse("f", bytes, "c", &kubernetes::Options::default()));
    let _ = slurm::parse_sacct("f", bytes, "c", &utc);
    let _ = slurm::parse_scontrol("f", bytes, "c", &utc);
    let _ = inventory::parse("f", bytes);
    let _ = owners::parse("f", bytes);
}

/// Pieces that take a parser beyond its first line.
fn pieces() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "{\"kind\":\"Pod\",",
        "\"metadata\":{\"name\":\"p\",\"namespace\":\"n\",\"uid\":\"u\",\"annotations\":{\"gpu-fraction\":\"0.5\"}},",
        "\"spec\":{\"nodeName\":\"n\"},",
        "\"status\":{\"phase\":\"Failed\",\"startTime\":\"2026-10-06T09:00:00Z\"}}",
        "{\"items\":[",
        "]}",
        "}",
        "\n",
        "\r\n",
        "|",
        ",",
        "JobID|State|Start|End|NodeList|AllocTRES|JobName\n",
        "7|FAILED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu[1-3]|gres/gpu=4|a|b\n",
        "7|RUNNING|2026-10-06T09:00:00|Unknown|",
        "gpu[",
        "1-99999999",
        "]",
        "gres/gpu:h100=18446744073709551615",
        "JobId=1 JobState=RUNNING StartTime=2026-10-06T09:00:00 NodeList=gpu[1-2] TRES=gres/gpu=3\n",
        "   Nodes=gpu1 GRES=gpu:h100:2(IDX:0-1)\n",
        "NodeName=a Gres=gpu:1g.10gb:99999999999 CfgTRES=gres/gpu=1 State=DOWN*\n",
        "ReservationName=r StartTime=2026-10-06T09:00:00 Nodes=a TRES=gres/gpu=3\n",
        "node,instance_id,from,to\n",
        "gpu1,i-0abc,2026-10-06,\n",
        "\"",
        "[[rule]]\n",
        "namespace = \"*\"\n",
        "team = \"t\"\n",
        "label = {",
        "\u{feff}",
        "é",
    ]);
    prop::collection::vec(words, 0..24).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        read_everything(&bytes);
    }

    #[test]
    fn likely_texts_never_panic(text in pieces()) {
        read_everything(text.as_bytes());
    }

    #[test]
    fn damaged_texts_never_panic(text in pieces(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text.into_bytes();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_everything(&bytes);
    }
}

#[test]
fn huge_lines_are_refused_and_the_rest_is_kept() {
    let mut text = b"JobID|State|Start|End|NodeList|AllocTRES\n".to_vec();
    text.extend(vec![b'x'; 17 << 20]);
    text.extend(b"\n7|COMPLETED|2026-10-06T09:00:00|2026-10-06T10:00:00|gpu1|gres/gpu=1\n");
    let parsed = slurm::parse_sacct("f", &text, "c", &TimeZone::UTC);
    assert_eq!((parsed.value.holders.len(), parsed.rejects.len(), parsed.rejects[0].line), (1, 1, 2));
    let parsed = slurm::parse_scontrol("f", &text, "c", &TimeZone::UTC);
    assert!(!parsed.rejects.is_empty());
}
