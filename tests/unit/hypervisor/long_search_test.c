/* SPDX-License-Identifier: Apache-2.0 */
/* long_search_test.c - a VMM with more drives, behind longer paths, than are examined in one pass
 * of the loop. */
#include "tests/unit/hypervisor/http_call.h"

#include <sys/resource.h>

#include "hypervisor/qemu_search.h"
#include "hypervisor/vmm_http.h"
#include "hypervisor/vmm_process.h"

enum { LINKS = 39, DETOURS = 800, DRIVES = 400, LINK_BYTES = DETOURS * 5 + 16 };

/* Where link0 is the first of as many links as there may be, each as long as it may be. */
static void make_links(const struct http_server *server)
{
    char text[LINK_BYTES], path[SCRATCH_BYTES + 16];
    size_t length = 0;

    (void)snprintf(path, sizeof(path), "%s/a", server->directory);
    assert_int_equal(mkdir(path, 0700), 0);
    for (unsigned i = 0; i < DETOURS; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "a/../");
    for (unsigned i = 0; i < LINKS; i++) {
        (void)snprintf(text + length, sizeof(text) - length, "link%u", i + 1);
        (void)snprintf(path, sizeof(path), "%s/link%u", server->directory, i);
        assert_int_equal(symlink(text, path), 0);
    }
    (void)snprintf(path, sizeof(path), "%s/link%u", server->directory, LINKS);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* A path of its own for each number. */
static void append_detour(struct buffer *body, unsigned number)
{
    for (; number; number /= 2)
        buffer_append_text(body, number % 2 ? "/" : "./");
}

/* The answer to vm.info: the device is the last one. */
static int append_disks(const struct http_server *server, struct buffer *body)
{
    buffer_append_text(body, "HTTP/1.1 200 \r\nConnection: close\r\n\r\n{\"config\":{\"disks\":[");
    for (unsigned i = 0; i < DRIVES; i++) {
        buffer_append_format(body, "{\"id\":\"more%u\",\"path\":\"%s/", i, server->directory);
        append_detour(body, i);
        buffer_append_text(body, "link0\"},");
    }
    return buffer_append_text(
        body, "{\"id\":\"last\",\"path\":\"$DEVICE\"}]},\"state\":\"Running\",\"device_tree\":{}}");
}

static void remove_links(const struct http_server *server)
{
    char path[SCRATCH_BYTES + 16];

    for (unsigned i = 0; i < LINKS; i++) {
        (void)snprintf(path, sizeof(path), "%s/link%u", server->directory, i);
        assert_int_equal(unlink(path), 0);
    }
    (void)snprintf(path, sizeof(path), "%s/link%u", server->directory, LINKS);
    assert_int_equal(rmdir(path), 0);
    (void)snprintf(path, sizeof(path), "%s/a", server->directory);
    assert_int_equal(rmdir(path), 0);
}

static void write_script(const struct http_server *server, struct http_script *script,
                         struct buffer *body)
{
    make_links(server);
    assert_int_equal(append_disks(server, body), 0);
    script[0] = (struct http_script){"vmm.ping", HTTP_JSON("200", "{\"version\":\"52.0\"}")};
    script[1] = (struct http_script){"vm.info", buffer_text(body)};
}

static void finds_the_last_of_them(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct http_server *server = *state;
    struct hypervisor_reply reply;
    struct http_script script[2];

    http_call_need_device(server);
    write_script(server, script, &body);
    reply = http_call_converse(server, HYPERVISOR_CLOUD_HYPERVISOR, HYPERVISOR_QUERY, script, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_string_equal(reply.drive_id, "last");
    remove_links(server);
}

#define PATH_OF_LAST(path)                                                                         \
    {                                                                                              \
        "vm.info", HTTP_JSON("200", "{\"config\":{\"disks\":[{\"id\":\"last\",\"path\":\"" path    \
                                    "\"}]},\"state\":\"Running\",\"device_tree\":{}}")             \
    }

static void reads_the_drives_anew_before_it_resizes_one(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct http_server *server = *state;
    struct hypervisor_reply reply;
    struct http_script script[4] = {
        [2] = PATH_OF_LAST("$DEVICE"),
        {"PUT /api/v1/vm.resize-disk", HTTP_NO_CONTENT},
    };

    http_call_need_device(server);
    write_script(server, script, &body);
    reply = http_call_converse(server, HYPERVISOR_CLOUD_HYPERVISOR, HYPERVISOR_RESIZE, script, 4);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_string_equal(reply.drive_id, "last");
    remove_links(server);
}

static void does_not_resize_what_has_changed_meanwhile(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct http_server *server = *state;
    struct hypervisor_reply reply;
    struct http_script script[3] = {[2] = PATH_OF_LAST("/dev/null")};

    http_call_need_device(server);
    write_script(server, script, &body);
    reply = http_call_converse(server, HYPERVISOR_CLOUD_HYPERVISOR, HYPERVISOR_RESIZE, script, 3);
    assert_int_equal(reply.outcome, HYPERVISOR_UNREACHABLE);
    assert_non_null(strstr(reply.error.text, "have changed while they were examined"));
    remove_links(server);
}

/* ---- two VMMs ---- */

struct pair {
    struct http_server *server;
    struct vmm_http vmm[2];
    struct loop_timer timer;
    unsigned order[2], ended; /* which of them ended first */
};

static void on_one_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                        void *userdata)
{
    struct pair *pair = userdata;

    (void)reply;
    pair->order[pair->ended++] = (unsigned)(container_of(call, struct vmm_http, call) - pair->vmm);
    if (pair->ended == 2)
        loop_stop(&pair->server->loop);
}

static void on_found(struct vmm_http *vmm, const struct drive *drive)
{
    (void)vmm;
    (void)drive;
    fail_msg("a query resizes nothing");
}

/* Both answer in one pass. */
static void on_both(struct loop_timer *timer)
{
    struct pair *pair = container_of(timer, struct pair, timer);

    for (unsigned i = 0; i < 2; i++)
        vmm_http_find(&pair->vmm[i], "", on_found);
}

static void prepare(struct pair *pair, struct vmm_http *vmm)
{
    vmm->call = (struct hypervisor_call){
        .loop = &pair->server->loop,
        .ops = &hypervisor_cloud_hypervisor_ops,
        .request = http_call_request(pair->server, HYPERVISOR_QUERY),
        .done = on_one_done,
        .userdata = pair,
    };
    vmm->until_ns = UINT64_MAX;
}

static void add_drives(struct pair *pair)
{
    struct drive drive = {.id = "0"};
    struct buffer path = BUFFER_INIT(0);

    for (unsigned i = 0; i < DRIVES; i++) {
        (void)snprintf(drive.id, sizeof(drive.id), "%u", i);
        buffer_clear(&path);
        buffer_append_format(&path, "%s/", pair->server->directory);
        append_detour(&path, i);
        buffer_append_text(&path, "link0");
        assert_int_equal(drive_report_add(&pair->vmm[0].report, &drive, buffer_text(&path), NULL),
                         0);
    }
    assert_int_equal(drive_report_add(&pair->vmm[1].report, &drive, "/etc/passwd", NULL), 0);
    buffer_done(&path);
}

static void one_with_a_long_search_leaves_the_others_their_turn(void **state)
{
    struct pair pair = {.server = *state};

    make_links(pair.server);
    prepare(&pair, &pair.vmm[0]);
    prepare(&pair, &pair.vmm[1]);
    add_drives(&pair);
    loop_timer_start(&pair.server->loop, &pair.timer, 0, on_both);
    loop_run(&pair.server->loop);
    assert_int_equal(pair.order[0], 1);
    assert_int_equal(pair.order[1], 0);
    loop_timer_stop(&pair.timer);
    remove_links(pair.server);
}

static void gives_up_at_the_deadline(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct http_server *server = *state;
    struct hypervisor_request request = http_call_request(server, HYPERVISOR_QUERY);
    struct hypervisor_reply reply;
    struct http_script script[2];

    request.deadline_ns = 30 * NSEC_PER_MSEC;
    write_script(server, script, &body);
    http_server_listen(server, script, 2);
    reply = http_call_run(server, HYPERVISOR_CLOUD_HYPERVISOR, &request);
    assert_int_equal(reply.outcome, HYPERVISOR_UNREACHABLE);
    assert_int_equal(reply.list, HYPERVISOR_LIST_UNREAD);
    remove_links(server);
}

static void may_be_freed_meanwhile(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct http_server *server = *state;
    struct hypervisor_request request = http_call_request(server, HYPERVISOR_QUERY);
    struct http_call never = {.server = server};
    struct hypervisor_call *call;
    struct http_script script[2];

    write_script(server, script, &body);
    http_server_listen(server, script, 2);
    assert_int_equal(hypervisor_call_new(&server->loop, HYPERVISOR_CLOUD_HYPERVISOR, &request,
                                         http_call_on_done, &never, &call),
                     0);
    while (server->position < 2 || server->output.length)
        loop_run_once(&server->loop);
    loop_run_once(&server->loop);
    assert_null(hypervisor_call_free(call));
    assert_int_equal(never.count, 0);
    remove_links(server);
}

/* ---- the memory of a search ---- */

static struct vmm_process open_process(struct vmm_memory *memory)
{
    struct vmm_process process;

    assert_int_equal(vmm_process_init(&process, getpid(), NULL), 0);
    vmm_process_use_memory(&process, memory);
    return process;
}

static int examine(struct vmm_process *process, const char *path)
{
    struct vmm_identity identity;

    return process->resolver.path(&process->resolver, path, &identity);
}

enum { TIME_IS_OVER = -ETIME };

static void goes_on_with_what_it_remembers(void **state)
{
    struct vmm_memory memory = {.count = 0};
    struct vmm_process process = open_process(&memory);

    (void)state;
    assert_int_equal(examine(&process, "/"), 0);
    assert_true(path_is_missing(examine(&process, "/nonexistent")));
    assert_false(vmm_process_is_to_go_on(&process)); /* there was time enough */
    process.resolver.until_ns = 1;
    assert_int_equal(examine(&process, "/proc"), TIME_IS_OVER);
    assert_true(vmm_process_is_to_go_on(&process));
    vmm_process_done(&process);

    process = open_process(&memory);
    process.resolver.until_ns = 1;
    assert_int_equal(examine(&process, "/"), 0);
    assert_true(path_is_missing(examine(&process, "/nonexistent")));
    assert_int_equal(examine(&process, "/proc"), TIME_IS_OVER);
    assert_false(vmm_process_is_to_go_on(&process)); /* it would get no further */
    vmm_process_done(&process);
    vmm_memory_done(&memory);
    assert_int_equal(memory.count, 0);
}

static void remembers_descriptors_too(void **state)
{
    struct vmm_memory memory = {.count = 0};
    struct vmm_process process = open_process(&memory);
    struct vmm_identity first, second;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    (void)state;
    assert_int_equal(process.resolver.descriptor(&process.resolver, fd, &first), 0);
    process.resolver.until_ns = 1;
    assert_int_equal(process.resolver.descriptor(&process.resolver, fd, &second), 0);
    assert_true(vmm_identity_equal(&first, &second));
    vmm_process_done(&process);
    vmm_memory_done(&memory);
    fd_close(fd);
}

static void has_a_bound_for_what_it_remembers(void **state)
{
    const struct vmm_identity identity = {.inode = 1};
    struct vmm_memory memory = {.count = 0};
    char name[16];

    (void)state;
    for (unsigned i = 0; i < VMM_MEMORY_ENTRIES + 100; i++) {
        (void)snprintf(name, sizeof(name), "%u", i);
        vmm_memory_add(&memory, name, 0, &identity);
    }
    assert_int_equal(memory.count, VMM_MEMORY_ENTRIES);
    vmm_memory_done(&memory);
}

static void examines_a_path_again_after_a_shortage(void **state)
{
    struct vmm_memory memory = {.count = 0};
    struct vmm_process process = open_process(&memory);
    struct rlimit limit, none;
    int r;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    r = examine(&process, "/");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(result_is_shortage(r));
    assert_int_equal(examine(&process, "/"), 0);
    vmm_process_done(&process);
    vmm_memory_done(&memory);
}

static void add_drive(struct qemu_report *report, const char *file)
{
    const struct qemu_node root = {.name = "drive-1", .driver = "raw"};
    const struct qemu_node protocol = {.name = "protocol", .driver = "file"};

    assert_int_equal(qemu_nodes_add(&report->roots, &root, file, NULL), 0);
    assert_int_equal(qemu_nodes_add(&report->nodes, &root, file, NULL), 0);
    assert_int_equal(qemu_nodes_add(&report->nodes, &protocol, file, NULL), 0);
}

static void add_drives_behind_links(const struct http_server *server, struct qemu_report *report)
{
    for (unsigned i = 0; i < DRIVES; i++) {
        cleanup(buffer_done) struct buffer file = BUFFER_INIT(0);
        struct qemu_node root = {.driver = "raw"};

        (void)snprintf(root.name, sizeof(root.name), "more-%u", i);
        buffer_append_format(&file, "%s/", server->directory);
        append_detour(&file, i);
        assert_int_equal(buffer_append_text(&file, "link0"), 0);
        assert_int_equal(qemu_nodes_add(&report->roots, &root, buffer_text(&file), NULL), 0);
        assert_int_equal(qemu_nodes_add(&report->nodes, &root, buffer_text(&file), NULL), 0);
    }
}

/* QEMU was asked something between the steps, and its files may be others now. */
static void a_later_step_examines_all_again(void **state)
{
    static const struct loop loop;
    const struct http_server *server = *state;
    struct hypervisor_request request = {
        .act = HYPERVISOR_QUERY, .vmm_pid = getpid(), .regular_file = true};
    struct qemu_search search;
    char file[SCRATCH_BYTES + 16], link[SCRATCH_BYTES + 16];
    struct stat status;

    (void)snprintf(file, sizeof(file), "%s/file", server->directory);
    (void)snprintf(link, sizeof(link), "%s/link", server->directory);
    assert_int_equal(mknod(file, S_IFREG | 0600, 0), 0);
    assert_int_equal(stat(file, &status), 0);
    request.file_device = status.st_dev;
    request.inode = status.st_ino;
    qemu_search_init(&search, &loop, &request);
    add_drive(&search.report, link);
    assert_int_equal(symlink(file, link), 0);
    assert_int_equal(qemu_search_find(&search).next, QEMU_SEARCH_FOUND);

    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("/", link), 0);
    assert_int_equal(qemu_search_find(&search).next, QEMU_SEARCH_END);
    qemu_search_done(&search);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(unlink(file), 0);
}

static void waits_for_a_pass_with_room(void **state)
{
    struct loop loop = {.pass.began_ns = 0};

    (void)state;
    assert_true(vmm_search_may_begin(&loop)); /* it polls */
    loop.pass.began_ns = clock_monotonic();
    assert_true(vmm_search_may_begin(&loop));
    loop.pass.began_ns -= NSEC_PER_SEC;
    assert_false(vmm_search_may_begin(&loop));
}

static void qemus_search_waits_for_such_a_pass(void **state)
{
    struct loop loop = {.pass.began_ns = clock_monotonic() - NSEC_PER_SEC};
    const struct hypervisor_request request = {.act = HYPERVISOR_QUERY, .vmm_pid = getpid()};
    struct qemu_search search;

    (void)state;
    qemu_search_init(&search, &loop, &request);
    add_drive(&search.report, "/nonexistent");
    assert_int_equal(qemu_search_find(&search).next, QEMU_SEARCH_AGAIN);
    assert_int_equal(qemu_search_find(&search).next, QEMU_SEARCH_AGAIN);
    loop.pass.began_ns = 0;
    assert_int_equal(qemu_search_find(&search).next, QEMU_SEARCH_END);
    qemu_search_done(&search);
}

/* The file is the last drive's, and the others' paths take longer than one step has. */
static void qemus_search_goes_on_until_it_has_found_the_drive(void **state)
{
    static const struct loop loop;
    const struct http_server *server = *state;
    struct hypervisor_request request = {
        .act = HYPERVISOR_QUERY, .vmm_pid = getpid(), .regular_file = true};
    struct qemu_search search;
    struct qemu_search_result result;
    unsigned steps = 1;
    char file[SCRATCH_BYTES + 16];
    struct stat status;

    make_links(server);
    (void)snprintf(file, sizeof(file), "%s/file", server->directory);
    assert_int_equal(mknod(file, S_IFREG | 0600, 0), 0);
    assert_int_equal(stat(file, &status), 0);
    request.file_device = status.st_dev;
    request.inode = status.st_ino;
    qemu_search_init(&search, &loop, &request);
    add_drives_behind_links(server, &search.report);
    add_drive(&search.report, file);
    for (result = qemu_search_find(&search); result.next == QEMU_SEARCH_AGAIN; steps++)
        result = qemu_search_find(&search);
    assert_int_equal(result.next, QEMU_SEARCH_FOUND);
    assert_string_equal(search.drive, "drive-1");
    assert_true(steps > 2);
    qemu_search_done(&search);
    assert_int_equal(unlink(file), 0);
    remove_links(server);
}

/* Comes first in so many passes of the loop, and leaves no room for a search in them. */
struct work {
    ev_check check;
    unsigned passes;
};

static void on_pass(struct ev_loop *ev, ev_check *check, int events)
{
    const uint64_t until_ns = clock_monotonic() + 6 * NSEC_PER_MSEC;
    struct work *work = container_of(check, struct work, check);

    (void)events;
    while (clock_monotonic() < until_ns)
        ;
    if (--work->passes == 0)
        ev_check_stop(ev, check);
}

static void a_search_over_http_waits_for_such_a_pass(void **state)
{
    static const struct http_script script[] = {
        {"vmm.ping", HTTP_JSON("200", "{\"version\":\"52.0\"}")},
        {"vm.info",
         HTTP_JSON("200", "{\"config\":{\"disks\":[{\"id\":\"one\",\"path\":\"$DEVICE\"}]},"
                          "\"state\":\"Running\",\"device_tree\":{}}")},
    };
    struct http_server *server = *state;
    struct work work = {.passes = 40};
    struct hypervisor_reply reply;

    http_call_need_device(server);
    ev_check_init(&work.check, on_pass);
    ev_set_priority(&work.check, EV_MAXPRI);
    ev_check_start(server->loop.ev, &work.check);
    reply = http_call_converse(server, HYPERVISOR_CLOUD_HYPERVISOR, HYPERVISOR_QUERY, script, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_int_equal(work.passes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_CALL_TEST(finds_the_last_of_them),
        HTTP_CALL_TEST(reads_the_drives_anew_before_it_resizes_one),
        HTTP_CALL_TEST(does_not_resize_what_has_changed_meanwhile),
        HTTP_CALL_TEST(one_with_a_long_search_leaves_the_others_their_turn),
        HTTP_CALL_TEST(gives_up_at_the_deadline),
        HTTP_CALL_TEST(may_be_freed_meanwhile),
        cmocka_unit_test(goes_on_with_what_it_remembers),
        cmocka_unit_test(remembers_descriptors_too),
        cmocka_unit_test(has_a_bound_for_what_it_remembers),
        cmocka_unit_test(examines_a_path_again_after_a_shortage),
        HTTP_CALL_TEST(a_later_step_examines_all_again),
        cmocka_unit_test(waits_for_a_pass_with_room),
        cmocka_unit_test(qemus_search_waits_for_such_a_pass),
        HTTP_CALL_TEST(a_search_over_http_waits_for_such_a_pass),
        HTTP_CALL_TEST(qemus_search_goes_on_until_it_has_found_the_drive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
