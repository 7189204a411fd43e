/* SPDX-License-Identifier: Apache-2.0 */
/* http_routes_test.c - what each path answers, and which questions it refuses. */
#include "tests/unit/api/fixture.h"

#include "api/http_routes.h"
#include "lib/json.h"
#include "store/store_internal.h"

static const char *body_of(const struct buffer *reply)
{
    const char *end = strstr(buffer_text(reply), "\r\n\r\n");

    assert_non_null(end);
    return end + 4;
}

/* The error's code and reason; its shape is checked. */
static void expect_error(struct fixture *fixture, const char *method, const char *path,
                         unsigned status, const char *reason)
{
    cleanup(buffer_done) struct buffer reply = ask(fixture, method, path);
    cleanup(json_deletep) cJSON *error = NULL;
    const char *body = body_of(&reply);

    assert_int_equal(status_of(&reply), status);
    assert_int_equal(json_parse(body, strlen(body), JSON_LIMITS_HTTP, &error, NULL), 0);
    assert_string_equal(json_string(error, "reason"), reason);
    assert_non_null(json_string(error, "code"));
    assert_non_null(json_string(error, "message"));
}

static void every_path_answers(void **state)
{
    static const char *const paths[] = {
        "/healthz",     "/metrics",    "/readyz",       "/v1/status",
        "/v1/layers",   "/v1/volumes", "/v1/sandboxes", "/v1/devices",
        "/v1/mappings", "/v1/resizes", "/v1/cleanups",  "/v1/journal",
        "/v1/doctor",   "/",           "/status.css",   "/status.js",
    };

    for (size_t i = 0; i < array_length(paths); i++) {
        cleanup(buffer_done) struct buffer reply = ask(*state, "GET", paths[i]);
        cleanup(buffer_done) struct buffer head = ask(*state, "HEAD", paths[i]);
        cleanup(buffer_done) struct buffer over_tcp =
            ask_listener(*state, HTTP_LISTENER_PAGES, "GET", paths[i]);

        assert_int_equal(status_of(&reply), 200);
        assert_int_equal(status_of(&head), 200);
        assert_string_equal(body_of(&head), "");
        assert_int_equal(status_of(&over_tcp), 200);
        expect_error(*state, "POST", paths[i], 405, "wrong_method");
        expect_error(*state, "DELETE", paths[i], 405, "wrong_method");
    }
}

static cJSON *rows_of(struct fixture *fixture, const char *path)
{
    cleanup(buffer_done) struct buffer reply = ask(fixture, "GET", path);
    const struct json_limits limits = {64 << 20, 8, 0};
    const char *body = body_of(&reply);
    cJSON *rows = NULL;

    assert_int_equal(json_parse(body, strlen(body), limits, &rows, NULL), 0);
    return rows;
}

static void one_volume_is_an_object(void **state)
{
    cleanup(buffer_done) struct buffer over_tcp = {0};
    cleanup(json_deletep) cJSON *volume = NULL, *explained = NULL;

    add_volumes(*state, 2);
    volume = rows_of(*state, "/v1/volumes/2");
    assert_true(cJSON_IsObject(volume));
    assert_string_equal(json_string(volume, "pv"), "pv-1");
    explained = rows_of(*state, "/v1/volumes/2/explain");
    assert_string_equal(json_string(json_member(explained, "volume"), "pv"), "pv-1");
    assert_non_null(json_string(explained, "state_meaning"));
    assert_true(cJSON_IsNull(json_member(explained, "sandbox")));
    assert_true(cJSON_IsNull(json_member(explained, "mapping")));
    assert_true(cJSON_IsArray(json_member(explained, "remedies")));
    assert_true(cJSON_GetArraySize(json_member(explained, "known")) > 0);
    assert_true(cJSON_GetArraySize(json_member(explained, "journal")) > 0);
    assert_true(cJSON_IsArray(json_member(explained, "judged")));
    over_tcp = ask_listener(*state, HTTP_LISTENER_PAGES, "GET", "/v1/volumes/2/explain");
    assert_non_null(strstr(body_of(&over_tcp), "\"known\":["));
    assert_null(strstr(body_of(&over_tcp), "\"judged\""));
    expect_error(*state, "GET", "/v1/volumes/3", 404, "not_found");
    expect_error(*state, "GET", "/v1/volumes/3/explain", 404, "not_found");
    expect_error(*state, "GET", "/v1/volumes/0", 400, "bad_argument");
    expect_error(*state, "GET", "/v1/volumes/pv-1/explain", 400, "bad_argument");
    expect_error(*state, "GET", "/v1/volumes/2?live=1", 400, "bad_argument");
    expect_error(*state, "PUT", "/v1/volumes/2", 405, "wrong_method");
}

/* What comes after a NUL is not left out, as a C string would have it. */
static void a_path_ends_where_it_was_written_to_end(void **state)
{
    struct fixture *fixture = *state;

    expect_error(fixture, "GET", "/v1/volumes%00", 400, "bad_path");
    expect_error(fixture, "POST", "/v1/resync%00/never", 400, "bad_path");
    assert_int_equal(fixture->reconciler.resyncs, 0);
    expect_error(fixture, "GET", "/v1/%2576olumes", 404, "unknown_path");
    expect_status(fixture, "GET", "/v1/%76olumes", 200);
}

static void status_includes_health(void **state)
{
    struct fixture *fixture = *state;
    cleanup(buffer_done) struct buffer reply = {0};
    char host[128] = "\"host\":\"";

    fixture->reconciler.health.degraded = true;
    (void)strcpy(fixture->reconciler.health.problem, "database \"read-only\"");
    reply = ask(fixture, "GET", "/v1/status");
    assert_non_null(strstr(buffer_text(&reply), "\"problem\":\"database \\\"read-only\\\"\""));
    assert_non_null(strstr(buffer_text(&reply), "{\"name\":\"inotify\",\"up\":true,\"events\":7,"));
    assert_non_null(strstr(buffer_text(&reply), "\"summary\":{\"volumes\":0"));
    assert_int_equal(gethostname(host + strlen(host), sizeof(host) - strlen(host) - 1), 0);
    assert_non_null(strstr(buffer_text(&reply), host));
    expect_error(fixture, "GET", "/readyz", 503, "degraded");
    expect_status(fixture, "GET", "/healthz", 200);
    fixture->reconciler.health.synced = false;
    expect_error(fixture, "GET", "/readyz", 503, "not_synced");
}

static void the_node_is_examined(void **state)
{
    struct fixture *fixture = *state;
    cleanup(json_deletep) cJSON *findings = rows_of(fixture, "/v1/doctor");

    assert_string_equal(json_string(findings->child, "id"), "kernel");
    expect_error(fixture, "GET", "/v1/doctor?id=1", 400, "bad_argument");
    fixture->reconciler.examination_fails = true;
    expect_error(fixture, "GET", "/v1/doctor", 500, "store_failed");
}

static void gc_is_for_the_socket_only(void **state)
{
    struct fixture *fixture = *state;
    cleanup(buffer_done) struct buffer over_tcp =
        ask_listener(fixture, HTTP_LISTENER_PAGES, "POST", "/v1/gc");

    assert_int_equal(status_of(&over_tcp), 404);
    expect_error(fixture, "GET", "/v1/gc", 405, "wrong_method");
    expect_error(fixture, "POST", "/v1/gc?dry=1", 400, "bad_argument");
    expect_error(fixture, "POST", "/v1/gc?dry_run=yes", 400, "bad_argument");
    expect_status(fixture, "POST", "/v1/gc?dry_run=1", 200);
    assert_true(fixture->reconciler.dry_run);
    expect_status(fixture, "POST", "/v1/gc", 200);
    assert_false(fixture->reconciler.dry_run);
    fixture->reconciler.outcome = STATUS_FAILED_PRECONDITION;
    expect_error(fixture, "POST", "/v1/gc", 400, "refused");
    fixture->reconciler.outcome = STATUS_UNAVAILABLE;
    expect_error(fixture, "POST", "/v1/gc", 503, "not_now");
}

static void a_cleanup_is_restored_by_its_number(void **state)
{
    struct fixture *fixture = *state;
    cleanup(buffer_done) struct buffer over_tcp =
        ask_listener(fixture, HTTP_LISTENER_PAGES, "POST", "/v1/cleanups/7/restore");

    assert_int_equal(status_of(&over_tcp), 404);
    expect_status(fixture, "POST", "/v1/cleanups/7/restore", 200);
    assert_int_equal(fixture->reconciler.restored, 7);
    expect_error(fixture, "GET", "/v1/cleanups/7/restore", 405, "wrong_method");
    expect_error(fixture, "POST", "/v1/cleanups/x/restore", 400, "bad_argument");
    expect_error(fixture, "POST", "/v1/cleanups/99999999999999999999999999/restore", 400,
                 "bad_argument");
    expect_error(fixture, "POST", "/v1/cleanups//restore", 404, "unknown_path");
    expect_error(fixture, "POST", "/v1/cleanups/7/8/restore", 404, "unknown_path");
    expect_error(fixture, "POST", "/v1/cleanups/7/restored", 404, "unknown_path");
    fixture->reconciler.outcome = STATUS_NOT_FOUND;
    expect_error(fixture, "POST", "/v1/cleanups/7/restore", 404, "not_found");
    fixture->reconciler.outcome = STATUS_ALREADY_EXISTS;
    expect_error(fixture, "POST", "/v1/cleanups/7/restore", 409, "taken");
}

static void thousands_of_volumes_fit(void **state)
{
    cleanup(json_deletep) cJSON *rows = NULL;

    add_volumes(*state, 4000);
    rows = rows_of(*state, "/v1/volumes");
    assert_int_equal(cJSON_GetArraySize(rows), 4000);
}

/* The first row can be read and the second one cannot: the answer is an error, without any row. */
static void rows_that_cannot_be_read_are_an_error(void **state)
{
    struct fixture *fixture = *state;
    struct sql_connection *connection = &fixture->reconciler.store->connection;

    assert_int_equal(sql_execute(connection,
                                 "DROP VIEW audit_devices; CREATE VIEW audit_devices AS SELECT"
                                 " column1 AS first_seen, json(column2) AS model"
                                 " FROM (VALUES (1, '[]'), (2, '['))"),
                     0);
    expect_error(fixture, "GET", "/v1/devices", 500, "store_failed");
    assert_int_equal(sql_execute(connection, "DROP VIEW audit_devices"), 0);
    expect_error(fixture, "GET", "/v1/devices", 500, "store_failed");
    expect_status(fixture, "GET", "/v1/volumes", 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_path_answers),
        TEST(one_volume_is_an_object),
        TEST(a_path_ends_where_it_was_written_to_end),
        TEST(status_includes_health),
        TEST(gc_is_for_the_socket_only),
        TEST(a_cleanup_is_restored_by_its_number),
        TEST(thousands_of_volumes_fit),
        TEST(rows_that_cannot_be_read_are_an_error),
        TEST(the_node_is_examined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
