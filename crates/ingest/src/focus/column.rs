//! The columns of FOCUS: which dataset a header is, which version, and what each missing one costs.
//!
//! Facts from the FOCUS 1.0 to 1.4 specifications (CC BY 4.0): the columns of the Cost and Usage dataset and
//! the version that brought each.

use serde::{Deserialize, Serialize};

/// Which dataset of FOCUS a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dataset {
    /// Charges: the only dataset that is money to be posted.
    CostAndUsage,
    /// Commitments and their terms (1.3).
    ContractCommitment,
    /// Lines of invoices (1.4).
    InvoiceDetail,
    /// Whether billing periods are open (1.4).
    BillingPeriod,
    /// Not FOCUS.
    Unknown,
}

impl Dataset {
    /// The word used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Dataset::CostAndUsage => "cost_and_usage",
            Dataset::ContractCommitment => "contract_commitment",
            Dataset::InvoiceDetail => "invoice_detail",
            Dataset::BillingPeriod => "billing_period",
            Dataset::Unknown => "unknown",
        }
    }
}

/// The columns without which a row has no amount or no place.
pub const REQUIRED: [&str; 9] = [
    "BilledCost",
    "EffectiveCost",
    "BillingAccountId",
    "BillingCurrency",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ChargeCategory",
];

/// Optional columns that the accounting uses, and what is lost without each.
pub const RECOMMENDED: [(&str, &str); 13] = [
    ("ChargeClass", "corrections of closed months cannot be told from other rows"),
    ("ChargeDescription", "one way less to know a machine's type"),
    ("ConsumedQuantity", "billed hours come from PricingQuantity alone"),
    ("ConsumedUnit", "billed hours come from PricingQuantity alone"),
    ("InvoiceIssuerName", "invoices are named by their id alone"),
    ("ListCost", "the sum of list cost leaves this file out"),
    ("PricingQuantity", "billed hours come from ConsumedQuantity alone"),
    ("PricingUnit", "billed hours come from ConsumedQuantity alone"),
    ("ResourceId", "its rows cannot be joined to machines"),
    ("ServiceCategory", "machine usage is told by service and type alone"),
    ("ServiceName", "support cannot be told from other services"),
    ("SkuId", "one way less to know a machine's type"),
    ("Tags", "charges have no tags"),
];

/// The Cost and Usage columns with the minor version of FOCUS 1.x that brought each.
const COST_AND_USAGE: [(&str, u8); 67] = [
    ("AllocatedMethodDetails", 3),
    ("AllocatedMethodId", 3),
    ("AllocatedResourceId", 3),
    ("AllocatedResourceName", 3),
    ("AllocatedTags", 3),
    ("AvailabilityZone", 0),
    ("BilledCost", 0),
    ("BillingAccountId", 0),
    ("BillingAccountName", 0),
    ("BillingAccountType", 2),
    ("BillingCurrency", 0),
    ("BillingPeriodEnd", 0),
    ("BillingPeriodStart", 0),
    ("CapacityReservationId", 1),
    ("CapacityReservationStatus", 1),
    ("ChargeCategory", 0),
    ("ChargeClass", 0),
    ("ChargeDescription", 0),
    ("ChargeFrequency", 0),
    ("ChargePeriodEnd", 0),
    ("ChargePeriodStart", 0),
    ("CommitmentDiscountCategory", 0),
    ("CommitmentDiscountId", 0),
    ("CommitmentDiscountName", 0),
    ("CommitmentDiscountQuantity", 1),
    ("CommitmentDiscountStatus", 0),
    ("CommitmentDiscountType", 0),
    ("CommitmentDiscountUnit", 1),
    ("CommitmentProgramEligibilityDetails", 4),
    ("ConsumedQuantity", 0),
    ("ConsumedUnit", 0),
    ("ContractApplied", 3),
    ("ContractedCost", 0),
    ("ContractedUnitPrice", 0),
    ("EffectiveCost", 0),
    ("HostProviderName", 3),
    ("InvoiceDetailId", 4),
    ("InvoiceId", 2),
    ("InvoiceIssuerName", 0),
    ("ListCost", 0),
    ("ListUnitPrice", 0),
    ("PricingCategory", 0),
    ("PricingCurrency", 2),
    ("PricingCurrencyContractedUnitPrice", 2),
    ("PricingCurrencyEffectiveCost", 2),
    ("PricingCurrencyListUnitPrice", 2),
    ("PricingQuantity", 0),
    ("PricingUnit", 0),
    ("ProviderName", 0),
    ("PublisherName", 0),
    ("RegionId", 0),
    ("RegionName", 0),
    ("ResourceId", 0),
    ("ResourceName", 0),
    ("ResourceType", 0),
    ("ServiceCategory", 0),
    ("ServiceName", 0),
    ("ServiceProviderName", 3),
    ("ServiceSubcategory", 1),
    ("SkuId", 0),
    ("SkuMeter", 1),
    ("SkuPriceDetails", 1),
    ("SkuPriceId", 0),
    ("SubAccountId", 0),
    ("SubAccountName", 0),
    ("SubAccountType", 2),
    ("Tags", 0),
];

/// The words that FOCUS allows in a column, with the column.
pub const ALLOWED_VALUES: [(&str, &[&str]); 7] = [
    ("ChargeFrequency", &["One-Time", "Recurring", "Usage-Based"]),
    ("PricingCategory", &["Standard", "Dynamic", "Committed", "Other"]),
    ("CommitmentDiscountCategory", &["Spend", "Usage"]),
    ("CommitmentDiscountStatus", &["Used", "Unused"]),
    ("CapacityReservationStatus", &["Used", "Unused"]),
    ("ChargeClass", &["Correction"]),
    (
        "ServiceCategory",
        &[
            "AI and Machine Learning",
            "Analytics",
            "Business Applications",
            "Compute",
            "Databases",
            "Developer Tools",
            "Multicloud",
            "Identity",
            "Integration",
            "Internet of Things",
            "Management and Governance",
            "Media",
            "Migration",
            "Mobile",
            "Networking",
            "Security",
            "Storage",
            "Web",
            "Other",
        ],
    ),
];

/// A column of a file under the name that FOCUS gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnName {
    /// A column of Cost and Usage.
    Focus(&'static str),
    /// A provider's own column, `x_...`.
    Extra(String),
    /// Anything else.
    Other(String),
}

/// The name of a delivered header cell: blanks and case are forgiven, and the underscores of tools that write
/// `billed_cost`.
pub fn column_name(delivered: &str) -> ColumnName {
    let trimmed = delivered.trim().trim_start_matches('\u{feff}').trim();
    if trimmed.starts_with("x_") || trimmed.starts_with("X_") {
        return ColumnName::Extra(trimmed.to_owned());
    }
    let key = folded(trimmed);
    match COST_AND_USAGE.iter().find(|(name, _)| name.eq_ignore_ascii_case(&key)) {
        Some((name, _)) => ColumnName::Focus(name),
        None => ColumnName::Other(trimmed.to_owned()),
    }
}

/// Which dataset these header cells are.
pub fn detect_dataset<S: AsRef<str>>(header: &[S]) -> Dataset {
    let keys: Vec<String> = header.iter().map(|name| folded(name.as_ref().trim().trim_start_matches('\u{feff}'))).collect();
    let has = |name: &str| keys.iter().any(|key| key.eq_ignore_ascii_case(name));
    if has("EffectiveCost") && has("ChargePeriodStart") {
        return Dataset::CostAndUsage;
    }
    if has("ContractCommitmentId") && (has("ContractCommitmentPeriodStart") || has("ContractCommitmentType")) {
        return Dataset::ContractCommitment;
    }
    if has("InvoiceDetailId") && (has("InvoiceIssueStatus") || has("InvoiceDetailCreated") || has("PaymentTerms")) {
        return Dataset::InvoiceDetail;
    }
    if has("BillingPeriodStatus") && has("BillingPeriodStart") {
        return Dataset::BillingPeriod;
    }
    // A bill with required columns missing is still a bill, so that it is refused by name instead of skipped.
    if REQUIRED.iter().filter(|name| has(name)).count() >= 3 {
        return Dataset::CostAndUsage;
    }
    Dataset::Unknown
}

/// `focus-1.0` to `focus-1.4`: the least version that has every known column present.
pub fn detect_format(present: &[&str]) -> String {
    let has = |name: &str| present.contains(&name);
    let newest = COST_AND_USAGE.iter().filter(|(name, _)| has(name)).map(|(_, introduced)| *introduced).max().unwrap_or(0);
    // 1.4 took ProviderName and PublisherName away.
    let minor = if has("ServiceProviderName") && !has("ProviderName") && !has("PublisherName") { 4 } else { newest };
    format!("focus-1.{minor}")
}

fn folded(name: &str) -> String {
    name.chars().filter(|c| *c != '_').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_by_the_columns_present() {
        for (present, format) in [
            (vec!["BilledCost", "ProviderName"], "focus-1.0"),
            (vec!["BilledCost", "ProviderName", "SkuMeter"], "focus-1.1"),
            (vec!["InvoiceId", "ProviderName"], "focus-1.2"),
            (vec!["ServiceProviderName", "ProviderName", "AllocatedTags"], "focus-1.3"),
            (vec!["ServiceProviderName", "InvoiceDetailId"], "focus-1.4"),
            (vec!["ServiceProviderName"], "focus-1.4"),
        ] {
            assert_eq!(detect_format(&present), format, "{present:?}");
        }
    }

    #[test]
    fn names_are_forgiven_case_blanks_and_underscores() {
        assert_eq!(column_name("SkuPriceid"), ColumnName::Focus("SkuPriceId"));
        assert_eq!(column_name("\u{feff}billed_cost "), ColumnName::Focus("BilledCost"));
        assert_eq!(column_name("x_Fee"), ColumnName::Extra("x_Fee".into()));
        assert_eq!(column_name("Id"), ColumnName::Other("Id".into()));
    }

    #[test]
    fn datasets_are_told_apart() {
        assert_eq!(detect_dataset(&["EffectiveCost", "ChargePeriodStart"]), Dataset::CostAndUsage);
        assert_eq!(detect_dataset(&["ContractCommitmentId", "ContractCommitmentType"]), Dataset::ContractCommitment);
        assert_eq!(detect_dataset(&["InvoiceDetailId", "PaymentTerms", "BilledCost"]), Dataset::InvoiceDetail);
        assert_eq!(detect_dataset(&["BillingPeriodStatus", "BillingPeriodStart"]), Dataset::BillingPeriod);
        assert_eq!(detect_dataset(&["BilledCost", "BillingCurrency", "ChargeCategory"]), Dataset::CostAndUsage);
        assert_eq!(detect_dataset(&["instance", "price"]), Dataset::Unknown);
    }
}
