/* SPDX-License-Identifier: Apache-2.0 */
/* http_asked_test.c - requests in each dialect, and those that are none. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "api/http_routes.h"

static enum status_code read_with(enum http_dialect dialect, const char *path, const char *argument,
                                  const char *body, struct http_asked *ret_asked)
{
    const struct http_request request = {.path = path,
                                         .arguments = argument != NULL,
                                         .argument = {{"path", argument}},
                                         .body = body,
                                         .body_length = strlen(body)};
    struct error error = {0};
    enum status_code code;

    memset(ret_asked, 0, sizeof(*ret_asked));
    code = http_asked_read(dialect, &request, ret_asked, &error);
    assert_true(code == STATUS_OK || *error.text);
    return code;
}

static void a_volume_by_its_number(void **state)
{
    static const char path[] = "/v1/volumes/17/resize";
    struct http_asked asked;

    assert_int_equal(read_with(HTTP_VOLUME_RESIZE, path, NULL, "", &asked), STATUS_OK);
    assert_int_equal(asked.expand.target.volume_id, 17);
    assert_true(asked.resizes);
    assert_int_equal(asked.expand.required_bytes, 0);
    assert_int_equal(read_with(HTTP_VOLUME_RESIZE, path, NULL,
                               "{\"required_bytes\":5,\"Limit_Bytes\":\"9\"}", &asked),
                     STATUS_OK);
    assert_int_equal(asked.expand.required_bytes, 5);
    assert_int_equal(asked.expand.limit_bytes, 9);
    assert_int_equal(read_with(HTTP_VOLUME_STATS, "/v1/volumes/3/stats", NULL, "", &asked),
                     STATUS_OK);
    assert_int_equal(asked.expand.target.volume_id, 3);
    assert_false(asked.resizes);
}

static void the_shim_s_stats(void **state)
{
    static const char base[] = "/direct-volume/stats";
    struct http_asked asked;

    assert_int_equal(read_with(HTTP_SHIM_STATS, base, "/a b", "", &asked), STATUS_OK);
    assert_string_equal(asked.expand.target.target_path, "/a b");
    assert_int_equal(read_with(HTTP_SHIM_STATS, base, "/dev/loop1", "", &asked), STATUS_OK);
    assert_null(asked.expand.target.target_path);
    assert_string_equal(asked.expand.target.device, "/dev/loop1");
    assert_int_equal(read_with(HTTP_SHIM_STATS, "/direct-volume/stats/L2EvYg==", NULL, "", &asked),
                     STATUS_OK);
    assert_string_equal(asked.expand.target.target_path, "/a/b");
}

static void the_shim_s_resize(void **state)
{
    static const char *const good[] = {"{\"volumePath\":\"/v\",\"size\":123123}",
                                       "{\"VolumePath\":\"/v\",\"Size\":\"123123\"}",
                                       "{\"volumePath\":\"/v\",\"Size\":\"123.123k\"}",
                                       "{\"VOLUMEPATH\":\"/v\",\"SIZE\":123123,\"x\":null}",
                                       "{\"volumePath\":\"/v\",\"size\":123123,\"x\":1,\"X\":2}"};
    struct http_asked asked;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(
            read_with(HTTP_SHIM_RESIZE, "/direct-volume/resize", NULL, good[i], &asked), STATUS_OK);
        assert_string_equal(asked.expand.target.target_path, "/v");
        assert_int_equal(asked.expand.required_bytes, 123123);
        assert_true(asked.resizes);
    }
}

static void the_first_proposal(void **state)
{
    struct http_asked asked;

    assert_int_equal(
        read_with(HTTP_FS_STATS, "/fs-stats", NULL, "{\"block-device\":\"/dev/sdb\"}", &asked),
        STATUS_OK);
    assert_string_equal(asked.expand.target.device, "/dev/sdb");
    assert_null(asked.expand.target.sandbox_id);
    assert_int_equal(
        read_with(HTTP_FS_RESIZE, "/fs-resize", NULL,
                  "{\"block-device\":\"/dev/sdb\",\"pod-id\":\"p\",\"volume-size\":\"7\"}", &asked),
        STATUS_OK);
    assert_string_equal(asked.expand.target.sandbox_id, "p");
    assert_int_equal(asked.expand.required_bytes, 7);
    assert_int_equal(
        read_with(HTTP_FS_STATS, "/fs-stats", NULL, "{\"block-device\":\"bar\"}", &asked),
        STATUS_OK);
    assert_string_equal(asked.expand.target.device, "/dev/bar");
}

/* A path that is cut could be another volume's. */
static void paths_that_do_not_fit_are_refused(void **state)
{
    static struct http_asked asked;
    static char path[sizeof(asked.path) + 1], body[sizeof(asked.path) + 64];

    memset(path, 'x', sizeof(path) - 1);
    path[0] = '/';
    for (size_t shorter = 0; shorter < 2; shorter++) {
        const enum status_code code = shorter ? STATUS_OK : STATUS_INVALID_ARGUMENT;

        path[sizeof(path) - 1 - shorter] = '\0';
        assert_int_equal(read_with(HTTP_SHIM_STATS, "/direct-volume/stats", path, "", &asked),
                         code);
        (void)snprintf(body, sizeof(body), "{\"block-device\":\"%s\"}", path);
        assert_int_equal(read_with(HTTP_FS_STATS, "/fs-stats", NULL, body, &asked), code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_volume_by_its_number),
        cmocka_unit_test(the_shim_s_stats),
        cmocka_unit_test(the_shim_s_resize),
        cmocka_unit_test(the_first_proposal),
        cmocka_unit_test(paths_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
