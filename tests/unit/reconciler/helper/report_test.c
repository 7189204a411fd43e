/* SPDX-License-Identifier: Apache-2.0 */
/* report_test.c - the helper's line of JSON: what is taken from it, what is refused, and what it
 * says of one volume, which may be mounted at one of several places. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "reconciler/helper/helper.h"

#define VOLUME(path, more)                                                                         \
    "{\"path\":\"" path "\",\"file_system\":\"ext4\",\"device\":\"254:16\",\"device_bytes\":1000," \
    "\"layer\":\"\",\"total\":900,\"used\":100,\"available\":800,\"total_inodes\":10,"             \
    "\"used_inodes\":1,\"available_inodes\":9,\"read_only\":false,\"condition\":\"normal\","       \
    "\"message\":\"\"," more "}"
#define DONE           "\"error\":\"\",\"error_text\":\"\""
#define REPORT(volume) "{\"version\":1,\"volumes\":[" volume "]}\n"

static int parse(const char *text, unsigned paths, struct helper_report *report,
                 struct error *error)
{
    static const char *const path[] = {"/vol/0", "/vol/1"};

    *error = (struct error){0};
    return helper_report_parse(text, strlen(text), path, paths, report, error);
}

static void figures_are_taken(void **state)
{
    struct helper_report report;
    struct error error;

    assert_int_equal(
        parse(REPORT(VOLUME("/vol/0", DONE) "," VOLUME("/vol/1", DONE)), 2, &report, &error), 0);
    assert_int_equal(report.volumes, 2);
    assert_int_equal(report.volume[1].fault, HELPER_FAULT_NONE);
    assert_int_equal(report.volume[1].device_bytes, 1000);
    assert_true(report.volume[1].stats.has_bytes && report.volume[1].stats.has_inodes);
    assert_int_equal(report.volume[1].stats.total, 900);
    assert_int_equal(report.volume[1].stats.used, 100);
    assert_int_equal(report.volume[1].stats.available, 800);
    assert_int_equal(report.volume[1].stats.available_inodes, 9);
    assert_false(report.volume[1].stats.abnormal);
}

enum { SIZE = 1000, OTHER = 2000 };

static struct helper_volume volume_of(uint64_t device_bytes, enum helper_fault fault)
{
    struct helper_volume volume = {
        .fault = fault,
        .device_bytes = device_bytes,
        .stats = {.has_bytes = true, .total = device_bytes - 1},
    };

    if (fault != HELPER_FAULT_NONE)
        (void)strcpy(volume.text, "why");
    return volume;
}

static struct helper_verdict judge(const struct helper_volume *volume, unsigned volumes, bool grew)
{
    struct helper_verdict verdict;

    helper_judge(volume, volumes, SIZE, grew, &verdict);
    return verdict;
}

static void every_code_is_known_and_has_its_reason(void **state)
{
    static const struct {
        const char *name;
        enum helper_fault fault;
        enum volume_reason reason;
    } cases[] = {
        {"", HELPER_FAULT_NONE, REASON_NONE},
        {"not_mounted", HELPER_FAULT_NOT_MOUNTED, REASON_GUEST_PATH_UNKNOWN},
        {"not_a_block_device", HELPER_FAULT_NOT_A_BLOCK_DEVICE, REASON_GUEST_PATH_UNKNOWN},
        {"unsupported", HELPER_FAULT_UNSUPPORTED, REASON_FILE_SYSTEM_NOT_GROWABLE},
        {"refused", HELPER_FAULT_REFUSED, REASON_FILE_SYSTEM_NOT_GROWABLE},
        {"read_only", HELPER_FAULT_READ_ONLY, REASON_READ_ONLY},
        {"errors", HELPER_FAULT_ERRORS, REASON_FILE_SYSTEM_NOT_GROWABLE},
        {"shut_down", HELPER_FAULT_SHUT_DOWN, REASON_FILE_SYSTEM_SHUT_DOWN},
        {"no_capability", HELPER_FAULT_NO_CAPABILITY, REASON_HELPER_FAILED},
        {"busy", HELPER_FAULT_BUSY, REASON_AGENT_FAILED},
        {"timed_out", HELPER_FAULT_TIMED_OUT, REASON_AGENT_FAILED},
        {"limit", HELPER_FAULT_LIMIT, REASON_FILE_SYSTEM_LIMIT},
        {"growing", HELPER_FAULT_GROWING, REASON_GROWING},
        {"failed", HELPER_FAULT_FAILED, REASON_AGENT_FAILED},
    };
    struct helper_report report;
    struct error error;
    char text[1024];

    assert_int_equal(array_length(cases), HELPER_FAULTS);
    for (size_t i = 0; i < array_length(cases); i++) {
        struct helper_volume volume = volume_of(SIZE, cases[i].fault);

        (void)snprintf(text, sizeof(text),
                       REPORT(VOLUME("/vol/0", "\"error\":\"%s\",\"error_text\":\"why\"")),
                       cases[i].name);
        assert_int_equal(parse(text, 1, &report, &error), 0);
        assert_int_equal(report.volume[0].fault, cases[i].fault);
        assert_string_equal(report.volume[0].text, "why");
        assert_int_equal(judge(&volume, 1, true).reason, cases[i].reason);
        assert_string_equal(judge(&volume, 1, true).text, volume.text);
        /* A file system that cannot grow can be counted. */
        assert_int_equal(judge(&volume, 1, false).reason, REASON_NONE);
        volume.stats.has_bytes = false;
        assert_int_equal(judge(&volume, 1, false).reason, cases[i].reason);
    }
    assert_int_equal(parse(REPORT(VOLUME("/vol/0", "\"error\":\"new_code\"")), 1, &report, &error),
                     0);
    assert_int_equal(report.volume[0].fault, HELPER_FAULT_FAILED);
    assert_string_equal(report.volume[0].text, "new_code");
}

static void malformed_reports_are_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "\n",
        "null\n",
        "[]\n",
        "{\"version\":1}\n",
        "{\"version\":2,\"volumes\":[]}\n",
        "{\"version\":1,\"volumes\":{}}\n",
        "{\"version\":1,\"volumes\":[]}\n",
        REPORT("1"),
        REPORT(VOLUME("/vol/1", DONE)),
        REPORT(VOLUME("/vol/0", "\"nothing\":1")),
        REPORT(VOLUME("/vol/0", "\"error\":1")),
        REPORT(VOLUME("/vol/0", DONE) "," VOLUME("/vol/1", DONE)),
        REPORT(VOLUME("/vol/0", DONE)) "x",
        "{\"version\":1,\"volumes\":[{\"path\":",
    };
    struct helper_report report;
    struct error error;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(parse(texts[i], 1, &report, &error), -EBADMSG);
        assert_true(error.text[0]);
    }
    assert_int_equal(parse(REPORT(VOLUME("/vol/0", DONE)), HELPER_VOLUMES + 1, &report, &error),
                     -EBADMSG);
}

/* A guest may print what it likes: it is refused before anything is made of it. */
static void reports_have_few_values(void **state)
{
    static char values[32 * 1024], text[HELPER_REPORT_BYTES + 1024];
    struct helper_report report;
    struct error error;
    size_t length;

    for (length = 0; length + 2 < 2 * 4096; length += 2)
        memcpy(values + length, "0,", 2);
    memcpy(values + length, "0", 2);
    (void)snprintf(text, sizeof(text),
                   "{\"version\":[%s],\"volumes\":[" VOLUME("/vol/0", DONE) "]}\n", values);
    assert_int_equal(parse(text, 1, &report, &error), -EBADMSG);
    assert_non_null(strstr(error.text, "more values"));
}

/* ---- one volume ---- */

static void a_single_place_is_the_volumes(void **state)
{
    struct helper_volume volume = volume_of(SIZE, HELPER_FAULT_NONE);
    struct helper_verdict verdict = judge(&volume, 1, true);

    assert_int_equal(verdict.reason, REASON_NONE);
    assert_int_equal(verdict.device_bytes, SIZE);
    assert_int_equal(verdict.stats.total, SIZE - 1);
}

static void a_device_that_has_not_grown_is_a_failure(void **state)
{
    struct helper_volume volume = volume_of(SIZE - 1, HELPER_FAULT_NONE);

    assert_int_equal(judge(&volume, 1, true).reason, REASON_AGENT_FAILED);
    assert_int_equal(judge(&volume, 1, false).reason, REASON_NONE);
    (void)strcpy(volume.layer, "dm-0 stands between");
    assert_int_equal(judge(&volume, 1, true).reason, REASON_GUEST_LAYER_UNSUPPORTED);
}

static void among_several_places_the_size_decides(void **state)
{
    struct helper_volume volume[] = {
        volume_of(OTHER, HELPER_FAULT_NONE),
        volume_of(SIZE, HELPER_FAULT_READ_ONLY),
        volume_of(0, HELPER_FAULT_NOT_MOUNTED),
    };

    assert_int_equal(judge(volume, 3, true).reason, REASON_READ_ONLY);
    volume[1] = volume_of(SIZE, HELPER_FAULT_NONE);
    assert_int_equal(judge(volume, 3, true).stats.total, SIZE - 1);
    volume[1] = volume_of(0, HELPER_FAULT_NOT_MOUNTED);
    /* Only one is mounted, and it is behind a layer that takes some bytes. */
    assert_int_equal(judge(volume, 3, true).stats.total, OTHER - 1);
    volume[1] = volume_of(OTHER, HELPER_FAULT_NONE);
    assert_int_equal(judge(volume, 3, true).reason, REASON_GUEST_PATH_UNKNOWN);
}

static void alike_ones_are_grown_and_not_counted(void **state)
{
    struct helper_volume volume[] = {
        volume_of(SIZE, HELPER_FAULT_NONE),
        volume_of(SIZE, HELPER_FAULT_NONE),
    };
    struct helper_verdict verdict = judge(volume, 2, true);

    assert_int_equal(verdict.reason, REASON_NONE);
    assert_false(verdict.stats.has_bytes);
    assert_int_equal(judge(volume, 2, false).reason, REASON_GUEST_PATH_UNKNOWN);
    volume[1].fault = HELPER_FAULT_ERRORS;
    assert_int_equal(judge(volume, 2, true).reason, REASON_FILE_SYSTEM_NOT_GROWABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_taken),
        cmocka_unit_test(every_code_is_known_and_has_its_reason),
        cmocka_unit_test(malformed_reports_are_refused),
        cmocka_unit_test(reports_have_few_values),
        cmocka_unit_test(a_single_place_is_the_volumes),
        cmocka_unit_test(a_device_that_has_not_grown_is_a_failure),
        cmocka_unit_test(among_several_places_the_size_decides),
        cmocka_unit_test(alike_ones_are_grown_and_not_counted),
    };

    return cmocka_run_group_tests_name("helper_report", tests, NULL, NULL);
}
