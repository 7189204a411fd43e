/* SPDX-License-Identifier: Apache-2.0 */
/* crust_drives_test.c - crust.drive.v1 over a session: every field, every status, and clients that
 * give up. */
#include "tests/unit/api/http2_conversation.h"

#include <endian.h>

#include "api/grpc_call.h"
#include "api/http2.h"
#include "api/proto/crust_drive_v1.pb-c.h"
#include "lib/proto.h"
#include "model/drive.h"
#include "tests/unit/unasked_commands.h"

enum status_code reconciler_expand(struct reconciler *reconciler,
                                   const struct reconciler_expand *asked, reconciler_expanded *done,
                                   void *userdata, struct expansion **ret_expansion,
                                   struct error *error)
{
    fail();
    return STATUS_UNAVAILABLE;
}

struct expansion *reconciler_expand_cancel(struct expansion *expansion)
{
    fail();
    return NULL;
}

enum { ROOM_BYTES = 100 * 1024, REPLY_BYTES = 1024 * 1024 };

struct server {
    struct conversation talk; /* its client */
    struct loop loop;
    struct operations operations;
    struct grpc_call_options calls;
};

static const struct call_method *const services[] = {crust_drives_methods, NULL};

static void on_call(struct http2_request *request, void *userdata)
{
    struct server *server = userdata;

    grpc_call_begin(&server->calls, request, NULL);
}

/* Each exchange sends what there is. */
static void wake(struct grpc_connection *connection)
{
}

static const struct http2_handler calls = {on_call, grpc_call_cancel};

static int begin(void **state)
{
    struct server *server = calloc(1, sizeof(*server));

    assert_int_equal(loop_init(&server->loop), 0);
    server->talk.room.limit = ROOM_BYTES;
    server->calls = (struct grpc_call_options){
        .surroundings = {.loop = &server->loop, .operations = &server->operations},
        .services = services,
        .wake = wake};
    assert_int_equal(http2_session_new(&calls, server, &server->talk.room, &server->talk.server),
                     0);
    make_client(&server->talk);
    buffer_init(&server->talk.body, 2 * REPLY_BYTES);
    memset(&drives, 0, sizeof(drives));
    *state = server;
    return 0;
}

static int end(void **state)
{
    struct server *server = *state;

    http2_session_free(server->talk.server);
    assert_int_equal(server->talk.room.used, 0);
    loop_done(&server->loop);
    operations_done(&server->operations);
    nghttp2_session_del(server->talk.client);
    buffer_done(&server->talk.fields);
    buffer_done(&server->talk.body);
    free(server);
    return 0;
}

/* ---- the client ---- */

static void exchange(struct server *server)
{
    pump(&server->talk);
    if (server->talk.ended == 0 && drives.wait)
        loop_run_once(&server->loop);
    pump(&server->talk);
}

/* Of a message of gRPC's. */
struct prefix {
    uint8_t is_compressed;
    uint32_t length; /* big endian */
} __attribute__((packed));

static int32_t send_call(struct server *server, const char *path, const char *timeout,
                         const ProtobufCMessage *message, struct buffer *body)
{
    struct prefix prefix = {0};
    nghttp2_data_provider provider = {.source.ptr = &server->talk, .read_callback = read_body};
    nghttp2_nv fields[] = {
        field(":method", "POST"),       field(":scheme", "http"),
        field(":authority", "x"),       field(":path", path),
        field("te", "trailers"),        field("content-type", "application/grpc"),
        field("grpc-timeout", timeout),
    };

    buffer_init(body, 128 * 1024);
    prefix.length = htobe32((uint32_t)protobuf_c_message_get_packed_size(message));
    assert_int_equal(buffer_append(body, &prefix, sizeof(prefix)), 0);
    assert_int_equal(proto_append(body, message), 0);
    server->talk.send = body->data;
    server->talk.send_length = body->length;
    server->talk.ended = 0;
    buffer_clear(&server->talk.fields);
    buffer_clear(&server->talk.body);
    return nghttp2_submit_request(server->talk.client, NULL, fields, array_length(fields),
                                  &provider, NULL);
}

static void wait_for_end(struct server *server)
{
    while (server->talk.ended == 0)
        exchange(server);
}

/* Sends the call and returns once it waits, or is answered. */
static void call(struct server *server, const char *method, const ProtobufCMessage *message)
{
    cleanup(buffer_done) struct buffer body;
    char path[128];

    (void)snprintf(path, sizeof(path), "/crust.drive.v1.Drives/%s", method);
    assert_true(send_call(server, path, "60S", message, &body) > 0);
    pump(&server->talk);
}

static void expect_status(struct server *server, enum status_code code, const char *text)
{
    char status[64];

    wait_for_end(server);
    (void)snprintf(status, sizeof(status), "grpc-status=%d\n", (int)code);
    if (!strstr(buffer_text(&server->talk.fields), status) ||
        (text && !strstr(buffer_text(&server->talk.fields), text)))
        fail_msg("%s", buffer_text(&server->talk.fields));
}

static ProtobufCMessage *reply_of(struct server *server, const ProtobufCMessageDescriptor *type)
{
    const struct buffer *body = &server->talk.body;
    ProtobufCMessage *reply = NULL;
    struct prefix prefix;

    assert_true(body->length >= sizeof(prefix));
    memcpy(&prefix, body->data, sizeof(prefix));
    assert_false(prefix.is_compressed);
    assert_int_equal(be32toh(prefix.length), body->length - sizeof(prefix));
    assert_int_equal(
        proto_unpack(type, body->data + sizeof(prefix), body->length - sizeof(prefix), &reply), 0);
    return reply;
}

/* ---- requests ---- */

/* Borrows what a test needs of a request that is whole. */
struct attach_messages {
    Crust__Drive__V1__AttachDriveRequest request;
    Crust__Drive__V1__RateLimiter limiter;
    Crust__Drive__V1__TokenBucket bandwidth, ops;
    Crust__Drive__V1__Container container, *containers[DRIVE_CONTAINERS + 1];
    ProtobufCBinaryData options[DRIVE_OPTIONS + 1];
};

static void make_attach(struct attach_messages *all)
{
    crust__drive__v1__attach_drive_request__init(&all->request);
    crust__drive__v1__rate_limiter__init(&all->limiter);
    crust__drive__v1__token_bucket__init(&all->bandwidth);
    crust__drive__v1__token_bucket__init(&all->ops);
    crust__drive__v1__container__init(&all->container);
    for (size_t i = 0; i < array_length(all->containers); i++)
        all->containers[i] = &all->container;
    for (size_t i = 0; i < array_length(all->options); i++)
        all->options[i] = proto_borrow_text("noatime");
    all->request.drive_id = proto_borrow_text("data-1");
    all->request.sandbox_id = proto_borrow_text("sandbox-1");
    all->request.host_path = proto_borrow_text("/dev/vg/data");
    all->request.vm_path = proto_borrow_text("/mnt/data");
    all->request.filesystem_type = proto_borrow_text("ext4");
    all->request.options = all->options;
    all->request.containers = all->containers;
}

static void every_field_of_an_attach_reaches_the_core(void **state)
{
    struct server *server = *state;
    struct attach_messages all;

    make_attach(&all);
    all.options[1] = proto_borrow_text("data=ordered");
    all.request.n_options = 2;
    all.request.is_writable = true;
    all.request.fsck = CRUST__DRIVE__V1__ATTACH_DRIVE_REQUEST__FSCK__PREEN;
    all.request.group_case = CRUST__DRIVE__V1__ATTACH_DRIVE_REQUEST__GROUP_FS_GROUP;
    all.request.fs_group = 2000;
    all.request.fs_group_change_policy =
        CRUST__DRIVE__V1__ATTACH_DRIVE_REQUEST__FS_GROUP_CHANGE_POLICY__ON_ROOT_MISMATCH;
    all.request.rate_limiter = &all.limiter;
    all.limiter.bandwidth = &all.bandwidth;
    all.limiter.ops = &all.ops;
    all.bandwidth.size = 1048576;
    all.bandwidth.refill_time_ms = 100;
    all.bandwidth.one_time_burst = 4096;
    all.ops.size = 50;
    all.ops.refill_time_ms = 1000;
    all.container.container_id = proto_borrow_text("c1");
    all.container.path = proto_borrow_text("/data");
    all.container.sub_path = proto_borrow_text("a/b");
    all.container.read_only = true;
    all.request.n_containers = 1;
    call(server, "AttachDrive", &all.request.base);
    assert_string_equal(drives.asked,
                        "attach data-1 sandbox-1 /dev/vg/data /mnt/data ext4 -onoatime "
                        "-odata=ordered writable preen group=2000 OnRootMismatch "
                        "bandwidth=1048576/100/4096 ops=50/1000/0 c1:/data:a/b:ro");
    drives_end(STATUS_OK, "");
    expect_status(server, STATUS_OK, NULL);
}

static void defaults_are_read_only_without_limits(void **state)
{
    struct server *server = *state;
    struct attach_messages all;

    make_attach(&all);
    call(server, "AttachDrive", &all.request.base);
    assert_string_equal(drives.asked, "attach data-1 sandbox-1 /dev/vg/data /mnt/data ext4 none "
                                      "Always bandwidth=0/0/0 ops=0/0/0");
    all.request.group_case = CRUST__DRIVE__V1__ATTACH_DRIVE_REQUEST__GROUP_FS_GROUP;
    drives_end(STATUS_OK, "");
    expect_status(server, STATUS_OK, NULL);
    call(server, "AttachDrive", &all.request.base);
    assert_non_null(strstr(drives.asked, " group=0 "));
    drives_end(STATUS_OK, "");
    expect_status(server, STATUS_OK, NULL);
}

static void a_drive_is_answered_with_every_field(void **state)
{
    struct server *server = *state;
    struct attach_messages all;
    Crust__Drive__V1__AttachDriveResponse *reply;
    const Crust__Drive__V1__Drive *drive;

    make_attach(&all);
    call(server, "AttachDrive", &all.request.base);
    drives_end(STATUS_OK, "");
    expect_status(server, STATUS_OK, NULL);
    reply = (void *)reply_of(server, &crust__drive__v1__attach_drive_response__descriptor);
    drive = reply->drive;
    assert_non_null(drive);
    assert_memory_equal(drive->drive_id.data, "data-1", 6);
    assert_memory_equal(drive->host_path.data, "/dev/vg/data", 12);
    assert_memory_equal(drive->vm_path.data, "/mnt/data", 9);
    assert_memory_equal(drive->filesystem_type.data, "ext4", 4);
    assert_int_equal(drive->n_options, 2);
    assert_memory_equal(drive->options[1].data, "data=ordered", 12);
    assert_int_equal(drive->n_containers, 1);
    assert_memory_equal(drive->containers[0]->container_id.data, "c1", 2);
    assert_memory_equal(drive->containers[0]->path.data, "/in", 3);
    assert_memory_equal(drive->containers[0]->sub_path.data, "a/b", 3);
    assert_true(drive->containers[0]->read_only);
    assert_true(drive->is_writable && drive->is_wanted);
    assert_int_equal(drive->rate_limiter->bandwidth->one_time_burst, 4096);
    assert_null(drive->rate_limiter->ops);
    assert_memory_equal(drive->serial.data, "crust-abcdefghijklmn", 20);
    assert_memory_equal(drive->guest_device.data, "sdb", 3);
    assert_int_equal(drive->size_bytes, 67108864);
    assert_int_equal(drive->state, CRUST__DRIVE__V1__DRIVE__STATE__READY);
    assert_int_equal(drive->status, 0);
    assert_memory_equal(drive->message.data, "one_time_burst", 14);
    (void)proto_free(&reply->base);
}

/* By the names, so that no state can change places with another. */
static void every_state_has_its_name(void **state)
{
    for (unsigned i = 0; i < DRIVE_STATES; i++) {
        const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(
            &crust__drive__v1__drive__state__descriptor, (int)i + 1);

        assert_non_null(value);
        assert_int_equal(strcasecmp(value->name, drive_state_name((enum drive_state)i)), 0);
    }
}

/* Every status of drive_form.h, from a call that is refused at once and from one that waits. */
static void the_core_s_statuses_are_handed_on(void **state)
{
    static const enum status_code codes[] = {
        STATUS_INVALID_ARGUMENT,  STATUS_NOT_FOUND,           STATUS_ALREADY_EXISTS,
        STATUS_PERMISSION_DENIED, STATUS_FAILED_PRECONDITION, STATUS_RESOURCE_EXHAUSTED,
        STATUS_UNAVAILABLE,       STATUS_DEADLINE_EXCEEDED,
    };
    struct server *server = *state;
    struct attach_messages all;

    make_attach(&all);
    for (size_t i = 0; i < array_length(codes); i++) {
        drives.code = codes[i];
        call(server, "AttachDrive", &all.request.base);
        expect_status(server, codes[i], "grpc-message=this is why");
        drives.code = STATUS_OK;
        call(server, "AttachDrive", &all.request.base);
        drives_end(codes[i], "in the end");
        expect_status(server, codes[i], "grpc-message=in the end");
    }
}

static void a_detach_answers_nothing_but_its_status(void **state)
{
    struct server *server = *state;
    Crust__Drive__V1__DetachDriveRequest request = CRUST__DRIVE__V1__DETACH_DRIVE_REQUEST__INIT;

    request.drive_id = proto_borrow_text("data-1");
    call(server, "DetachDrive", &request.base);
    assert_string_equal(drives.asked, "detach data-1");
    drives_end(STATUS_OK, "");
    expect_status(server, STATUS_OK, NULL);
    assert_int_equal(server->talk.body.length, sizeof(struct prefix));
    call(server, "DetachDrive", &request.base);
    drives_end(STATUS_FAILED_PRECONDITION, "pid 7 (postgres) has it");
    expect_status(server, STATUS_FAILED_PRECONDITION, "pid 7 (postgres) has it");
}

static void limits_are_all_replaced(void **state)
{
    struct server *server = *state;
    Crust__Drive__V1__UpdateDriveLimitsRequest request =
        CRUST__DRIVE__V1__UPDATE_DRIVE_LIMITS_REQUEST__INIT;
    Crust__Drive__V1__RateLimiter limiter = CRUST__DRIVE__V1__RATE_LIMITER__INIT;
    Crust__Drive__V1__TokenBucket ops = CRUST__DRIVE__V1__TOKEN_BUCKET__INIT;

    request.drive_id = proto_borrow_text("0123456789012345678901234567890123456");
    call(server, "UpdateDriveLimits", &request.base);
    expect_status(server, STATUS_INVALID_ARGUMENT, "drive_id is too long");
    request.drive_id = proto_borrow_text("data-1");
    call(server, "UpdateDriveLimits", &request.base);
    expect_status(server, STATUS_INVALID_ARGUMENT, "rate_limiter is missing");
    request.rate_limiter = &limiter;
    call(server, "UpdateDriveLimits", &request.base);
    assert_string_equal(drives.asked, "limit data-1 bandwidth=0/0/0 ops=0/0/0");
    drives_end(STATUS_OK, "");
    expect_status(server, STATUS_OK, NULL);
    limiter.ops = &ops;
    ops.size = 7;
    ops.refill_time_ms = 9;
    call(server, "UpdateDriveLimits", &request.base);
    assert_string_equal(drives.asked, "limit data-1 bandwidth=0/0/0 ops=7/9/0");
    drives_end(STATUS_OK, "");
    expect_status(server, STATUS_OK, NULL);
}

static void drives_are_listed(void **state)
{
    struct server *server = *state;
    Crust__Drive__V1__ListDrivesRequest request = CRUST__DRIVE__V1__LIST_DRIVES_REQUEST__INIT;
    Crust__Drive__V1__ListDrivesResponse *reply;

    call(server, "ListDrives", &request.base);
    expect_status(server, STATUS_OK, NULL);
    assert_string_equal(drives.asked, "each of all");
    assert_int_equal(server->talk.body.length, sizeof(struct prefix));
    drives.count = 200;
    request.sandbox_id = proto_borrow_text("sandbox-1");
    call(server, "ListDrives", &request.base);
    expect_status(server, STATUS_OK, NULL);
    assert_string_equal(drives.asked, "each sandbox-1");
    reply = (void *)reply_of(server, &crust__drive__v1__list_drives_response__descriptor);
    assert_int_equal(reply->n_drives, 200);
    assert_memory_equal(reply->drives[199]->vm_path.data, "/mnt/data", 9);
    (void)proto_free(&reply->base);
    drives.code = STATUS_FAILED_PRECONDITION;
    call(server, "ListDrives", &request.base);
    expect_status(server, STATUS_FAILED_PRECONDITION, "this is why");
}

static void a_list_that_does_not_fit_is_refused(void **state)
{
    struct server *server = *state;
    const Crust__Drive__V1__ListDrivesRequest request = CRUST__DRIVE__V1__LIST_DRIVES_REQUEST__INIT;

    drives.count = 1000;
    call(server, "ListDrives", &request.base);
    expect_status(server, STATUS_RESOURCE_EXHAUSTED, "too many large replies");
    drives.count = 10000;
    call(server, "ListDrives", &request.base);
    expect_status(server, STATUS_RESOURCE_EXHAUSTED, "name a sandbox");
}

static void one_drive_is_shown(void **state)
{
    struct server *server = *state;
    Crust__Drive__V1__GetDriveRequest request = CRUST__DRIVE__V1__GET_DRIVE_REQUEST__INIT;
    Crust__Drive__V1__GetDriveResponse *reply;

    request.drive_id = proto_borrow_text("data-1");
    call(server, "GetDrive", &request.base);
    expect_status(server, STATUS_OK, NULL);
    assert_string_equal(drives.asked, "get data-1");
    reply = (void *)reply_of(server, &crust__drive__v1__get_drive_response__descriptor);
    assert_memory_equal(reply->drive->sandbox_id.data, "sandbox-1", 9);
    (void)proto_free(&reply->base);
    drives.code = STATUS_NOT_FOUND;
    call(server, "GetDrive", &request.base);
    expect_status(server, STATUS_NOT_FOUND, "this is why");
    request.drive_id = proto_borrow_text("0123456789012345678901234567890123456");
    call(server, "GetDrive", &request.base);
    expect_status(server, STATUS_INVALID_ARGUMENT, "drive_id is too long");
}

/* The client resets its stream: the wait is cancelled, and nothing is answered. */
static void a_call_ends_when_its_client_gives_up(void **state)
{
    struct server *server = *state;
    struct attach_messages all;
    cleanup(buffer_done) struct buffer body;
    int32_t stream;

    make_attach(&all);
    stream =
        send_call(server, "/crust.drive.v1.Drives/AttachDrive", "60S", &all.request.base, &body);
    pump(&server->talk);
    assert_non_null(drives.wait);
    assert_int_equal(
        nghttp2_submit_rst_stream(server->talk.client, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL),
        0);
    pump(&server->talk);
    assert_int_equal(drives.cancelled, 1);
    assert_null(drives.wait);
    assert_int_equal(server->operations.first->code, STATUS_CANCELLED);
    assert_string_equal(server->operations.first->method, "/crust.drive.v1.Drives/AttachDrive");
}

/* The core is asked, and no longer waited for; it goes on by itself. On a machine that is so slow
 * that the time is over before the core is asked, the call is made again. */
static void a_deadline_ends_the_wait(void **state)
{
    struct server *server = *state;
    struct attach_messages all;

    make_attach(&all);
    while (drives.cancelled == 0) {
        cleanup(buffer_done) struct buffer body;

        (void)send_call(server, "/crust.drive.v1.Drives/AttachDrive", "100m", &all.request.base,
                        &body);
        expect_status(server, STATUS_DEADLINE_EXCEEDED, NULL);
    }
    assert_null(drives.wait);
    assert_int_equal(server->operations.first->code, STATUS_DEADLINE_EXCEEDED);
}

#define CALL(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CALL(every_field_of_an_attach_reaches_the_core),
        CALL(defaults_are_read_only_without_limits),
        CALL(a_drive_is_answered_with_every_field),
        cmocka_unit_test(every_state_has_its_name),
        CALL(the_core_s_statuses_are_handed_on),
        CALL(a_detach_answers_nothing_but_its_status),
        CALL(limits_are_all_replaced),
        CALL(drives_are_listed),
        CALL(a_list_that_does_not_fit_is_refused),
        CALL(one_drive_is_shown),
        CALL(a_call_ends_when_its_client_gives_up),
        CALL(a_deadline_ends_the_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
