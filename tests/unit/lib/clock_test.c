/* SPDX-License-Identifier: Apache-2.0 */
/* clock_test.c - times as text, at the edges of the calendar. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/clock.h"

static void writes_utc(void **state)
{
    static const struct {
        int64_t realtime_ms;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {INT64_C(1767323045678), "2026-01-02T03:04:05.678Z"},
        {-1, "1969-12-31T23:59:59.999Z"},
        {-1000, "1969-12-31T23:59:59.000Z"},
        {INT64_C(1709164800000), "2024-02-29T00:00:00.000Z"},
        {INT64_C(253402300799999), "9999-12-31T23:59:59.999Z"},
    };
    char text[CLOCK_TEXT_BYTES];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        clock_text(cases[i].realtime_ms, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void agrees_with_libc_on_every_day(void **state)
{
    const int64_t day_ms = INT64_C(86400000);

    for (time_t day = -135140; day <= 157784; day++) { /* 1600 to 2401: twice all leap years */
        char text[CLOCK_TEXT_BYTES], expected[64];
        time_t when = day * 86400 + 86399 - (day & 0xffff);
        struct tm utc;

        clock_text((int64_t)day * day_ms + (86399 - (day & 0xffff)) * INT64_C(1000) + 7, text);
        assert_non_null(gmtime_r(&when, &utc));
        (void)snprintf(expected, sizeof(expected), "%04d-%02d-%02dT%02d:%02d:%02d.007Z",
                       utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                       utc.tm_sec);
        if (strcmp(text, expected) != 0)
            fail_msg("%s, not %s", text, expected);
    }
}

static void never_writes_more_than_its_room(void **state)
{
    char text[CLOCK_TEXT_BYTES];

    clock_text(INT64_MAX, text);
    assert_memory_equal(text, "9999-12-31T23:59:59.", 20);
    clock_text(INT64_MIN, text);
    assert_memory_equal(text, "0000-01-01T00:00:00.", 20);
}

static void boottime_does_not_go_back(void **state)
{
    uint64_t before = clock_boottime();

    assert_true(before > 0);
    assert_true(clock_boottime() >= before);
    assert_true(clock_realtime_ms() > INT64_C(1577836800000)); /* 2020 */
}

static void knows_this_boot(void **state)
{
    char boot_id[CLOCK_BOOT_ID_BYTES];

    assert_int_equal(clock_boot_id(boot_id), 0);
    assert_int_equal(strlen(boot_id), CLOCK_BOOT_ID_BYTES - 1);
    assert_int_equal(strspn(boot_id, "0123456789abcdef-"), strlen(boot_id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_utc),
        cmocka_unit_test(agrees_with_libc_on_every_day),
        cmocka_unit_test(never_writes_more_than_its_room),
        cmocka_unit_test(boottime_does_not_go_back),
        cmocka_unit_test(knows_this_boot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
