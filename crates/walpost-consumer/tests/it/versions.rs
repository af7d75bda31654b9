//! The protocol on older versions of PostgreSQL: the tests that it rests on.

use crate::{
    apply, dead_letters, fence, lanes, operator, parked, poison, reset, support::on_postgres,
};

macro_rules! again {
    ($($module:ident: $($test:ident)+;)+) => {
        mod postgres_14 {
            use super::*;
            $($(#[test] #[ignore = "deep: an older PostgreSQL"] fn $test() { on_postgres(14, $module::$test) })+)+
        }

        mod postgres_15 {
            use super::*;
            $($(#[test] #[ignore = "deep: an older PostgreSQL"] fn $test() { on_postgres(15, $module::$test) })+)+
        }
    };
}

again! {
    apply:
        each_event_takes_effect_once_over_restarts
        a_copy_of_an_event_takes_no_effect
        an_orderly_stop_leaves_the_last_offset_in_kafka_with_a_marker
        an_idle_consumer_forgets_the_offsets_that_kafka_no_longer_holds;
    fence:
        a_batch_of_an_older_epoch_or_of_another_offset_is_refused
        a_predecessor_that_holds_the_fence_is_ended
        a_member_whose_partition_was_claimed_gives_it_up_and_claims_again;
    reset:
        rerun_makes_the_effects_of_the_rewound_range_once_more
        an_operator_resets_a_partition_of_a_live_consumer;
    operator:
        chosen_events_run_once_more_and_their_copies_and_all_others_do_not
        effects_are_forgotten_by_age_and_by_what_the_log_still_has;
    poison:
        the_event_is_found_when_a_slice_fails_as_a_whole
        a_handler_that_ends_the_transaction_halts_and_keeps_nothing;
    parked:
        a_parked_event_holds_back_its_key_and_no_other_until_it_is_retried;
    dead_letters:
        where_nothing_waits_each_has_its_letter_and_without_the_option_none_has;
    lanes:
        keys_go_side_by_side_and_each_in_its_order
        a_member_paused_in_its_lanes_wakes_to_nothing;
}
