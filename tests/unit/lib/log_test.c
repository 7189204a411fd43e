/* SPDX-License-Identifier: Apache-2.0 */
/* log_test.c - what a line looks like, and that nothing from outside can forge one. */
#include "tests/unit/test.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/log.h"

static int ends[2];

static int open_log(void **state)
{
    if (pipe(ends) < 0)
        return -1;
    log_set_descriptor(ends[1]);
    log_configure(LOG_INFO, LOG_LOGFMT);
    return 0;
}

static int close_log(void **state)
{
    log_set_descriptor(STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

/* What one log call wrote: one write(2) is one read(2) here. */
static const char *take_line(void)
{
    static char line[2 * LOG_LINE_BYTES];
    ssize_t length = read(ends[0], line, sizeof(line) - 1);

    assert_true(length > 0);
    line[length] = '\0';
    return line;
}

/* The line without its time. */
static const char *take_rest(void)
{
    const char *line = take_line();

    assert_memory_equal(line, "time=", 5);
    assert_int_equal(line[29], ' ');
    return line + 30;
}

static void writes_logfmt(void **state)
{
    struct log_ids ids = {.volume = 7, .sandbox = "a1b2", .device = "/dev/loop0", .source = "x y"};

    log_info(&ids, "grew to %d", 1024);
    assert_string_equal(take_rest(), "level=info volume=7 sandbox=a1b2 device=/dev/loop0 "
                                     "source=\"x y\" msg=\"grew to 1024\"\n");
    log_error(NULL, "x");
    assert_string_equal(take_rest(), "level=error msg=\"x\"\n");
}

static void escapes_values(void **state)
{
    struct log_ids ids = {.sandbox = "a\" level=error msg=\"b\nc"};

    log_warning(&ids, "%s", "1\n2\x1b[0m\xFF");
    assert_string_equal(take_rest(), "level=warning sandbox=\"a\\\" level=error msg=\\\"b\\nc\" "
                                     "msg=\"1\\n2\\u001b[0m\xEF\xBF\xBD\"\n");
    ids.sandbox = "";
    log_info(&ids, "x");
    assert_string_equal(take_rest(), "level=info msg=\"x\"\n");
}

static void writes_json(void **state)
{
    struct log_ids ids = {.volume = -3, .sandbox = "a\"b", .source = "s"};
    const char *line;
    cJSON *object;

    log_configure(LOG_INFO, LOG_JSON);
    log_info(&ids, "%s", "q\"\n\x80");
    line = take_line();
    assert_int_equal(line[strlen(line) - 1], '\n');
    object = cJSON_Parse(line);
    assert_non_null(object);
    assert_string_equal(cJSON_GetObjectItem(object, "level")->valuestring, "info");
    assert_int_equal(cJSON_GetObjectItem(object, "volume")->valueint, -3);
    assert_string_equal(cJSON_GetObjectItem(object, "sandbox")->valuestring, "a\"b");
    assert_string_equal(cJSON_GetObjectItem(object, "msg")->valuestring, "q\"\n\xEF\xBF\xBD");
    assert_null(cJSON_GetObjectItem(object, "device"));
    cJSON_Delete(object);
}

/* Long text is cut, the line still closes, in both formats and wherever the cut falls. */
static void cuts_long_lines(void **state)
{
    static char text[2 * LOG_LINE_BYTES];

    for (size_t length = LOG_LINE_BYTES - 120; length < sizeof(text) - 1;
         length += length < LOG_LINE_BYTES ? 1 : 1000) {
        struct log_ids ids = {.sandbox = text};
        const char *line;
        cJSON *object;

        memset(text, '\n', length); /* two bytes each when escaped */
        memset(text, 'a', length - 50);
        text[length] = '\0';
        log_configure(LOG_INFO, LOG_JSON);
        log_info(length % 2 ? &ids : NULL, "%s", text);
        line = take_line();
        assert_true(strlen(line) <= LOG_LINE_BYTES);
        object = cJSON_Parse(line);
        assert_non_null(object);
        cJSON_Delete(object);
        log_configure(LOG_INFO, LOG_LOGFMT);
        log_info(&ids, "%s", text);
        line = take_line();
        assert_true(strlen(line) <= LOG_LINE_BYTES);
        assert_string_equal(line + strlen(line) - 2, "\"\n");
    }
}

static void name_seven(void *userdata, int64_t volume, char ret_pv[static LOG_PV_BYTES])
{
    ++*(int *)userdata;
    if (volume == 7)
        (void)snprintf(ret_pv, LOG_PV_BYTES, "pvc-7");
}

/* Whoever logs need not know it. */
static void names_the_volume_and_the_node(void **state)
{
    int asked = 0;

    log_set_namer(name_seven, &asked);
    log_info(&(struct log_ids){.volume = 7, .device = "/dev/loop0"}, "x");
    assert_string_equal(take_rest(), "level=info volume=7 pv=pvc-7 device=/dev/loop0 msg=\"x\"\n");
    log_info(&(struct log_ids){.volume = 8}, "x");
    assert_string_equal(take_rest(), "level=info volume=8 msg=\"x\"\n");
    log_info(&(struct log_ids){.source = "uevent"}, "x");
    (void)take_line();
    log_debug(&(struct log_ids){.volume = 7}, "not written, so not asked for");
    assert_int_equal(asked, 2);
    log_set_namer(NULL, NULL);
    log_set_node("node-1");
    log_info(&(struct log_ids){.volume = 7}, "x");
    assert_string_equal(take_rest(), "level=info node=node-1 volume=7 msg=\"x\"\n");
    log_set_node(NULL);
}

/* As under systemd, whose journal has times and takes priorities. Another stream with the variable
 * inherited is not it. */
static void tells_journald_the_priority(void **state)
{
    struct stat st;
    char stream[64];

    assert_int_equal(fstat(ends[1], &st), 0);
    (void)snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_configure(LOG_DEBUG, LOG_LOGFMT);
    log_error(NULL, "x");
    assert_string_equal(take_line(), "<3>level=error msg=\"x\"\n");
    log_warning(&(struct log_ids){.volume = 7}, "x");
    assert_string_equal(take_line(), "<4>level=warning volume=7 msg=\"x\"\n");
    log_info(NULL, "x");
    assert_string_equal(take_line(), "<6>level=info msg=\"x\"\n");
    log_debug(NULL, "x");
    assert_string_equal(take_line(), "<7>level=debug msg=\"x\"\n");
    log_configure(LOG_INFO, LOG_JSON);
    log_info(NULL, "x");
    assert_string_equal(take_line(), "<6>{\"level\":\"info\",\"msg\":\"x\"}\n");

    (void)snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev,
                   (uintmax_t)st.st_ino + 1);
    setenv("JOURNAL_STREAM", stream, 1);
    log_configure(LOG_INFO, LOG_LOGFMT);
    log_info(NULL, "x");
    assert_string_equal(take_rest(), "level=info msg=\"x\"\n");
    unsetenv("JOURNAL_STREAM");
}

static void keeps_to_its_level(void **state)
{
    log_debug(NULL, "hidden");
    log_configure(LOG_ERROR, LOG_LOGFMT);
    log_warning(NULL, "hidden");
    log_error(NULL, "shown");
    assert_string_equal(take_rest(), "level=error msg=\"shown\"\n");
    log_configure(LOG_DEBUG, LOG_LOGFMT);
    log_debug(NULL, "shown");
    assert_string_equal(take_rest(), "level=debug msg=\"shown\"\n");
}

static void leaves_errno_alone(void **state)
{
    errno = EXDEV;
    log_info(NULL, "x");
    assert_int_equal(errno, EXDEV);
    (void)take_line();
    log_set_descriptor(-1);
    log_info(NULL, "lost");
    assert_int_equal(errno, EXDEV);
}

static void knows_names(void **state)
{
    enum log_level level = LOG_ERROR;
    enum log_format format = LOG_LOGFMT;

    assert_int_equal(log_level_from_name("debug", &level), 0);
    assert_int_equal(level, LOG_DEBUG);
    assert_int_equal(log_level_from_name("Debug", &level), -EINVAL);
    assert_int_equal(log_format_from_name("json", &format), 0);
    assert_int_equal(format, LOG_JSON);
    assert_int_equal(log_format_from_name("", &format), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes_logfmt, open_log, close_log),
        cmocka_unit_test_setup_teardown(escapes_values, open_log, close_log),
        cmocka_unit_test_setup_teardown(writes_json, open_log, close_log),
        cmocka_unit_test_setup_teardown(cuts_long_lines, open_log, close_log),
        cmocka_unit_test_setup_teardown(names_the_volume_and_the_node, open_log, close_log),
        cmocka_unit_test_setup_teardown(tells_journald_the_priority, open_log, close_log),
        cmocka_unit_test_setup_teardown(keeps_to_its_level, open_log, close_log),
        cmocka_unit_test_setup_teardown(leaves_errno_alone, open_log, close_log),
        cmocka_unit_test(knows_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
