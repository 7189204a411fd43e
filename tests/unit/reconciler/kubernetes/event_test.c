/* SPDX-License-Identifier: Apache-2.0 */
/* event_test.c - rows of the journal as Events: what, about which objects, in which words. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "reconciler/kubernetes/kubernetes_events.h"
#include "store/journal.h"
#include "tests/unit/reference.h"

static const char *const pages = "docs/reference/kubernetes-events.md";

static struct store_event_row row_of(const char *kind, const char *to)
{
    return (struct store_event_row){.seq = 7,
                                    .at = 1767323045678,
                                    .kind = kind,
                                    .to = to,
                                    .message = "",
                                    .cause = "",
                                    .pv = "pvc-01234567-89ab-cdef-0123-456789abcdef",
                                    .claim_namespace = "",
                                    .claim_name = "",
                                    .pod_namespace = "shop",
                                    .pod_name = "db-0",
                                    .pod_uid = "11111111-2222-3333-4444-555555555555",
                                    .target_path = "/path",
                                    .from_bytes = INT64_C(64) << 20,
                                    .to_bytes = INT64_C(256) << 20};
}

/* The uid of a claim is that in the name of a PV that is named after it. */
static void a_volume_hears_by_its_claim_or_its_pv(void **state)
{
    struct store_event_row row = row_of("resize_finished", "in_sync");
    struct event events[EVENTS_OF_ROW];

    assert_int_equal(event_from_row(&row, events), 2);
    assert_string_equal(events[1].object.kind, "PersistentVolume");
    assert_string_equal(events[1].object.uid, "");
    row.claim_namespace = "shop";
    row.claim_name = "data-db-0";
    assert_int_equal(event_from_row(&row, events), 2);
    assert_string_equal(events[1].object.kind, "PersistentVolumeClaim");
    assert_string_equal(events[1].object.uid, "01234567-89ab-cdef-0123-456789abcdef");
    row.pv = "volume-7";
    assert_int_equal(event_from_row(&row, events), 2);
    assert_string_equal(events[1].object.uid, "");
}

/* A name goes into a URL: nothing that is no name of Kubernetes' gets there. */
static void object_without_a_proper_name_hears_nothing(void **state)
{
    static const char *const names[] = {"",       "a/b", "a b",   "Upper",
                                        "a\r\nb", "a?b", "a%2fb", "\xff"};
    struct store_event_row row = row_of("resize_finished", "in_sync");
    struct event events[EVENTS_OF_ROW];
    char longest[300];

    for (size_t i = 0; i < array_length(names); i++) {
        row.pod_name = names[i];
        assert_int_equal(event_from_row(&row, events), 1);
        row.pv = names[i];
        assert_int_equal(event_from_row(&row, events), 0);
        row = row_of("resize_finished", "in_sync");
        row.pod_namespace = names[i];
        assert_int_equal(event_from_row(&row, events), 1);
        row = row_of("resize_finished", "in_sync");
        row.pod_uid = names[i];
        assert_int_equal(event_from_row(&row, events), 2);
        assert_string_equal(events[0].object.uid, "");
        row = row_of("resize_finished", "in_sync");
    }
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    row.pod_namespace = longest;
    row.pv = longest;
    assert_int_equal(event_from_row(&row, events), 0);
}

static void rows_make_events(void **state)
{
    static const struct {
        const char *kind, *to, *message, *cause;
        bool is_current, is_stalled, is_repeated;
        enum event_kind event; /* EVENT_NONE: it makes none */
        const char *text;
    } cases[] = {
        {"resize_finished", "in_sync", "", "", 0, 0, 0, EVENT_RESIZED, " from 64Mi to 256Mi"},
        {"resize_finished", "unmanaged", "", "", 0, 0, 0, EVENT_NONE,
         ""}, /* its volume has ended */
        {"volume_added", "", "", "", 0, 0, 0, EVENT_NONE, ""},
        {"state_changed", "blocked/monitor_missing", "", "", 1, 1, 0, EVENT_STALLED,
         "(blocked/monitor_missing). The sandbox's VMM"},
        {"state_changed", "blocked/monitor_missing", "", "", 1, 1, 0, EVENT_STALLED,
         "What helps: "},
        {"state_changed", "blocked/monitor_missing", "", "", 1, 1, 1, EVENT_NONE, ""},
        {"state_changed", "blocked/monitor_missing", "", "", 0, 1, 0, EVENT_NONE, ""},
        {"state_changed", "blocked/monitor_missing", "", "", 1, 0, 0, EVENT_NONE, ""},
        {"state_changed", "other/words of another version", "", "", 1, 1, 0, EVENT_STALLED, ""},
        {"guest_condition_changed", "abnormal", "read\nonly", "", 0, 0, 0, EVENT_ABNORMAL,
         "is abnormal: read"},
        {"guest_condition_changed", "normal", "", "", 0, 0, 0, EVENT_NORMAL, ""},
        {"guest_condition_changed", "", "", "", 0, 0, 0, EVENT_NONE, ""},
        {"cleanup_removed", "", "", "sandbox_ended", 0, 0, 0, EVENT_REMOVED,
         "Its sandbox was seen to end"},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct store_event_row row = row_of(cases[i].kind, cases[i].to);
        struct event events[EVENTS_OF_ROW];

        row.message = cases[i].message;
        row.cause = cases[i].cause;
        row.is_current = cases[i].is_current;
        row.is_stalled = cases[i].is_stalled;
        row.is_repeated = cases[i].is_repeated;
        assert_int_equal(event_from_row(&row, events), cases[i].event == EVENT_NONE ? 0 : 2);
        if (cases[i].event == EVENT_NONE)
            continue;
        assert_int_equal(events[0].kind, cases[i].event);
        assert_non_null(strstr(events[0].message, cases[i].text));
        assert_null(strchr(events[0].message, '\n'));
    }
}

static void message_is_cut(void **state)
{
    static char words[5000];
    struct store_event_row row = row_of("guest_condition_changed", "abnormal");
    struct event events[EVENTS_OF_ROW];

    memset(words, 'w', sizeof(words) - 1);
    row.message = words;
    assert_int_equal(event_from_row(&row, events), 2);
    assert_int_equal(strlen(events[0].message), EVENT_MESSAGE_BYTES - 1);
}

static cJSON *write_event(const struct event *event)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(EVENT_BODY_BYTES);
    cJSON *json = NULL;

    assert_int_equal(event_write(event, "node-1", &body), 0);
    assert_int_equal(json_parse(buffer_text(&body), body.length, JSON_LIMITS_HTTP, &json, NULL), 0);
    return json;
}

/* Sending it twice makes one; another time, object or message is another. */
static void json_is_an_event_of_core_v1(void **state)
{
    const struct store_event_row row = row_of("resize_finished", "in_sync");
    struct event events[EVENTS_OF_ROW];
    cleanup(json_deletep) cJSON *json = NULL;
    cleanup(json_deletep) cJSON *again = NULL;
    cleanup(json_deletep) cJSON *later = NULL;
    const char *name;

    assert_int_equal(event_from_row(&row, events), 2);
    events[0].count = 3;
    events[0].last_ms += 1000;
    json = write_event(&events[0]);
    assert_string_equal(json_string(json, "apiVersion"), "v1");
    assert_string_equal(json_string(json, "kind"), "Event");
    assert_string_equal(json_string(json, "firstTimestamp"), "2026-01-02T03:04:05.678Z");
    assert_string_equal(json_string(json, "lastTimestamp"), "2026-01-02T03:04:06.678Z");
    assert_int_equal(json_member(json, "count")->valueint, 3);
    assert_string_equal(json_string(json, "reportingComponent"), "crustd");
    assert_string_equal(json_string(json, "reportingInstance"), "node-1");
    name = json_string(json_member(json, "metadata"), "name");
    assert_memory_equal(name, "db-0.", 5);
    assert_int_equal(strlen(name), 5 + 16);
    again = write_event(&events[0]);
    assert_string_equal(json_string(json_member(again, "metadata"), "name"), name);
    events[0].first_ms++;
    later = write_event(&events[0]);
    assert_string_not_equal(json_string(json_member(later, "metadata"), "name"), name);
}

static void long_name_is_cut_to_a_proper_one(void **state)
{
    struct event event = {.kind = EVENT_RESIZED, .object = {.kind = "Pod", .namespace = "n"}};
    cleanup(json_deletep) cJSON *json = NULL;
    const char *name;

    memset(event.object.name, 'a', EVENT_NAME_BYTES - 1);
    memcpy(event.object.name + 197, "...", 3);
    json = write_event(&event);
    name = json_string(json_member(json, "metadata"), "name");
    assert_int_equal(strlen(name), 197 + 1 + 16);
    assert_null(strstr(name, ".."));
}

static void reasons_are_those_of_the_page(void **state)
{
    struct reference page;

    reference_open(&page, pages, "reasons");
    for (enum event_kind kind = EVENT_NONE + 1; kind < EVENT_KINDS; kind++) {
        reference_expect(&page, event_words[kind].reason);
        assert_string_equal(page.cell[1], event_words[kind].warning ? "Warning" : "Normal");
    }
    reference_expect_end(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_volume_hears_by_its_claim_or_its_pv),
        cmocka_unit_test(object_without_a_proper_name_hears_nothing),
        cmocka_unit_test(rows_make_events),
        cmocka_unit_test(message_is_cut),
        cmocka_unit_test(json_is_an_event_of_core_v1),
        cmocka_unit_test(long_name_is_cut_to_a_proper_one),
        cmocka_unit_test(reasons_are_those_of_the_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
