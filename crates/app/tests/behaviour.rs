//! How the product must behave, from outside: the binary on written files, a test for each promise.

#[path = "behaviour/broken_inputs.rs"]
mod broken_inputs;
#[path = "behaviour/findings.rs"]
mod findings;
#[path = "behaviour/place.rs"]
mod place;
#[path = "behaviour/same_bytes.rs"]
mod same_bytes;
#[path = "behaviour/schema.rs"]
mod schema;
#[path = "behaviour/simulated.rs"]
mod simulated;
#[path = "behaviour/store.rs"]
mod store;
