//! `charges`: one row per bill row, under FOCUS 1.4 names (snake case), exact as delivered.

use serde::{Deserialize, Serialize};

use crate::money::Decimal;
use crate::time::Window;

/// FOCUS ChargeCategory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChargeCategory {
    /// Consumption.
    Usage,
    /// A purchase.
    Purchase,
    /// Tax.
    Tax,
    /// Credit.
    Credit,
    /// Adjustment.
    Adjustment,
}

impl ChargeCategory {
    /// The FOCUS word.
    pub fn as_str(self) -> &'static str {
        match self {
            ChargeCategory::Usage => "Usage",
            ChargeCategory::Purchase => "Purchase",
            ChargeCategory::Tax => "Tax",
            ChargeCategory::Credit => "Credit",
            ChargeCategory::Adjustment => "Adjustment",
        }
    }
}

/// The clouds whose ids and prices we know; everything else is `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cloud {
    /// Amazon Web Services.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// Google Cloud.
    Gcp,
    /// Oracle Cloud Infrastructure.
    Oracle,
    /// Any other provider.
    Other,
}

impl Cloud {
    /// The word used in the price list, in machine ids and in `estimate:` scopes.
    pub fn as_str(self) -> &'static str {
        match self {
            Cloud::Aws => "aws",
            Cloud::Azure => "azure",
            Cloud::Gcp => "gcp",
            Cloud::Oracle => "oci",
            Cloud::Other => "other",
        }
    }

    /// From the provider's name as bills spell it.
    pub fn from_provider_name(name: &str) -> Cloud {
        let name = name.to_ascii_lowercase();
        if name == "aws" || name.starts_with("amazon") {
            Cloud::Aws
        } else if name.contains("azure") || name.starts_with("microsoft") {
            Cloud::Azure
        } else if name == "gcp" || name.starts_with("google") {
            Cloud::Gcp
        } else if name == "oci" || name.starts_with("oracle") {
            Cloud::Oracle
        } else {
            Cloud::Other
        }
    }
}

/// The unit of bill ingestion: provider, billing account, billing month, currency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// The provider as the bill names it.
    pub provider: String,
    /// BillingAccountId, text with its leading zeros.
    pub account: String,
    /// Billing month, `2026-10`.
    pub period: String,
    /// BillingCurrency.
    pub currency: String,
}

impl Scope {
    /// `provider/account/period/currency`; an estimate's scope is `estimate:<cloud>` alone.
    pub fn id(&self) -> String {
        if self.provider.starts_with("estimate:") {
            return self.provider.clone();
        }
        format!("{}/{}/{}/{}", self.provider, self.account, self.period, self.currency)
    }
}

/// One bill row. Null is `None`; ids stay text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// File it came from (provenance; no part of the row's identity).
    pub file: String,
    /// Line or row number in it, from 1, the header counted.
    pub line: u64,
    /// The scope it belongs to.
    pub scope: Scope,
    /// The provider's code.
    pub cloud: Cloud,
    /// BillingPeriodStart, ms.
    pub billing_from_ms: i64,
    /// BillingPeriodEnd, ms.
    pub billing_to_ms: i64,
    /// ChargePeriodStart, ms.
    pub charge_from_ms: i64,
    /// ChargePeriodEnd, ms.
    pub charge_to_ms: i64,
    /// ChargeCategory.
    pub category: ChargeCategory,
    /// ChargeClass is `Correction`.
    pub is_correction: bool,
    /// BilledCost.
    pub billed: Decimal,
    /// EffectiveCost.
    pub effective: Decimal,
    /// ListCost.
    pub list: Option<Decimal>,
    /// ContractedCost.
    pub contracted: Option<Decimal>,
    /// InvoiceId.
    pub invoice_id: Option<String>,
    /// InvoiceIssuerName.
    pub invoice_issuer: Option<String>,
    /// SubAccountId.
    pub sub_account_id: Option<String>,
    /// ServiceName.
    pub service_name: Option<String>,
    /// ServiceCategory.
    pub service_category: Option<String>,
    /// ResourceId.
    pub resource_id: Option<String>,
    /// ResourceName.
    pub resource_name: Option<String>,
    /// ResourceType.
    pub resource_type: Option<String>,
    /// RegionId.
    pub region_id: Option<String>,
    /// AvailabilityZone.
    pub availability_zone: Option<String>,
    /// SkuId.
    pub sku_id: Option<String>,
    /// SkuMeter.
    pub sku_meter: Option<String>,
    /// SkuPriceId.
    pub sku_price_id: Option<String>,
    /// SkuPriceDetails, JSON text.
    pub sku_price_details: Option<String>,
    /// ChargeDescription.
    pub charge_description: Option<String>,
    /// PricingCategory.
    pub pricing_category: Option<String>,
    /// PricingQuantity.
    pub pricing_quantity: Option<Decimal>,
    /// PricingUnit.
    pub pricing_unit: Option<String>,
    /// ConsumedQuantity.
    pub consumed_quantity: Option<Decimal>,
    /// ConsumedUnit.
    pub consumed_unit: Option<String>,
    /// CommitmentDiscountId.
    pub commitment_id: Option<String>,
    /// CommitmentDiscountStatus.
    pub commitment_status: Option<String>,
    /// CommitmentDiscountType.
    pub commitment_type: Option<String>,
    /// CapacityReservationId.
    pub capacity_reservation_id: Option<String>,
    /// CapacityReservationStatus.
    pub capacity_reservation_status: Option<String>,
    /// Tags, JSON text.
    pub tags: Option<String>,
    /// `x_` columns that are not null, as a JSON object of texts with sorted keys.
    pub extra: Option<String>,
}

impl Charge {
    /// The half-open charge period.
    pub fn charge_window(&self) -> Window {
        Window::new(self.charge_from_ms, self.charge_to_ms)
    }

    /// The row's content without its provenance, for identity and order: the same row read from another
    /// file or line compares equal.
    pub fn content_key(&self) -> String {
        let mut plain = self.clone();
        plain.file.clear();
        plain.line = 0;
        serde_json::to_string(&plain).unwrap_or_default()
    }
}
