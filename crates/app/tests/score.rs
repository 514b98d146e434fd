//! The ledger against worlds whose truth is known (`sim score`): twenty seeds, with all fields and without profiling.

use gpuledger::cli::SeedRange;
use gpuledger::pipeline::{self, Settings};
use gpuledger::progress::Progress;
use gpuledger::simulate::{ScoredWorld, request, score_worlds};
use gpuledger_sim::Fields;

fn worlds(first: u64, last: u64) -> Vec<ScoredWorld> {
    let ledger_of = |world: &gpuledger_sim::World, dir: &std::path::Path| {
        pipeline::run(&request(world, dir), &Settings::default(), &mut |_| ()).map(|outcome| outcome.ledger)
    };
    score_worlds(SeedRange { first, last }, &Progress::hidden(), ledger_of).unwrap()
}

/// The limits that the product promises.
fn assert_within_limits(world: &ScoredWorld) {
    let score = &world.score;
    let about = format!("seed {} {:?}: {score:?}\n{:#?}", world.seed, world.fields, world.differences.iter().take(5).collect::<Vec<_>>());
    let misattributed_max = if world.fields == Fields::Full { 0.02 } else { 0.05 };
    assert!(score.misattributed_share < misattributed_max, "misattributed: {about}");
    assert!(score.false_waste_share < 0.01, "false waste: {about}");
    assert!(score.idle_recall >= 0.95, "idle recall: {about}");
    assert!((0.2..0.8).contains(&score.true_waste_share), "true waste: {about}");
    if world.fields == Fields::Full {
        assert!(score.unobserved_share <= score.gap_share + 0.02, "unobserved: {about}");
    }
}

#[test]
fn sim_score_of_seeds_1_to_10_is_within_its_limits() {
    worlds(1, 10).iter().for_each(assert_within_limits);
}

#[test]
fn sim_score_of_seeds_11_to_20_is_within_its_limits() {
    worlds(11, 20).iter().for_each(assert_within_limits);
}
