//! `== telemetry`: lines of ranges and values become samples under the exporter's own names and units.

use super::format::{Line, Mistake, Read, Scenario, Section, fields, mistake, words};

/// One sample, before it is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    pub metric: String,
    pub labels: Vec<(String, String)>,
    pub time_ms: i64,
    pub value: String,
}

/// How samples are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One file whose lines carry timestamps.
    Text,
    /// A folder with one file per scrape.
    Scrapes,
}

/// Everything of one target.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name of the file or folder.
    pub name: String,
    /// The cluster that its path is given with.
    pub cluster: Option<String>,
    pub form: Form,
    pub samples: Vec<Sample>,
    /// Scrapes that may hold nothing.
    pub scrapes_ms: Vec<i64>,
}

/// Short name, name before DCGM 4.6, name since.
const FIELDS: &[(&str, &str, &str)] = &[
    ("engine", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"),
    ("sm", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"),
    ("occupancy", "DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO"),
    ("tensor", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"),
    ("dram", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"),
    ("fp64", "DCGM_FI_PROF_PIPE_FP64_ACTIVE", "DCGM_FI_PROF_FP64_UTIL_RATIO"),
    ("fp32", "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DCGM_FI_PROF_FP32_UTIL_RATIO"),
    ("fp16", "DCGM_FI_PROF_PIPE_FP16_ACTIVE", "DCGM_FI_PROF_FP16_UTIL_RATIO"),
    ("util", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"),
    ("pcie_tx", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES"),
    ("pcie_rx", "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES"),
    ("nvlink_tx", "DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_PROF_NVLINK_TX_BYTES"),
    ("nvlink_rx", "DCGM_FI_PROF_NVLINK_RX_BYTES", "DCGM_FI_PROF_NVLINK_RX_BYTES"),
    ("power", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
    ("limit", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"),
    ("energy", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"),
    ("used", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED"),
    ("free", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_FREE"),
    ("reserved", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_RESERVED"),
    ("link_gen", "DCGM_FI_DEV_PCIE_LINK_GEN", "DCGM_FI_DEV_PCIE_LINK_GEN"),
    ("link_width", "DCGM_FI_DEV_PCIE_LINK_WIDTH", "DCGM_FI_DEV_PCIE_LINK_WIDTH"),
    ("thermal", "DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_DEV_THERMAL_VIOLATION"),
    (
        "power_brake",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
    ),
    ("xid", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"),
];

/// The name that DCGM 4.6 gave a metric.
pub fn renamed(metric: &str) -> &str {
    FIELDS.iter().find(|field| field.1 == metric).map_or(metric, |field| field.2)
}

struct Device {
    /// `GPU-a` or `GPU-a/7`.
    name: String,
    labels: Vec<(String, String)>,
    pods: Vec<(i64, i64, String, String)>,
}

struct Builder<'a> {
    scenario: &'a Scenario,
    names_are_new: bool,
    every_ms: i64,
    host: String,
    devices: Vec<Device>,
    targets: Vec<Target>,
    exporter: String,
    cluster: Option<String>,
    form: Form,
}

/// The targets of a section.
pub fn read(scenario: &Scenario, section: &Section) -> Read<Vec<Target>> {
    let option = |key: &str| section.options.get(key).map(String::as_str);
    let form = match option("form") {
        None | Some("text") => Form::Text,
        Some("scrapes") => Form::Scrapes,
        Some(other) => return mistake(section.line, format!("form `{other}` is neither text nor scrapes")),
    };
    let mut builder = Builder {
        scenario,
        names_are_new: option("names") == Some("new"),
        every_ms: seconds(section.line, option("every").unwrap_or("15s"))?,
        host: String::new(),
        devices: Vec::new(),
        targets: Vec::new(),
        exporter: option("exporter").unwrap_or_default().to_string(),
        cluster: option("cluster").map(str::to_string),
        form,
    };
    // Labels of pods stand on series that are named before or after them.
    let (pods, others): (Vec<&Line>, Vec<&Line>) = section.lines.iter().partition(|line| line.text.trim_start().starts_with("pods "));
    for line in others.iter().filter(|line| line.text.trim_start().starts_with("device ")) {
        builder.device(line)?;
    }
    for line in pods {
        builder.pods(line)?;
    }
    for line in others {
        builder.line(line)?;
    }
    Ok(builder.targets)
}

fn seconds(line: usize, text: &str) -> Read<i64> {
    match text.strip_suffix('s').and_then(|t| t.parse::<i64>().ok()) {
        Some(seconds) if seconds > 0 => Ok(seconds * 1000),
        _ => mistake(line, format!("`{text}` is no number of seconds like 15s")),
    }
}

impl Builder<'_> {
    fn device(&mut self, line: &Line) -> Read<()> {
        let (plain, pairs) = fields(&line.text);
        let Some(uuid) = plain.get(1) else { return mistake(line.number, "a device has a UUID") };
        let mut index = self.devices.len().to_string();
        let mut name = uuid.clone();
        let mut labels = vec![("UUID".to_string(), uuid.clone())];
        for (key, value) in pairs {
            match key.as_str() {
                "gpu" => index = value,
                "model" => labels.push(("modelName".into(), value)),
                "mig" => {
                    let Some((profile, id)) = value.split_once(':') else {
                        return mistake(line.number, "an instance is written mig=1g.10gb:7");
                    };
                    name = format!("{uuid}/{id}");
                    labels.push(("GPU_I_PROFILE".into(), profile.into()));
                    labels.push(("GPU_I_ID".into(), id.into()));
                }
                _ => labels.push((key, value)),
            }
        }
        labels.push(("gpu".into(), index.clone()));
        labels.push(("device".into(), format!("nvidia{index}")));
        self.devices.push(Device { name, labels, pods: Vec::new() });
        Ok(())
    }

    fn pods(&mut self, line: &Line) -> Read<()> {
        let words = words(&line.text);
        let [_, device, range, pod] = words.as_slice() else {
            return mistake(line.number, "write `pods DEVICE RANGE NAMESPACE/POD`");
        };
        let (from, to) = self.scenario.range(line.number, range)?;
        let Some((namespace, pod)) = pod.split_once('/') else {
            return mistake(line.number, "a pod is written namespace/name");
        };
        let Some(device) = self.devices.iter_mut().find(|d| d.name == *device) else {
            return mistake(line.number, format!("no device `{device}`"));
        };
        device.pods.push((from, to, namespace.into(), pod.into()));
        Ok(())
    }

    fn line(&mut self, line: &Line) -> Read<()> {
        let text = line.text.trim();
        let words = words(text);
        match words.first().map(String::as_str) {
            Some("host") => self.host = words.get(1).cloned().unwrap_or_default(),
            Some("every") => self.every_ms = seconds(line.number, words.get(1).map_or("", String::as_str))?,
            Some("device") => {
                let host = self.host.clone();
                let name = device_name(text);
                if let Some(device) = self.devices.iter_mut().find(|d| d.name == name) {
                    device.labels.push(("Hostname".into(), host));
                }
            }
            Some("scrape") => {
                for range in words[1..].iter().map(|w| w.trim_end_matches(',')) {
                    let times = self.times(line.number, range)?;
                    self.target().scrapes_ms.extend(times);
                }
            }
            _ if text.contains('{') => {
                let (Some(open), Some(close)) = (text.find('{'), text.find('}')) else {
                    return mistake(line.number, "labels end with `}`");
                };
                let metric = text[..open].to_string();
                let mut labels = Vec::new();
                for pair in text[open + 1..close].split(',').filter(|pair| !pair.trim().is_empty()) {
                    match pair.trim().split_once('=') {
                        Some((key, value)) => labels.push((key.to_string(), value.trim_matches('"').to_string())),
                        None => return mistake(line.number, format!("`{pair}` is no label")),
                    }
                }
                self.series(line.number, &metric, &labels, &[], &text[close + 1..])?;
            }
            Some(name) => {
                let Some(device) = self.devices.iter().find(|d| d.name == name) else {
                    return mistake(line.number, format!("no device `{name}`"));
                };
                let (labels, pods) = (device.labels.clone(), device.pods.clone());
                let field = words.get(1).map_or("", String::as_str);
                let metric = match FIELDS.iter().find(|f| f.0 == field) {
                    Some(f) => if self.names_are_new { f.2 } else { f.1 }.to_string(),
                    None if field.contains('_') && field.chars().any(char::is_uppercase) => field.to_string(),
                    None => return mistake(line.number, format!("no field `{field}`")),
                };
                let rest = text[name.len()..].trim_start();
                let rest = rest[field.len()..].to_string();
                self.series(line.number, &metric, &labels, &pods, &rest)?;
            }
            None => {}
        }
        Ok(())
    }

    fn target(&mut self) -> &mut Target {
        let name = if self.exporter.is_empty() { self.host.clone() } else { format!("{}-{}", self.host, self.exporter) };
        let at = match self.targets.iter().position(|t| t.name == name) {
            Some(at) => at,
            None => {
                let cluster = self.cluster.clone();
                self.targets.push(Target { name, cluster, form: self.form, samples: Vec::new(), scrapes_ms: Vec::new() });
                self.targets.len() - 1
            }
        };
        &mut self.targets[at]
    }

    fn times(&self, line: usize, range: &str) -> Read<Vec<i64>> {
        if !range.contains("..") {
            return Ok(vec![self.scenario.time(line, range)?]);
        }
        let (from, to) = self.scenario.range(line, range)?;
        Ok((from..to).step_by(self.every_ms as usize).collect())
    }

    /// `09:00..09:30 0.9, 09:30..10:00 0.4~0.8, 10:00 1`.
    fn series(
        &mut self,
        line: usize,
        metric: &str,
        labels: &[(String, String)],
        pods: &[(i64, i64, String, String)],
        text: &str,
    ) -> Read<()> {
        if self.host.is_empty() {
            return mistake(line, "name the host first");
        }
        let mut samples = Vec::new();
        // What a counter has reached, in millionths.
        let mut counted: i128 = 1_000 * 1_000_000;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((range, value)) = part.split_once(char::is_whitespace) else {
                return mistake(line, format!("`{part}` is no range and value"));
            };
            let value = value.trim();
            let times = self.times(line, range)?;
            let end = match range.split_once("..") {
                Some((_, to)) => self.scenario.time(line, to)?,
                None => times[0],
            };
            let turns: Vec<&str> = value.split('~').collect();
            let mut is_reset = false;
            for (at, time_ms) in times.iter().enumerate() {
                let text = if let Some(rate) = value.strip_prefix('+').and_then(|rate| rate.strip_suffix("/s")) {
                    let rate = millionths(line, rate)?;
                    plain(counted + rate * i128::from(time_ms - times[0]) / 1000)
                } else if let Some(set) = value.strip_prefix('=') {
                    counted = millionths(line, set)?;
                    is_reset = true;
                    plain(counted)
                } else {
                    turns[at % turns.len()].trim().to_string()
                };
                let mut labels = labels.to_vec();
                if let Some((_, _, namespace, pod)) = pods.iter().find(|pod| pod.0 <= *time_ms && *time_ms < pod.1) {
                    labels.push(("namespace".into(), namespace.clone()));
                    labels.push(("pod".into(), pod.clone()));
                    labels.push(("container".into(), "main".into()));
                }
                labels.sort();
                samples.push(Sample { metric: metric.to_string(), labels, time_ms: *time_ms, value: text });
            }
            if !is_reset && let Some(rate) = value.strip_prefix('+').and_then(|rate| rate.strip_suffix("/s")) {
                counted += millionths(line, rate)? * i128::from(end - times[0]) / 1000;
            }
        }
        if samples.is_empty() {
            return mistake(line, "a series without samples");
        }
        self.target().samples.extend(samples);
        Ok(())
    }
}

fn device_name(text: &str) -> String {
    let (plain, pairs) = fields(text);
    let uuid = plain.get(1).cloned().unwrap_or_default();
    match pairs.iter().find(|pair| pair.0 == "mig").and_then(|pair| pair.1.split_once(':')) {
        Some((_, id)) => format!("{uuid}/{id}"),
        None => uuid,
    }
}

fn millionths(line: usize, text: &str) -> Read<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let read = || {
        let fraction = format!("{fraction:0<6}");
        let digits = format!("{whole}{fraction}");
        (fraction.len() == 6).then(|| digits.parse::<i128>().ok()).flatten()
    };
    read().ok_or_else(|| Mistake { line, message: format!("`{text}` is no number with up to six decimals") })
}

fn plain(millionths: i128) -> String {
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The exposition text of samples: all of one metric together, `TYPE` lines first where asked.
pub fn exposition(samples: &[Sample], with_times: bool) -> String {
    let mut out = String::new();
    let mut last = "";
    for sample in samples {
        if sample.metric != last {
            let kind = if sample.metric.contains("TOTAL") || sample.metric.ends_with("_total") { "counter" } else { "gauge" };
            out.push_str(&format!("# TYPE {} {kind}\n", sample.metric));
            last = &sample.metric;
        }
        let labels: Vec<String> = sample.labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        out.push_str(&format!("{}{{{}}} {}", sample.metric, labels.join(","), sample.value));
        if with_times {
            out.push_str(&format!(" {}", sample.time_ms));
        }
        out.push('\n');
    }
    out
}
