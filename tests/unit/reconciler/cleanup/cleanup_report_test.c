/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup_report_test.c - a report has as many directories as fit, and is whole; the breaker and
 * the rate. */
#include "tests/unit/test.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>

#include "store/cleanups.h"

/* The pass is private to its file, and its verdicts come from a store. */
#define store_get_suspect fake_get_suspect
#define store_get_pv      fake_get_pv

static int missing_entry;

static int fake_get_suspect(struct store *store, int64_t entry_id,
                            struct store_suspect *ret_suspect)
{
    if (entry_id == missing_entry)
        return -EIO;
    ret_suspect->volume_id = entry_id;
    (void)snprintf(ret_suspect->key, sizeof(ret_suspect->key), "key-%d", (int)entry_id);
    return STORE_FOUND;
}

static int fake_get_pv(struct store *store, int64_t volume_id, char *ret_pv)
{
    ret_pv[0] = '\0';
    return 0;
}

#include "reconciler/cleanup/cleanup_pass.c"

enum { VERDICTS = 50 };

static int report(struct buffer *json)
{
    static struct verdict verdicts[VERDICTS];
    struct context context = {0};
    struct cleanup cleanup = {.context = &context};
    struct cleanup_pass pass = {
        .cleanup = &cleanup, .dry = true, .verdict = verdicts, .verdicts = VERDICTS};
    char evidence[] = "{\"sandboxes\":[]}";

    for (int i = 0; i < VERDICTS; i++)
        verdicts[i] = (struct verdict){.entry_id = i + 1,
                                       .volume_id = i + 1,
                                       .decision.verdict = i == 1 ? STALE_NOT : STALE_REMOVE,
                                       .json = evidence};
    return cleanup_pass_report(&pass, json);
}

static int rows_of(const struct buffer *json)
{
    cJSON *rows = cJSON_ParseWithOpts(buffer_text(json), NULL, true);
    int count = cJSON_GetArraySize(rows);

    assert_true(cJSON_IsArray(rows));
    cJSON_Delete(rows);
    return count;
}

static void has_all_that_looks_stale(void **state)
{
    struct buffer json = BUFFER_INIT(0);

    assert_int_equal(report(&json), 0);
    assert_int_equal(rows_of(&json), VERDICTS - 1);
    buffer_done(&json);
}

static void is_whole_however_little_fits(void **state)
{
    int before = 0;

    for (size_t limit = 20; limit < 4096; limit++) {
        struct buffer json = BUFFER_INIT(limit);
        int rows;

        assert_int_equal(report(&json), 0);
        assert_int_equal(buffer_error(&json), 0);
        assert_int_equal(json.limit, limit);
        rows = rows_of(&json);
        assert_true(rows == before || rows == before + 1);
        assert_int_equal(buffer_append_text(&json, "\n"), 0); /* what ends a reply */
        before = rows;
        buffer_done(&json);
    }
    assert_in_range(before, 10, VERDICTS - 2);
}

static void a_failing_store_is_not_taken_for_a_short_report(void **state)
{
    struct buffer json = BUFFER_INIT(0);

    missing_entry = 7;
    assert_int_equal(report(&json), -EIO);
    missing_entry = 0;
    buffer_done(&json);
}

static struct verdict judge_held(bool person, bool held, enum stale_sandbox sandbox)
{
    static char json[] = "{}";
    struct cleanup_pass pass = {.person = person};
    struct evidence evidence = {.suspect.held = held,
                                .facts = {.mode = STALE_MODE_DELETE,
                                          .path = STALE_PATH_PUBLISH,
                                          .sandbox = sandbox,
                                          .kubelet = STALE_KUBELET_GONE,
                                          .settled = true},
                                .json.data = json};
    struct verdict verdict;

    assert_int_equal(add_verdict(&pass, &evidence), 0);
    verdict = pass.verdict[0];
    free(pass.verdict);
    return verdict;
}

static void only_a_person_frees_what_the_breaker_holds(void **state)
{
    assert_true(is_removable(&(struct verdict){.decision.verdict = STALE_REMOVE}));
    assert_int_equal(judge_held(false, true, STALE_SANDBOX_NEVER).decision.reason,
                     STALE_REASON_BREAKER);
    assert_int_equal(judge_held(true, true, STALE_SANDBOX_NEVER).decision.verdict, STALE_REMOVE);
    assert_false(judge_held(true, true, STALE_SANDBOX_NEVER).held);
    assert_int_equal(judge_held(false, true, STALE_SANDBOX_SEEN).decision.verdict, STALE_REMOVE);
    assert_int_equal(judge_held(false, false, STALE_SANDBOX_NEVER).decision.verdict, STALE_REMOVE);
}

/* ---- so many removals in any minute ---- */

static const uint64_t BEGIN = 100000 * NSEC_PER_SEC;

static unsigned long allowance(const struct cleanup *cleanup, unsigned seconds)
{
    uint64_t wake_ns;
    unsigned long left = allowance_of(cleanup, 3, BEGIN + seconds * NSEC_PER_SEC, &wake_ns);

    assert_true(wake_ns > BEGIN + seconds * NSEC_PER_SEC);
    return left;
}

static void remove_at(struct cleanup *cleanup, unsigned seconds)
{
    note_removal(cleanup, BEGIN + seconds * NSEC_PER_SEC);
}

static void no_minute_has_more_than_the_rate(void **state)
{
    struct cleanup cleanup = {0};
    uint64_t wake_ns;

    assert_int_equal(allowance(&cleanup, 0), 3);
    remove_at(&cleanup, 0);
    remove_at(&cleanup, 30);
    remove_at(&cleanup, 30);
    assert_int_equal(allowance(&cleanup, 30), 0);
    assert_int_equal(allowance_of(&cleanup, 3, BEGIN + 31 * NSEC_PER_SEC, &wake_ns), 0);
    assert_int_equal((wake_ns - BEGIN) / NSEC_PER_SEC, 91);
    assert_int_equal(allowance(&cleanup, 90), 0);
    assert_int_equal(allowance(&cleanup, 91), 3);
    remove_at(&cleanup, 91);
    assert_int_equal(allowance(&cleanup, 91), 2);
    assert_int_equal(allowance(&cleanup, 200), 3);
}

static void a_lower_rate_holds_at_once(void **state)
{
    struct cleanup cleanup = {0};
    uint64_t wake_ns;

    for (int i = 0; i < 5; i++)
        remove_at(&cleanup, 0);
    assert_int_equal(allowance_of(&cleanup, 3, BEGIN, &wake_ns), 0);
    assert_int_equal(allowance_of(&cleanup, 7, BEGIN, &wake_ns), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_person_frees_what_the_breaker_holds),
        cmocka_unit_test(has_all_that_looks_stale),
        cmocka_unit_test(is_whole_however_little_fits),
        cmocka_unit_test(a_failing_store_is_not_taken_for_a_short_report),
        cmocka_unit_test(no_minute_has_more_than_the_rate),
        cmocka_unit_test(a_lower_rate_holds_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
