//! Dimensions: what a posting is called under each key that users group and filter by.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

use gpuledger_ingest::owners::{HolderFacts, Owners};
use gpuledger_model::cause::Cause;
use gpuledger_model::tables::charge::Cloud;
use gpuledger_model::tables::placement::{Holder, Placements};
use gpuledger_model::tables::posting::Posting;

/// Labels of a posting that nobody holds.
static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// The value of a key that a posting does not have.
pub const NONE: &str = "__none__";

/// A key of `--by`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The cause.
    Cause,
    /// The class of the cause.
    Class,
    /// The owner's team.
    Team,
    /// The owner's business unit.
    Unit,
    /// Kubernetes namespace.
    Namespace,
    /// Slurm account.
    Account,
    /// BillingAccountId.
    BillingAccount,
    /// The run.
    Run,
    /// The workload, `Kind/name`.
    Workload,
    /// The machine.
    Machine,
    /// The device or MIG instance.
    Device,
    /// The accelerator's model.
    Model,
    /// The cluster.
    Cluster,
    /// The provider, as its bills name it.
    Provider,
    /// A label of the holder.
    Label(String),
}

/// The plain keys, in the order of the help text.
const PLAIN_KEYS: [(&str, Key); 14] = [
    ("cause", Key::Cause),
    ("class", Key::Class),
    ("team", Key::Team),
    ("unit", Key::Unit),
    ("namespace", Key::Namespace),
    ("account", Key::Account),
    ("billing_account", Key::BillingAccount),
    ("run", Key::Run),
    ("workload", Key::Workload),
    ("machine", Key::Machine),
    ("device", Key::Device),
    ("model", Key::Model),
    ("cluster", Key::Cluster),
    ("provider", Key::Provider),
];

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Key::Label(name) = self {
            return write!(f, "label:{name}");
        }
        f.write_str(PLAIN_KEYS.iter().find(|(_, key)| key == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Key, String> {
        let text = text.trim();
        if let Some(name) = text.strip_prefix("label:") {
            return if name.is_empty() {
                Err("read key \"label:\": give a label's name".to_string())
            } else {
                Ok(Key::Label(name.to_string()))
            };
        }
        PLAIN_KEYS.iter().find(|(name, _)| *name == text).map(|(_, key)| key.clone()).ok_or_else(|| {
            let names: Vec<&str> = PLAIN_KEYS.iter().map(|(name, _)| *name).collect();
            format!("read key {text:?}: unknown; use {}, label:NAME", names.join(", "))
        })
    }
}

/// Everything needed to name postings: the schedulers' records and the owners' rules.
#[derive(Debug)]
pub struct Dimensions<'a> {
    holders: HashMap<&'a str, &'a Holder>,
    owners: Option<&'a Owners>,
}

impl<'a> Dimensions<'a> {
    /// Indexes the placements.
    pub fn new(placements: &'a Placements, owners: Option<&'a Owners>) -> Dimensions<'a> {
        let mut holders: HashMap<&str, &Holder> = HashMap::with_capacity(placements.holders.len());
        for holder in &placements.holders {
            // Two dumps may tell of one holder: the later record speaks, whatever the order of files.
            let known = holders.entry(holder.key.as_str()).or_insert(holder);
            let age = |h: &Holder| (h.last_record_ms, h.to_ms, h.labels.clone(), h.annotations.clone());
            if !std::ptr::eq(*known, holder) && age(holder) > age(known) {
                *known = holder;
            }
        }
        Dimensions { holders, owners }
    }

    /// Whether owners are given by rules.
    pub fn has_owner_rules(&self) -> bool {
        self.owners.is_some()
    }

    /// What is known about a posting.
    pub fn named(&self, posting: &'a Posting) -> Named<'a> {
        let holder = self.holders.get(posting.holder.as_str()).copied();
        let parsed = parse_holder_key(&posting.holder);
        let namespace = holder.and_then(|h| h.namespace.as_deref()).or(parsed.namespace);
        let account = holder.and_then(|h| h.account.as_deref());
        let cluster = present(&posting.cluster).or_else(|| holder.and_then(|h| present(&h.cluster)));
        let facts = HolderFacts {
            cluster,
            namespace,
            account,
            billing_account: present(&posting.scope.account),
            labels: holder.map_or(&NO_LABELS, |h| &h.labels),
        };
        let owner = self.owners.and_then(|owners| owners.owner_of(&facts));
        let has_owner = match self.owners {
            Some(_) => owner.is_some(),
            None => namespace.is_some() || account.is_some(),
        };
        Named { posting, holder, parsed, namespace, account, cluster, owner, has_owner }
    }
}

/// A posting with its names.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    /// The posting.
    pub posting: &'a Posting,
    holder: Option<&'a Holder>,
    parsed: ParsedHolder<'a>,
    namespace: Option<&'a str>,
    account: Option<&'a str>,
    cluster: Option<&'a str>,
    owner: Option<(&'a str, Option<&'a str>)>,
    has_owner: bool,
}

impl<'a> Named<'a> {
    /// The value of a key; `None` where the posting has none.
    pub fn value(&self, key: &Key) -> Option<Cow<'a, str>> {
        let posting = self.posting;
        match key {
            Key::Cause => Some(Cow::Borrowed(posting.cause.as_str())),
            Key::Class => Some(Cow::Borrowed(posting.cause.class().as_str())),
            Key::Team => self.owner.map(|(team, _)| Cow::Borrowed(team)),
            Key::Unit => self.owner.and_then(|(_, unit)| unit).map(Cow::Borrowed),
            Key::Namespace => self.namespace.map(Cow::Borrowed),
            Key::Account => self.account.map(Cow::Borrowed),
            Key::BillingAccount => present(&posting.scope.account).map(Cow::Borrowed),
            Key::Run => self.run().map(Cow::Borrowed),
            Key::Workload => self.workload(),
            Key::Machine => present(&posting.machine).or_else(|| present(&posting.node)).map(Cow::Borrowed),
            Key::Device => present(&posting.device).map(Cow::Borrowed),
            Key::Model => present(&posting.model).map(Cow::Borrowed),
            Key::Cluster => self.cluster.map(Cow::Borrowed),
            Key::Provider => present(&posting.scope.provider).map(Cow::Borrowed),
            Key::Label(name) => self.labels().and_then(|labels| label_value(labels, name)).map(Cow::Borrowed),
        }
    }

    /// Whether nobody answers for the posting, and somebody should.
    pub fn is_unowned(&self) -> bool {
        !self.has_owner && !self.posting.cause.is_ownerless_by_nature()
    }

    /// The cause.
    pub fn cause(&self) -> Cause {
        self.posting.cause
    }

    /// Node name.
    pub fn node(&self) -> Option<&'a str> {
        present(&self.posting.node)
    }

    /// Pod name.
    pub fn pod(&self) -> Option<&'a str> {
        self.parsed.pod
    }

    /// The controller's kind and name, from the workload `Kind/name`.
    pub fn controller(&self) -> Option<(&'a str, &'a str)> {
        let workload = self.holder.map(|h| h.workload.as_str())?;
        let (kind, name) = workload.split_once('/')?;
        (!kind.eq_ignore_ascii_case("pod")).then_some((kind, name))
    }

    /// The short code of the provider's cloud, where we know the cloud.
    pub fn cloud_code(&self) -> Option<&'static str> {
        let provider = &self.posting.scope.provider;
        match Cloud::from_provider_name(provider.strip_prefix("estimate:").unwrap_or(provider)) {
            Cloud::Other => None,
            cloud => Some(cloud.as_str()),
        }
    }

    /// Labels of the holder.
    pub fn labels(&self) -> Option<&'a BTreeMap<String, String>> {
        self.holder.map(|h| &h.labels)
    }

    /// Annotations of the holder.
    pub fn annotations(&self) -> Option<&'a BTreeMap<String, String>> {
        self.holder.map(|h| &h.annotations)
    }

    fn run(&self) -> Option<&'a str> {
        match self.holder {
            Some(holder) => present(&holder.run),
            // A holder that only exporter labels know is a run of its own.
            None => present(&self.posting.holder),
        }
    }

    fn workload(&self) -> Option<Cow<'a, str>> {
        match self.holder {
            Some(holder) => present(&holder.workload).map(Cow::Borrowed),
            None => match (self.parsed.pod, self.parsed.job) {
                (Some(pod), _) => Some(Cow::Owned(format!("Pod/{pod}"))),
                (None, Some(job)) => Some(Cow::Owned(format!("Job/{job}"))),
                (None, None) => None,
            },
        }
    }
}

/// The value of a label by its name, or by the name that Prometheus makes of it (`app.kubernetes.io/name` is
/// `app_kubernetes_io_name` there).
pub fn label_value<'a>(labels: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    if let Some(value) = labels.get(name) {
        return Some(value);
    }
    labels.iter().find(|(label, _)| is_prometheus_form(label, name)).map(|(_, value)| value.as_str())
}

fn is_prometheus_form(label: &str, name: &str) -> bool {
    label.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).eq(name.chars())
}

fn present(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// What a holder's key tells by itself.
#[derive(Clone, Copy, Debug, Default)]
struct ParsedHolder<'a> {
    namespace: Option<&'a str>,
    pod: Option<&'a str>,
    job: Option<&'a str>,
}

/// Reads `k8s/cluster/ns/pod/uid` and `slurm/cluster/job/start`, from the right: a cluster's name may hold slashes.
fn parse_holder_key(key: &str) -> ParsedHolder<'_> {
    let mut parts = key.rsplit('/');
    if key.starts_with("k8s/") {
        let (_uid, pod, namespace) = (parts.next(), parts.next(), parts.next());
        ParsedHolder { namespace: namespace.and_then(present), pod: pod.and_then(present), job: None }
    } else if key.starts_with("slurm/") {
        let (_start, job) = (parts.next(), parts.next());
        ParsedHolder { namespace: None, pod: None, job: job.and_then(present) }
    } else {
        ParsedHolder::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_and_unknown_ones_are_refused() {
        for (name, key) in PLAIN_KEYS {
            assert_eq!(name.parse::<Key>().unwrap(), key);
            assert_eq!(key.to_string(), name);
        }
        assert_eq!("label:team".parse::<Key>().unwrap(), Key::Label("team".to_string()));
        assert!("label:".parse::<Key>().is_err());
        assert!("pod".parse::<Key>().unwrap_err().contains("billing_account"));
    }

    #[test]
    fn holder_keys_are_read_from_the_right() {
        let parsed = parse_holder_key("k8s/eu/west/train/job-0/uid-1");
        assert_eq!((parsed.namespace, parsed.pod), (Some("train"), Some("job-0")));
        assert_eq!(parse_holder_key("slurm/hpc/812/2026-10-06T00:00:00Z").job, Some("812"));
        for odd in ["", "k8s/", "k8s", "slurm/", "k8s//", "x/y/z"] {
            let _ = parse_holder_key(odd);
        }
    }

    #[test]
    fn labels_are_found_by_both_of_their_names() {
        let labels = BTreeMap::from([("app.kubernetes.io/name".to_string(), "llm".to_string())]);
        assert_eq!(label_value(&labels, "app.kubernetes.io/name"), Some("llm"));
        assert_eq!(label_value(&labels, "app_kubernetes_io_name"), Some("llm"));
        assert_eq!(label_value(&labels, "app"), None);
    }
}
