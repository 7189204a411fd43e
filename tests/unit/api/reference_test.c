/* SPDX-License-Identifier: Apache-2.0 */
/* reference_test.c - docs/reference/http.md and metrics.md against the server. */
#include "tests/unit/api/fixture.h"

#include "store/cleanups.h"
#include "store/drive_mounts.h"
#include "store/sandboxes.h"
#include "tests/unit/reference.h"
#include "tests/unit/volume_rows.h"

/* ---- metrics ---- */

/* One of everything that has labels, so that every family has a sample. */
static void add_samples(struct fixture *fixture)
{
    struct store *store = fixture->reconciler.store;
    const struct store_guest_stats stats = {
        .binding_id = 1, .has_bytes = true, .used = 5, .available = 7};
    const struct store_device device = {
        .kind = DEVICE_KIND_BLOCK, .name = "/dev/loop1", .major = 7, .minor = 1, .size_bytes = 2};
    const struct store_stale stale = {.reason = STALE_REASON_BREAKER};
    const struct store_drive_mount_request drive = {.drive_id = "d",
                                                    .sandbox_id = "s1",
                                                    .host_path = "/dev/vg/data",
                                                    .vm_path = "/mnt/data",
                                                    .fs_type = "ext4"};
    struct store_volume volume = {.volume_id = 1};
    int64_t drive_ref;
    bool changed = false;
    int64_t device_id;

    add_volumes(fixture, 1);
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_put_device(store, &device, &device_id, &changed), 0);
    assert_int_equal(store_set_volume_device(store, 1, device_id, &changed), 0);
    bind_first_volume(store);
    assert_int_equal(store_put_hypervisor_result(
                         store, &(struct store_hypervisor_result){.volume_id = 1, .bytes = 1}),
                     0);
    assert_int_equal(store_set_orphaned(store, "s1", true, NULL, 0, &changed), 0);
    assert_int_equal(store_put_guest_stats(store, 1, &stats, &changed), 0);
    assert_int_equal(row_open_resize(store, 1, 1, 2), 0);
    assert_int_equal(row_set_state(store, 1, STATE_BLOCKED, REASON_READ_ONLY, NULL), 0);
    assert_int_equal(store_set_resizable(store, &volume, "no", REASON_NO_DEVICE, NULL), 0);
    assert_int_equal(store_note_stale(store, 1, &stale), 0);
    assert_int_equal(store_add_drive_mount(store, &drive, "crust-abcdefghijklmn", &drive_ref), 0);
    assert_int_equal(store_commit(store), 0);
    operations_note(&fixture->operations, "call", STATUS_OK, clock_boottime());
    fixture->reconciler.per_volume = true;
    fixture->reconciler.findings.checks = 1;
}

/* The labels of a family's first sample, from its name on; a histogram's own "le" does not count.
 */
static void read_labels(const char *sample, const char *name, char *ret_labels, size_t size)
{
    const char *at = strstr(sample, name);

    *ret_labels = '\0';
    if (!at || strcspn(at, "{") > strcspn(at, "\n"))
        return;
    for (at += strcspn(at, "{"); *at == '{' || *at == ','; at += strcspn(at, "\"") + 1) {
        char label[64] = "";
        size_t length = strcspn(++at, "=");

        assert_true(length < sizeof(label));
        memcpy(label, at, length);
        if (strcmp(label, "le") != 0)
            reference_append(ret_labels, size, label);
        at += length + 2;
    }
}

static void metrics_are_as_the_page_has_them(void **state)
{
    cleanup(buffer_done) struct buffer reply = {0};
    struct reference page;
    const char *at;

    add_samples(*state);
    reply = ask(*state, "GET", "/metrics");
    at = buffer_text(&reply);
    reference_open(&page, "docs/reference/metrics.md", "metrics");
    while ((at = strstr(at, "# TYPE "))) {
        char name[128], type[16], labels[256];

        assert_int_equal(sscanf(at, "# TYPE %127s %15s", name, type), 2);
        at += strcspn(at, "\n") + 1;
        if (strncmp(at, name, strlen(name)) != 0)
            fail_msg("%s has no sample here", name);
        read_labels(at, name, labels, sizeof(labels));
        reference_expect(&page, name);
        reference_expect_cell(&page, 1, type);
        reference_expect_cell(&page, 2, labels);
        reference_expect_words(&page, 3);
    }
    reference_expect_end(&page);
}

/* ---- HTTP ---- */

/* By a method that no path has: 405 with those that it has where the path is served, 404 elsewhere.
 */
static bool is_served(struct fixture *fixture, enum http_listener listener, const char *path,
                      const char *method)
{
    cleanup(buffer_done) struct buffer reply = ask_listener(fixture, listener, "PATCH", path);
    const char *allow = strstr(buffer_text(&reply), "\r\nAllow: ");
    char methods[64];

    if (status_of(&reply) == 404)
        return false;
    assert_int_equal(status_of(&reply), 405);
    assert_non_null(allow);
    assert_int_equal(sscanf(allow, "\r\nAllow: %63[^\r]", methods), 1);
    return strstr(methods, method);
}

/* Without the rows of a table that only the source file has, no missing page row would be seen. */
static unsigned count_routes(void)
{
    FILE *file = fopen("api/http_routes.c", "re");
    char line[512];
    unsigned routes = 0;

    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        routes += strncmp(line, "    {\"/", 7) == 0;
    (void)fclose(file);
    return routes;
}

static void paths_are_as_the_page_has_them(void **state)
{
    struct reference page;
    unsigned rows = 0;

    reference_open(&page, "docs/reference/http.md", "routes");
    for (; reference_next(&page); rows++) {
        char on[64] = "";

        if (is_served(*state, HTTP_LISTENER_SOCKET, page.cell[0], page.cell[1]))
            reference_append(on, sizeof(on), "socket");
        if (is_served(*state, HTTP_LISTENER_PAGES, page.cell[0], page.cell[1]))
            reference_append(on, sizeof(on), "pages");
        if (is_served(*state, HTTP_LISTENER_METRICS, page.cell[0], page.cell[1]))
            reference_append(on, sizeof(on), "metrics");
        reference_expect_cell(&page, 2, on);
        reference_expect_words(&page, 4);
    }
    reference_close(&page);
    assert_int_equal(rows, count_routes());
}

static void errors_have_their_http_status(void **state)
{
    struct reference page;

    reference_open(&page, "docs/reference/http.md", "codes");
    for (int code = STATUS_CANCELLED; code <= STATUS_UNAVAILABLE; code++) {
        char status[16];

        if (code == 2 || code == 10) /* UNKNOWN and ABORTED, which nothing here says */
            continue;
        (void)snprintf(status, sizeof(status), "%u", status_of_http((enum status_code)code));
        reference_expect(&page, status_name(code));
        reference_expect_cell(&page, 1, status);
    }
    reference_expect_end(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(metrics_are_as_the_page_has_them),
        TEST(paths_are_as_the_page_has_them),
        cmocka_unit_test(errors_have_their_http_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
