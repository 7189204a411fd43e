/* SPDX-License-Identifier: Apache-2.0 */
/* report_test.c - the helper's line of JSON: what is taken from it, and what is refused. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/text.h"
#include "reconciler/helper/report.h"

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
    *error = (struct error){0};
    return helper_report_parse(text, strlen(text), paths, report, error);
}

static void figures_are_taken(void **state)
{
    struct helper_report report;
    struct error error;

    (void)state;
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

static void every_code_is_known_and_others_are_failures(void **state)
{
    struct helper_report report;
    struct error error;
    char text[1024];

    (void)state;
    for (enum helper_fault fault = 0; fault < HELPER_FAULTS; fault++) {
        (void)snprintf(text, sizeof(text),
                       REPORT(VOLUME("/vol/0", "\"error\":\"%s\",\"error_text\":\"why\"")),
                       helper_fault_name(fault));
        assert_int_equal(parse(text, 1, &report, &error), 0);
        assert_int_equal(report.volume[0].fault, fault);
        assert_string_equal(report.volume[0].text, "why");
    }
    assert_int_equal(parse(REPORT(VOLUME("/vol/0", "\"error\":\"new_code\"")), 1, &report, &error),
                     0);
    assert_int_equal(report.volume[0].fault, HELPER_FAULT_FAILED);
    assert_string_equal(report.volume[0].text, "new_code");
}

static void texts_are_fit_to_be_shown(void **state)
{
    struct helper_report report;
    struct error error;

    (void)state;
    assert_int_equal(
        parse(REPORT(VOLUME("/vol/0", "\"error\":\"failed\",\"error_text\":\"\\u001b[2Jred\\n\"")),
              1, &report, &error),
        0);
    assert_null(strpbrk(report.volume[0].text, "\x1b\n"));
    assert_non_null(strstr(report.volume[0].text, "red"));
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

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(parse(texts[i], 1, &report, &error), -EBADMSG);
        assert_true(error.text[0]);
    }
    assert_int_equal(parse(REPORT(VOLUME("/vol/0", DONE)), HELPER_VOLUMES + 1, &report, &error),
                     -EBADMSG);
}

static void sizes_beyond_a_file_systems_are_not_taken(void **state)
{
    struct helper_report report;
    struct error error;

    (void)state;
    assert_int_equal(parse("{\"version\":1,\"volumes\":[{\"path\":\"/vol/0\",\"error\":\"\","
                           "\"device_bytes\":-1,\"total\":1e300,\"used\":\"many\"}]}",
                           1, &report, &error),
                     0);
    assert_int_equal(report.volume[0].device_bytes, 0);
    assert_false(report.volume[0].stats.has_bytes);
}

/* A guest may print what it likes: it is refused before anything is made of it. */
static void reports_have_bounds(void **state)
{
    static char values[32 * 1024], text[HELPER_REPORT_BYTES + 1024];
    struct helper_report report;
    struct error error;
    size_t length;

    (void)state;
    assert_int_equal(parse(REPORT(VOLUME("/vol/0", "\"x\":[[[[[]]]]]," DONE)), 1, &report, &error),
                     -EBADMSG);
    assert_non_null(strstr(error.text, "nested too deeply"));
    for (length = 0; length + 2 < 2 * 4096; length += 2)
        memcpy(values + length, "0,", 2);
    memcpy(values + length, "0", 2);
    (void)snprintf(text, sizeof(text),
                   "{\"version\":[%s],\"volumes\":[" VOLUME("/vol/0", DONE) "]}\n", values);
    assert_int_equal(parse(text, 1, &report, &error), -EBADMSG);
    assert_non_null(strstr(error.text, "more values"));
    (void)snprintf(text, sizeof(text), "%*s" REPORT(VOLUME("/vol/0", DONE)), HELPER_REPORT_BYTES,
                   "");
    assert_int_equal(parse(text, 1, &report, &error), -EBADMSG);
    assert_non_null(strstr(error.text, "bytes of JSON"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_taken),
        cmocka_unit_test(every_code_is_known_and_others_are_failures),
        cmocka_unit_test(texts_are_fit_to_be_shown),
        cmocka_unit_test(malformed_reports_are_refused),
        cmocka_unit_test(reports_have_bounds),
        cmocka_unit_test(sizes_beyond_a_file_systems_are_not_taken),
    };

    return cmocka_run_group_tests_name("helper_report", tests, NULL, NULL);
}
