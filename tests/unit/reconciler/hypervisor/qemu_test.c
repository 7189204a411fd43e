/* qemu_test.c - whole conversations with a scripted monitor in the same loop.
 *
 * The monitor expects commands in an order and answers from the script: whole or byte by byte, late
 * or never, or by hanging up. It never holds a device: paths are resolved through this process.
 */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "reconciler/hypervisor/hypervisor.h"
#include "tests/unit/scratch.h"

enum { NEVER = 99 };

/* What is expected to be in a command, and the answer: $ID is the command's id, $DEVICE and $FILE
 * are paths. The first entry is the greeting. */
struct exchange {
    const char *expect;
    const char *answer;
};

struct monitor {
    struct loop loop;
    char directory[SCRATCH_BYTES];
    char path[96], file[96];
    char device[280];
    dev_t device_number;
    int root;
    int listener, client;
    struct loop_io accepting, reading;
    struct loop_timer writer;
    struct buffer input, output;
    const struct exchange *script;
    size_t script_length, position;
    bool bytewise;    /* one byte in each turn of the loop */
    size_t silent_at; /* says nothing from this exchange on */
    size_t close_at;  /* hangs up instead of this answer */
    unsigned done;
    struct hypervisor_reply reply;
};

static void send_some(struct monitor *monitor)
{
    size_t length = monitor->bytewise ? 1 : monitor->output.length;

    if (monitor->client >= 0 && monitor->output.length) {
        ssize_t sent = send(monitor->client, monitor->output.data, length, MSG_NOSIGNAL);

        buffer_consume(&monitor->output, sent < 0 ? length : (size_t)sent);
    }
}

static void on_writer(struct loop_timer *timer)
{
    struct monitor *monitor = container_of(timer, struct monitor, writer);

    send_some(monitor);
    if (monitor->output.length)
        loop_timer_start(&monitor->loop, timer, 0, on_writer);
}

static void hang_up(struct monitor *monitor)
{
    loop_io_stop(&monitor->reading);
    loop_timer_stop(&monitor->writer);
    buffer_clear(&monitor->output);
    fd_close(take_fd(&monitor->client));
}

static void append_expanded(struct monitor *monitor, const char *answer, const char *id)
{
    while (*answer) {
        size_t plain = strcspn(answer, "$");

        assert_int_equal(buffer_append(&monitor->output, answer, plain), 0);
        answer += plain;
        if (strncmp(answer, "$ID", 3) == 0) {
            assert_int_equal(buffer_append_text(&monitor->output, id), 0);
            answer += 3;
        } else if (strncmp(answer, "$DEVICE", 7) == 0) {
            assert_int_equal(buffer_append_text(&monitor->output, monitor->device), 0);
            answer += 7;
        } else if (strncmp(answer, "$FILE", 5) == 0) {
            assert_int_equal(buffer_append_text(&monitor->output, monitor->file), 0);
            answer += 5;
        }
    }
}

static void answer(struct monitor *monitor, const char *command)
{
    const char *start = strstr(command, "\"id\": \"");
    char id[32] = "";
    const struct exchange *exchange = &monitor->script[monitor->position];

    if (start)
        (void)snprintf(id, sizeof(id), "%.*s", (int)strcspn(start + 7, "\""), start + 7);
    if (monitor->position == monitor->close_at) {
        hang_up(monitor);
        return;
    }
    if (monitor->position >= monitor->silent_at)
        return;
    assert_true(monitor->position < monitor->script_length);
    if (!strstr(command, exchange->expect))
        print_error("expected %s in %s\n", exchange->expect, command);
    assert_non_null(strstr(command, exchange->expect));
    append_expanded(monitor, exchange->answer, id);
    monitor->position++;
    loop_timer_start(&monitor->loop, &monitor->writer, 0, on_writer);
}

static void on_reading(struct loop_io *io, int events)
{
    struct monitor *monitor = container_of(io, struct monitor, reading);
    char bytes[4096];
    ssize_t count = read(monitor->client, bytes, sizeof(bytes));

    (void)events;
    if (count <= 0) {
        hang_up(monitor);
        return;
    }
    assert_true(monitor->position > 0); /* not a byte before the greeting */
    assert_int_equal(buffer_append(&monitor->input, bytes, (size_t)count), 0);
    if (monitor->input.data[monitor->input.length - 1] != '\n')
        return;
    answer(monitor, buffer_text(&monitor->input));
    buffer_clear(&monitor->input);
}

static void on_accepting(struct loop_io *io, int events)
{
    struct monitor *monitor = container_of(io, struct monitor, accepting);

    (void)events;
    monitor->client = accept4(monitor->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(monitor->client >= 0);
    loop_io_start(&monitor->loop, &monitor->reading, monitor->client, LOOP_READ, on_reading);
    answer(monitor, "");
}

static struct sockaddr_un address_of(const struct monitor *monitor)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", monitor->path);
    return address;
}

/* Any block device will do: only its number is ever looked at. */
static void find_device(struct monitor *monitor)
{
    cleanup(dir_closep) DIR *directory = opendir("/dev");
    struct dirent *entry;
    struct stat st;

    monitor->device[0] = '\0';
    while (directory && (entry = readdir(directory))) {
        (void)snprintf(monitor->device, sizeof(monitor->device), "/dev/%s", entry->d_name);
        if (stat(monitor->device, &st) == 0 && S_ISBLK(st.st_mode)) {
            monitor->device_number = st.st_rdev;
            return;
        }
    }
    monitor->device[0] = '\0';
}

static int set_up(void **state)
{
    static struct monitor monitor;
    struct sockaddr_un address;
    int fd;

    monitor = (struct monitor){.listener = -1, .client = -1, .silent_at = NEVER, .close_at = NEVER};
    assert_int_equal(loop_init(&monitor.loop), 0);
    assert_int_equal(scratch_directory_make(monitor.directory), 0);
    (void)snprintf(monitor.path, sizeof(monitor.path), "%s/monitor.sock", monitor.directory);
    (void)snprintf(monitor.file, sizeof(monitor.file), "%s/disk.img", monitor.directory);
    fd = open(monitor.file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    fd_close(fd);
    find_device(&monitor);
    assert_int_equal(path_open_root("/", &monitor.root), 0);
    monitor.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    address = address_of(&monitor);
    assert_int_equal(bind(monitor.listener, (struct sockaddr *)&address, sizeof(address)), 0);
    *state = &monitor;
    return 0;
}

static int tear_down(void **state)
{
    struct monitor *monitor = *state;

    hang_up(monitor);
    loop_io_stop(&monitor->accepting);
    fd_close(monitor->listener);
    fd_close(monitor->root);
    buffer_done(&monitor->input);
    buffer_done(&monitor->output);
    loop_done(&monitor->loop);
    return scratch_directory_remove(monitor->directory);
}

static void on_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                    void *userdata)
{
    struct monitor *monitor = userdata;

    monitor->done++;
    monitor->reply = *reply;
    (void)hypervisor_call_free(call);
    loop_stop(&monitor->loop);
}

static struct hypervisor_request request_for(const struct monitor *monitor, enum hypervisor_act act)
{
    return (struct hypervisor_request){
        .act = act,
        .root = monitor->root,
        .control_socket = monitor->path,
        .vmm_pid = getpid(),
        .device = monitor->device_number,
        .bytes = 2048,
        .deadline_ns = 60 * NSEC_PER_SEC,
    };
}

static const struct hypervisor_reply *call(struct monitor *monitor,
                                           const struct hypervisor_request *request)
{
    struct hypervisor_call *made;

    monitor->done = 0;
    monitor->position = 0;
    assert_int_equal(
        hypervisor_call_new(&monitor->loop, HYPERVISOR_QEMU, request, on_done, monitor, &made), 0);
    assert_int_equal(monitor->done, 0);
    loop_run(&monitor->loop);
    assert_int_equal(monitor->done, 1);
    hang_up(monitor);
    buffer_clear(&monitor->input);
    return &monitor->reply;
}

static void serve(struct monitor *monitor, const struct exchange *script, size_t length)
{
    monitor->script = script;
    monitor->script_length = length;
    assert_int_equal(listen(monitor->listener, 1), 0);
    loop_io_start(&monitor->loop, &monitor->accepting, monitor->listener, LOOP_READ, on_accepting);
}

/* Scripts */

#define GREETING                                                                                   \
    "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}}}}\r\n"
#define OK         "{\"return\": {}, \"id\": \"$ID\"}\r\n"
#define LIST(list) "{\"id\": \"$ID\", \"return\": [" list "]}\r\n"
#define NODE(name, driver, file, size)                                                             \
    "{\"image\": {\"virtual-size\": " size "}, \"ro\": false, \"node-name\": \"" name              \
    "\", \"drv\": \"" driver "\", \"file\": \"" file "\"}"
#define ROOT(size)      NODE("drive-1", "raw", "$DEVICE", size)
#define PROTOCOL(size)  NODE("#block046", "host_device", "$DEVICE", size)
#define FRONTENDS(size) LIST("{\"device\": \"\", \"inserted\": " ROOT(size) "}")
#define NODES(size)     LIST(ROOT(size) ", " PROTOCOL(size))

static const struct exchange qmp_resize[] = {
    {"", GREETING},
    {"\"qmp_capabilities\"", OK},
    {"\"query-block\"", FRONTENDS("1024")},
    {"\"query-named-block-nodes\", \"arguments\": {\"flat\": true}", NODES("1024")},
    {"\"query-fdsets\"", LIST("")},
    {"\"block_resize\", \"arguments\": {\"node-name\": \"drive-1\", \"size\": 2048}", OK},
    {"\"query-block\"", FRONTENDS("2048")},
};

#define HMP_GREETING    "QEMU 7.2.22 monitor - type 'help' for more information\r\n(qemu) "
#define HMP_REPLY(text) "echo\r\n" text "(qemu) "
#define HMP_BLOCK(header, size)                                                                    \
    header "\r\n    Attached to:      drive-1\r\n\r\nImages:\r\nimage: x\r\nfile format: raw\r\n"  \
           "virtual size: 1 KiB (" size " bytes)\r\ndisk size: 0 B\r\n"
#define HMP_ROOT(size)     HMP_BLOCK("drive-1: $DEVICE (raw)", size)
#define HMP_PROTOCOL(size) HMP_BLOCK("#block046: $DEVICE (host_device)", size)

static const struct exchange hmp_resize[] = {
    {"", HMP_GREETING},
    {"info block -v\n", HMP_REPLY(HMP_ROOT("1024"))},
    {"info block -n -v\n", HMP_REPLY(HMP_ROOT("1024") "\r\n" HMP_PROTOCOL("1024"))},
    {"qemu-io drive-1 \"truncate 1024\"\n", HMP_REPLY("")},
    {"info block -v\n", HMP_REPLY(HMP_ROOT("2048"))},
};

static bool without_device(const struct monitor *monitor)
{
    return !monitor->device[0];
}

static void resizes(struct monitor *monitor)
{
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);
    const struct hypervisor_reply *reply = call(monitor, &request);

    if (reply->outcome != HYPERVISOR_DONE)
        print_error("%s\n", reply->error.text);
    assert_int_equal(reply->outcome, HYPERVISOR_DONE);
    assert_string_equal(reply->drive_id, "drive-1");
    assert_string_equal(reply->version, "7.2.22");
    assert_int_equal(reply->bytes, 2048);
    assert_int_equal(monitor->position, monitor->script_length);
}

static void resizes_over_qmp(void **state)
{
    struct monitor *monitor = *state;

    if (without_device(monitor))
        skip();
    serve(monitor, qmp_resize, array_length(qmp_resize));
    resizes(monitor);
    monitor->bytewise = true;
    resizes(monitor);
}

static void resizes_over_hmp(void **state)
{
    struct monitor *monitor = *state;

    if (without_device(monitor))
        skip();
    serve(monitor, hmp_resize, array_length(hmp_resize));
    resizes(monitor);
    monitor->bytewise = true;
    resizes(monitor);
}

static void queries_without_resizing(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    if (without_device(monitor))
        skip();
    serve(monitor, qmp_resize, array_length(qmp_resize));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.bytes, 1024);
    assert_int_equal(monitor->position, 5);
    serve(monitor, hmp_resize, array_length(hmp_resize));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.bytes, 1024);
    assert_int_equal(monitor->position, 3);
}

/* The drive was found and has its size; what the tree of devices is worth changes nothing of that.
 */
static void the_tree_of_devices_ends_nothing(void **state)
{
    static const struct exchange trees[] = {
        {"\"human-monitor-command\", \"arguments\": {\"command-line\": \"info qtree\"}",
         "{\"return\": \"dev: d\\r\\n  addr = 03.0\\r\\n  drive = \\\"drive-1\\\"\\r\\n\", \"id\": "
         "\"$ID\"}\r\n"},
        {"info qtree", "{\"return\": \"nonsense\", \"id\": \"$ID\"}\r\n"},
        {"info qtree", "{\"return\": {}, \"id\": \"$ID\"}\r\n"},
        {"info qtree",
         "{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"\"}, \"id\": \"$ID\"}"},
    };
    struct exchange script[array_length(qmp_resize) + 1];
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    request.wants_address = true;
    memcpy(script, qmp_resize, sizeof(qmp_resize));
    for (size_t i = 0; i <= array_length(trees); i++) {
        if (i < array_length(trees))
            script[array_length(qmp_resize)] = trees[i];
        else
            monitor->close_at = array_length(qmp_resize);
        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DONE);
        assert_int_equal(monitor->reply.bytes, 2048);
        assert_string_equal(monitor->reply.address, i == 0 ? "pci:03" : "");
    }
}

/* The drive is larger than the device (it shrank): never less than the drive has is asked for. */
static void never_asks_for_less(void **state)
{
    static const struct exchange script[] = {
        {"", GREETING},
        {"\"qmp_capabilities\"", OK},
        {"\"query-block\"", FRONTENDS("4096")},
        {"\"query-named-block-nodes\"", NODES("4096")},
        {"\"query-fdsets\"", LIST("")},
        {"\"size\": 4096", "{\"return\": {}, \"id\": \"$ID\"}\r\n"},
        {"\"query-block\"", FRONTENDS("4096")},
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    serve(monitor, script, array_length(script));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.bytes, 4096);
}

static void skips_what_is_not_for_it(void **state)
{
    static const struct exchange script[] = {
        {"", GREETING},
        {"\"qmp_capabilities\"",
         "{\"event\": \"STOP\", \"timestamp\": {}}\r\n{\"return\": {}}\r\n"
         "{\"error\": {\"class\": \"GenericError\", \"desc\": \"foreign\"}, \"id\": \"x\"}\r\n"
         "{\"odd\": 1}\r\n{\"return\": {}, \"id\": \"$ID\"}\r\n{\"event\": \"RESUME\"}\r\n"},
        {"\"query-block\"", FRONTENDS("1024")},
        {"\"query-named-block-nodes\"", NODES("1024")},
        {"\"query-fdsets\"", "{\"return\": [], \"id\": \"$IDx\"}{\"return\": [], \"id\": \"$ID\"}"},
        {"\"block_resize\"", "{\"event\": \"A\", \"data\": {\"id\": \"$ID\"}}\r\n"
                             "{\"return\": {}, \"id\": \"$ID\"}\r\n"},
        {"\"query-block\"", FRONTENDS("2048")},
    };
    struct monitor *monitor = *state;

    if (without_device(monitor))
        skip();
    serve(monitor, script, array_length(script));
    resizes(monitor);
    monitor->bytewise = true;
    resizes(monitor);
}

static void a_drive_over_a_file(void **state)
{
    static const struct exchange script[] = {
        {"", GREETING},
        {"\"qmp_capabilities\"", OK},
        {"\"query-block\"", LIST("{\"inserted\": " NODE("drive-1", "raw", "$FILE", "1024") "}")},
        {"\"query-named-block-nodes\"",
         LIST(NODE("drive-1", "raw", "$FILE", "1024") ", " NODE("#b", "file", "$FILE", "1024"))},
        {"\"query-fdsets\"", LIST("")},
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);
    struct stat st;

    assert_int_equal(stat(monitor->file, &st), 0);
    request.regular_file = true;
    request.file_device = st.st_dev;
    request.inode = st.st_ino;
    serve(monitor, script, array_length(script));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.bytes, 1024);
    request.act = HYPERVISOR_RESIZE;
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNSUPPORTED);
    assert_int_equal(monitor->position, 5);
}

/* How each refusal of block_resize ends, and what the person reads. */
static void tells_refusals_apart(void **state)
{
    static const struct {
        const char *answer;
        enum hypervisor_outcome outcome;
    } cases[] = {
        {"{\"class\": \"GenericError\", \"desc\": \"Image is read-only\"}", HYPERVISOR_READ_ONLY},
        {"{\"class\": \"GenericError\", \"desc\": \"Cannot grow device files\"}",
         HYPERVISOR_REFUSED},
        {"{\"class\": \"GenericError\", \"desc\": \"Device '(null)' is in use\"}", HYPERVISOR_BUSY},
        {"{\"class\": \"CommandNotFound\", \"desc\": \"no such\"}", HYPERVISOR_UNSUPPORTED},
        {"{\"class\": \"GenericError\", \"desc\": \"Failed to get \\\"resize\\\" lock\"}",
         HYPERVISOR_REFUSED},
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    for (size_t i = 0; i < array_length(cases); i++) {
        char text[256];
        struct exchange script[array_length(qmp_resize)];

        memcpy(script, qmp_resize, sizeof(script));
        (void)snprintf(text, sizeof(text), "{\"id\": \"$ID\", \"error\": %s}\r\n", cases[i].answer);
        script[5].answer = text;
        serve(monitor, script, 6);
        assert_int_equal(call(monitor, &request)->outcome, cases[i].outcome);
        assert_string_equal(monitor->reply.drive_id, "drive-1");
        assert_int_equal(monitor->reply.bytes, 1024);
        assert_non_null(strstr(monitor->reply.error.text, "drive-1"));
    }
}

static void hmp_words_are_refusals(void **state)
{
    static const struct {
        const char *answer;
        enum hypervisor_outcome outcome;
    } cases[] = {
        {"echo\r\nBlock node is read-only\r\n(qemu) ", HYPERVISOR_READ_ONLY},
        {"echo\r\nCannot grow device files\r\n(qemu) ", HYPERVISOR_REFUSED},
        {"echo\r\nFailed to get \"resize\" lock\r\nIs another process using the image [x]?\r\n"
         "(qemu) ",
         HYPERVISOR_REFUSED},
        {"echo\r\nError: Cannot find device='' nor node-name='drive-1'\r\n(qemu) ",
         HYPERVISOR_DRIVE_NOT_FOUND},
        {"echo\r\nunknown command: 'qemu-io'\r\n(qemu) ", HYPERVISOR_UNSUPPORTED},
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    for (size_t i = 0; i < array_length(cases); i++) {
        struct exchange script[array_length(hmp_resize)];

        memcpy(script, hmp_resize, sizeof(script));
        script[3].answer = cases[i].answer;
        serve(monitor, script, 4);
        assert_int_equal(call(monitor, &request)->outcome, cases[i].outcome);
        assert_null(strchr(monitor->reply.error.text, '\n'));
    }
}

/* Success is what the drive has afterwards, not what the command returned. */
static void checks_the_answer(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);
    struct exchange script[array_length(qmp_resize)];

    if (without_device(monitor))
        skip();
    memcpy(script, qmp_resize, sizeof(script));
    script[6] = script[2];
    serve(monitor, script, array_length(script));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_REFUSED);
    assert_int_equal(monitor->reply.bytes, 1024);
    script[6].answer = "{\"return\": [], \"id\": \"$ID\"}";
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DRIVE_NOT_FOUND);
}

static void nonsense_is_unreachable(void **state)
{
    static const char *const answers[] = {
        "garbage",
        "{\"return\": [}, \"id\": \"$ID\"}",
        "{\"return\": {}, \"id\": \"$ID\"}",
        "{\"return\": [{\"inserted\": {}}], \"id\": \"$ID\"}",
        "{\"return\": \"\\u0000\", \"id\": \"$ID\"}",
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    for (size_t i = 0; i < array_length(answers); i++) {
        const struct exchange script[] = {
            {"", GREETING}, {"\"qmp_capabilities\"", OK}, {"query-block", answers[i]}};

        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
        assert_true(monitor->reply.error.text[0]);
    }
}

static void other_listeners_are_unreachable(void **state)
{
    static const char *const greetings[] = {
        "SSH-2.0-x\r\n",
        "{\"return\": {}}\r\n",
        "{\"event\": \"STOP\"}\r\n",
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    for (size_t i = 0; i < array_length(greetings); i++) {
        const struct exchange script[] = {{"", greetings[i]}};

        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
    }
}

static void hanging_up_is_unreachable(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    serve(monitor, qmp_resize, array_length(qmp_resize));
    for (monitor->close_at = 0; monitor->close_at < array_length(qmp_resize); monitor->close_at++)
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
    serve(monitor, hmp_resize, array_length(hmp_resize));
    for (monitor->close_at = 0; monitor->close_at < array_length(hmp_resize); monitor->close_at++)
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
}

static void silence_ends_with_the_deadline(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    request.deadline_ns = 100 * NSEC_PER_MSEC;
    serve(monitor, hmp_resize, array_length(hmp_resize));
    monitor->silent_at = 0;
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_BUSY);
    request.deadline_ns = NSEC_PER_SEC;
    monitor->silent_at = 1;
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
}

static void endless_replies_are_unreachable(void **state)
{
    cleanup(buffer_done) struct buffer endless = BUFFER_INIT(8 * 1024 * 1024);
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    assert_int_equal(buffer_append_text(&endless, "{\"return\": \""), 0);
    while (endless.length < 5 * 1024 * 1024)
        assert_int_equal(buffer_append_format(&endless, "%4096d", 1), 0);
    {
        const struct exchange script[] = {
            {"", GREETING}, {"\"qmp_capabilities\"", OK}, {"query-block", buffer_text(&endless)}};

        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
    }
}

static void tells_why_nothing_connects(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);
    struct sockaddr_un address = address_of(monitor);
    int waiting[16];
    size_t count = 0;

    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
    assert_int_equal(listen(monitor->listener, 0), 0);
    do {
        assert_true(count < array_length(waiting));
        waiting[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    } while (connect(waiting[count++], (struct sockaddr *)&address, sizeof(address)) == 0);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_BUSY);
    while (count)
        fd_close(waiting[--count]);
    assert_int_equal(unlink(monitor->path), 0);
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_MONITOR_MISSING);
}

static void a_vmm_that_is_gone_is_unreachable(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    request.vmm_pid = 0x7ffffff0; /* beyond any pid_max */
    serve(monitor, qmp_resize, array_length(qmp_resize));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
}

/* Freeing a call ends the conversation wherever it is: the monitor sees the end, nobody is told. */
static void can_be_freed_at_any_time(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    serve(monitor, qmp_resize, array_length(qmp_resize));
    for (size_t turns = 0; turns < 8; turns++) {
        struct hypervisor_call *made;

        monitor->position = 0;
        assert_int_equal(
            hypervisor_call_new(&monitor->loop, HYPERVISOR_QEMU, &request, on_done, monitor, &made),
            0);
        for (size_t turn = 0; turn < turns; turn++)
            loop_run_once(&monitor->loop);
        (void)hypervisor_call_free(made);
        do
            loop_run_once(&monitor->loop);
        while (monitor->client >= 0);
        buffer_clear(&monitor->input);
    }
    assert_int_equal(monitor->done, 0);
}

#define scripted(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scripted(resizes_over_qmp),
        scripted(resizes_over_hmp),
        scripted(queries_without_resizing),
        scripted(the_tree_of_devices_ends_nothing),
        scripted(never_asks_for_less),
        scripted(skips_what_is_not_for_it),
        scripted(a_drive_over_a_file),
        scripted(tells_refusals_apart),
        scripted(hmp_words_are_refusals),
        scripted(checks_the_answer),
        scripted(nonsense_is_unreachable),
        scripted(other_listeners_are_unreachable),
        scripted(hanging_up_is_unreachable),
        scripted(silence_ends_with_the_deadline),
        scripted(endless_replies_are_unreachable),
        scripted(tells_why_nothing_connects),
        scripted(a_vmm_that_is_gone_is_unreachable),
        scripted(can_be_freed_at_any_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
