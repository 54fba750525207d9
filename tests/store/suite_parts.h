/* The tests of the suite's other files, for the table in suite.c. */
#ifndef TESTS_STORE_SUITE_PARTS_H
#define TESTS_STORE_SUITE_PARTS_H

#include "tests/store/suite.h"

void take_back_and_again(void **state);
void lost_limit(void **state);
void open_attempt_may_succeed(void **state);
void given_out_closes(void **state);
void cancel_everywhere(void **state);
void cancelled_closes(void **state);
void wish_beats(void **state);
void sessions_grow(void **state);
void session_stale(void **state);
void session_list(void **state);
void adopted_is_not_lost(void **state);
void adopted_lease_is_not_shorter(void **state);
void new_instance(void **state);
void many_sessions_at_once(void **state);
void fill_in_order(void **state);
void queues_with_rows(void **state);
void due_rows(void **state);
void metrics(void **state);
void metrics_pages(void **state);
void metrics_at_once(void **state);
void metrics_of_adopted(void **state);
void started(void **state);
void list_pages(void **state);
void list_leaves_out(void **state);
void strays_pages(void **state);
void strays_show_the_beat(void **state);
void runs_by_attempt_and_worker(void **state);
/* suite_list.c */
void labels_as_bytes(void **state);
void list_against_model(void **state);
void list_of_many_ready(void **state);
void queue_pauses(void **state);
void queue_counts(void **state);
/* suite_logs.c */
void logs(void **state);
void logs_gaps_and_tails(void **state);
void logs_dropped_of_former_attempts(void **state);
void logs_that_overlap(void **state);
void logs_at_random(void **state);
/* suite_worker.c */
void worker_row(void **state);
void workers_pages(void **state);
void drain_holds(void **state);
void gone_until_it_comes(void **state);
void detached_until_it_comes(void **state);

void ends_table(void **state);
void delay_of_the_row(void **state);
void retry_puts_back(void **state);
void retry_names_the_attempt(void **state);
void retry_closes(void **state);
void retry_exclusive_waits(void **state);
void attempt_fields(void **state);
void fields_after_adoption(void **state);
void cancel_keeps_the_reason(void **state);
void list_with_attempts(void **state);
/* suite_master.c */
void incarnations(void **state);
void reopens_its_own(void **state);
void take_over(void **state);
void stale_session(void **state);
void stale_incarnation(void **state);
void stale_insert(void **state);
void strays_show_the_wish(void **state);
/* suite_asks.c */
void asks_are_kept(void **state);
void asks_of_retried(void **state);
void retried_never_expires(void **state);
void expiry_of_ready(void **state);
void expiry_of_delayed(void **state);
void expiry_in_pages(void **state);
void given_out_never_expires(void **state);
/* suite_events.c */
void events_tell_all(void **state);
void events_one_by_one(void **state);
void events_of_starts(void **state);
void events_of_points(void **state);
void events_in_pages(void **state);

#endif
