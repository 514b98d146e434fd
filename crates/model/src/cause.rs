//! Causes, their classes and parts, confidence and state: the words every surface shares.

use serde::{Deserialize, Serialize};

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $text)] $variant,)* }
        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// The one name used in tables, API and pages.
            pub fn as_str(self) -> &'static str { match self { $($name::$variant => $text,)* } }
            /// The value of a name.
            pub fn from_name(name: &str) -> Option<$name> { match name { $($text => Some($name::$variant),)* _ => None } }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }
    };
}

named! {
    /// What a posted dollar bought (ACCOUNTING section 7).
    Cause {
        /// Nobody's loss: the device issued work at its limit.
        Useful = "useful",
        /// A record says nobody held the device.
        Unallocated = "unallocated",
        /// A part of a MIG board that its layout leaves without an instance.
        LayoutStranded = "layout_stranded",
        /// The node was closed to new work.
        Cordoned = "cordoned",
        /// The scheduler kept the device for a gang or reservation.
        ReservedUnused = "reserved_unused",
        /// Held, idle, and no memory in use.
        Empty = "empty",
        /// Held, idle, with memory in use.
        VramParked = "vram_parked",
        /// The device waited for its input.
        InputStarved = "input_starved",
        /// The device waited for its peers.
        InterconnectWait = "interconnect_wait",
        /// Clocks were lowered by heat or a power brake.
        Throttled = "throttled",
        /// The board was broken while it was paid for.
        Faulty = "faulty",
        /// Useful work that was lost with its incarnation.
        LostWork = "lost_work",
        /// Steps done a second time.
        Recompute = "recompute",
        /// Commitment paid for and not used.
        UnusedCommitment = "unused_commitment",
        /// Reserved capacity paid for and not used.
        UnusedCapacityBlock = "unused_capacity_block",
        /// Storage of a machine that was stopped.
        StoppedMachineStorage = "stopped_machine_storage",
        /// Busy with kernels too small for the device.
        UnderFilled = "under_filled",
        /// Bound by copies between host and device.
        CopyBound = "copy_bound",
        /// Resident warps waited for memory.
        MemoryLatency = "memory_latency",
        /// FP32 arithmetic where the tensor pipe idled.
        LowPrecisionUnused = "low_precision_unused",
        /// At the memory's limit, below the arithmetic's.
        BandwidthBound = "bandwidth_bound",
        /// Lost against the peak, and nothing seen says why.
        Headroom = "headroom",
        /// A holder that had not begun to work yet.
        Starting = "starting",
        /// Idle by declaration.
        Standby = "standby",
        /// The device was being repartitioned.
        Reconfiguring = "reconfiguring",
        /// A service that is no accelerator machine.
        OtherService = "other_service",
        /// The host's share, where it is kept apart.
        Host = "host",
        /// Tax.
        Tax = "tax",
        /// Credit.
        Credit = "credit",
        /// Adjustment.
        Adjustment = "adjustment",
        /// Support.
        Support = "support",
        /// A purchase row that carries effective cost.
        CommitmentPurchase = "commitment_purchase",
        /// Nothing was seen.
        Unobserved = "unobserved",
        /// Seen, and the fields that arrived do not decide.
        Unresolved = "unresolved",
        /// Billed, and no telemetry or scheduler knew the machine.
        NotInInventory = "not_in_inventory",
    }
}

named! {
    /// The class of a cause.
    Class {
        /// Work at the device's limit.
        Useful = "useful",
        /// Paid, and nobody's work used it.
        Waste = "waste",
        /// Used, and better code or settings would need less.
        Tunable = "tunable",
        /// Neither: costs of being there.
        Neutral = "neutral",
        /// Not known.
        Unknown = "unknown",
    }
}

named! {
    /// Which step of the ladder a posting belongs to.
    Part {
        /// Known from the bill alone.
        Bill = "bill",
        /// Paid and not held.
        NotHeld = "not_held",
        /// Held and engine not busy: `1-g`.
        Idle = "idle",
        /// Busy and not filled: `g-s`.
        Fill = "fill",
        /// Filled and not issuing: `s-u`.
        Issue = "issue",
        /// Issuing and not useful: `u-useful`.
        Use = "use",
        /// Useful.
        Useful = "useful",
        /// Not known.
        Unknown = "unknown",
    }
}

named! {
    /// How sure a posting is.
    Confidence {
        /// Low.
        Low = "low",
        /// Medium.
        Medium = "medium",
        /// High.
        High = "high",
    }
}

named! {
    /// Whether a bill stands behind the amount.
    State {
        /// From a list price: no bill row yet.
        Estimated = "estimated",
        /// From a bill row of an open period.
        Provisional = "provisional",
        /// From a bill row.
        Reconciled = "reconciled",
    }
}

impl Cause {
    /// The class of the cause.
    pub fn class(self) -> Class {
        use Cause::*;
        match self {
            Useful => Class::Useful,
            Unallocated
            | LayoutStranded
            | Cordoned
            | ReservedUnused
            | Empty
            | VramParked
            | InputStarved
            | InterconnectWait
            | Throttled
            | Faulty
            | LostWork
            | Recompute
            | UnusedCommitment
            | UnusedCapacityBlock
            | StoppedMachineStorage => Class::Waste,
            UnderFilled | CopyBound | MemoryLatency | LowPrecisionUnused | BandwidthBound => Class::Tunable,
            Headroom | Starting | Standby | Reconfiguring | OtherService | Host | Tax | Credit | Adjustment | Support
            | CommitmentPurchase => Class::Neutral,
            Unobserved | Unresolved | NotInInventory => Class::Unknown,
        }
    }

    /// Causes that the bill alone names and that no owner is asked for.
    pub fn is_ownerless_by_nature(self) -> bool {
        matches!(self, Cause::Tax | Cause::Credit | Cause::Adjustment | Cause::Support | Cause::OtherService)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        for cause in Cause::ALL {
            assert_eq!(Cause::from_name(cause.as_str()), Some(*cause));
        }
        assert_eq!(Cause::ALL.len(), 35);
    }
}
