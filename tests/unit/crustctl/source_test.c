/* SPDX-License-Identifier: Apache-2.0 */
/* source_test.c - crustctl with a daemon: the real HTTP server in a process of its own, over a
 * store that differs from the database below the root, so that it shows who answered. */
#include "crustctl/crustctl.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "api/server.h"
#include "lib/loop.h"
#include "lib/path.h"
#include "tests/unit/crustctl/node.h"
#include "tests/unit/unasked_commands.h"
#include "tests/unit/volume_rows.h"

struct reconciler {
    struct store *store;
    bool resynced;
};

struct store_reader *reconciler_reader(struct reconciler *reconciler)
{
    return store_get_reader(reconciler->store);
}

void reconciler_get_modes(const struct reconciler *reconciler, struct reconciler_modes *ret_modes)
{
    *ret_modes = (struct reconciler_modes){.resize = "grow", .cleanup = "delete"};
}

const struct reconciler_findings *reconciler_get_findings(const struct reconciler *reconciler)
{
    static const struct reconciler_findings none;

    return &none;
}

void reconciler_resync(struct reconciler *reconciler)
{
    reconciler->resynced = true;
}

void reconciler_get_health(const struct reconciler *reconciler,
                           struct reconciler_health *ret_health)
{
    *ret_health = (struct reconciler_health){
        .synced = reconciler->resynced,
        .sources = 1,
        .source = {{"inotify", true, 7, 1}},
    };
}

enum status_code reconciler_gc(struct reconciler *reconciler, bool dry_run, int64_t volume_id,
                               struct buffer *ret_json, struct error *error)
{
    (void)buffer_append_format(
        ret_json,
        "[{\"volume_id\":7,\"key\":\"key7\",\"target_path\":\"/var/lib/kubelet/pods/a/volumes/"
        "kubernetes.io~csi/pvc-with-a-name-that-is-rather-long/mount\",\"decision\":\"%s\","
        "\"reason\":\"sandbox_ended\",\"cleanup_id\":3,\"evidence\":{}},{\"volume_id\":8,"
        "\"key\":\"key8\",\"target_path\":null,\"decision\":\"kept\","
        "\"reason\":\"grace\",\"cleanup_id\":null,\"evidence\":{\"waits_seconds\":58}}]",
        dry_run ? "would_remove" : "removing");
    return STATUS_OK;
}

enum status_code reconciler_restore(struct reconciler *reconciler, int64_t cleanup_id,
                                    struct error *error)
{
    static const enum status_code codes[] = {STATUS_OK, STATUS_NOT_FOUND, STATUS_ALREADY_EXISTS,
                                             STATUS_FAILED_PRECONDITION, STATUS_UNAVAILABLE};

    return error_set(error, (int)codes[cleanup_id], "this is why");
}

enum status_code reconciler_expand(struct reconciler *reconciler,
                                   const struct reconciler_expand *asked, reconciler_expanded *done,
                                   void *userdata, struct expansion **ret_expansion,
                                   struct error *error)
{
    return error_set(error, STATUS_NOT_FOUND, "there is no such volume here");
}

struct expansion *reconciler_expand_cancel(struct expansion *expansion)
{
    return NULL;
}

int reconciler_examine(struct reconciler *reconciler, struct buffer *ret_json, struct error *error)
{
    return error_set(error, -1, "not examined");
}

struct daemon {
    struct node *node;
    pid_t pid;
};

static void set_resizable(const struct node *node, int64_t volume_id, const char *resizable,
                          enum volume_reason reason)
{
    struct store_volume volume;

    (void)store_get_volume(node->store, volume_id, &volume);
    (void)store_set_resizable(node->store, &volume, resizable, reason, NULL);
}

/* The child: serves until it is killed; one byte to `ready` once it listens. */
static void serve(const char *root_path, int ready)
{
    const struct store_options memory = {.boot_id = "boot", .max_rows = 1000};
    struct node inside = {0};
    struct reconciler reconciler = {0};
    struct http_server_options options = {.socket_path = "/run/crustd/http.sock"};
    struct http_server *server;
    struct loop loop;

    if (store_open(&memory, &inside.store, NULL) != 0 || loop_init(&loop) != 0 ||
        path_open_root(root_path, &options.root) != 0)
        _exit(1);
    node_fill(&inside);
    (void)store_begin(inside.store);
    (void)row_set_state(inside.store, inside.grown, STATE_IN_SYNC, REASON_NONE, NULL);
    set_resizable(&inside, inside.grown, "unknown", REASON_GUEST_NOT_ASKED);
    set_resizable(&inside, inside.blocked, "no", REASON_MONITOR_MISSING);
    (void)store_commit(inside.store);
    reconciler.store = inside.store;
    if (http_server_new(&loop, &reconciler, &options, &server, NULL) != 0 ||
        write(ready, "", 1) != 1)
        _exit(1);
    loop_run(&loop);
    _exit(0);
}

static int set_up(void **state)
{
    struct daemon *daemon = calloc(1, sizeof(*daemon));
    void *node = NULL;
    int ready[2];
    char byte;

    node_set_up(&node);
    daemon->node = node;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    daemon->pid = fork();
    assert_true(daemon->pid >= 0);
    if (daemon->pid == 0)
        serve(daemon->node->root, ready[1]);
    fd_close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    fd_close(ready[0]);
    *state = daemon;
    return 0;
}

static void stop(struct daemon *daemon)
{
    if (daemon->pid == 0)
        return;
    assert_int_equal(kill(daemon->pid, SIGKILL), 0);
    assert_int_equal(waitpid(daemon->pid, NULL, 0), daemon->pid);
    daemon->pid = 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"/run/crustd/http.sock", "/run/crustd", "/run"};
    struct daemon *daemon = *state;
    void *node = daemon->node;
    char path[256];

    stop(daemon);
    for (size_t i = 0; i < array_length(names); i++) {
        node_path(daemon->node, names[i], path);
        (void)remove(path);
    }
    free(daemon);
    return node_tear_down(&node);
}

static void expect(const struct daemon *daemon, const char *words, int code, const char *text)
{
    cleanup(buffer_done) struct buffer out = {0};
    const int returned = node_run(daemon->node, words, &out);

    if (returned != code || !strstr(buffer_text(&out), text))
        fail_msg("%s: %d, \"%s\" is not in:\n%s", words, returned, text, buffer_text(&out));
}

static void the_daemon_is_asked_first(void **state)
{
    struct daemon *daemon = *state;

    expect(daemon, "volumes", EXIT_DONE, "in_sync");
    expect(daemon, "explain pvc-ledger", EXIT_DONE, "extra_monitor_socket");
    expect(daemon, "status", EXIT_DONE, "source inotify    up, 7 events, 1 overflows");
    expect(daemon, "status -o json", EXIT_DONE, "\"by_state\":{");
    stop(daemon);
    expect(daemon, "volumes", EXIT_DONE, "block_grown/agent_unsupported");
}

/* The text stands in it, and only once. */
static void expect_once(const struct daemon *daemon, const char *words, const char *text)
{
    cleanup(buffer_done) struct buffer out = {0};
    const char *found;

    assert_int_equal(node_run(daemon->node, words, &out), EXIT_DONE);
    found = strstr(buffer_text(&out), text);
    if (!found || strstr(found + 1, text))
        fail_msg("not once \"%s\":\n%s", text, buffer_text(&out));
}

static void explain_begins_with_what_to_do_and_says_nothing_twice(void **state)
{
    const struct daemon *daemon = *state;

    expect(daemon, "explain pvc-ledger", EXIT_DONE,
           ": blocked/monitor_missing\n\nWhat to do\n  - ");
    expect_once(daemon, "explain pvc-ledger", "has no control socket");
    expect_once(daemon, "explain pvc-ledger", "crust-qemu.toml");
    expect_once(daemon, "explain pvc-ledger", "What is known\n");
}

static void explain_prints_the_remedy(void **state)
{
    struct daemon *daemon = *state;

    expect(daemon, "explain pvc-ledger", EXIT_DONE, "extra_monitor_socket");
    expect(daemon, "explain pvc-ledger", EXIT_DONE, "64 MiB less than the device");
    expect(daemon, "explain pvc-ledger", EXIT_DONE, "judged now: would_remove, sandbox_ended. ");
    expect(daemon, "explain pvc-orders", EXIT_DONE, "is not known (guest_not_asked)");
    expect(daemon, "explain 3", EXIT_DONE, "No live sandbox");
    expect(daemon, "explain nothing", EXIT_NOT_FOUND, "");
    stop(daemon);
    expect(daemon, "explain pvc-ledger", EXIT_UNREACHABLE, "");
}

static void names_are_encoded(void **state)
{
    struct daemon *daemon = *state;
    const char *path = "/var/lib/kubelet/pods/5bd1cbf5-02ab-4a1b-9fd7-1d4b8f6f0a51/volumes/"
                       "kubernetes.io~csi/pvc-orders/mount";
    char words[256];

    (void)snprintf(words, sizeof(words), "volume %s", path);
    expect(daemon, words, EXIT_DONE, "in_sync");
    expect(daemon, "volume a&live=1#%00", EXIT_NOT_FOUND, "");
}

static void health_follows_the_daemon(void **state)
{
    struct daemon *daemon = *state;

    expect(daemon, "health", EXIT_FAILED, "");
    expect(daemon, "health -o json", EXIT_FAILED, "\"reason\":\"not_synced\"");
    expect(daemon, "resync", EXIT_DONE, "observes everything again");
    expect(daemon, "health", EXIT_DONE, "ready");
    stop(daemon);
    expect(daemon, "health", EXIT_UNREACHABLE, "");
}

static void stale_metadata_is_a_table_with_reasons(void **state)
{
    struct daemon *daemon = *state;
    cleanup(buffer_done) struct buffer out = {0};
    char *line;

    expect(daemon, "gc", EXIT_DONE, "removing  sandbox_ended  -\n");
    expect(daemon, "gc", EXIT_DONE, "kept      grace          58 s\n");
    expect(daemon, "gc --dry-run -o json", EXIT_DONE, "\"decision\":\"would_remove\"");
    assert_int_equal(node_run(daemon->node, "gc --dry-run", &out), EXIT_DONE);
    assert_non_null(strstr(buffer_text(&out), "8  key8"));
    assert_non_null(strstr(buffer_text(&out), "  grace: "));
    for (line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n"))
        if (display_width(line) > 80)
            fail_msg("%s", line);
    stop(daemon);
    expect(daemon, "gc", EXIT_UNREACHABLE, "");
}

static void restore_exits_with_the_daemons_result(void **state)
{
    expect(*state, "restore 0", EXIT_DONE, "restored\n");
    expect(*state, "restore 1", EXIT_NOT_FOUND, "");
    expect(*state, "restore 2", EXIT_BLOCKED, "");
    expect(*state, "restore 3", EXIT_BLOCKED, "");
    expect(*state, "restore 4", EXIT_NOT_NOW, "");
    expect(*state, "restore pvc-orders", EXIT_USAGE, "");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_daemon_is_asked_first),
        TEST(explain_begins_with_what_to_do_and_says_nothing_twice),
        TEST(explain_prints_the_remedy),
        TEST(names_are_encoded),
        TEST(health_follows_the_daemon),
        TEST(stale_metadata_is_a_table_with_reasons),
        TEST(restore_exits_with_the_daemons_result),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
