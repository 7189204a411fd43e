/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_server_test.c - how replies get into the socket: long ones, late ones, and those of clients
 * that have gone. */
#include "tests/unit/api/http2_conversation.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "api/proto/crust_drive_v1.pb-c.h"
#include "api/server.h"
#include "lib/proto.h"
#include "tests/unit/scratch.h"
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

enum { PIECE_BYTES = 1000, PREFIX_BYTES = 5 };

struct scene {
    struct conversation talk; /* its client */
    struct loop loop;
    struct operations operations;
    struct grpc_server *server;
    char directory[SCRATCH_BYTES];
    int root, client;
};

static int begin(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct grpc_server_options options = {.socket_path = "/s", .operations = &scene->operations};
    struct error error;

    assert_int_equal(scratch_directory_make(scene->directory), 0);
    scene->root = options.root = open(scene->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(loop_init(&scene->loop), 0);
    assert_int_equal(grpc_server_new(&scene->loop, NULL, &options, &scene->server, &error), 0);
    scene->client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", scene->directory);
    assert_int_equal(connect(scene->client, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(fcntl(scene->client, F_SETFL, O_NONBLOCK), 0);
    make_client(&scene->talk);
    buffer_init(&scene->talk.body, 1024 * 1024);
    memset(&drives, 0, sizeof(drives));
    *state = scene;
    return 0;
}

static int end(void **state)
{
    struct scene *scene = *state;

    grpc_server_free(scene->server);
    loop_done(&scene->loop);
    operations_done(&scene->operations);
    nghttp2_session_del(scene->talk.client);
    buffer_done(&scene->talk.fields);
    buffer_done(&scene->talk.body);
    fd_close(scene->client);
    fd_close(scene->root);
    assert_int_equal(scratch_directory_remove(scene->directory), 0);
    free(scene);
    return 0;
}

/* What the client library wants to say. */
static void say(struct scene *scene)
{
    const uint8_t *bytes;
    ssize_t length;

    while ((length = nghttp2_session_mem_send(scene->talk.client, &bytes)) > 0)
        assert_int_equal(send(scene->client, bytes, (size_t)length, 0), length);
}

/* In small pieces; how many there were. */
static unsigned hear(struct scene *scene)
{
    uint8_t bytes[PIECE_BYTES];
    unsigned pieces = 0;
    ssize_t length;

    for (; (length = recv(scene->client, bytes, sizeof(bytes), 0)) > 0; pieces++)
        assert_int_equal(nghttp2_session_mem_recv(scene->talk.client, bytes, (size_t)length),
                         length);
    return pieces;
}

static void call(struct scene *scene, const char *path, const ProtobufCMessage *message)
{
    nghttp2_data_provider provider = {.source.ptr = &scene->talk, .read_callback = read_body};
    nghttp2_nv fields[] = {field(":method", "POST"), field(":scheme", "http"), field(":path", path),
                           field("content-type", "application/grpc")};
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    const uint32_t length = htobe32((uint32_t)protobuf_c_message_get_packed_size(message));

    assert_int_equal(buffer_append(&body, "", 1), 0);
    assert_int_equal(buffer_append(&body, &length, sizeof(length)), 0);
    assert_int_equal(proto_append(&body, message), 0);
    scene->talk.send = body.data;
    scene->talk.send_length = body.length;
    assert_true(nghttp2_submit_request(scene->talk.client, NULL, fields, array_length(fields),
                                       &provider, NULL) > 0);
    say(scene);
}

/* Until the call waits for the core. */
static void detach(struct scene *scene)
{
    Crust__Drive__V1__DetachDriveRequest request = CRUST__DRIVE__V1__DETACH_DRIVE_REQUEST__INIT;

    request.drive_id = proto_borrow_text("data-1");
    call(scene, "/crust.drive.v1.Drives/DetachDrive", &request.base);
    while (!drives.wait)
        loop_run_once(&scene->loop);
}

/* More than is gathered at a time, and more than the socket takes at once: all of it comes. */
static void a_long_reply_comes_whole_to_a_slow_reader(void **state)
{
    const Crust__Drive__V1__ListDrivesRequest request = CRUST__DRIVE__V1__LIST_DRIVES_REQUEST__INIT;
    struct scene *scene = *state;
    ProtobufCMessage *reply = NULL;
    unsigned pieces = 0;
    int few = 1;

    drives.count = 2000;
    assert_int_equal(setsockopt(scene->client, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few)), 0);
    call(scene, "/crust.drive.v1.Drives/ListDrives", &request.base);
    while (scene->talk.ended == 0) {
        loop_run_once(&scene->loop);
        pieces += hear(scene);
        say(scene);
    }
    assert_true(pieces > 100);
    assert_int_equal(proto_unpack(&crust__drive__v1__list_drives_response__descriptor,
                                  scene->talk.body.data + PREFIX_BYTES,
                                  scene->talk.body.length - PREFIX_BYTES, &reply),
                     0);
    assert_int_equal(((Crust__Drive__V1__ListDrivesResponse *)(void *)reply)->n_drives, 2000);
    (void)proto_free(reply);
}

static void pending_output_is_written_at_shutdown(void **state)
{
    struct scene *scene = *state;

    detach(scene);
    drives_end(STATUS_OK, "");
    scene->server = grpc_server_free(scene->server);
    assert_true(hear(scene) > 0);
    assert_non_null(strstr(buffer_text(&scene->talk.fields), "grpc-status=0"));
    assert_int_equal(scene->talk.ended, 1);
}

static void a_client_that_is_gone_waits_for_nothing(void **state)
{
    struct scene *scene = *state;

    detach(scene);
    fd_close(scene->client);
    scene->client = -1;
    while (drives.cancelled == 0)
        loop_run_once(&scene->loop);
    assert_int_equal(scene->operations.first->code, STATUS_CANCELLED);
}

#define SCENE(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(a_long_reply_comes_whole_to_a_slow_reader),
        SCENE(pending_output_is_written_at_shutdown),
        SCENE(a_client_that_is_gone_waits_for_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
