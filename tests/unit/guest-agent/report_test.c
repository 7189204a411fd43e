/* SPDX-License-Identifier: Apache-2.0 */
/* report_test.c - the line's form, and docs/guest-helper.md against the code's words. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "guest-agent/oneshot.h"
#include "lib/cleanup.h"
#include "lib/json.h"

static cJSON *parse(struct buffer *line)
{
    struct error error = {0};
    cJSON *value = NULL;

    assert_int_equal(line->data[line->length - 1], '\n');
    assert_int_equal(
        json_parse(line->data, line->length, (struct json_limits){1 << 20, 4, 0}, &value, &error),
        0);
    buffer_done(line);
    return value;
}

/* What oneshot_run() puts around the objects. */
static void begin(struct buffer *line)
{
    assert_int_equal(buffer_append_text(line, "{\"version\":1,\"volumes\":["), 0);
}

static void end(struct buffer *line)
{
    assert_int_equal(buffer_append_text(line, "]}\n"), 0);
}

static void any_path_is_well_formed(void **state)
{
    static const struct report_volume first = {.path = "/a \"b\"\\\n\x01\xff",
                                               .file_system = "ext4",
                                               .device_count = 1,
                                               .device_bytes = UINT64_C(1) << 50,
                                               .error = REPORT_FAILED,
                                               .error_text = "it said: \"no\""},
                                      second = {.path = "/b"};
    struct buffer line = BUFFER_INIT(0);
    const cJSON *volumes;
    uint64_t bytes;
    cJSON *value;

    begin(&line);
    assert_int_equal(report_append(&line, &first), 0);
    assert_int_equal(report_append(&line, &second), 0);
    end(&line);
    value = parse(&line);
    volumes = json_member(value, "volumes");
    assert_int_equal(cJSON_GetArraySize(volumes), 2);
    assert_string_equal(json_string(cJSON_GetArrayItem(volumes, 0), "path"),
                        "/a \"b\"\\\n\x01\xef\xbf\xbd");
    assert_string_equal(json_string(cJSON_GetArrayItem(volumes, 0), "error_text"),
                        first.error_text);
    assert_int_equal(json_number(cJSON_GetArrayItem(volumes, 0), "device_bytes", &bytes), 0);
    assert_int_equal(bytes, first.device_bytes);
    assert_string_equal(json_string(cJSON_GetArrayItem(volumes, 1), "path"), "/b");
    cJSON_Delete(value);
}

/* As many as may be asked for, everything as long as it may be. */
static void a_report_is_not_larger_than_promised(void **state)
{
    enum { PATHS = 64, PATH_LENGTH = 255, PROMISED = 256 * 1024 };
    static struct report_volume volume = {.device_count = 16, .device_bytes = UINT64_MAX};
    struct buffer line = BUFFER_INIT(PROMISED);

    memset(volume.path, '\x01', PATH_LENGTH);
    memset(volume.file_system, 'x', sizeof(volume.file_system) - 1);
    memset(volume.layer, 'x', sizeof(volume.layer) - 1);
    memset(volume.error_text, 'x', sizeof(volume.error_text) - 1);
    volume.stats.abnormal = true;
    memset(volume.stats.condition, 'x', sizeof(volume.stats.condition) - 1);
    volume.stats.total = volume.stats.used = volume.stats.available = UINT64_MAX;
    begin(&line);
    for (int i = 0; i < PATHS; i++)
        assert_int_equal(report_append(&line, &volume), 0);
    end(&line);
    buffer_done(&line);
}

/* ---- the page */

static void read_page(struct buffer *page)
{
    cleanup(fd_closep) int fd = open("docs/guest-helper.md", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(buffer_read_all(page, fd), 0);
}

static void every_member_and_every_error_is_documented(void **state)
{
    struct buffer page = BUFFER_INIT(0), line = BUFFER_INIT(0);
    char row[64];
    const cJSON *volume, *member;
    cJSON *value;

    read_page(&page);
    begin(&line);
    for (int error = REPORT_DONE; error < REPORT_ERROR_COUNT; error++)
        assert_int_equal(report_append(&line, &(struct report_volume){.error = error}), 0);
    end(&line);
    value = parse(&line);
    cJSON_ArrayForEach(volume, json_member(value, "volumes"))
    {
        (void)snprintf(row, sizeof(row), "\n| `%s` |", json_string(volume, "error"));
        if (*json_string(volume, "error"))
            assert_non_null(strstr(page.data, row));
        cJSON_ArrayForEach(member, volume)
        {
            (void)snprintf(row, sizeof(row), "\"%s\":", member->string);
            assert_non_null(strstr(page.data, row)); /* the example */
            (void)snprintf(row, sizeof(row), "`%s`", member->string);
            assert_non_null(strstr(page.data, row)); /* the table */
        }
    }
    cJSON_Delete(value);
    buffer_done(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_path_is_well_formed),
        cmocka_unit_test(a_report_is_not_larger_than_promised),
        cmocka_unit_test(every_member_and_every_error_is_documented),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
